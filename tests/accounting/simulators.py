# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms in a few dimensions, drawn from their definitions, to be audited.

Each simulator draws what the server sees of a mechanism, in few dimensions, from the
mechanism's definition and not from the accountant's formulas: each share of noise
and each mask is drawn. They are not the implementation either; that is tested with
TensorFlow, elsewhere. `sample` draws outputs, float64[trials, ...], with the canary or
without, and `score` gives log P/Q of outputs, float64[trials].
"""

from __future__ import annotations

import math
from typing import Optional

import attr
import numpy as np

from dpfl.accounting import lower_bounds
from dpfl.accounting.integer import summed_noise
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

    The adversary sees some releases together; to reuse a mask breaks the mechanism.
    """

    canary: np.ndarray
    keep_fraction: float
    stddev: float
    sampling_probability: float = 1.0
    releases: int = 1
    reuse_mask: bool = False

    def sample(self, rng, present, trials):
        """Outputs, float64[trials, releases, d]."""
        shape = (trials, self.releases, len(self.canary))
        outputs = rng.normal(scale=self.stddev, size=shape)
        if present:
            masks = (trials, 1, shape[2]) if self.reuse_mask else shape
            kept = rng.random(masks) < self.keep_fraction
            joined = rng.random(shape[:2] + (1,)) < self.sampling_probability
            outputs += self.canary * kept * joined
        return outputs

    def score(self, outputs):
        """The log-likelihood ratio (for a reused mask, without sampling)."""
        shifted = (outputs - self.canary / 2) * self.canary / self.stddev**2
        if self.reuse_mask:
            shifted = np.sum(shifted, axis=1, keepdims=True)
        release = np.sum(adversary.sampled_score(shifted, self.keep_fraction), axis=-1)
        return np.sum(
            adversary.sampled_score(release, self.sampling_probability), axis=-1
        )


@attr.s(frozen=True, auto_attribs=True)
class MatrixFactorizationSimulator:
    """SGMF, and with keep_fraction 1 the matrix mechanism: the stream A G + B Z.

    The canary takes part in one round (two break the mechanism), with a fresh mask.
    The adversary sees every row and, B being invertible, looks at C G + Z.
    `left` is B and `right` is C, float64[T, T]; the workload is A = B C.
    """

    left: np.ndarray
    right: np.ndarray
    canary: np.ndarray
    stddev: float
    rounds: tuple[int, ...]
    keep_fraction: float = 1.0

    def sample(self, rng, present, trials):
        """Outputs, float64[trials, T, d]."""
        steps, dimension = len(self.left), len(self.canary)
        noise = rng.normal(scale=self.stddev, size=(trials, steps, dimension))
        sums = np.zeros((trials, steps, dimension))
        if present:
            for t in self.rounds:
                kept = rng.random((trials, dimension)) < self.keep_fraction
                sums[:, t] += self.canary * kept
        released = np.tensordot(self.left @ self.right, sums, axes=(1, 1))
        released += np.tensordot(self.left, noise, axes=(1, 1))
        return released.swapaxes(0, 1)

    def score(self, outputs):
        """The log-likelihood ratio (for several rounds, their sum)."""
        decoder = np.linalg.inv(self.left)
        total = np.zeros(len(outputs))
        for t in self.rounds:
            column = self.right[:, t]
            along = np.tensordot(outputs, column @ decoder, axes=(1, 0))
            shift = self.canary * float(column @ column)
            log_ratio = (along - shift / 2) * self.canary / self.stddev**2
            total += np.sum(
                adversary.sampled_score(log_ratio, self.keep_fraction), axis=-1
            )
        return total


@attr.s(frozen=True, auto_attribs=True)
class DistributedNoiseSimulator:
    """Integer noise from each client under secure aggregation, in grid steps.

    The noise is there whether or not the canary joins. Skellam shares have the variance
    sigma^2, others are N_Z(0, sigma^2). A modulus is an even number.
    """

    canary: np.ndarray
    noise_clients: int
    stddev: float
    skellam: bool = False
    sampling_probability: float = 1.0
    modulus: Optional[int] = None

    def _shares(self, rng, size):
        if self.skellam:
            mean = self.stddev**2 / 2
            return rng.poisson(mean, size) - rng.poisson(mean, size)
        reach = math.ceil(12 * self.stddev) + 1
        values = np.arange(-reach, reach + 1)
        weights = np.exp(-(values**2) / (2 * self.stddev**2))
        cumulative = np.cumsum(weights / np.sum(weights))
        index = np.searchsorted(cumulative, rng.random(size), side="right")
        return values[np.minimum(index, 2 * reach)]

    def sample(self, rng, present, trials):
        """The integer sums, int64[trials, m], centred modulo M."""
        outputs = np.zeros((trials, len(self.canary)), dtype=np.int64)
        for _ in range(self.noise_clients):
            outputs += self._shares(rng, outputs.shape)
        if present:
            joined = rng.random((trials, 1)) < self.sampling_probability
            outputs += self.canary * joined
        if self.modulus is not None:
            half = self.modulus // 2
            outputs = (outputs + half) % self.modulus - half
        return outputs

    def _log_pmf(self, x):
        count, stddev = self.noise_clients, self.stddev
        if self.skellam:
            return summed_noise.SkellamNoise(count * stddev**2).log_pmf_at(x)
        return summed_noise.DiscreteGaussianNoise(count, stddev).log_pmf_at(x)

    def score(self, outputs):
        """The log-likelihood ratio, without regard to wrapping."""
        log_ratio = self._log_pmf(outputs - self.canary) - self._log_pmf(outputs)
        return adversary.sampled_score(
            np.sum(log_ratio, axis=-1), self.sampling_probability
        )


def audit(simulator, trials, delta, *, seed, confidence=0.99):
    """Runs a simulator on both inputs and bounds its epsilon from below.

    Half of the trials on each input choose the test; see `lower_bounds.epsilon_lower_bound`.
    """
    rng = np.random.default_rng(seed)
    present = simulator.score(simulator.sample(rng, True, trials))
    absent = simulator.score(simulator.sample(rng, False, trials))
    return lower_bounds.epsilon_lower_bound(
        present, absent, delta, confidence=confidence
    )
