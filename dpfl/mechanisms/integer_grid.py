# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The bits of a message's coordinates, and the grid of least error for them.

    grid = best_grid(
        cohort_size=100, bits=16, local_stddev=0.1, dimension=1024, spread=1024
    )
    wrapped = grid.wrap_probability(16)   # of a coordinate of the sum

Lengths are over the clip of the vector.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import optimize

from dpfl.fields import required
from dpfl.mechanisms import mechanism

# Bits of a coordinate of a message.
LEAST_BITS, MOST_BITS = 2, 30
# Finest grid: with more steps rounding is far below noise and clip. A step of 1/16 of a
# share adds less than 1e-3 to the variance of the noise, mostly far less, and makes for
# coordinates of few steps and for small tables.
_MOST_STEPS_OF_CLIP = 2.0**20
_MOST_STEPS_OF_NOISE = 16.0
# Range of half the modulus, in standard deviations of the sum.
_REACHES = (2.0, 12.0)
# Largest error by the clip of coordinates, over that by the noise.
_CLIPPING_PART = 1e-4
# A coordinate with a smaller standard deviation, in steps, is hardly ever above 1.
_SMALL_COORDINATE = 0.15


@dataclasses.dataclass(frozen=True)
class MessageBits(mechanism.NoiseMechanism):
    """The field `bits`, which has no default and must precede those with one."""

    bits: int = required(
        "Bits of a coordinate of a message, from 2 to 30; auto for the fewest with "
        "hardly more error than Gaussian noise.",
        auto=True,
        at_least=LEAST_BITS,
        at_most=MOST_BITS,
    )


# Of mechanisms with a field `bits`; see `Mechanism.gone_fields`.
FORMER_FIELDS: Mapping[str, Any] = {
    **{"rounding_bias": math.exp(-0.5), "wrap_probability": None},
    **{"integer_bound": "exact", "bits_tolerance": 1.02},
}


@dataclasses.dataclass(frozen=True)
class IntegerGrid:
    """The integers of a mechanism, all in units of the clip of the vector it rounds.

    Attributes:
      granularity: g, the grid step.
      local_stddev: sigma, one share of noise; 0 for none.
      sum_stddev: Largest standard deviation of a coordinate of the sum, in grid steps.
      max_coordinate: Clip of rotated coordinates before they are rounded.
    """

    granularity: float
    local_stddev: float
    sum_stddev: float
    max_coordinate: float

    @property
    def local_stddev_steps(self) -> float:
        """One share of noise in grid steps, sigma / g."""
        return self.local_stddev / self.granularity

    def wrap_probability(self, bits: int) -> float:
        """The probability that a coordinate of a Gaussian sum wraps modulo 2**bits."""
        return math.erfc(2.0 ** (bits - 1) / (math.sqrt(2) * self.sum_stddev))

    def clipped_part(self, stddev: float) -> float:
        """The part of a vector's squared norm that the clip of coordinates removes.

        `stddev` is that of a coordinate, over the clip of the vector.
        """
        if self.max_coordinate >= 1:
            return 0.0
        return clipping_error(self.max_coordinate / stddev)


