# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The bound on discrete Gaussian noise that its papers print, to compare with.

Clients of the papers repeat their rounding until the norm is within

  Delta^2 = min{ c^2 + g^2 m/4 + sqrt(2 ln(1/beta)) g (c + g sqrt(m)/2),
                 (c + g sqrt(m))^2 },   beta = exp(-1/2)

(Kairouz et al. 2021, Proposition 26; Chen et al. 2022, Theorem E.1, with its misprints
corrected). For a sum of n shares N_Z(0, (sigma/g)^2) in grid steps g, in m dimensions,

  tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 (sigma^2/g^2) k/(k+1))
  eps = min{ sqrt(Delta^2/(n sigma^2) + tau m/2),
             Delta/(sqrt(n) sigma) + tau sqrt(m) }

and the sum is eps^2/2-concentrated: RDP(alpha) = alpha eps^2 / 2. dpfl's clients round
once, which `dpfl.accounting.integer` accounts for as noise.
"""

from __future__ import annotations

import dataclasses
import math

import attr
import numpy as np

from dpfl import mechanisms
from dpfl.accounting import events
from dpfl.mechanisms.integer_grid import IntegerGrid

# The least sigma/g that Kairouz et al. 2021, Proposition 14, covers.
_LEAST_STDDEV = 0.5
# The most steps that a share of noise has, and the clip: the papers' grid is as fine
# as possible.
_MOST_STEPS_OF_NOISE, _MOST_STEPS_OF_CLIP = 4096.0, 2.0**20
# Half the modulus in standard deviations of the sum: a coordinate wraps with a
# probability of 6.33e-5, as in Kairouz et al. 2021.
_REACH = 4.000158772646806


def rounded_l2_squared(c: float, g: float, m: int) -> float:
    """Delta^2, the largest squared norm of a rounded vector of norm c.

    Coordinates are at most c, rounded up.

    Args:
      c: Norm of the vector before it is rounded.
      g: Width of the grid.
      m: Number of coordinates.
    """
    usually = c**2 + g**2 * m / 4 + g * (c + g * math.sqrt(m) / 2)
    longest = min(usually, (c + g * math.sqrt(m)) ** 2) / g**2
    return min(longest, float(m * math.ceil(c / g) ** 2)) * g**2


def tau(shares: int, stddev: float) -> float:
    """tau of so many shares, of `stddev` grid steps each."""
    k = np.arange(1, shares, dtype=np.float64)
    return 10 * float(np.sum(np.exp(-2 * np.pi**2 * stddev**2 * k / (k + 1))))


def epsilon(
    l2_squared: float, dimension: int, shares: int, stddev: float, granularity: float
) -> float:
    """eps, with RDP(alpha) = alpha eps^2 / 2 at every order.

    Args:
      l2_squared: Delta^2, squared L2 sensitivity after rounding.
      dimension: m, number of coordinates that carry noise.
      shares: n, the number of noise shares in the sum.
      stddev: sigma, one client's noise, in the units of Delta.
      granularity: g, the grid step, in the units of Delta.

    Raises:
      NoiseTooSmallError: the noise is less than half a grid step, which the bound does
        not cover where there are several shares.
    """
    if shares > 1 and stddev / granularity < _LEAST_STDDEV:
        raise events.NoiseTooSmallError(
            "stddev must be at least half the granularity (Kairouz et al. 2021, "
            f"Proposition 14), found {stddev / granularity:g} of it"
        )
    lost = tau(shares, stddev / granularity)
    return min(
        math.sqrt(l2_squared / (shares * stddev**2) + lost * dimension / 2),
        math.sqrt(l2_squared / shares) / stddev + lost * math.sqrt(dimension),
    )


@attr.s(frozen=True, auto_attribs=True)
class ConcentratedDpEvent(events.RdpDpEvent):
    """A release that is eps^2/2-concentrated."""

    epsilon: float

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        return np.asarray(orders) * self.epsilon**2 / 2


@dataclasses.dataclass(frozen=True)
class PublishedDdg(mechanisms.DistributedDiscreteGaussian):
    """The grid, error and privacy of clients who round until the norm is small.

    They cannot be run: `dpfl.aggregator` has the codec of clients who round once.
    """

    def grid(self, dimension: int) -> IntegerGrid:
        """The grid of Kairouz et al. 2021, section 4; ValueError for too few bits.

        With the largest variance of rounding, g^2/4 a client, and m coordinates:
          2^b g = 2 k sqrt(n^2/m + (g^2/4 + sigma^2) n).
        """
        n, stddev = self.cohort_size, self.share_stddev
        room = 4.0**self.modulus_bits - n * _REACH**2
        if room <= 0:
            raise ValueError(f"bits must be more for {n} clients, found {self.bits}")
        variance = n**2 / self.spread(dimension) + n * stddev**2
        granularity = max(
            2 * _REACH * math.sqrt(variance / room),
            1 / _MOST_STEPS_OF_CLIP,
            stddev / _MOST_STEPS_OF_NOISE,
        )
        total = math.sqrt(variance / granularity**2 + n / 4)
        return IntegerGrid(granularity, stddev, total, max_coordinate=1.0)

    def round_dp_event(
        self, dimension: int, sampling_probability: float
    ) -> ConcentratedDpEvent:
        """The release of all clients' sum."""
        grid, m = self.grid(dimension), self.rotated_dimension(dimension)
        squared = rounded_l2_squared(1.0, grid.granularity, m)
        steps = self.noise_shares, grid.local_stddev, grid.granularity
        return ConcentratedDpEvent(epsilon(squared, m, *steps))
