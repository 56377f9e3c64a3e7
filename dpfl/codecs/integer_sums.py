# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Exact sums in integers: conversion of vectors to grid steps and of sums to floats.

    total = IntegerSum(dimension, noise_multiplier=1.0, cohort_size=100)
    steps = total.round(clipping.safe_norm(update), clip_norm)   # a client's
    noised = total.noised(total.accumulate(total.zero(nx), steps), noise_seed)
    mean = total.to_float(noised, clip_norm) / 100

A client rounds its clipped vector to steps of a grid; the sum of a round is exact; its
noise, the server's or in shares of the clients, is an integer too; only the noised sum
becomes floats. A codec chooses the vectors and their bound. The grid is that of
`dpfl.accounting.integer.grid_numbers`, and docs/privacy/integer_release.md has the
proofs.
"""

from __future__ import annotations

import math
from typing import Any, Union

import numpy as np

from dpfl import arrays, checks, seed_domains
from dpfl.accounting.integer import grid_numbers as numbers
from dpfl.arrays import Array
from dpfl.vectors import clipping, randomness, rounding
from dpfl.vectors.clipping import NormedVector
from dpfl.vectors.integer_noise import DiscreteGaussian

# Sums of shares with at least this parameter have the law of one discrete Gaussian, to
# 1e-67 a share.
_SMALLEST_SHARE = 4.0


class IntegerSum:
    """A sum of clients' vectors in grid steps, with its noise.

    With noise multiplier z and clip C a step is z C / s, where s is the power of two of
    `grid`: only the step adapts with C.

    Without noise (z = 0) the grid has at most 2^24 steps to the clip.

    Attributes:
      length: The vectors' length.
      grid: Bounds and noise in steps.
      dtype: Dtype of the sum: int32 if it holds any sum and its noise, else int64.
    """

    def __init__(
        self,
        length: int,
        noise_multiplier: float,
        cohort_size: int,
        linf_ratio: float = 1.0,
        no_noise: float = numbers.NO_NOISE,
    ):
        """Initializes the sum.

        Args:
          length: The vectors' length.
          noise_multiplier: z, the noise over a client's L2 bound, both of the sum; 0
            for none.
          cohort_size: n, the expected number of clients.
          linf_ratio: A client's bound on a coordinate over its L2 bound.
          no_noise: Noise multiplier that sets the grid if there is no noise.

        Raises:
          ValueError: If the noise is not 0 and below 2**-24 of the bound, or so far
            above it that the bound is less than a step.
        """
        self.length = length
        self._is_noised = bool(noise_multiplier)
        multiplier = noise_multiplier or no_noise
        self.grid = numbers.grid_of_cohort(multiplier, cohort_size, linf_ratio)
        rule = "at most 2**24 times the coordinate bound divided by the clip norm"
        checks.require(self.grid.max_size, "noise_multiplier", rule, noise_multiplier)
        self.dtype = np.int32 if self.grid.total_bits == 32 else np.int64
        # The clip norm in steps.
        self._clip_steps = self.grid.stddev / multiplier

    def round(self, vector: NormedVector, clip_norm: Union[float, Array]) -> Array:
        """Clips a vector to C and rounds it to steps, int32[length].

        The sum of squares of the integers is within the bound, exactly.
        """
        target = rounding.clip_target(self.grid.max_squared_norm, self.length)
        nx = arrays.of(vector.direction)
        inside = nx.divide_no_nan(nx.asarray(target, np.float64), vector.direction_norm)
        factor = nx.minimum(vector.unit * self._steps_per_unit(clip_norm), inside)
        steps = vector.direction * nx.asarray(factor, np.float32)
        return rounding.round_within(steps, self.grid.max_squared_norm)

    def hidden_factor(
        self, vector: Array, unit: Array, clip_norm: Union[float, Array]
    ) -> Array:
        """The scale for rounding some coordinates without seeing the others, float32.

        The rounded integers of all coordinates, kept or not, are within the bound on
        the sum of squares. The factor is zero for a vector that is not finite.

        Args:
          vector: float32[length], all coordinates.
          unit: Scalar; `unit * vector` is clipped to C.
          clip_norm: C.
        """
        factor = rounding.rounding_factor(vector, self.grid.max_squared_norm)
        nx = arrays.of(vector)
        steps = nx.asarray(unit * self._steps_per_unit(clip_norm), np.float32)
        return nx.minimum(steps, factor)

    def is_possible(self, message: Array) -> Array:
        """Whether integers are within a client's bounds, a bool scalar."""
        nx, grid = arrays.of(message), self.grid
        # The absolute value would overflow for the least int32.
        is_within = (message <= grid.max_size) & (message >= -grid.max_size)
        squared_norm = 2 * nx.half_square_sum(nx.asarray(message, np.float64))
        return nx.all(is_within) & (squared_norm <= grid.max_squared_norm)

    def zero(self, nx: Any) -> Array:
        """The sum of zero vectors, in an array library."""
        return nx.zeros([self.length], self.dtype)

    def accumulate(self, total: Array, message: Array) -> Array:
        """Adds a vector of integers to the sum."""
        return total + arrays.of(message).asarray(message, self.dtype)

    def noised(
        self,
        total: Array,
        noise_seed: Array,
        domain: seed_domains.RoundDomain = seed_domains.RoundDomain.UPDATE_NOISE,
    ) -> Array:
        """Adds a server's discrete Gaussian noise to the sum, in integers.

        Args:
          total: int[length], the sum in steps.
          noise_seed: int64[2], secret.
          domain: Domain of the seed.
        """
        if not self._is_noised:
            return total
        return self._with_draw(total, self.grid.noise_stddev, noise_seed, domain)

    def with_share(self, message: Array, client_seed: Array, shares: int) -> Array:
        """Adds a client's share of the noise to its integers.

        The sum of all shares has the law of a server's noise, to 1e-67 a share.

        Args:
          message: int32[length], the client's integers.
          client_seed: int64[2], the client's secret seed.
          shares: Number of shares that make up the noise.

        Raises:
          ValueError: If a share would be too small for this.
        """
        if not self._is_noised:
            return message
        stddev = share_stddev(self.grid, shares)
        rule = f"enough for {shares} shares of {_SMALLEST_SHARE:g} grid steps each"
        multiplier = self.grid.stddev / self._clip_steps
        checks.require(stddev >= _SMALLEST_SHARE, "noise_multiplier", rule, multiplier)
        domain = seed_domains.RoundDomain.UPDATE_NOISE
        return self._with_draw(message, stddev, client_seed, domain)

    def to_float(self, total: Array, clip_norm: Union[float, Array]) -> Array:
        """Converts steps to floats."""
        nx = arrays.of(total)
        step = 1 / self._steps_per_unit(clip_norm)
        return nx.asarray(total, np.float32) * nx.asarray(step, np.float32)

    def _steps_per_unit(self, clip_norm: Union[float, Array]) -> Array:
        clip = clipping.as_float32(clip_norm)
        return self._clip_steps / arrays.of(clip).asarray(clip, np.float64)

    def _with_draw(
        self,
        values: Array,
        stddev: float,
        seed: Array,
        domain: seed_domains.RoundDomain,
    ) -> Array:
        """Adds an independent noise integer to each value."""
        own = randomness.fold_in(seed, domain)
        draw = DiscreteGaussian(stddev).sample(own, self.length)
        return values + arrays.of(draw).asarray(draw, values.dtype)


