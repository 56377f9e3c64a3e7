# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Whole rounds of federated averaging, as `dpfl-benchmark` says.

TensorFlow is imported when the rows are measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from .harness import Row, compare, memory_row

KEEP_FRACTION = 0.01


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is measured, with examples of a client."""

    clients: int = 50
    examples: int = 100
    batch_size: int = 20
    repeats: int = 7
    quick: bool = False


class Timed(NamedTuple):
    """A row of rounds, and the name of the one that it is compared with."""

    # Called once with the `Bench`; returns what is timed.
    build: Callable[[Bench], Callable[[], Any]]
    baseline: Optional[str]
    # One line for people.
    description: str
    # Whether its clients are groups, and not one by one as in TFF.
    grouped: bool = False


class Bench:
    """The model and data that the rows share."""

    def __init__(self, settings: Settings):
        from dpfl.tasks import load_task

        self.settings = settings
        task = load_task(
            "synthetic",
            model="2nn" if settings.quick else "cnn",
            num_clients=settings.clients,
            examples_per_client=settings.examples,
            batch_size=settings.batch_size,
            num_test_examples=1,
            shuffle_seed=None,
        )
        if not settings.quick:
            task = dataclasses.replace(task, model_builder=cnn_without_dropout)
        self.task = task
        self.clients = list(range(settings.clients))

    def mechanism(self, name: str) -> Any:
        """A mechanism with the settings in which its cost is judged."""
        from dpfl import mechanisms

        n = self.settings.clients
        if name == mechanisms.NoMechanism.name:
            return mechanisms.NoMechanism(n)
        if name == mechanisms.L2Csgm.name:
            return mechanisms.L2Csgm(n, 1.0, 1.0, KEEP_FRACTION)
        return mechanisms.Gaussian(n, 1.0, 1.0)


def cnn_without_dropout(seed: int) -> Any:
    """The network 3x3x32, pool, 3x3x64, dense 128, dense 62: 1,018,174 parameters."""
    import tensorflow as tf

    layers = tf.keras.layers
    kernels = [tf.keras.initializers.GlorotUniform(seed + i) for i in range(4)]
    return tf.keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu", kernel_initializer=kernels[0]),
            layers.MaxPool2D(),
            layers.Conv2D(64, 3, activation="relu", kernel_initializer=kernels[1]),
            layers.Flatten(),
            layers.Dense(128, activation="relu", kernel_initializer=kernels[2]),
            layers.Dense(62, kernel_initializer=kernels[3]),
        ]
    )


def steps_alone(
    task: Any, clients: int, local: Callable[[Any, Callable[[Any, Any], None]], None]
) -> Callable[[], Any]:
    """The local steps of clients of a task, and their mean, in one tf.function.

    Args:
      task: Whose model is trained.
      clients: How many; a loop over them is in the graph.
      local: Called with a client's number and a function that does one step, with the
        examples and labels of a batch.
    """
    import tensorflow as tf

    model, loss = task.build_keras_model(0), task.loss()
    variables = model.trainable_variables
    first = [tf.constant(v.numpy()) for v in variables]

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        for variable, gradient in zip(variables, tape.gradient(value, variables)):
            variable.assign_sub(0.1 * gradient)

    @tf.function
    def round_() -> Any:
        total = [tf.zeros_like(w) for w in first]
        for i in tf.range(clients):
            for variable, weight in zip(variables, first):
                variable.assign(weight)
            local(i, step)
            total = [t + w - v for t, w, v in zip(total, first, variables)]
        return [w - t / clients for t, w in zip(total, first)]

    return lambda: [w.numpy() for w in round_()]


def plain(bench: Bench) -> Callable[[], Any]:
    """The same steps in one tf.function with a while loop over the clients."""
    import tensorflow as tf

    settings, task = bench.settings, bench.task
    data = [
        next(iter(task.dataset_from_index(i).unbatch().batch(settings.examples)))
        for i in bench.clients
    ]
    x, y = (tf.stack(part) for part in zip(*data))

    def local(i: Any, step: Callable[[Any, Any], None]) -> None:
        for begin in range(0, settings.examples, settings.batch_size):
            end = min(begin + settings.batch_size, settings.examples)
            step(x[i, begin:end], y[i, begin:end])

    return steps_alone(task, settings.clients, local)


def _learning(task: Any, iterator: bool) -> Any:
    """TFF's process: of a Keras model as tutorials have it, or a functional one."""
    import tensorflow_federated as tff

    def keras_model() -> Any:
        return tff.learning.models.from_keras_model(
            task.build_keras_model(0),
            loss=task.loss(),
            input_spec=task.element_spec,
            metrics=task.metrics(),
        )

    options: dict[str, Any] = {"model_fn": keras_model}
    if iterator:
        loop = tff.learning.LoopImplementation.DATASET_ITERATOR
        options = {"model_fn": task.functional_model(0), "loop_implementation": loop}
    return tff.learning.algorithms.build_unweighted_fed_avg(
        **options, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1)
    )


