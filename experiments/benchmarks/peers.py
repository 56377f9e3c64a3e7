# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds of federated averaging by dpfl, TFF's own loop, pfl or FedJAX.

  python peers.py '{"peer": "pfl", "model": "cnn", "cohort": 50, ...}'

It prints a line of JSON, which `measured` describes. It is a file of its own, since pfl
and FedJAX run in interpreters without dpfl: packages that those lack are imported only
when used.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

BATCH, CLIENT_RATE, SERVER_RATE = 20, 0.1, 1.0
CLASSES, TOKENS, LENGTH, WIDTH, UNITS = 62, 10_004, 20, 96, 670


class RoundWork(NamedTuple):
    """The clients of a round, the examples of each, and the timed rounds.

    `warm_up` is the number of clients of the warm-up, which traces, compiles and fills
    buffers. dpfl does it with each of `mechanisms`, names of `jax_rounds.mechanisms`.
    The clients are distributed over `processes`.
    """

    model: str
    cohort: int
    examples: int
    rounds: int
    warm_up: int
    mechanisms: Sequence[str] = ("none",)
    processes: int = 1


class PeerLoop(NamedTuple):
    """A training loop.

    Attributes:
      round: Function that trains with the first so many clients, for one local epoch.
      weights: The arrays of the model as the last round left it.
      examples: Examples of one client as the loop has them.
      processor_seconds: Processor time so far of all processes involved.
      others: Function of other seconds, by a name of each.
    """

    round: Callable[[int], None]
    weights: Callable[[], list[Any]]
    examples: int
    processor_seconds: Callable[[], float]
    others: Callable[[], dict[str, float]] = dict


def _examples(work: RoundWork) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Synthetic examples of one client after the other, as those of dpfl's task."""
    rng, count = np.random.default_rng(0), work.examples
    for _ in range(work.cohort):
        if work.model == "lstm":
            words = rng.integers(1, TOKENS - 3, (count, LENGTH + 1), np.int32)
            yield words[:, :-1], words[:, 1:]
        else:
            x = rng.random((count, 28, 28, 1), np.float32)
            yield x, rng.integers(0, CLASSES, count, np.int32)


def _of_tff(work: RoundWork, is_ours: bool = False) -> PeerLoop:
    """The loop of dpfl's process, or of TFF's own with its faster dataset loop."""
    import tensorflow_federated as tff

    from dpfl.engines.tff import local_worker

    from . import harness, jax_rounds, rounds

    task = jax_rounds.round_task(work.model, work.cohort, work.examples)
    # The worker ends with this process.
    worker = local_worker.start(groups=is_ours)
    tff.framework.set_default_context(worker.context())
    if is_ours:
        process = rounds.training_process(task, jax_rounds.mechanism(work))
    else:
        process = rounds.tff_process(task, iterator=True)
    state = process.initialize()

    def round_(clients: int) -> None:
        nonlocal state
        state = process.next(state, list(range(clients))).state

    def weights() -> list[Any]:
        if is_ours:
            return process.weights(state)
        return list(process.get_model_weights(state).trainable)

    examples = sum(len(y) for _, y in task.dataset_from_index(0, 0))
    return PeerLoop(round_, weights, examples, harness.cpu_seconds)


def _of_jax(work: RoundWork) -> PeerLoop:
    """The loop of dpfl's engine of JAX."""
    from . import jax_rounds

    return PeerLoop(*jax_rounds.loop(work))


def _of_pfl(work: RoundWork) -> PeerLoop:
    """The loop of pfl's simulation, in PyTorch if it is installed, else TensorFlow."""
    has_torch = importlib.util.find_spec("torch") is not None
    model, every, weights, wait = (_pfl_torch if has_torch else _pfl_keras)(work)
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams

    sampler = get_user_sampler("minimize_reuse", list(range(work.cohort)))
    data = FederatedDataset(every.__getitem__, sampler)
    backend, algorithm = SimulatedBackend(data, data), FederatedAveraging()
    local = NNTrainHyperParams(
        local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=CLIENT_RATE
    )
    done = 0

    def round_(clients: int) -> None:
        nonlocal done
        done += 1
        # An algorithm continues from its state. It evaluates in its first round only.
        params = NNAlgorithmParams(
            central_num_iterations=done,
            evaluation_frequency=10**9,
            train_cohort_size=clients,
            val_cohort_size=0,
        )
        algorithm.run(params, backend, model, local, send_metrics_to_platform=False)
        wait()

    return PeerLoop(round_, weights, len(every[0]), time.process_time)


# A model of pfl, its data sets by client, the function of its weights, and one that
# returns once the device is done.
_PflParts = tuple[Any, list[Any], Callable[[], list[Any]], Callable[[], None]]


