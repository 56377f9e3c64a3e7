# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Effects with confidence intervals: what one choice changes, over seeds and budgets.

Runs of one cell have the same settings and different seeds. An effect is the mean
difference of cells from the cells that they are compared with, each pair weighing the
same. Its interval is Student's, with one variance for all cells, estimated from all of
them (two-sample t with pooled variance; analysis of variance, one way, where there are
more than two cells). It holds for runs that are independent of each other and normal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import stats

# Names of cells.
Cell = TypeVar("Cell", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Effect:
    """A difference and its interval, in the units of what was measured.

    Attributes:
      size: The mean of the differences of the cells' means.
      low: Lower end of the interval.
      high: Upper end of the interval.
    """

    size: float
    low: float
    high: float

    def times(self, scale: float) -> Effect:
        """The effect in other units: each number by a scale above 0."""
        return Effect(scale * self.size, scale * self.low, scale * self.high)

    def is_above(self, limit: float) -> str:
        """Whether the true effect is shown to be above a limit, said beforehand.

        Returns:
          Yes, if the interval is; no, if it is below; or not decided.
        """
        if self.low > limit:
            return "yes"
        return "no" if self.high < limit else "not decided"


def effect(
    cells: Mapping[Cell, Sequence[float]],
    pairs: Sequence[tuple[Cell, Cell]],
    level: float = 0.95,
) -> Effect:
    """The mean over pairs of the first cell's mean less the second's.

    Args:
      cells: Values by cell, one a seed; all of them estimate the variance.
      pairs: Names of cells that are compared. One that is in several pairs, such as a
        baseline for several choices, counts with its whole weight.
      level: The probability that the interval holds the true effect.

    Raises:
      ValueError: If there are no pairs, or if no cell has two values.
    """
    if not pairs:
        raise ValueError("pairs must name cells to compare, found none")
    freedom = sum(len(values) - 1 for values in cells.values())
    if freedom < 1:
        raise ValueError("cells must have two seeds somewhere, found one in each")
    squares = sum(float(np.var(v)) * len(v) for v in cells.values())
    weights = dict.fromkeys((cell for pair in pairs for cell in pair), 0.0)
    for first, second in pairs:
        weights[first] += 1 / len(pairs)
        weights[second] -= 1 / len(pairs)
    size = sum(w * float(np.mean(cells[cell])) for cell, w in weights.items())
    spread = sum(w * w / len(cells[cell]) for cell, w in weights.items())
    half = float(stats.t.ppf((1 + level) / 2, freedom))
    half *= math.sqrt(squares / freedom * spread)
    return Effect(size, size - half, size + half)
