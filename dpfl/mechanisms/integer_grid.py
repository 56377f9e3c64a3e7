# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounding of clients: its options, and the grid for the bits of a message."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Optional

import numpy as np
from scipy import optimize, special

from dpfl import accounting
from dpfl.accounting.integer import noise_events
from dpfl.fields import option, required
from dpfl.mechanisms import mechanism

# Bits of a coordinate of a message.
LEAST_BITS, MOST_BITS = 2, 30
# Finest grid: with more steps rounding is far below noise and clip. A step of 1/16 of a
# share adds less than 1e-3 to the variance of the noise, mostly far less, and makes for
# coordinates of few steps and for small tables.
_MOST_STEPS_OF_CLIP = 2.0**20
_MOST_STEPS_OF_NOISE = 16.0
# The papers' grid, which their bound is reproduced with, is as fine as possible.
_MOST_PUBLISHED_STEPS_OF_NOISE = 4096.0
# Range of half the modulus, in standard deviations of the sum.
_REACHES = (2.0, 12.0)
# Wrap probability at 4 standard deviations, as in Kairouz et al. 2021.
PUBLISHED_WRAP_PROBABILITY = 6.33e-5
# Largest error by the clip of coordinates, over that by the noise.
_CLIPPING_PART = 1e-4
# A coordinate with a smaller standard deviation, in steps, is hardly ever above 1.
_SMALL_COORDINATE = 0.15


@dataclasses.dataclass(frozen=True)
class MessageBits(mechanism.NoiseMechanism):
    """The field `bits`, which has no default and must precede those with one."""

    bits: int = required(
        "Bits of a coordinate of a message, from 2 to 30; auto for the fewest that "
        "bits_tolerance allows.",
        auto=True,
        at_least=LEAST_BITS,
        at_most=MOST_BITS,
    )


@dataclasses.dataclass(frozen=True)
class RoundingFields:
    """Options of rounding vectors to integers, and of its accounting.

    Attributes:
      rounding_bias: beta of the conditional rounding that the published bound needs, in
        [0, 1); without effect otherwise.
      wrap_probability: The granularity is the finest at which a coordinate of the sum,
        taken to be Gaussian, wraps around with this probability; None is that of the
        least error, and 6.33e-5, 4 standard deviations, under the published bound.
      integer_bound: "exact" (every coordinate is rounded once, which is accounted for
        as noise) or "published" (the papers' bounds, with rounding that is repeated
        until a norm is met).
      bits_tolerance: See `choice`.
    """

    rounding_bias: float = option(
        noise_events.DEFAULT_ROUNDING_BIAS,
        "beta of the conditional rounding of the published bound, at least 0 and "
        "below 1.",
        at_least=0,
        below=1,
    )
    wrap_probability: Optional[float] = option(
        None,
        "Probability with which a coordinate of the sum may wrap around; unset for "
        "the one of least error.",
        above=0,
        below=1,
    )
    integer_bound: str = option(
        "exact",
        f"The accountant's bound, one of {', '.join(noise_events.BOUNDS)}.",
        choices=noise_events.BOUNDS,
    )

    bits_tolerance: float = option(
        1.02,
        "Largest error allowed for bits=auto, over Gaussian noise's at the same "
        "epsilon.",
        above=1,
    )

    @property
    def conditional_rounding(self) -> bool:
        """Whether rounding is repeated until a norm is met: for the published bound."""
        return self.integer_bound == "published"


@dataclasses.dataclass(frozen=True)
class IntegerGrid:
    """The integers of a mechanism, all in units of the clip of the vector it rounds.

    Attributes:
      granularity: g, the grid step.
      local_stddev: sigma, one share of noise; 0 for none.
      sum_stddev: Largest standard deviation of a coordinate of the sum, in grid steps.
      max_coordinate: Clip of rotated coordinates before they are rounded; None where
        rounding is conditional.
      max_size: Where rounding is conditional, the largest size of a rounded coordinate,
        in grid steps; 0 elsewhere.
      max_squared_norm: Where rounding is conditional, the largest squared norm of a
        rounded vector, in squared grid steps; 0 elsewhere.
    """

    granularity: float
    local_stddev: float
    sum_stddev: float
    max_coordinate: Optional[float] = None
    max_size: int = 0
    max_squared_norm: int = 0

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
        if self.max_coordinate is None or self.max_coordinate >= 1:
            return 0.0
        return clipping_error(self.max_coordinate / stddev)

    @property
    def conditional_rounding(self) -> bool:
        """Whether rounding is repeated until the integers are within the bounds."""
        return self.max_coordinate is None


