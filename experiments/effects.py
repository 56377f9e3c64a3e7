# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Effects of one choice over seeds and budgets, with confidence intervals.

Runs of one cell have the same settings and different seeds. Runs of one seed start from
the same parameters, and select the same clients if they use the same rule. So an effect
is computed in each seed, as the mean difference of cells from the cells that they are
compared with, and its interval is Student's over the seeds (a paired t). Nothing is
assumed about the variance of cells, or the correlation of budgets. Two cells that share
no seed are independent samples, and have Welch's interval.

    cells = by_seed((run.mechanism, run.seed, run.accuracy) for run in runs)
    effect(cells, [("dome", "gaussian")]).is_above(0)   # "yes", "no" or "not decided"
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy import special

# A cell's name, and the values of its runs by seed.
Cell = TypeVar("Cell", bound=Hashable)
Runs = Mapping[Any, float]


@dataclasses.dataclass(frozen=True)
class Effect:
    """A difference and its confidence interval, in the units of the metric.

    Attributes:
      size: The mean of the differences of the cells' means.
      low: Lower end of the interval.
      high: Upper end of the interval.
      seeds: Number of seeds; for independent samples the smaller number.
      error: Standard error of the size.
      degrees: Degrees of freedom of the standard error.
    """

    size: float
    low: float
    high: float
    seeds: int = 0
    error: float = math.inf
    degrees: float = 1.0

    def times(self, scale: float) -> Effect:
        """The effect in other units, scaled by a positive factor."""
        own = (self.size, self.low, self.high, self.error)
        size, low, high, error = (scale * each for each in own)
        return Effect(size, low, high, self.seeds, error, self.degrees)

    def p_value(self, limit: float) -> float:
        """The two-sided p-value of the hypothesis that the true effect is the limit."""
        distance = abs(self.size - limit) / self.error
        return 2 * float(special.stdtr(self.degrees, -distance))

    def is_above(self, limit: float) -> str:
        """Whether the true effect is shown to be above a limit, set beforehand.

        Returns:
          "yes" if the interval is above, "no" if it is below, else "not decided".
        """
        if self.low > limit:
            return "yes"
        return "no" if self.high < limit else "not decided"


def by_seed(runs: Iterable[tuple[Cell, Hashable, float]]) -> dict[Cell, Runs]:
    """Groups the values of runs, given as (cell, seed, value), by cell and seed.

    Raises:
      ValueError: If two runs of a cell have the same seed.
    """
    cells: dict[Cell, dict[Hashable, float]] = {}
    for cell, seed, value in runs:
        if seed in cells.setdefault(cell, {}):
            raise ValueError(f"runs of {cell} must differ in seed, found {seed} twice")
        cells[cell][seed] = value
    return dict(cells)


def effect(
    cells: Mapping[Cell, Runs],
    pairs: Sequence[tuple[Cell, Cell]],
    level: float = 0.95,
) -> Effect:
    """The mean over pairs of the first cell's mean minus the second's.

    Only seeds that all of the cells have count. A single run, or runs that do not
    differ at all, say nothing about the variance, so that the interval is infinite.

    Args:
      cells: Values by cell and seed.
      pairs: Names of the compared cells. A cell in several pairs, such as a common
        baseline, counts with its whole weight.
      level: The probability that the interval contains the true effect.

    Raises:
      ValueError: If there are no pairs, if a value is not finite, or if more than two
        cells have no seed in common.
    """
    if not pairs:
        raise ValueError("pairs must name cells to compare, found none")
    weights = dict.fromkeys((cell for pair in pairs for cell in pair), 0.0)
    for first, second in pairs:
        weights[first] += 1 / len(pairs)
        weights[second] -= 1 / len(pairs)
    samples = _samples([cells[cell] for cell in weights], [*weights.values()])
    size = sum(float(np.mean(sample)) for sample in samples)
    seeds = min(map(len, samples))
    if seeds < 2 or not any(np.ptp(sample) for sample in samples):
        return Effect(size, -math.inf, math.inf, seeds)
    parts = [float(np.var(sample, ddof=1)) / len(sample) for sample in samples]
    variance = sum(parts)
    spread = sum(v * v / (len(x) - 1) for v, x in zip(parts, samples))
    degrees, error = variance**2 / spread, math.sqrt(variance)
    # Student's quantile.
    half = float(special.stdtrit(degrees, (1 + level) / 2)) * error
    return Effect(size, size - half, size + half, seeds, error, degrees)


def holm(p_values: Mapping[Cell, float], level: float = 0.05) -> set[Cell]:
    """Names of the hypotheses that Holm's method rejects; one is wrong at `level`.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.
    """
    rejected: set[Cell] = set()
    for name in sorted(p_values, key=lambda name: p_values[name]):
        if p_values[name] > level / (len(p_values) - len(rejected)):
            break
        rejected.add(name)
    return rejected


def mean(runs: Runs, level: float = 0.95) -> Effect:
    """The mean of a cell's runs, with its interval over seeds as of `effect`."""
    zero = dict.fromkeys(runs, 0.0)
    return effect({"runs": runs, "zero": zero}, [("runs", "zero")], level)


def _samples(runs: Sequence[Runs], weights: Sequence[float]) -> list[np.ndarray]:
    """Independent samples whose means add up to the weighted sum of the cells'."""
    for value in (value for own in runs for value in own.values()):
        if not math.isfinite(value):
            raise ValueError(f"values must be finite, found {value}")
    common = [seed for seed in runs[0] if all(seed in own for own in runs)]
    if common:
        matrix = np.array([[own[seed] for own in runs] for seed in common])
        # Rounded, so that values equal in each seed remain equal.
        return [np.round(matrix @ np.array(weights), 12)]
    if len(runs) > 2:
        raise ValueError(f"{len(runs)} cells must have seeds in common, found none")
    return [weight * np.array([*own.values()]) for weight, own in zip(weights, runs)]