def best_grid(
    *,
    cohort_size: int,
    bits: int,
    local_stddev: float,
    dimension: int,
    spread: int,
    one_step: bool = False,
) -> IntegerGrid:
    """The grid of b-bit integers with the least error at equal privacy.

    For sums of n equal vectors spread evenly over m coordinates, a coordinate of the
    sum has the variance
      S^2 = n^2/m + n sigma^2 + n g^2 E[f (1 - f)],
    f being the fractional part of a coordinate in steps; the last term, that of
    rounding, is at most g min{g/4, sqrt(2/(pi m))}. Of the error in a coordinate,
      n g^2 E[f (1 - f)] + 4^b g^2 P(|N(0, S^2)| > 2^b g / 2) + g^2
    depends on the grid: rounding; wraps, each of which is off by the modulus; and the
    additional noise for the privacy lost to rounding. (At order 2 that is a part of
    g^2/(2 n sigma^2), and at the orders that matter about twice that.)

    Rotated coordinates are clipped to the least bound that none of n vectors is
    expected to exceed, as for L2-CSGM: sqrt(2 ln(d n) / m). Where that is more than one
    step it is one step, for which more is proved, if clipping to it causes a negligible
    part of the error.

    Args:
      cohort_size: n.
      bits: b; the sum is modulo 2^b.
      local_stddev: sigma, one share of noise, over the clip.
      dimension: Length of the rounded vector.
      spread: m, the least number of coordinates over which the rotation spreads each
        one.
      one_step: Whether the step is at least the largest coordinate.
    """
    n, stddev = cohort_size, 1 / math.sqrt(spread)
    fixed = n**2 / spread + n * local_stddev**2
    tolerated = _CLIPPING_PART * (dimension * local_stddev**2 / n)
    largest = stddev * math.sqrt(2 * math.log(max(dimension * n, 2)))
    modulus = 2.0**bits

    def rounding(granularity: float) -> float:
        return n * granularity**2 * rounding_variance(stddev / granularity)

    def finest(deviations: float) -> float:
        # Half the modulus is so many standard deviations of the sum.
        reach = 2 * deviations / modulus
        # Rounding is at most g stddev sqrt(2/pi): the root is below that of the bound.
        linear = n * stddev * math.sqrt(2 / math.pi) * reach**2
        highest = (linear + math.sqrt(linear**2 + 4 * fixed * reach**2)) / 2
        return optimize.brentq(
            lambda g: g - reach * math.sqrt(fixed + rounding(g)),
            reach * math.sqrt(fixed),
            highest * (1 + 1e-9),
            xtol=1e-300,
            rtol=1e-12,
        )

    def error(log_granularity: float) -> float:
        granularity = math.exp(log_granularity)
        rounded = rounding(granularity)
        deviations = modulus * granularity / 2 / math.sqrt(fixed + rounded)
        wraps = (modulus * granularity) ** 2 * math.erfc(deviations / math.sqrt(2))
        return rounded + wraps + granularity**2

    ends = [math.log(finest(deviations)) for deviations in _REACHES]
    optimum = optimize.minimize_scalar(
        error, bounds=ends, method="bounded", options={"xatol": 1e-4}
    )
    granularity = max(
        math.exp(optimum.x),
        1 / _MOST_STEPS_OF_CLIP,
        local_stddev / _MOST_STEPS_OF_NOISE,
        stddev * _least_single_step(largest / stddev, tolerated) if one_step else 0.0,
    )
    if granularity < largest and clipping_error(granularity / stddev) <= tolerated:
        largest = granularity
    return IntegerGrid(
        granularity=granularity,
        local_stddev=local_stddev,
        sum_stddev=math.sqrt(fixed + rounding(granularity)) / granularity,
        max_coordinate=min(largest, 1.0),
    )


def _least_single_step(largest: float, tolerated: float) -> float:
    """The finest step to which `best_grid` clips coordinates, in deviations of one."""

    def excess(deviations: float) -> float:
        return clipping_error(deviations) - tolerated

    if excess(largest) >= 0:
        return largest
    if excess(0.0) <= 0:
        return 0.0
    root = optimize.brentq(excess, 0.0, largest, rtol=1e-9)
    return min(root * (1 + 1e-6), largest)


def clipping_error(deviations: float) -> float:
    """E[max(|x| - t, 0)^2] of a standard normal x, t being `deviations`."""
    t = deviations
    tail = math.erfc(t / math.sqrt(2))
    density = math.exp(-(t**2) / 2) * math.sqrt(2 / math.pi)
    return max((1 + t**2) * tail - t * density, 0.0)


def rounding_variance(stddev: float) -> float:
    """E[f (1 - f)], f the fractional part of a Gaussian variable of mean zero.

    From the Fourier series f (1 - f) = 1/6 - sum_k cos(2 pi k f) / (pi k)^2; for small
    Gaussians E[|x| - x^2].
    """
    if stddev < _SMALL_COORDINATE:
        return stddev * math.sqrt(2 / math.pi) - stddev**2
    k = np.arange(1, math.ceil(1.5 / stddev) + 2)
    waves = np.exp(-2 * np.square(np.pi * k * stddev)) / np.square(np.pi * k)
    return float(1 / 6 - np.sum(waves))
