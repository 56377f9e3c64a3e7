# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The codec's own sums against the epsilon that is claimed, by likelihood ratios.

An adversary who knows the rotation, all that the other clients send, and the law of
rounding and noise, sees the sum of a small cohort with and without one client, whose
update is the worst: as many rotated coordinates at their bound as its norm allows.
"""

import numpy as np
import tensorflow as tf

from dpfl import accounting, mechanisms
from dpfl.accounting import accountant, lower_bounds
from dpfl.accounting.integer import summed_noise
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import distributed
from dpfl.vectors import integer_noise, randomness, rounding
from tests.accounting import simulators
from tests.many_draws import many

CLIENTS, DIMENSION, DELTA = 3, 2048, 1e-2
CONFIG = mechanisms.DistributedDiscreteGaussian(CLIENTS, 1.0, 1.0, bits=6)
SEED = tf.constant([5, 6], tf.int64)


class Release:
    """The sum of one round of a codec, again and again, and its exact law.

    Attributes:
      steps: The canary as it is rounded, float64[number of its coordinates].
    """

    def __init__(self, config):
        self.codec = distributed.IntegerCodec(config, DIMENSION, nx)
        self.config, self.grid = config, config.grid(DIMENSION)
        self.shared = self.codec.decode_broadcast({"round_seed": SEED})
        largest = self.grid.max_coordinate
        rotated = simulators.extreme_vector(1.0, largest, DIMENSION)
        rotated *= np.resize([1.0, -1.0], DIMENSION)
        self.update = self.codec._rotation.invert(
            tf.constant(rotated, tf.float32), self.shared["rotation"]
        )
        self.places = np.flatnonzero(rotated)
        limit = largest / self.grid.granularity - rounding.ROUNDING_ERROR
        steps = rotated[self.places] / self.grid.granularity
        self.steps = np.clip(steps, -limit, limit)

    def sums(self, trials):
        """int64[2 trials, places]: the secure sum, centred, with the canary and without."""

        def one(number):
            seed = randomness.fold_in(SEED, number)
            total = self.codec.zero()
            for i in range(CLIENTS):
                update = self.update * tf.cast((number < trials) & (i == 0), tf.float32)
                own = randomness.fold_in(seed, i)
                message = self.codec.encode(update, self.shared, own).message
                total = self.codec.accumulate(total, message)
            return tf.gather(total["update"], self.places)

        opened = many(one, 2 * trials)
        modulus = 1 << self.config.bits
        return (opened.astype(np.int64) + modulus // 2) % modulus - modulus // 2

    def log_laws(self):
        """Log-probabilities with and without: [places, modulus], [modulus]."""
        modulus = 1 << self.config.bits
        x = np.arange(-8 * modulus, 8 * modulus)
        steps = self.grid.local_stddev_steps
        law = summed_noise.DiscreteGaussianNoise(CLIENTS, steps)
        pmf = np.exp(law.log_pmf_at(x))
        wrapped = pmf.reshape(-1, modulus).sum(0)
        residues = np.arange(-modulus // 2, modulus // 2)
        lower = np.floor(self.steps).astype(int)[:, None]
        up = (self.steps - lower[:, 0])[:, None]
        with_it = (1 - up) * wrapped[(residues - lower) % modulus]
        with_it += up * wrapped[(residues - lower - 1) % modulus]
        return np.log(with_it), np.log(wrapped[residues % modulus])

    def scores(self, sums):
        """The log-likelihood ratio of each sum."""
        with_it, without = self.log_laws()
        index = sums + (1 << (self.config.bits - 1))
        place = np.arange(len(self.places))
        return np.sum(with_it[place, index] - without[index], 1)


def audited(release, trials):
    """The lower bound on epsilon, and the epsilon that is claimed."""
    present, absent = np.split(release.scores(release.sums(trials)), 2)
    event = release.config.round_dp_event(DIMENSION, 1.0)
    relation, *_ = accounting.relations_of(event)
    ledger = accountant.DpflAccountant(neighboring_relation=relation)
    ledger.compose(event)
    found = lower_bounds.epsilon_lower_bound(present, absent, DELTA)
    return found.epsilon, ledger.get_epsilon(DELTA)


def test_codec_stays_below_its_claimed_epsilon():
    release = Release(CONFIG)
    # What is rounded is anywhere between integers, not only next to them.
    assert 0.5 < np.abs(release.steps).max() < 3.5
    assert len(release.places) > 100
    found, claimed = audited(release, 1200)
    assert 0.3 * claimed < found < claimed


def test_missing_noise_is_detected():
    """The same audit, of shares of a quarter of the size."""
    release = Release(CONFIG)
    small = release.grid.local_stddev_steps / 4
    release.codec._noise = integer_noise.Shares("discrete_gaussian", small)
    found, claimed = audited(release, 600)
    assert found > claimed
