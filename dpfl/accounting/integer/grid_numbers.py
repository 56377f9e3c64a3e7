# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers of a release in integers: its grid, its bounds, and the errors of a draw.

    grid = grid_of_cohort(noise_multiplier=1.0, cohort_size=100)
    grid.stddev, grid.total_bits  # 2**18 steps of noise, and sums of 32 bits

A client's vector is rounded to multiples of a step g, integers are summed, and integer
noise is added. In steps nothing depends on the clip C: with s = sigma / g the noise is
s and a client's vector at most s C / sigma, for any adaptive C. For the proofs see
docs/privacy/integer_release.md.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from dpfl import checks

# Excess variance, in squared steps, of integer noise over the continuous noise that it
# is a post-processing of.
COVER_VARIANCE = 4
# Bound on one coordinate's total variation distances: of the draw to the discrete
# Gaussian, and of that to the post-processed Gaussian.
DRAW_DISTANCE = 1e-33

# A grid is no finer than the noise over 2**18, or the clip over 2**18 if that is finer.
_FINENESS = 1 << 18
_MAX_STDDEV = 1 << 24
# Sums of squares up to this are exact in float64; larger sums are found to be larger.
_MAX_SQUARED_NORM = 1 << 52
# Integers up to this are exact in float32.
_MAX_SIZE = 1 << 24
# Every draw of noise is within this many parameters.
_NOISE_RADIUS = 16
# A Poisson cohort exceeds twice the expected number plus this with a probability below
# 1e-16. A sum could wrap then, which harms the result alone.
_MORE_CLIENTS = 100
# Substitute for the noise where there is none: 2**24 steps to the clip, as fine as
# float32.
NO_NOISE = 2.0**-24
# Deterministic rounding moves a sum by at most clients / 2 steps: by 1/16 of the noise.
_STDDEV_PER_CLIENT = 8


@dataclasses.dataclass(frozen=True)
class ReleaseGrid:
    """A release in integers; every number is in steps, and a step is sigma / stddev.

    Attributes:
      stddev: s, the standard deviation that the accountant charges for: a power of two.
      noise_stddev: The parameter of the discrete Gaussian to draw, whose square is at
        least s^2 + 4.
      max_squared_norm: Bound on the sum of squares of a client's integers.
      max_size: Bound on the size of each.
      total_bits: 32 or 64, a width of signed integers that holds any sum and its noise.
    """

    stddev: float
    noise_stddev: float
    max_squared_norm: int
    max_size: int
    total_bits: int

    @property
    def modulus_bits(self) -> int:
        """b, such that residues modulo 2^b determine any sum: 32, or 62 of 64 bits."""
        return min(self.total_bits, 62)


def grid(noise_multiplier: float, clients: int, linf_ratio: float = 1.0) -> ReleaseGrid:
    """The grid of a release.

    The step is the noise's standard deviation over 2**18, or, if that is finer, the
    clip over 2**18, down to the noise over 2**24; coarser where integers would not fit.
    Sums have 32 bits if that leaves the noise at least 8 steps a client: then rounding
    moves no coordinate of a sum by more than 1/16 of the noise.

    Args:
      noise_multiplier: sigma over a client's L2 bound C, both as in the sum.
      clients: The most clients that a sum may have.
      linf_ratio: A client's bound on a coordinate over C, at most 1.

    Raises:
      TypeError: An argument is of a wrong type.
      ValueError: An argument is out of its range. The noise must be at least 2**-24 of
        the clip.
    """
    z = Fraction(checks.real("noise_multiplier", noise_multiplier, at_least=2.0**-24))
    clients = checks.integer("clients", clients, at_most=1 << 36)
    share = Fraction(checks.fraction("linf_ratio", linf_ratio))
    bits, s = 32, _finest(z, clients, share, 32)
    if s < _STDDEV_PER_CLIENT * clients:
        bits, s = 64, _finest(z, clients, share, 64)
    return ReleaseGrid(
        float(s),
        _root_above(s**2 + COVER_VARIANCE),
        math.floor((s / z) ** 2),
        math.floor(s / z * share),
        bits,
    )


def _finest(z: Fraction, clients: int, share: Fraction, bits: int) -> int:
    """The largest power of two for which all integers fit; at least 1."""
    s = _MAX_STDDEV
    while s > 1:
        size = math.floor(s / z * share)
        if (
            (s <= _FINENESS or s <= z * _FINENESS)
            and (s / z) ** 2 <= _MAX_SQUARED_NORM
            and size <= _MAX_SIZE
            and clients * size + _NOISE_RADIUS * s < 1 << (bits - 1)
        ):
            break
        s //= 2
    return s


def _root_above(square: int) -> float:
    """The least float64 with a square of at least `square`, or the next."""
    root = math.sqrt(square)
    return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)


def grid_of_cohort(
    noise_multiplier: float,
    cohort_size: int,
    linf_ratio: float = 1.0,
) -> ReleaseGrid:
    """The `grid` of the sum of a cohort.

    Args:
      noise_multiplier: As for `grid`; 0 for none, where `NO_NOISE` takes its place.
      cohort_size: n, the expected number of clients.
      linf_ratio: As for `grid`.
    """
    clients = 2 * cohort_size + _MORE_CLIENTS
    return grid(noise_multiplier or NO_NOISE, clients, linf_ratio)


def least_noise_of_32_bits(cohort_size: int) -> float:
    """A noise multiplier in place of 0 with which sums have 32 bits, or `NO_NOISE`."""
    for exponent in range(-24, 1):
        no_noise = 2.0**exponent
        if grid_of_cohort(no_noise, cohort_size).total_bits == 32:
            return no_noise
    return NO_NOISE