def _pfl_keras(work: RoundWork) -> _PflParts:
    """dpfl's network in Keras.

    pfl identifies variables by their names, which are not distinct in Keras 3: it would
    add up only the last of a network's layers.
    """
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    from pfl.model.tensorflow import TFModel  # First: it says which framework it is.

    # isort: split
    from pfl.data.tensorflow import TFTensorDataset

    keras = keras_model(work)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    keras.compile(optimizer=tf.keras.optimizers.SGD(CLIENT_RATE), loss=loss)
    model = TFModel(keras, {}, tf.keras.optimizers.SGD(SERVER_RATE))
    every = [TFTensorDataset(*map(tf.constant, pair)) for pair in _examples(work)]

    def weights() -> list[Any]:
        return [variable.numpy() for variable in keras.trainable_variables]

    return model, every, weights, lambda: None


def _pfl_torch(work: RoundWork) -> _PflParts:
    """dpfl's network in PyTorch, on the card where there is one."""
    import torch
    from pfl.model.pytorch import PyTorchModel  # First: it says which framework it is.

    # isort: split
    from pfl.data.pytorch import PyTorchTensorDataset
    from torch import nn

    is_recurrent = work.model == "lstm"

    class Hidden(nn.Module):
        """An LSTM's outputs, with one bias of the two that PyTorch has."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(WIDTH, UNITS, batch_first=True)
            self.lstm.bias_hh_l0.requires_grad_(False).zero_()

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0]

    class Net(nn.Sequential):
        """Layers with a loss, as pfl asks for it."""

        def loss(self, x: Any, y: Any, eval: bool = False) -> Any:
            self.train(not eval)
            logits = self(x)
            return nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), y.reshape(-1)
            )

        def metrics(self, x: Any, y: Any) -> dict[str, Any]:
            return {}

    if is_recurrent:
        net = Net(
            *(nn.Embedding(TOKENS, WIDTH), Hidden()),
            *(nn.Linear(UNITS, WIDTH), nn.Linear(WIDTH, TOKENS)),
        )
    else:
        net = Net(
            *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(7744, 128), nn.ReLU(), nn.Linear(128, CLASSES)),
        )
    is_there = torch.cuda.is_available()
    device = torch.device("cuda" if is_there else "cpu")
    net.to(device)
    learned = [part for part in net.parameters() if part.requires_grad]
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(learned, SERVER_RATE),
    )
    every = []
    for x, y in _examples(work):
        x = x if is_recurrent else x.transpose(0, 3, 1, 2)
        pair = (torch.tensor(part, device=device) for part in (x, y.astype(np.int64)))
        every.append(PyTorchTensorDataset(tuple(pair)))

    def weights() -> list[Any]:
        return [part.detach().cpu().numpy() for part in learned]

    wait = torch.cuda.synchronize if is_there else lambda: None
    return model, every, weights, wait


def keras_model(work: RoundWork) -> Any:
    """The network of dpfl's task without dropout, in Keras."""
    import tensorflow as tf

    keras = tf.keras.layers
    if work.model == "lstm":
        layers = [
            keras.Input([LENGTH], dtype=np.int32),
            keras.Embedding(TOKENS, WIDTH),
            keras.LSTM(UNITS, return_sequences=True, unroll=True),
            *(keras.Dense(WIDTH), keras.Dense(TOKENS)),
        ]
    else:
        layers = [
            keras.Input([28, 28, 1]),
            keras.Conv2D(32, 3, activation="relu"),
            keras.MaxPool2D(),
            *(keras.Conv2D(64, 3, activation="relu"), keras.Flatten()),
            *(keras.Dense(128, activation="relu"), keras.Dense(CLASSES)),
        ]
    return tf.keras.Sequential(layers)


def _of_fedjax(work: RoundWork) -> PeerLoop:
    """The loop of FedJAX's federated averaging, with the same network in Haiku.

    FedJAX asks for names that JAX no longer has.
    """
    import jax

    jax.tree_map = jax.tree_util.tree_map
    import fedjax
    import haiku as hk

    def network(batch: Any) -> Any:
        if work.model == "lstm":
            words = hk.Embed(TOKENS, WIDTH)(batch["x"].T)
            cell = hk.LSTM(UNITS)
            first = cell.initial_state(words.shape[1])
            hidden, _ = hk.static_unroll(cell, words, first)
            logits = hk.Linear(TOKENS)(hk.Linear(WIDTH)(hidden))
            return logits.swapaxes(0, 1)
        layers = (
            *(hk.Conv2D(32, 3, padding="VALID"), jax.nn.relu),
            hk.MaxPool((2, 2, 1), (2, 2, 1), "VALID"),
            *(hk.Conv2D(64, 3, padding="VALID"), jax.nn.relu, hk.Flatten()),
            *(hk.Linear(128), jax.nn.relu, hk.Linear(CLASSES)),
        )
        return hk.Sequential(layers)(batch["x"])

    def loss(batch: Any, logits: Any) -> Any:
        losses = fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)
        return losses.reshape(len(losses), -1).mean(1)

    every = [fedjax.ClientDataset({"x": x, "y": y}) for x, y in _examples(work)]
    sample = every[0].all_examples()
    model = fedjax.create_model_from_haiku(hk.transform(network), sample, loss)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(CLIENT_RATE),
        fedjax.optimizers.sgd(SERVER_RATE),
        fedjax.ShuffleRepeatBatchHParams(BATCH, skip_shuffle=True),
    )
    key = jax.random.PRNGKey(0)
    clients = list(zip(range(work.cohort), every, jax.random.split(key, work.cohort)))
    state = algorithm.init(model.init(key))

    def round_(count: int) -> None:
        nonlocal state
        state, _ = algorithm.apply(state, clients[:count])
        jax.block_until_ready(state.params)

    def weights() -> list[Any]:
        return jax.tree_util.tree_leaves(state.params)

    return PeerLoop(round_, weights, len(every[0]), time.process_time)