class CountSum:
    """A sum of votes of +1/2, -1/2 or 0 as integers, with its noise."""

    def __init__(self, stddev: float, cohort_size: int):
        """Makes the sum for n clients; a `stddev` of 0 means no noise."""
        self._sum = IntegerSum(1, 2 * stddev, cohort_size)

    def zero(self, nx: Any) -> Array:
        """The sum of zero votes, a scalar, in an array library."""
        return self._sum.zero(nx)[0]

    def accumulate(self, total: Array, vote: Array) -> Array:
        """Adds a vote, int32 +1, -1 or 0."""
        dtype = self._sum.dtype
        size = dtype(self._sum.grid.max_size)
        return total + arrays.of(vote).asarray(vote, dtype) * size

    def noised(self, total: Array, noise_seed: Array) -> Array:
        """Half the noised sum of the votes, float32 scalar."""
        domain = seed_domains.RoundDomain.COUNT_NOISE
        nx = arrays.of(total)
        noised = self._sum.noised(total[np.newaxis], noise_seed, domain)
        half = np.float32(0.5 / self._sum.grid.max_size)
        return nx.asarray(noised[0], np.float32) * half


def share_stddev(grid: numbers.ReleaseGrid, shares: int) -> float:
    """The parameter of each share, so that the squares add up to the noise's."""
    # Increased by more than the rounding errors, so that no noise is missing.
    return grid.noise_stddev / math.sqrt(shares) * (1 + 2.0**-40)
