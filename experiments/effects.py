# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Effects with confidence intervals: what one choice changes, over seeds and budgets.

Runs of one cell have the same settings and different seeds. An effect is the mean
difference of cells from the cells that they are compared with, each pair weighing the
same. Runs of one seed start from the same parameters and choose the same clients, so
that seeds are blocks: the interval is that of the two-way analysis of variance, with
cells and seeds. Two cells with the same seeds have the paired t, and cells that share
no seed the one of two samples. It holds for runs whose accuracies are normal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy import stats

# Names of cells, and the values of their runs by seed.
Cell = TypeVar("Cell", bound=Hashable)
Runs = Mapping[Any, float]
# With fewer degrees of freedom the variance is that of the whole figure.
_ENOUGH = 5


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


def by_seed(runs: Iterable[tuple[Cell, Hashable, float]]) -> dict[Cell, Runs]:
    """The values of cells, from the cell, the seed and the value of each run.

    Raises:
      ValueError: If two runs of a cell have the same seed.
    """
    cells: dict[Cell, dict[Hashable, float]] = {}
    for cell, seed, value in runs:
        if seed in cells.setdefault(cell, {}):
            raise ValueError(f"runs of {cell} must differ in seed, found {seed} twice")
        cells[cell][seed] = value
    return {**cells}


def effect(
    cells: Mapping[Cell, Runs],
    pairs: Sequence[tuple[Cell, Cell]],
    level: float = 0.95,
) -> Effect:
    """The mean over pairs of the first cell's mean less the second's.

    The variance is that of the cells that are compared. If they leave fewer than five
    degrees of freedom it is that of all cells.

    Args:
      cells: Values by cell and seed, of the whole figure.
      pairs: Names of cells that are compared. One that is in several pairs, such as a
        baseline for several choices, counts with its whole weight.
      level: The probability that the interval holds the true effect.

    Raises:
      ValueError: If there are no pairs, or if no cell has two values.
    """
    if not pairs:
        raise ValueError("pairs must name cells to compare, found none")
    weights = dict.fromkeys((cell for pair in pairs for cell in pair), 0.0)
    for first, second in pairs:
        weights[first] += 1 / len(pairs)
        weights[second] -= 1 / len(pairs)
    means = {cell: float(np.mean([*cells[cell].values()])) for cell in weights}
    size = sum(weight * means[cell] for cell, weight in weights.items())
    variance, freedom = _variance({cell: cells[cell] for cell in weights}, weights)
    if freedom < _ENOUGH:
        variance, freedom = _variance(cells, weights)
    if freedom < 1:
        raise ValueError("cells must have two seeds somewhere, found one in each")
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(variance)
    return Effect(size, size - half, size + half)


def _variance(
    cells: Mapping[Cell, Runs], weights: Mapping[Cell, float]
) -> tuple[float, float]:
    """Of a weighted sum of means, and its degrees of freedom, which may be 0.

    Values are a cell's mean, what all runs of a seed share, and an error. Mean squares
    of errors and of seeds estimate the variances of the latter two (Henderson's method
    3), and Satterthwaite's are the degrees of freedom where both are needed.
    """
    runs = [(cell, seed) for cell, values in cells.items() for seed in values]
    values = np.array([cells[cell][seed] for cell, seed in runs])
    cell_of, seed_of = (_indicators(names) for names in zip(*runs))
    share = np.array([weights.get(cell, 0) / len(cells[cell]) for cell, _ in runs])
    own = float(share @ share)
    squares, freedom = _residual(cell_of, values)
    rest, left = _residual(np.hstack([cell_of, seed_of]), values)
    if left < 1:
        return own * squares / max(freedom, 1), freedom
    error, between = rest / left, (squares - rest) / (freedom - left)
    # An error's variance enters the mean square of seeds once, and theirs so often.
    per_seed = float(np.sum((share @ seed_of) ** 2)) * (freedom - left) / freedom
    if between <= error or per_seed <= 1e-12 * own:
        return own * error, left
    parts = (own - per_seed) * error, per_seed * between
    variance = sum(parts)
    spread = parts[0] ** 2 / left + parts[1] ** 2 / (freedom - left)
    return variance, variance**2 / spread


def _indicators(names: Sequence[Hashable]) -> np.ndarray:
    """A column for each name, with a one where it stands."""
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.eye(len(places))[[places[name] for name in names]]


def _residual(columns: np.ndarray, values: np.ndarray) -> tuple[float, int]:
    """The sum of squares that columns do not explain, and its degrees of freedom."""
    fitted, _, rank, _ = np.linalg.lstsq(columns, values, rcond=None)
    return float(np.sum((values - columns @ fitted) ** 2)), len(values) - int(rank)
