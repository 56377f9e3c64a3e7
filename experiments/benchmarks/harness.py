# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Functions timed in turns, aggregations to be timed, and the groups of rows.

Compared functions take turns within one run, so that what else the machine does weighs
on all of them alike; a row's ratio is the median of the ratios to its baseline, turn by
turn. Clients' vectors are made in TFF's worker, since feeding them in costs far more
than aggregating them.
"""

from __future__ import annotations

import dataclasses
import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import numpy as np
import psutil

Row = dict[str, Any]
# Keys of a row that `compare` returns.
KEYS = (
    *("name", "seconds_median", "cpu_seconds_median", "repeats", "baseline", "ratio"),
    "cpu_ratio",
)
# Groups by the module that measures them: each has ROWS, from the name of a group to
# its function. They stand here so that names are checked before TensorFlow is imported.
GROUPS = {
    "programs": ("calibration", "factorization", "start_up", "long_run"),
    "vectors": (
        *("aggregation", "fourier", "rotations", "masks"),
        *("sketch_aggregation", "sketches", "integer_noise"),
        *("dome_rounds", "dome_updates"),
    ),
    "noise": (
        *("noise_draws", "noise_dense", "noise_recurrences", "noise_bands"),
        "noise_aggregators",
    ),
    "trainings": ("digits_rounds", "cohorts", "sizes", "workers", "dome_training"),
}
# Measured where no rows are asked for.
AGGREGATORS = ("aggregation", "fourier", "rotations", "masks")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What is measured; the default is the size at which dpfl's cost is judged."""

    # Of an aggregation: the length of a client's vector, and clients, some by DOME.
    dimension: int = 1_000_000
    clients: int = 100
    dome_clients: int = 50
    # Parameters of the model behind sketches and streams, numbers k of DOME's sketches,
    # and parameters of the model that trains with DOME, about.
    model: int = 1_018_174
    sketch_sizes: tuple[int, ...] = (16, 64, 256)
    large_model: int = 4_050_748
    # T of a matrix.
    matrix_rounds: int = 2048
    # Clients of a round of digits, and of a small, a usual and a large cohort.
    cohort: int = 50
    cohorts: tuple[int, ...] = (10, 100, 1000)
    # Of the task `synthetic`.
    models: tuple[str, ...] = ("small_cnn", "2nn", "cnn")
    # Rounds after which a worker's memory is looked at again.
    late_round: int = 60
    # Clients, bits and coordinates of calibrations, and where the bits are too few.
    messages: tuple[tuple[int, int, int], ...] = (
        *((100, 7, 2**20), (10_000, 13, 1_000_000)),
        *((100_000, 18, 1_000_000), (1_000_000, 22, 10_000_000)),
    )
    refused: tuple[tuple[int, int, int], ...] = ((100, 3, 2**20), (10_000, 12, 10_000))
    # Rounds of a long run in which nothing is computed, and of a long training.
    loop_rounds: int = 10_000
    training_rounds: int = 500
    # Of the program whose start is measured.
    train_flags: tuple[str, ...] = ()
    # Turns that each compared function gets.
    repeats: int = 9


QUICK = Sizes(
    dimension=1000,
    clients=3,
    # The highest rate of 16 rows divides it.
    model=3200,
    dome_clients=3,
    sketch_sizes=(4, 8),
    large_model=2000,
    matrix_rounds=64,
    cohort=2,
    cohorts=(2, 3),
    models=("small_cnn",),
    late_round=3,
    messages=((100, 7, 10_000),),
    refused=((100, 3, 10_000),),
    loop_rounds=200,
    training_rounds=20,
    train_flags=("--num_clients=10", "--cohort_size=2", "--epsilon=100"),
)


def names() -> list[str]:
    """The names of all groups."""
    return [name for groups in GROUPS.values() for name in groups]


def measure(group: str, repeats: int, quick: bool) -> list[Row]:
    """Measures a group of `names()`, all of it tiny if quick, in its own worker."""
    import tensorflow_federated as tff

    from dpfl.training import worker as worker_lib

    (name,) = (name for name, groups in GROUPS.items() if group in groups)
    rows = importlib.import_module(f".{name}", __package__).ROWS
    sizes = dataclasses.replace(QUICK if quick else Sizes(), repeats=repeats)
    # Clients of trainings are put into groups, as in `dpfl-train`; others have TFF's.
    with worker_lib.start(groups=name == "trainings") as worker:
        tff.framework.set_default_context(worker.context(secure_sums=True))
        return rows[group](sizes)


