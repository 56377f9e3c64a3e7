# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The place at which a condition ends, by bisection.

    low, high = bisected(lambda x: x * x < 2, 0.0, 2.0)

Both ends are returned, so that a bound can take the safe one.
"""

from __future__ import annotations

from collections.abc import Callable


def bisected(
    is_low: Callable[[float], bool],
    low: float,
    high: float,
    *,
    rtol: float = 0.0,
    steps: int = 2000,
) -> tuple[float, float]:
    """The last place where a condition was found to hold, and the first where not.

    Args:
      is_low: The condition, which holds at `low` and not at `high`.
      low: A lower bound, returned if the condition holds nowhere above it.
      high: An upper bound, returned if the condition holds everywhere below it.
      rtol: Relative distance of the results; 0 for neighbouring floats.
      steps: The most evaluations.
    """
    for _ in range(steps):
        middle = 0.5 * (low + high)
        if high - low <= rtol * high or not low < middle < high:
            break
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return low, high
