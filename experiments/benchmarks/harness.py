# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Functions timed in turns, aggregations to be timed, and rows about both.

Compared functions take turns within one run, so that what else the machine does weighs
on all of them alike; a row's ratio is the median of the ratios to its baseline, turn by
turn. Clients' vectors are made in TFF's worker, since feeding them in costs far more
than aggregating them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np
import psutil

Row = dict[str, Any]
# Of a row that `compare` returns.
KEYS = (
    "name",
    "seconds_median",
    "cpu_seconds_median",
    "repeats",
    "baseline",
    "ratio",
    "cpu_ratio",
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of a group that aggregates vectors.

    Attributes:
      dimension: Length of a client's vector.
      clients: Number of clients in an aggregation.
      repeats: Turns that each compared function gets.
    """

    dimension: int = 1_000_000
    clients: int = 100
    repeats: int = 9


def compare(
    functions: Mapping[str, Callable[[], Any]],
    baseline: str,
    repeats: int,
    warm_ups: int = 1,
) -> list[Row]:
    """Times functions in turns.

    Args:
      functions: Name to function.
      baseline: Name of the one that the others are compared with.
      repeats: Number of turns.
      warm_ups: Calls of each before the first turn, which do not count.

    Returns:
      A row per function, with `KEYS`; cpu_ratio is None where the clock saw nothing.
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
    is_seen = all(cpu[baseline])
    return [
        {
            "name": name,
            "seconds_median": float(np.median(taken)),
            "cpu_seconds_median": float(np.median(cpu[name])),
            "repeats": repeats,
            "baseline": baseline,
            "ratio": float(np.median(np.divide(taken, seconds[baseline]))),
            "cpu_ratio": (
                float(np.median(np.divide(cpu[name], cpu[baseline])))
                if is_seen
                else None
            ),
        }
        for name, taken in seconds.items()
    ]


def cpu_seconds() -> float:
    """Returns the processor time so far of this process and of its workers.

    Programs that it waited for count too. Others on the machine disturb it less than
    they do the clock on the wall.
    """
    own = psutil.Process()
    times = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    ended = own.cpu_times()
    return sum(each.user + each.system for each in times) + (
        ended.children_user + ended.children_system
    )


def vectors_alone(dimension: int, clients: int) -> Callable[[], Any]:
    """Returns a function that makes a vector for each client and adds one number."""
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
    """Returns a function that aggregates one vector of each client in TFF's worker.

    Args:
      factory: Of tff.aggregators, for unweighted values.
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

    latest = [process.initialize()]

    def run() -> None:
        state = latest[0] if feed is None else feed(latest[0])
        after, _ = one_round(state, [scale] * clients)
        if keep_state:
            latest[0] = after

    return run


def _make_and_first(dimension: int) -> tuple[Any, Any]:
    """Returns TFF computations: a number to a vector, and a vector to its first."""
    import tensorflow as tf
    import tensorflow_federated as tff

    @tff.tensorflow.computation(np.float32)
    def make(scale: Any) -> Any:
        return tf.fill([dimension], scale)

    value_type = tff.TensorType(np.float32, [dimension])
    return make, tff.tensorflow.computation(lambda vector: vector[0], value_type)
