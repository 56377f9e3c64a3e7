# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the optimal factorization of prefix sums costs, to a relative gap of 1e-6.

  dpfl-benchmark --rows=factorization

The plain fixed point, the baseline, is solved once: it takes minutes. The accelerated
one is the median of the repeats; its peak memory is a row too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Optional

from dpfl import factorization

from .. import factorizations
from .harness import Row


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark.

    Attributes:
      rounds: T.
      repeats: Repeats of the accelerated solution.
    """

    rounds: int = 2048
    repeats: int = 3


FULL = Settings()
QUICK = Settings(rounds=64)


def optimal(settings: Settings) -> list[Row]:
    """Measures plain and accelerated, each solution in a process of its own."""
    workload = factorization.prefix_sum(settings.rounds)
    plain = factorizations.measure(workload, accelerated=False, repeats=1)
    fast = factorizations.measure(workload, repeats=settings.repeats)
    name = f"factorization T={settings.rounds}"
    baseline = f"{name}, plain"
    return [
        _row(baseline, plain, None, plain),
        _row(f"{name}, accelerated", fast, baseline, plain),
        {"name": f"{name}, memory", "bytes": fast.peak_bytes},
    ]


def _row(
    name: str,
    cost: factorizations.Cost,
    baseline: Optional[str],
    other: factorizations.Cost,
) -> Row:
    return {
        "name": name,
        "seconds_median": cost.seconds,
        "baseline": baseline,
        "ratio": cost.seconds / other.seconds if baseline else None,
        "description": f"{cost.iterations} iterations",
    }


ROWS: dict[str, Callable[[Settings], list[Row]]] = {"factorization": optimal}
