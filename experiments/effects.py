# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Effects of one choice over seeds and budgets, with confidence intervals.

Runs of one cell have the same settings and different seeds. Runs of one seed start from
the same parameters. So an effect is computed in each seed, as the mean difference of
cells from the cells that they are compared with, and its interval is Student's over the
seeds (a paired t). Nothing is assumed about the variance of cells, or the correlation
of budgets. Two cells that share no seed are independent samples, and have Welch's
interval.

    cells = by_seed((run.mechanism, run.seed, run.accuracy) for run in runs)
    effect(cells, [("dome", "gaussian")]).is_above(0)   # "yes", "no" or "not decided"

That interval holds for the clients whose examples were tested. `effect_over_clients` is
for those of their kind: clients differ at random too, and are the same in all seeds.
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
# Standard error below which runs do not differ at all.
_LEAST = 1e-12


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
    weights = _weights(pairs)
    samples = _samples([cells[cell] for cell in weights], [*weights.values()])
    size = sum(float(np.mean(sample)) for sample in samples)
    seeds = min(map(len, samples))
    if seeds < 2 or not any(np.ptp(sample) for sample in samples):
        return Effect(size, -math.inf, math.inf, seeds)
    parts = [float(np.var(sample, ddof=1)) / len(sample) for sample in samples]
    variance = sum(parts)
    spread = sum(v * v / (len(x) - 1) for v, x in zip(parts, samples))
    return _with_interval(size, seeds, variance, variance**2 / spread, level)


def effect_over_clients(
    cells: Mapping[Cell, Mapping[Any, np.ndarray]],
    examples: np.ndarray,
    pairs: Sequence[tuple[Cell, Cell]],
    level: float = 0.95,
) -> Effect:
    """The effect with an interval over seeds and clients, both of which vary.

    The effect is a ratio of sums, so that examples weigh alike. Its variance is that
    over seeds and that over clients, less the part that both have: what varies with
    seed and client together. It is never below that over seeds.

    Source: Cameron, Gelbach and Miller, "Robust Inference with Multiway Clustering",
    2011, with the residuals of both means for the part that both have, and the degrees
    of freedom of Satterthwaite, "An Approximate Distribution of Estimates of Variance
    Components", 1946.

    Args:
      cells: Sums of a metric over each client's examples, [clients], by cell and seed.
      examples: The number of each client's examples, above 0.
      pairs: As for `effect`.
      level: As for `effect`.

    Raises:
      ValueError: If there are no pairs, or the cells have no seed in common.
    """
    weights = _weights(pairs)
    own = [cells[cell] for cell in weights]
    gains = _common_sums(own, weights.values())
    if not len(gains):
        raise ValueError(f"{len(own)} cells must have seeds in common, found none")
    seeds, sizes = len(gains), np.asarray(examples, np.float64)
    whole = float(np.sum(sizes))
    size = float(np.sum(gains)) / (seeds * whole)
    # What is away from the effect, as shares of all examples.
    of_cells = (gains - size * sizes) / whole
    of_seeds, of_clients = of_cells.sum(1), of_cells.mean(0)
    of_both = of_cells - of_clients - np.outer(of_seeds, sizes / whole)
    free = seeds - 1, len(sizes) - 1
    if not all(free):
        return Effect(size, -math.inf, math.inf, seeds)
    clients = len(sizes) / free[1]
    by_seeds = float(np.sum(of_seeds**2)) / (free[0] * seeds)
    by_clients = float(np.sum(of_clients**2)) * clients
    by_both = float(np.sum(of_both**2)) * clients / (free[0] * seeds)
    variance = by_seeds + max(0.0, by_clients - by_both)
    if variance < _LEAST**2:
        return Effect(size, -math.inf, math.inf, seeds)
    spread = by_seeds**2 / free[0]
    if by_clients > by_both:
        spread += by_clients**2 / free[1] + by_both**2 / (free[0] * free[1])
    # A small difference of large parts has fewer degrees than the seeds alone.
    degrees = max(float(min(free)), variance**2 / spread)
    return _with_interval(size, seeds, variance, degrees, level)


def _with_interval(
    size: float, seeds: int, variance: float, degrees: float, level: float
) -> Effect:
    """An effect with Student's interval."""
    error = math.sqrt(variance)
    # Student's quantile.
    half = float(special.stdtrit(degrees, (1 + level) / 2)) * error
    return Effect(size, size - half, size + half, seeds, error, degrees)


def _weights(pairs: Sequence[tuple[Cell, Cell]]) -> dict[Cell, float]:
    """The weight of each cell in the mean over pairs of the first less the second."""
    if not pairs:
        raise ValueError("pairs must name cells to compare, found none")
    weights = dict.fromkeys((cell for pair in pairs for cell in pair), 0.0)
    for first, second in pairs:
        weights[first] += 1 / len(pairs)
        weights[second] -= 1 / len(pairs)
    return weights


def _common_sums(
    runs: Sequence[Mapping[Any, Any]], weights: Iterable[float]
) -> np.ndarray:
    """The weighted sum of the cells' values in each seed that all have."""
    common = [seed for seed in runs[0] if all(seed in own for own in runs)]
    values = np.array([[own[seed] for own in runs] for seed in common], np.float64)
    return np.moveaxis(values, 1, -1) @ np.array([*weights]) if common else values


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


def holm_in_order(
    families: Sequence[Sequence[float]], level: float = 0.05
) -> list[int]:
    """The number of p-values, from the first, that are rejected in each family.

    Within a family a hypothesis is tested only if all before it are rejected. Families
    that have hypotheses left share the level; with one hypothesis each this is Holm's
    method. One of all rejections is wrong at `level`.

    Source: Bretz, Maurer, Brannath and Posch, "A Graphical Approach to Sequentially
    Rejective Multiple Test Procedures", 2009.
    """
    rejected = [0 for _ in families]
    while True:
        left = [n for n, own in enumerate(families) if rejected[n] < len(own)]
        found = [n for n in left if families[n][rejected[n]] <= level / len(left)]
        if not found:
            return rejected
        for number in found:
            rejected[number] += 1


def mean(runs: Runs, level: float = 0.95) -> Effect:
    """The mean of a cell's runs, with its interval over seeds as of `effect`."""
    zero = dict.fromkeys(runs, 0.0)
    return effect({"runs": runs, "zero": zero}, [("runs", "zero")], level)


def _samples(runs: Sequence[Runs], weights: Sequence[float]) -> list[np.ndarray]:
    """Independent samples whose means add up to the weighted sum of the cells'."""
    for value in (value for own in runs for value in own.values()):
        if not math.isfinite(value):
            raise ValueError(f"values must be finite, found {value}")
    sums = _common_sums(runs, weights)
    if len(sums):
        # Rounded, so that values equal in each seed remain equal.
        return [np.round(sums, 12)]
    if len(runs) > 2:
        raise ValueError(f"{len(runs)} cells must have seeds in common, found none")
    return [weight * np.array([*own.values()]) for weight, own in zip(weights, runs)]
