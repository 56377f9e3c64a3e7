# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds of federated averaging by dpfl, TFF's own loop, pfl or FedJAX, in one process.

  python peers.py '{"peer": "pfl", "model": "cnn", "cohort": 50, ...}'

It prints a line of JSON. It is a file of its own, since pfl and FedJAX run in
interpreters without dpfl: packages that those lack are imported only when used.
"""

from __future__ import annotations

import json
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
    buffers.
    """

    model: str
    cohort: int
    examples: int
    rounds: int
    warm_up: int


class PeerLoop(NamedTuple):
    """A training loop.

    Attributes:
      round: Function that trains with the first so many clients, for one local epoch.
      weights: The arrays of the model as the last round left it.
      examples: Examples of one client as the loop has them.
      processor_seconds: Processor time so far of all processes involved.
    """

    round: Callable[[int], None]
    weights: Callable[[], list[Any]]
    examples: int
    processor_seconds: Callable[[], float]


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

    from dpfl import mechanisms
    from dpfl.engines.tff import local_worker

    from . import harness, rounds

    sizes = {"cohort": work.cohort, "examples": work.examples}
    task = rounds.round_task(harness.settings(False, 1, models=(work.model,), **sizes))
    # The worker ends with this process.
    worker = local_worker.start(groups=is_ours)
    tff.framework.set_default_context(worker.context())
    if is_ours:
        process = rounds.training_process(task, mechanisms.NoMechanism(work.cohort))
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


def _of_pfl(work: RoundWork) -> PeerLoop:
    """The loop of pfl's simulation, with dpfl's network in Keras.

    pfl identifies variables by their names, which are not distinct in Keras 3: it would
    add up only the last of a network's layers.
    """
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    from pfl.model.tensorflow import TFModel  # First: it says which framework it is.

    # isort: split
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.data.tensorflow import TFTensorDataset
    from pfl.hyperparam import NNTrainHyperParams

    keras = keras_model(work)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    keras.compile(optimizer=tf.keras.optimizers.SGD(CLIENT_RATE), loss=loss)
    model = TFModel(keras, {}, tf.keras.optimizers.SGD(SERVER_RATE))
    every = [TFTensorDataset(*map(tf.constant, pair)) for pair in _examples(work)]
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

    def weights() -> list[Any]:
        return [variable.numpy() for variable in keras.trainable_variables]

    return PeerLoop(round_, weights, len(every[0]), time.process_time)


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
    """The loop of FedJAX's federated averaging, with the same network in Haiku."""
    import fedjax
    import haiku as hk
    import jax

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
    "tff": _of_tff,
    "pfl": _of_pfl,
    "fedjax": _of_fedjax,
}


def measured(peer: str, work: RoundWork) -> dict[str, float]:
    """The median seconds of a round, and facts that prove the work was done.

    Parameters are counted in the arrays that the first round has changed.
    """
    loop = LOOPS[peer](work)
    before = [np.array(array) for array in loop.weights()]
    loop.round(work.warm_up)
    pairs = zip(before, loop.weights())
    moved = sum(a.size for a, b in pairs if np.any(a != np.asarray(b)))
    clocks = (time.perf_counter, loop.processor_seconds)
    taken = []
    for _ in range(work.rounds):
        begin = [read() for read in clocks]
        loop.round(work.cohort)
        taken.append([read() - start for read, start in zip(clocks, begin)])
    seconds = map(statistics.median, zip(*taken))
    times = dict(zip(("seconds", "processor_seconds"), seconds))
    return {**times, "parameters": moved, "examples": work.cohort * loop.examples}


def main(argv: Sequence[str]) -> None:
    """Prints the measurement of one peer."""
    given = json.loads(argv[1])
    print(json.dumps(measured(given.pop("peer"), RoundWork(**given))))


if __name__ == "__main__":
    main(sys.argv)