def compare(
    functions: Mapping[str, Callable[[], Any]],
    baseline: Union[str, Mapping[str, Optional[str]]],
    repeats: int,
    warm_ups: int = 1,
) -> list[Row]:
    """Times functions in turns; a row a function, with `KEYS`.

    A ratio is None where there is no baseline, or where the clock saw nothing of it.

    Args:
      functions: By name.
      baseline: Name of the one that the others are compared with, or that of each.
      repeats: Number of turns.
      warm_ups: Calls of each before the first turn, which do not count.
    """
    for function in functions.values():
        for _ in range(warm_ups):
            function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    cpu: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start, cpu_start = time.perf_counter(), cpu_seconds()
            function()
            seconds[name].append(time.perf_counter() - start)
            cpu[name].append(cpu_seconds() - cpu_start)

    def row(name: str) -> Row:
        other = baseline if isinstance(baseline, str) else baseline[name]

        def ratio(of: Mapping[str, list[float]]) -> Optional[float]:
            if other is None or not all(of.get(other, [0.0])):
                return None
            return float(np.median(np.divide(of[name], of[other])))

        medians = float(np.median(seconds[name])), float(np.median(cpu[name]))
        values = (name, *medians, repeats, other, ratio(seconds), ratio(cpu))
        return dict(zip(KEYS, values))

    return [row(name) for name in functions]


def cpu_seconds() -> float:
    """The processor time so far of this process and of its workers.

    Programs that it waited for count too. Others on the machine disturb it less than
    they do the clock on the wall.
    """
    own = psutil.Process()
    times = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    ended = own.cpu_times()
    return sum(each.user + each.system for each in times) + (
        ended.children_user + ended.children_system
    )


def largest_child() -> psutil.Process:
    """TFF's worker: the largest process that this one has started."""
    children = psutil.Process().children(recursive=True)
    return max(children, key=lambda each: int(each.memory_info().rss))


def memory_row(name: str, size: float, before: Optional[Row] = None) -> Row:
    """A row of bytes; its ratio is to the row before, if one is given."""
    row: Row = {"name": name, "bytes": size}
    if before is not None:
        row.update(baseline=before["name"], ratio=size / before["bytes"])
    return row


def vectors_alone(dimension: int, clients: int) -> Callable[[], Any]:
    """A function that makes a vector for each client and adds one number."""
    import tensorflow_federated as tff

    make, first = _make_and_first(dimension)

    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def one_round(scales: Any) -> Any:
        made = tff.federated_map(make, scales)
        return tff.federated_sum(tff.federated_map(first, made))

    return lambda: one_round([1.0] * clients)


def aggregation(
    factory: Any,
    dimension: int,
    clients: int,
    *,
    scale: float = 1.0,
    keep_state: bool = False,
    feed: Optional[Callable[[Any], Any]] = None,
) -> Callable[[], Any]:
    """A function that aggregates one vector of each client in TFF's worker.

    Args:
      factory: A factory of tff.aggregators, for unweighted values.
      dimension: Length of a vector.
      clients: Number of clients.
      scale: Every coordinate of a client's vector.
      keep_state: Whether a round takes the state that the round before gave, which
        goes to Python and back; else each is the first.
      feed: Called on the state before each round; None for nothing.
    """
    import tensorflow_federated as tff

    make, first = _make_and_first(dimension)
    process = factory.create(tff.TensorType(np.float32, [dimension]))

    @tff.federated_computation(
        process.initialize.type_signature.result,
        tff.FederatedType(np.float32, tff.CLIENTS),
    )
    def one_round(state: Any, scales: Any) -> Any:
        output = process.next(state, tff.federated_map(make, scales))
        # The result stays in the worker: only its first coordinate comes back.
        return output.state, tff.federated_map(first, output.result)

    latest = process.initialize()

    def run() -> None:
        nonlocal latest
        state = latest if feed is None else feed(latest)
        after, _ = one_round(state, [scale] * clients)
        if keep_state:
            latest = after

    return run


def _make_and_first(dimension: int) -> tuple[Any, Any]:
    """TFF computations: a number to a vector, and a vector to its first."""
    import tensorflow as tf
    import tensorflow_federated as tff

    @tff.tensorflow.computation(np.float32)
    def make(scale: Any) -> Any:
        return tf.fill([dimension], scale)

    value_type = tff.TensorType(np.float32, [dimension])
    return make, tff.tensorflow.computation(lambda vector: vector[0], value_type)
