# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import math

import numpy as np
import pytest
import tensorflow as tf

from dpfl import mechanisms
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import gaussian
from tests.aggregators import cohorts
from tests.aggregators.cohorts import updates
from tests.aggregators.rounds import compiled_round, many_means, run_codec
from tests.many_draws import many

D, N = 500, 5


def fixed(noise_multiplier=0.0, cohort_size=N):
    return mechanisms.Gaussian(cohort_size, 2.0, noise_multiplier)


def adaptive(noise_multiplier=0.0, cohort_size=N, **kwargs):
    # The default, a twentieth of the cohort, is below half of these multipliers.
    numbers = {"count_stddev": 1.0, **kwargs}
    return mechanisms.Gaussian(
        cohort_size, 2.0, noise_multiplier, adaptive_clipping=True, **numbers
    )


class TestCodec:
    @pytest.mark.parametrize("make", [fixed, adaptive])
    def test_noiseless_is_the_clipped_sum_over_n(self, make):
        cohorts.check_sum_of_clipped(gaussian.GaussianCodec(make(), D, nx), atol=4e-6)

    @pytest.mark.parametrize("make", [fixed, adaptive])
    def test_noise_is_gaussian_of_the_accounted_size(self, make):
        config = make(1.3)
        noise = many_means(gaussian.GaussianCodec(config, D, nx), tf.zeros([2, D]), 400)
        measured = noise.std() * N / config.clip_norm
        assert measured == pytest.approx(config.update_noise_multiplier, rel=0.01)
        if make is fixed:
            event = config.round_dp_event(D, 1.0).event
            assert measured == pytest.approx(event.noise_multiplier, rel=0.01)
        cohorts.check_white(noise)

    def test_clip_follows_the_rule_without_noise(self):
        cohorts.check_clip_rule(gaussian.GaussianCodec(adaptive(), D, nx))

    def test_clip_finds_the_quantile(self):
        config = adaptive(0.0, target_quantile=0.8, clip_learning_rate=0.5)
        codec = gaussian.GaussianCodec(config, 20, nx)
        x = updates([1.0, 2.0, 3.0, 4.0, 9.0], 20)
        run, state = compiled_round(codec), {"clip_norm": tf.constant(0.1)}
        for number in range(60):
            state = run(x, number, collections.OrderedDict(state))[2]
        assert 3.5 < state["clip_norm"].numpy() < 9.1

    def test_noise_on_the_count_is_the_accounted_one(self):
        """Both noises, as measured, cost together what the event says."""
        config = adaptive(0.9, cohort_size=1, clip_learning_rate=1.0, count_stddev=1.5)
        draws = 9000
        steps = cohorts.clip_steps(gaussian.GaussianCodec(config, 1, nx), 1, draws)
        count_stddev = steps.std()
        # Three standard deviations of the estimate are 2.2%; the seeds are fixed.
        assert count_stddev == pytest.approx(1.5, rel=0.022)
        # The one client is within the clip.
        assert steps.mean() == pytest.approx(-0.5, abs=4.5 * 1.5 / math.sqrt(draws))
        together = math.hypot(1 / config.update_noise_multiplier, 0.5 / count_stddev)
        event = config.round_dp_event(1, 1.0).event
        assert 1 / together == pytest.approx(event.noise_multiplier, rel=0.02)

    def test_zero_updates_do_not_vote(self):
        """Replaced by zeros a client moves the sum by 1/2, as the event says."""
        codec = gaussian.GaussianCodec(adaptive(), D, nx)
        seed = tf.zeros([2], tf.int64)
        # Without noise, in floats.
        totals = [codec._count.noised(x, seed) for x in cohorts.votes(codec, N)]
        assert np.subtract(totals, (N - 1) / 2).tolist() == [0, 0.5, -0.5, 0, 0]

    def test_noises_of_update_and_count_are_independent(self):
        codec = gaussian.GaussianCodec(
            adaptive(0.9, cohort_size=1, count_stddev=1.5), 1, nx
        )

        def one(number):
            decoded, _ = run_codec(codec, tf.zeros([1, 1]), number)
            return decoded.mean[0], tf.math.log(decoded.state["clip_norm"])

        assert abs(np.corrcoef(many(one, 1000))[0, 1]) < 4.5 / math.sqrt(1000)

    def test_noise_scales_with_the_adapted_clip(self):
        codec = gaussian.GaussianCodec(adaptive(1.0, count_stddev=1.0), D, nx)
        cohorts.check_noise_scales_with_the_clip(codec, N)

    @pytest.mark.parametrize("clip", [1e-15, 1e15])
    def test_an_adaptive_clip_stays_finite(self, clip):
        codec = gaussian.GaussianCodec(adaptive(clip_learning_rate=10.0), D, nx)
        state = collections.OrderedDict(clip_norm=tf.constant(clip))
        norm = 1e-30 if clip < 1 else 1e30
        decoded, _ = run_codec(codec, updates([norm] * N), 0, state)
        assert 0 < decoded.state["clip_norm"].numpy() < np.inf