@functools.lru_cache(maxsize=256)
def best_grid(
    *,
    cohort_size: int,
    bits: int,
    wrap_probability: Optional[float],
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

    Args:
      cohort_size: n.
      bits: b; the sum is modulo 2^b.
      wrap_probability: If given, the grid is the finest on which a coordinate of the
        sum wraps around with this probability.
      local_stddev: sigma, one share of noise, over the clip.
      dimension: Length of the rounded vector.
      spread: m, the least number of coordinates over which the rotation spreads each
        one.
      one_step: Whether the step is at least the largest coordinate.
    """
    n, stddev = cohort_size, 1 / math.sqrt(spread)
    fixed = n**2 / spread + n * local_stddev**2
    noise = dimension * local_stddev**2 / n
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

    if wrap_probability is None:
        ends = [math.log(finest(deviations)) for deviations in _REACHES]
        optimum = optimize.minimize_scalar(
            error, bounds=ends, method="bounded", options={"xatol": 1e-4}
        )
        granularity = math.exp(optimum.x)
    else:
        granularity = finest(_reach(wrap_probability))
    granularity = max(
        granularity,
        1 / _MOST_STEPS_OF_CLIP,
        local_stddev / _MOST_STEPS_OF_NOISE,
        _least_single_step(noise, n, dimension, stddev) if one_step else 0.0,
    )
    return IntegerGrid(
        granularity=granularity,
        local_stddev=local_stddev,
        sum_stddev=math.sqrt(fixed + rounding(granularity)) / granularity,
        max_coordinate=_coordinate_clip(granularity, noise, n, dimension, stddev),
    )


@functools.lru_cache(maxsize=256)
def published_grid(
    *,
    cohort_size: int,
    bits: int,
    wrap_probability: float,
    local_stddev: float,
    dimension: int,
    spread: int,
    rounding_bias: float,
) -> IntegerGrid:
    """The grid of Kairouz et al. 2021, section 4, for conditional rounding.

    With the largest variance of rounding, g^2/4 a client, in place of the actual one:
      2^b g = 2 k sqrt(n^2/m + (g^2/4 + sigma^2) n).

    Args:
      cohort_size: n.
      bits: b; the sum is modulo 2^b.
      wrap_probability: Probability with which a coordinate of the sum wraps around.
      local_stddev: sigma, one share of noise, over the clip.
      dimension: Length of the rounded vector.
      spread: m, the least number of coordinates over which the rotation spreads each
        one.
      rounding_bias: beta of conditional rounding.

    Raises:
      ValueError: If there is no such grid: the bits are too few for the cohort.
    """
    n = cohort_size
    reach = _reach(wrap_probability)
    room = 4.0**bits - n * reach**2
    if room <= 0:
        least = math.floor(math.log(n * reach**2, 4)) + 1
        raise ValueError(
            f"bits must be at least {least} for cohort_size {n}, since with fewer the "
            f"rounding errors alone would wrap around, found {bits}"
        )
    variance = n**2 / spread + n * local_stddev**2
    granularity = max(
        2 * reach * math.sqrt(variance / room),
        1 / _MOST_STEPS_OF_CLIP,
        local_stddev / _MOST_PUBLISHED_STEPS_OF_NOISE,
    )
    # The bounds on the integers are those that the event accounts for.
    bounds = accounting.DistributedDiscreteGaussianDpEvent(
        noise_clients=1,
        local_stddev=1.0,
        granularity=granularity,
        clip_norm=1.0,
        dimension=dimension,
        rounding_bias=rounding_bias,
        bound="published",
    )
    return IntegerGrid(
        granularity=granularity,
        local_stddev=local_stddev,
        sum_stddev=math.sqrt(variance / granularity**2 + n / 4),
        max_size=bounds.max_shift,
        max_squared_norm=bounds.shift_budget,
    )


def _reach(wrap_probability: float) -> float:
    """The number of standard deviations that a Gaussian exceeds with a probability."""
    return float(-special.ndtri(wrap_probability / 2))


def _coordinate_clip(
    granularity: float, noise: float, cohort_size: int, dimension: int, stddev: float
) -> float:
    """The bound of a rotated coordinate, over the clip of the vector.

    It is the least that no coordinate of n vectors is expected to exceed, as for
    L2-CSGM: stddev sqrt(2 ln(m n)). Where that is more than one step it is one step,
    for which more is proved, if clipping to it causes a negligible part of the error.
    All but n and m is over the clip, `noise` being the expected squared error of the
    mean by noise, and `stddev` the largest of a rotated coordinate.
    """
    largest = _largest_coordinate(cohort_size, dimension, stddev)
    if granularity < largest and (
        clipping_error(granularity / stddev) <= _CLIPPING_PART * noise
    ):
        largest = granularity
    return min(largest, 1.0)


def _largest_coordinate(cohort_size: int, dimension: int, stddev: float) -> float:
    return stddev * math.sqrt(2 * math.log(max(dimension * cohort_size, 2)))


def _least_single_step(
    noise: float, cohort_size: int, dimension: int, stddev: float
) -> float:
    """The finest step to which `_coordinate_clip` clips."""
    most = _largest_coordinate(cohort_size, dimension, stddev) / stddev

    def excess(deviations: float) -> float:
        return clipping_error(deviations) - _CLIPPING_PART * noise

    if excess(most) >= 0:
        return stddev * most
    if excess(0.0) <= 0:
        return 0.0
    root = optimize.brentq(excess, 0.0, most, rtol=1e-9)
    return stddev * min(root * (1 + 1e-6), most)


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