def tff_learning(iterator: bool) -> Callable[[Bench], Callable[[], Any]]:
    """A round of TFF's process on data that TFF builds in the worker too."""

    def build(bench: Bench) -> Callable[[], Any]:
        import numpy as np
        import tensorflow_federated as tff

        @tff.tensorflow.computation(np.int64)
        def dataset(index: Any) -> Any:
            return bench.task.dataset_from_index(index, 0)

        process = tff.simulation.compose_dataset_computation_with_learning_process(
            dataset, _learning(bench.task, iterator)
        )
        state = process.initialize()
        return lambda: process.next(state, bench.clients)

    return build


def fed_averaging(task: Any, aggregator: Any, groups: int, **options: Any) -> Any:
    """TFF's computations of dpfl's process, for some number of groups."""
    from dpfl.training import federated_averaging, server_optimizers

    return federated_averaging.build_process(
        task,
        aggregator,
        client_lr=0.1,
        server_optimizer=server_optimizers.build_server_optimizer("sgd", 1.0),
        groups=groups,
        **options,
    )


def fed_process(task: Any, aggregator: Any, **options: Any) -> Any:
    """dpfl's process, as `dpfl-train` runs it."""
    from dpfl import machine
    from dpfl.training import federated_averaging

    fedavg = fed_averaging(task, aggregator, machine.processors(), **options)
    return federated_averaging.FedProcess(fedavg, lambda state: state)


def mean(bench: Bench) -> Callable[[], Any]:
    """A round of dpfl with TFF's own UnweightedMeanFactory, without groups."""
    import tensorflow_federated as tff

    factory = tff.aggregators.UnweightedMeanFactory()
    fed = fed_process(bench.task, factory, identity=None)
    state = fed.initialize()
    return lambda: fed.next(state, bench.clients)


def ours(name: str) -> Callable[[Bench], Callable[[], Any]]:
    """A round of dpfl with one of dpfl's mechanisms."""

    def build(bench: Bench) -> Callable[[], Any]:
        from dpfl import aggregators

        fed = fed_process(bench.task, aggregators.build(bench.mechanism(name), seed=1))
        state = fed.initialize()
        return lambda: fed.next(state, bench.clients)

    return build


def data_sent(bench: Bench) -> Callable[[], Any]:
    """TFF's iterator loop, with examples sent from Python in every round."""
    process = _learning(bench.task, iterator=True)
    state = process.initialize()
    data = [list(bench.task.dataset_from_index(i)) for i in bench.clients]
    return lambda: process.next(state, data)


TIMED: dict[str, Timed] = {
    "plain": Timed(plain, None, "the steps in one tf.function"),
    "tff_default": Timed(tff_learning(False), "plain", "TFF, Keras model, reduce loop"),
    "tff_iterator": Timed(
        tff_learning(True), "plain", "TFF, functional, iterator loop"
    ),
    "data_sent": Timed(data_sent, "tff_iterator", "as before, examples sent by Python"),
    "mean": Timed(mean, "plain", "dpfl's process, UnweightedMeanFactory"),
    "none": Timed(ours("none"), "plain", "dpfl's process, none", True),
    "gaussian": Timed(ours("gaussian"), "none", "dpfl's process, gaussian", True),
    "csgm": Timed(
        ours("l2_csgm"), "none", f"dpfl's process, l2_csgm, gamma={KEEP_FRACTION}", True
    ),
}
MEMORY = ("memory_python", "memory_worker")
NAMES = (*TIMED, *MEMORY)


def measure(names: Sequence[str], settings: Settings) -> list[Row]:
    """Times rounds, one of each row in turn."""
    from dpfl.training import worker as worker_lib

    with worker_lib.start() as one_by_one, worker_lib.start(groups=True) as worker:
        bench = Bench(settings)
        calls = {}
        for name in [name for name in names if name in TIMED]:
            chosen = worker if TIMED[name].grouped else one_by_one
            calls[name] = _on(chosen, TIMED[name].build(bench))
            # Now: Keras refuses models that are older than what TFF traces.
            calls[name]()
        baselines = {name: TIMED[name].baseline for name in calls}
        rows = compare(calls, baselines, settings.repeats, warm_ups=0)
        peaks = dict(zip(MEMORY, worker.peak_memory()))
    for row in rows:
        row["description"] = TIMED[row["name"]].description
    return rows + [memory_row(name, peaks[name]) for name in MEMORY if name in names]


def _on(worker: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    """A call that is made on a worker."""
    import tensorflow_federated as tff

    context = worker.context()

    def called() -> Any:
        tff.framework.set_default_context(context)
        return call()

    return called
