# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Releases in a few dimensions, drawn from their mechanisms' definitions.

Each share of noise and each mask is drawn, without a formula of the accountant.
"""

from __future__ import annotations

import math

import attr
import numpy as np

from experiments.audits import adversary


def extreme_vector(l2, linf, dimension):
    """The worst vector for L2-CSGM: as many coordinates at the bound as fit."""
    squares = np.clip(l2**2 - linf**2 * np.arange(dimension), 0.0, linf**2)
    return np.sqrt(squares)


@attr.s(frozen=True, auto_attribs=True)
class SparsifiedGaussianSimulator:
    """L2- or L-infinity-CSGM, and with keep_fraction 1 the Gaussian mechanism.

    In each release the canary joins with probability q; each of its coordinates is
    kept with probability gamma by a fresh mask; the server sees the sum, the other
    clients' part of which is known, plus N(0, sigma^2) on every coordinate.
    """

    canary: np.ndarray
    keep_fraction: float
    stddev: float
    sampling_probability: float = 1.0
    releases: int = 1

    def sample(self, rng, present, trials):
        """Outputs, float64[trials, releases, d]."""
        shape = (trials, self.releases, len(self.canary))
        outputs = rng.normal(scale=self.stddev, size=shape)
        if present:
            kept = rng.random(shape) < self.keep_fraction
            joined = rng.random(shape[:2] + (1,)) < self.sampling_probability
            outputs += self.canary * kept * joined
        return outputs

    def score(self, outputs):
        """The log-likelihood ratio log P/Q, float64[trials]."""
        shifted = (outputs - self.canary / 2) * self.canary / self.stddev**2
        release = np.sum(adversary.sampled_score(shifted, self.keep_fraction), axis=-1)
        return np.sum(
            adversary.sampled_score(release, self.sampling_probability), axis=-1
        )


def integer_noise(rng, shape, shares, stddev, is_skellam):
    """Sums of shares of Skellam noise of the variance sigma^2, or of N_Z(0, sigma^2)."""
    total = np.zeros(shape, dtype=np.int64)
    mean, reach = stddev**2 / 2, math.ceil(12 * stddev) + 1
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * stddev**2))
    cumulative = np.cumsum(weights / np.sum(weights))
    for _ in range(shares):
        if is_skellam:
            total += rng.poisson(mean, shape) - rng.poisson(mean, shape)
            continue
        index = np.searchsorted(cumulative, rng.random(shape), side="right")
        total += values[np.minimum(index, 2 * reach)]
    return total
