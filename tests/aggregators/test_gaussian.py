# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import aggregators, mechanisms
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import gaussian
from tests.aggregators import cohorts
from tests.aggregators.cohorts import HOSTILE, updates
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


@pytest.fixture(scope="module", params=[fixed, adaptive], ids=["fixed", "adaptive"])
def hostile_round(request):
    return compiled_round(
        gaussian.GaussianCodec(request.param(1.0, cohort_size=10), D, nx)
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

    def test_mean_squared_error_is_the_formula(self):
        x = updates([2.0] * N)
        means = many_means(gaussian.GaussianCodec(fixed(0.7), D, nx), x, 400)
        mse = cohorts.mean_error(means, x)
        assert mse == pytest.approx(fixed(0.7).mean_squared_error(D), rel=0.02)

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

    @pytest.mark.parametrize("value", HOSTILE)
    @pytest.mark.parametrize("place", [0, D - 1, slice(None)])
    def test_hostile_client_moves_the_mean_as_a_clipped_one(
        self, hostile_round, value, place
    ):
        cohorts.check_hostile(hostile_round, D, place, value, 2.0 / 10)

    @pytest.mark.parametrize("value", HOSTILE)
    def test_all_hostile_clients_give_a_bounded_mean(self, value):
        codec = gaussian.GaussianCodec(fixed(cohort_size=10), D, nx)
        decoded, _ = run_codec(codec, [tf.fill([D], value)] * 10, 0)
        assert np.linalg.norm(decoded.mean) <= 2.0 * (1 + 1e-5)

    @pytest.mark.parametrize("make", [fixed, adaptive])
    def test_bits_and_merge(self, make):
        codec = gaussian.GaussianCodec(make(), D, nx)
        shared = codec.initial_state()
        messages = [codec.encode(x, shared, None).message for x in updates([1.0, 9.0])]
        assert codec.message_bits(messages[0]) == make().uplink_bits(D)
        one, other = (codec.accumulate(codec.zero(), each) for each in messages)
        both, merged = codec.accumulate(one, messages[1]), codec.merge(one, other)
        tf.nest.map_structure(assert_allclose, both, merged)


VALUE_TYPE = tff.to_type([(np.float32, (2, 3)), np.float32])


class TestExecution:
    def test_adaptive_rounds(self, tff_context):
        config = adaptive(0.1, count_stddev=0.5)
        process = aggregators.build(config, seed=1).create(VALUE_TYPE)
        state = process.initialize()
        assert state["clip_norm"] == 2.0
        numbers = np.float32([0.1, 9, np.nan])
        values = [[np.full([2, 3], x), x] for x in numbers]
        output = process.next(state, values)
        again = process.next(state, values)
        assert_array_equal(output.result[0], again.result[0])
        assert output.state["clip_norm"] == again.state["clip_norm"] != 2.0
        assert output.measurements["exact_nonfinite_clients"] == 1
        assert output.measurements["exact_uplink_bits"] == config.uplink_bits(7)
        assert output.measurements["downlink_bits"] == config.downlink_bits(7)
        stddev = config.update_noise_multiplier * 2.0 / N
        assert output.measurements["noise_stddev"] == pytest.approx(stddev)
        empty = process.next(output.state, [])
        assert all(np.isfinite(list(empty.measurements.values())))
        assert empty.measurements["clip_norm"] == output.state["clip_norm"]
        assert np.all(empty.result[0] != output.result[0])
