# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Whole rounds of federated averaging: time, processor time and memory.

The round is the one by which dpfl's cost is judged: a convolutional network of
1,018,174 parameters without dropout, 50 clients of 100 examples, batches of 20, one
local epoch. `ratio` is that to the `baseline`, the median over turns;
`cpu_seconds_median` and `cpu_ratio` are the same for the processor time of both
processes, which others on the machine disturb less; memory rows are in bytes.
TensorFlow is imported when the rows are measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Optional

from .harness import Row, compare, memory_row

KEEP_FRACTION = 0.01


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
      clients: Clients of a round.
      examples: Examples of a client.
      batch_size: Examples of a batch.
      repeats: Timed repeats.
      quick: Whether everything is tiny.
    """

    clients: int = 50
    examples: int = 100
    batch_size: int = 20
    repeats: int = 7
    quick: bool = False


@dataclasses.dataclass(frozen=True)
class Timed:
    """A row of rounds.

    Attributes:
      build: Called once with the `Bench`; returns what is timed.
      baseline: Name of the row that it is compared with.
      description: One line for people.
      grouped: Whether its clients are groups, and not one by one as in TFF.
    """

    build: Callable[[Bench], Callable[[], Any]]
    baseline: Optional[str]
    description: str
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
        """Returns a mechanism with the settings in which its cost is judged."""
        from dpfl import mechanisms

        n = self.settings.clients
        if name == mechanisms.L2Csgm.name:
            return mechanisms.L2Csgm(n, 1.0, 1.0, KEEP_FRACTION)
        if name == mechanisms.NoMechanism.name:
            return mechanisms.NoMechanism(n)
        return mechanisms.Gaussian(n, 1.0, 1.0)


def cnn_without_dropout(seed: int) -> Any:
    """Returns 3x3x32, pool, 3x3x64, dense 128, dense 62: 1,018,174 parameters."""
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


def plain(bench: Bench) -> Callable[[], Any]:
    """Returns the same steps in one tf.function with a while loop over the clients."""
    import tensorflow as tf

    settings, task = bench.settings, bench.task
    model, loss = task.build_keras_model(0), task.loss()
    variables = model.trainable_variables
    first = [tf.constant(v.numpy()) for v in variables]
    data = [
        next(iter(task.dataset_from_index(i).unbatch().batch(settings.examples)))
        for i in bench.clients
    ]
    x, y = (tf.stack(part) for part in zip(*data))

    @tf.function
    def round_() -> Any:
        total = [tf.zeros_like(w) for w in first]
        for i in tf.range(settings.clients):
            for variable, weight in zip(variables, first):
                variable.assign(weight)
            for begin in range(0, settings.examples, settings.batch_size):
                end = min(begin + settings.batch_size, settings.examples)
                with tf.GradientTape() as tape:
                    value = loss(y[i, begin:end], model(x[i, begin:end]))
                for variable, gradient in zip(
                    variables, tape.gradient(value, variables)
                ):
                    variable.assign_sub(0.1 * gradient)
            total = [t + w - v for t, w, v in zip(total, first, variables)]
        return [w - t / settings.clients for t, w in zip(total, first)]

    return lambda: [w.numpy() for w in round_()]


def tff_learning(bench: Bench, **kwargs: Any) -> Callable[[], Any]:
    """Returns `build_unweighted_fed_avg` on data that TFF builds in the worker too."""
    import numpy as np
    import tensorflow_federated as tff

    task = bench.task
    learning = tff.learning.algorithms.build_unweighted_fed_avg(
        **kwargs, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1)
    )

    @tff.tensorflow.computation(np.int64)
    def dataset(index: Any) -> Any:
        return task.dataset_from_index(index, 0)

    process = tff.simulation.compose_dataset_computation_with_learning_process(
        dataset, learning
    )
    state = process.initialize()
    return lambda: process.next(state, bench.clients)


def tff_default(bench: Bench) -> Callable[[], Any]:
    """Returns TFF as its tutorials use it: Keras model, reduce loop."""
    import tensorflow_federated as tff

    task = bench.task

    def model_fn() -> Any:
        return tff.learning.models.from_keras_model(
            task.build_keras_model(0),
            loss=task.loss(),
            input_spec=task.element_spec,
            metrics=task.metrics(),
        )

    return tff_learning(bench, model_fn=model_fn)


def tff_iterator(bench: Bench) -> Callable[[], Any]:
    """Returns TFF's process for functional models, with its iterator loop."""
    import tensorflow_federated as tff

    return tff_learning(
        bench,
        model_fn=bench.task.functional_model(0),
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )


def fed_averaging(task: Any, aggregator: Any, groups: int, **options: Any) -> Any:
    """Returns TFF's computations of dpfl's process, for some number of groups."""
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
    """Returns dpfl's process, as `dpfl-train` runs it.

    Args:
      task: What is learned.
      aggregator: A factory.
      **options: Those of `federated_averaging.build_process`.
    """
    from dpfl import machine
    from dpfl.training import federated_averaging

    fedavg = fed_averaging(task, aggregator, machine.processors(), **options)
    return federated_averaging.FedProcess(fedavg, lambda state: state)


def mean(bench: Bench) -> Callable[[], Any]:
    """Returns a round of dpfl with TFF's own UnweightedMeanFactory, without groups."""
    import tensorflow_federated as tff

    factory = tff.aggregators.UnweightedMeanFactory()
    fed = fed_process(bench.task, factory, identity=None)
    state = fed.initialize()
    return lambda: fed.next(state, bench.clients)


def ours(name: str) -> Callable[[Bench], Callable[[], Any]]:
    """Returns a round of dpfl with one of dpfl's mechanisms."""

    def build(bench: Bench) -> Callable[[], Any]:
        from dpfl import aggregators

        fed = fed_process(bench.task, aggregators.build(bench.mechanism(name), seed=1))
        state = fed.initialize()
        return lambda: fed.next(state, bench.clients)

    return build


def data_sent(bench: Bench) -> Callable[[], Any]:
    """Returns TFF's iterator loop, with examples sent from Python in every round."""
    import tensorflow_federated as tff

    task = bench.task
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn=task.functional_model(0),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )
    state = process.initialize()
    data = [list(task.dataset_from_index(i)) for i in bench.clients]
    return lambda: process.next(state, data)


TIMED: dict[str, Timed] = {
    "plain": Timed(plain, None, "the steps in one tf.function"),
    "tff_default": Timed(tff_default, "plain", "TFF, Keras model, reduce loop"),
    "tff_iterator": Timed(tff_iterator, "plain", "TFF, functional, iterator loop"),
    "data_sent": Timed(data_sent, "tff_iterator", "as before, examples sent by Python"),
    "mean": Timed(mean, "plain", "dpfl's process, UnweightedMeanFactory"),
    "none": Timed(ours("none"), "plain", "dpfl's process, none", True),
    "gaussian": Timed(ours("gaussian"), "none", "dpfl's process, gaussian", True),
    "csgm": Timed(
        ours("l2_csgm"),
        "none",
        f"dpfl's process, l2_csgm, gamma={KEEP_FRACTION}",
        True,
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
    """Returns a call that is made on a worker."""
    import tensorflow_federated as tff

    context = worker.context()

    def called() -> Any:
        tff.framework.set_default_context(context)
        return call()

    return called
