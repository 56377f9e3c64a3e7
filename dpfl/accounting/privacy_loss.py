# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy loss distributions of (Poisson-sampled) Gaussians, composed on a grid.

    remove, add = sampled_gaussian(q=0.01, z=1.0, step=1e-4)
    composed([(remove, 1000)], delta=1e-6).epsilon(1e-6)

With P the release with a client and Q the one without, a loss is log(dP/dQ). The masses
of P and of Q between two points of the grid are moved to the two points so that both
masses are kept. The hockey-stick, a convex function of e^epsilon, is then replaced by
its chords, which lie above it (Doroshenko et al. 2022, 'Connect the Dots: Tighter
Discrete Approximations of Privacy Loss Distributions'). Mass above the grid has an
infinite loss. dp_accounting's distributions are the same, but come from loops over
scalars; here each step is one of arrays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

import attr
import numpy as np
from scipy import fft, special

# Standard deviations of a release beyond which losses are infinite, a mass of 1e-21.
_REACH = 9.5
# The mass of a sum outside of the computed window, at most: over delta, and of the
# tilted sum.
_TAIL = 1e-9
# Exponents of Chernoff's bound on that mass, times the length of the grid.
_EXPONENTS = np.geomspace(0.003, 100.0, 32)
# Rounding error of the FFT in each place, for each release, over the mean of its
# spectrum.
_FFT_ROUNDING = 4e-15
MOST = 2**23
"""The most losses of a composition."""

# Allowance for the rounding of float64 in a cell: 1e-16 over the grid's step, and more.
_ROUNDING = 1e-10
# Losses from which exp overflows; a cell's whole mass is at its upper end there.
_LARGEST_EXPONENT = 700.0


class TooManyLossesError(ValueError):
    """Composition with too many losses for its grid; a coarser one is needed."""


@attr.s(frozen=True, auto_attribs=True, eq=False)
class LossDistribution:
    """A distribution of losses that are whole multiples of a step.

    Attributes:
      step: The grid's step, above 0.
      low: The smallest loss is `low * step`.
      masses: Probabilities of `low`, `low + 1`, ...; float64 [n].
      infinite: Probability of an infinite loss.
    """

    step: float
    low: int
    masses: np.ndarray
    infinite: float

    def worse(self, chance: float, top: float = math.inf) -> LossDistribution:
        """The distribution with more mass at infinity.

        Args:
          chance: Mass that is added at infinity.
          top: All losses above it become infinite.
        """
        above = self.step * (self.low + np.arange(self.masses.size)) > top
        infinite = self.infinite + chance + float(np.sum(self.masses[above]))
        masses = np.where(above, 0.0, self.masses)
        return attr.evolve(self, masses=masses, infinite=infinite)

    def of_one(self) -> LossDistribution:
        """The distribution with an allowance for rounding, and a total mass of 1.

        The excess over 1 is taken from the smallest losses. The hockey-stick is a
        convex function of e^epsilon that is 1 at 0, so that it is below the chord from
        there to the smallest remaining loss; from that loss on nothing changes.
        """
        masses = self.masses * (1 + _ROUNDING)
        infinite = self.infinite * (1 + _ROUNDING)
        # Summed from the largest on, since the smallest may be much above 1 together.
        above = infinite + np.cumsum(masses[::-1])[::-1]
        return attr.evolve(
            self,
            masses=np.clip(1 - (above - masses), 0, masses),
            infinite=infinite + max(1 - float(above[0]), 0.0),
        )

    def epsilon(self, delta: float) -> float:
        """The least epsilon of at least 0 at a delta, rounded up; maybe infinite."""
        goal = delta * (1 - _ROUNDING)
        # Upper sums of the masses; those of mass * exp(-loss) are relative to `top`,
        # the first loss above which there is less than delta.
        above = self.infinite + np.cumsum(self.masses[::-1])[::-1]
        if self.infinite > goal:
            return math.inf
        grid = self.step * (self.low + np.arange(self.masses.size))
        top = grid[np.searchsorted(-above, -goal) - 1] if above[0] > goal else grid[0]
        first = np.searchsorted(grid, max(0.0, top - _LARGEST_EXPONENT / 2))
        if first == grid.size:
            # All losses are below 0.
            return 0.0
        grid, above = grid[first:], above[first:]
        scaled = self.masses[first:] * np.exp(
            -np.minimum(grid - top, _LARGEST_EXPONENT)
        )
        scaled = np.cumsum(scaled[::-1])[::-1]
        with np.errstate(over="ignore"):
            deltas = above - scaled * np.exp(np.minimum(grid - top, _LARGEST_EXPONENT))
        place = int(np.searchsorted(-deltas, -goal))
        if place == grid.size:
            return float(grid[-1])
        if above[place] <= goal or scaled[place] == 0:
            return max(0.0, float(grid[max(place - 1, 0)]))
        root = top + math.log((above[place] - goal) / scaled[place])
        return max(0.0, min(root, float(grid[place])))

    def profile(self) -> Callable[[np.ndarray], np.ndarray]:
        """Maps epsilons of at least 0 to their deltas, rounded up; float64 [m]."""
        first = max(0, 1 - self.low)
        masses = self.masses[first:]
        grid = self.step * (self.low + first + np.arange(masses.size))
        # Upper sums of the masses and of mass * exp(-loss), and 0 above the grid.
        sums = np.zeros((2, masses.size + 1))
        sums[0, :-1] = np.cumsum(masses[::-1])[::-1]
        with np.errstate(under="ignore"):
            sums[1, :-1] = np.cumsum((masses * np.exp(-grid))[::-1])[::-1]

        def deltas(epsilons: np.ndarray) -> np.ndarray:
            above, scaled = sums[:, np.searchsorted(grid, epsilons, side="right")]
            growth = np.exp(np.minimum(epsilons, _LARGEST_EXPONENT))
            finite = np.maximum(above - growth * scaled, 0.0)
            return np.minimum((self.infinite + finite) * (1 + _ROUNDING), 1.0)

        return deltas


def normal_masses(edges: np.ndarray) -> np.ndarray:
    """The standard normal's masses between rising edges, by the smaller tails."""
    low, high = edges[:-1], edges[1:]
    below = special.ndtr(high) - special.ndtr(low)
    return np.where(low > 0, special.ndtr(-low) - special.ndtr(-high), below)


@functools.lru_cache(maxsize=64)
def sampled_gaussian(
    q: float, z: float, step: float
) -> tuple[LossDistribution, LossDistribution]:
    """The losses of removing and of adding a client, rounded up.

    Args:
      q: The probability with which the client joins, in (0, 1].
      z: Noise std over L2 sensitivity, above 0.
      step: The grid's step, above 0.
    """
    m = 1 / z
    rest = math.log1p(-q) if q < 1 else -math.inf

    def loss_at(x: float) -> float:
        return float(np.logaddexp(rest, math.log(q) + m * x - 0.5 * m * m))

    low = math.floor(loss_at(-_REACH if q < 1 else m - _REACH) / step)
    grid = step * np.arange(low, math.ceil(loss_at(m + _REACH) / step) + 1)
    above = np.maximum(-np.expm1(np.minimum(rest - grid, 0)), 0)
    with np.errstate(divide="ignore"):
        places = (grid + np.log(above) - math.log(q)) / m + 0.5 * m
    edges = np.concatenate([[-np.inf], places, [np.inf]])
    without, joined = normal_masses(edges), normal_masses(edges - m)
    remove, add = on_grid((1 - q) * without + q * joined, without, grid, step)
    # Losses below -700 leave nothing of `add` in float64, where everybody joins.
    return (remove, remove) if q == 1 else (remove, add)


def on_grid(
    given: np.ndarray, without: np.ndarray, grid: np.ndarray, step: float
) -> tuple[LossDistribution, LossDistribution]:
    """The losses of P against Q and of Q against P, from masses between rising losses.

    Args:
      given: Masses of P below the grid, in its cells and above it; float64 [m + 1].
      without: Those of Q.
      grid: Multiples of the step; float64 [m].
      step: The grid's step.
    """
    low = round(grid[0] / step)
    a, b = given[1:-1], without[1:-1]
    growth = np.exp(np.minimum(grid, _LARGEST_EXPONENT))
    upper = np.clip((a - b * growth[:-1]) / -math.expm1(-step), 0, a)
    upper = np.where(grid[:-1] < _LARGEST_EXPONENT, upper, a)
    masses = np.append(given[0], upper)
    masses[:-1] += a - upper
    remove = LossDistribution(step, low, masses, float(given[-1]))
    # The same atoms, seen from Q: a loss l of P's mass p is -l of the mass p e^-l.
    with np.errstate(all="ignore"):
        masses = np.append((a - upper) / growth[:-1], without[-1])
        masses[1:] += upper / growth[1:]
    add = LossDistribution(
        step, -(low + grid.size - 1), masses[::-1].copy(), float(without[0])
    )
    return remove, add


@functools.lru_cache(maxsize=64)
def fixed_size_gaussian(
    q: float, z: float, step: float
) -> tuple[LossDistribution, LossDistribution]:
    """The losses of zeros in place of a client's vector, in cohorts of a fixed size.

    Another client is drawn in place of one that is not. The worst that it can send is
    the opposite vector where the loss is above 0, seen from the law with the client,
    and the same vector where it is below 0 (docs/privacy/fixed_size.md).

    Args:
      q: The share of clients that are in a cohort, in (0, 1).
      z: Noise std over L2 sensitivity, above 0.
      step: The grid's step, above 0.

    Returns:
      The losses of removing the client's contributions and of adding them.
    """
    same_remove, same_add = sampled_gaussian(q, z, step)
    # (1-q) N(-m, 1) + q N(m, 1) against (1-q) N(-m, 1) + q N(0, 1), above m / 2.
    m, rest, share = 1 / z, math.log1p(-q), math.log(q)
    farthest = m + _REACH
    top = np.logaddexp(rest, share + 2 * m * farthest) - np.logaddexp(
        rest, share + m * farthest + 0.5 * m * m
    )
    grid = step * np.arange(math.ceil(top / step) + 1)
    # exp(m x - m^2/2) = y solves the equation y^2 - e^l y = e^(-m^2) (e^l - 1) (1-q)/q.
    with np.errstate(divide="ignore"):
        odds = np.exp(rest - share - m * m - grid + np.log(-np.expm1(-grid)))
    more = 2 * odds / (1 + np.sqrt(1 + 4 * odds))
    places = (grid + np.log1p(more)) / m + 0.5 * m
    edges = np.concatenate([[-np.inf], places, [np.inf]])
    drawn = (1 - q) * normal_masses(edges + m)
    remove, add = on_grid(
        drawn + q * normal_masses(edges - m),
        drawn + q * normal_masses(edges),
        grid,
        step,
    )
    return _joined(same_add, remove), _joined(add, same_remove)


def _joined(below: LossDistribution, above: LossDistribution) -> LossDistribution:
    """The losses below 0 of one distribution, those above 0 of another, and 0."""
    negative = below.masses[: max(0, -below.low)]
    positive = above.masses[max(0, 1 - above.low) :]
    rest = 1 - np.sum(positive) - np.sum(negative) - above.infinite
    masses = np.concatenate([negative, [max(rest, 0.0)], positive])
    return LossDistribution(above.step, -negative.size, masses, above.infinite)


@functools.lru_cache(maxsize=64)
def _log_moments(part: LossDistribution, longest: int) -> np.ndarray:
    """log E exp(+-s place) at s = `_EXPONENTS` / longest, place from 0; [2, 32]."""
    s = np.stack([_EXPONENTS, -_EXPONENTS])[..., None] / longest
    # Arranged in rows, whose places have a factor each and one in common, so that the
    # square root of the number of exponentials is enough.
    row = math.isqrt(part.masses.size) + 1
    rows = np.resize(np.append(part.masses, np.zeros(row * row)), (row, row))
    terms = s * row * np.arange(row)
    top = np.max(terms, axis=-1)
    with np.errstate(under="ignore"):
        within = np.exp(s * np.arange(row)) @ rows.T
        return np.log(np.sum(np.exp(terms - top[..., None]) * within, axis=-1)) + top


def composed(
    parts: Iterable[tuple[LossDistribution, int]], delta: float
) -> LossDistribution:
    """Composition of independent parts' losses, by their counts, on one grid.

    Masses are tilted by exp(s place) before the FFT and back afterwards, with about
    half of the exponent s of Chernoff's bound at `delta`: the rounding of float64 is
    then small beside masses near the epsilon of that delta, and as much is added to
    each.

    Args:
      parts: Distributions on grids of the same step, and how often each occurs.
      delta: The delta at which the result is the most accurate.

    Raises:
      TooManyLossesError: there would be more than `MOST` of them.
    """
    given = list(parts)
    count = sum(n for _, n in given)
    longest = max(part.masses.size for part, _ in given)
    moments = np.sum([n * _log_moments(part, longest) for part, n in given], axis=0)
    exponents = _EXPONENTS / longest
    tail = _TAIL * delta
    # About half of the best exponent: with all of it the tilted sum has long tails.
    best = max(0, int(np.argmin((moments[0] - math.log(delta)) / exponents)) - 2)
    tilt = exponents[best]
    # Chernoff's bounds on the mass outside of a window, and above it on that of the
    # tilted sum too.
    lower = np.min((moments[1] - math.log(tail / 2)) / exponents)
    upper = np.min((moments[0] - math.log(tail / 2)) / exponents)
    more = slice(best + 1, None)
    grown = moments[0, more] - moments[0, best] - math.log(_TAIL)
    high = sum(n * (part.masses.size - 1) for part, n in given)
    if grown.size:
        tilted_upper = np.min(grown / (exponents[more] - tilt))
        high = min(high, math.ceil(max(upper, tilted_upper)))
    low = max(0, math.floor(-lower))
    if high - low >= MOST:
        raise TooManyLossesError(
            f"the composition has {high - low} privacy losses, more than {MOST}"
        )
    size = fft.next_fast_len(max(high - low + 1, longest), real=True)
    product = np.ones(size // 2 + 1, np.complex128)
    for part, n in given:
        place = np.arange(part.masses.size)
        tilted = part.masses * np.exp(
            tilt * place - _log_moments(part, longest)[0, best]
        )
        product *= fft.rfft(tilted, size) ** n
    rounding = _FFT_ROUNDING * count * float(np.mean(np.abs(product)))
    # Mass from outside wraps around into the window: mass from above counts as infinite
    # as well, and mass from below has moved up.
    masses = np.roll(fft.irfft(product, size), -low)[: high - low + 1]
    back = moments[0, best] - tilt * (low + np.arange(masses.size))
    masses = (np.maximum(masses, 0) + rounding) * np.exp(np.minimum(back, 600.0))
    finite = sum(n * math.log1p(-part.infinite) for part, n in given)
    return LossDistribution(
        step=given[0][0].step,
        low=sum(n * part.low for part, n in given) + low,
        masses=np.minimum(masses, 1.0),
        infinite=tail - math.expm1(finite),
    )