LOOPS: dict[str, Callable[[RoundWork], PeerLoop]] = {
    "dpfl": lambda work: _of_tff(work, is_ours=True),
    "dpfl_jax": _of_jax,
    "tff": _of_tff,
    "pfl": _of_pfl,
    "fedjax": _of_fedjax,
}
Measured = dict[str, dict[str, float]]


def measured(
    peer: str, work: RoundWork, wait: Callable[[], Any] = lambda: None
) -> Measured:
    """The median seconds of a round, and facts that prove the work was done.

    Parameters are counted in the arrays that the first round has changed.

    Args:
      peer: A key of `LOOPS`.
      work: The work.
      wait: Called before and at the end of each timed round.

    Returns:
      Seconds and amounts by name, by the name of a mechanism; and of more measurements
      by their names.
    """
    loops, results = {}, {}
    for name in work.mechanisms:
        loop = LOOPS[peer](work._replace(mechanisms=[name]))
        before = [np.array(array) for array in loop.weights()]
        begin = time.perf_counter()
        loop.round(work.warm_up)
        first = time.perf_counter() - begin
        pairs = zip(before, loop.weights())
        moved = sum(a.size for a, b in pairs if np.any(a != np.asarray(b)))
        facts = {"parameters": moved, "examples": work.cohort * loop.examples}
        results[name], loops[name] = {**facts, "first_seconds": first}, loop
    taken: dict[str, list[list[float]]] = {name: [] for name in loops}
    for _ in range(work.rounds):
        for name, loop in loops.items():
            clocks = (time.perf_counter, loop.processor_seconds)
            wait()
            start = [read() for read in clocks]
            loop.round(work.cohort)
            wait()
            taken[name].append([read() - s for read, s in zip(clocks, start)])
    for name, loop in loops.items():
        medians = map(statistics.median, zip(*taken[name]))
        results[name].update(zip(("seconds", "processor_seconds"), medians))
        for other, seconds in loop.others().items():
            results[other] = {"seconds": seconds}
    return results


def _in_processes(peer: str, work: RoundWork) -> Measured:
    """The seconds of a round whose clients are distributed over processes.

    All begin a round together, and it is over when the last of them is done. Nothing
    adds up their sums.
    """
    count = work.processes
    threads = str(max(1, len(os.sched_getaffinity(0)) // count))
    os.environ.update(OMP_NUM_THREADS=threads, TF_NUM_INTRAOP_THREADS=threads)
    context = multiprocessing.get_context("spawn")
    own = []
    for i in range(count):
        cohort, warm_up = ((n + i) // count for n in (work.cohort, work.warm_up))
        own.append((peer, work._replace(cohort=cohort, warm_up=warm_up)))
    with context.Pool(count, _share, (context.Barrier(count),)) as pool:
        parts = pool.map(_part, own, chunksize=1)
    [name] = work.mechanisms
    each = [part[name] for part in parts]
    sums = ("processor_seconds", "examples")
    return {
        name: {
            key: sum(one[key] for one in each) if key in sums else value
            for key, value in each[0].items()
        }
    }


def _share(barrier: Any) -> None:
    global _barrier
    _barrier = barrier
    # pfl takes processes of other names for those that load data.
    multiprocessing.current_process().name = "MainProcess"


def _part(given: tuple[str, RoundWork]) -> Measured:
    return measured(*given, _barrier.wait)


_barrier: Any = None


def main(argv: Sequence[str]) -> None:
    """Prints the measurements of one peer."""
    given = json.loads(argv[1])
    peer, work = given.pop("peer"), RoundWork(**given)
    run: Callable[[str, RoundWork], Measured] = measured
    if work.processes > 1:
        run = _in_processes
    print(json.dumps(run(peer, work)))


if __name__ == "__main__":
    main(sys.argv)
