# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import aggregators, mechanisms
from dpfl.accounting.integer import summed_noise
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import distributed
from dpfl.codecs.base import Received
from tests.aggregators import cohorts
from tests.aggregators.cohorts import updates
from tests.aggregators.rounds import many_means, many_totals, run_codec
from tests.many_draws import many
from tests.refusals import refuses

D, N = 500, 5
KINDS = {
    "ddg": mechanisms.DistributedDiscreteGaussian,
    "skellam": mechanisms.DistributedSkellam,
}


def make(kind="ddg", noise_multiplier=0.0, bits=20, cohort_size=N, **kwargs):
    return KINDS[kind](cohort_size, 2.0, noise_multiplier, bits, **kwargs)


def integers_of(codec, total):
    """The sum that the server opens, in grid steps."""
    bits = codec._config.bits
    half = 1 << (bits - 1)
    return (np.asarray(total["update"]).astype(np.int64) + half) % (1 << bits) - half


class TestCodec:
    @pytest.mark.parametrize("rotation", ["overlap", "hadamard", "dft"])
    def test_noiseless_is_the_clipped_sum_over_n(self, rotation):
        codec = distributed.IntegerCodec(make(rotation=rotation), D, nx)
        cohorts.check_sum_of_clipped(codec, atol=3e-5)

    @pytest.mark.parametrize("kind", sorted(KINDS))
    @pytest.mark.parametrize("bits", [7, 16])
    def test_noise_has_the_events_variance(self, kind, bits):
        """Variance, shape and independence of the summed noise, in grid steps."""
        # Helpers' noise has its own test; the sum here is of N clients' shares.
        config = make(kind, 1.3, bits)
        codec = distributed.IntegerCodec(config, D, nx)
        event = config.round_dp_event(D, 1.0)
        totals = many_totals(codec, tf.zeros([N, D]), 40)["update"]
        noise = integers_of(codec, {"update": totals})
        steps = event.local_stddev / event.granularity
        # From one grid step on the parameter is the variance to 1e-7.
        assert steps > 1
        variance = event.noise_clients * steps**2
        # 4.5 standard deviations of the estimate are 4.5%.
        assert noise.var() == pytest.approx(variance, rel=0.045)
        assert abs(noise.mean()) < 4.5 * noise.std() / math.sqrt(noise.size)
        if bits > 7:
            scaled = noise / math.sqrt(variance)
            assert scipy.stats.kstest(scaled.ravel(), "norm").pvalue > 1e-3
        else:
            self._check_shape(noise, kind, event, steps)
        cohorts.check_uncorrelated(noise)

    @staticmethod
    def _check_shape(noise, kind, event, steps):
        x = np.arange(-200, 201)
        if kind == "skellam":
            law = summed_noise.SkellamNoise(event.total_variance_steps)
        else:
            law = summed_noise.DiscreteGaussianNoise(N, steps)
        expected = np.exp(law.log_pmf_at(x)) * noise.size
        observed = np.bincount(noise.ravel() + 200, minlength=401)
        common = expected > 10
        off = observed[common] - expected[common]
        statistic = np.sum(np.square(off) / expected[common])
        assert scipy.stats.chi2.sf(statistic, common.sum()) > 1e-3

    @pytest.mark.parametrize("bits", [5, 12])
    def test_message_rounds_the_clipped_rotated_update(self, bits):
        """Mean and variance over many clients with one update: those of the fraction."""
        config = make("ddg", 0.0, bits, cohort_size=4)
        codec, grid = distributed.IntegerCodec(config, D, nx), config.grid(D)
        shared = codec.decode_broadcast({"round_seed": tf.constant([1, 2], tf.int64)})
        x = np.zeros([D], np.float32)
        x[:3] = [3.0, -1.0, 0.5]
        rotated = codec._rotation.rotate(tf.constant(x), shared["rotation"]).numpy()
        clipped = rotated * (
            distributed.rounding.norm_target(1 / grid.granularity, D)
            / np.linalg.norm(rotated)
        )
        limit = grid.max_coordinate / grid.granularity
        steps = np.clip(clipped, -limit, limit)

        def message(i):
            return codec.encode(x, shared, tf.stack([i, 3])).message["update"]

        number = 2000
        messages = many(message, number)
        assert np.all((messages >= 0) & (messages < 1 << bits))
        rounded = integers_of(codec, {"update": messages})
        assert np.abs(rounded - steps).max() < 1.001
        assert np.abs(rounded).max() <= math.ceil(limit)
        fraction = steps - np.floor(steps)
        variance = fraction * (1 - fraction)
        off = rounded.mean(0) - steps
        deviations = np.sqrt(variance / number) + 1e-3
        assert np.abs(off / deviations).max() < 5
        assert abs(off.mean()) < 4.5 * math.sqrt(variance.mean() / number / D) + 1e-5
        # 1,000,000 numbers: a part of 5% is 20 standard deviations.
        assert np.mean((rounded - steps) ** 2) == pytest.approx(
            variance.mean(), rel=0.02
        )

    @pytest.mark.parametrize("norm", [0.5, 1.9999, 2.0, 2.5, 1e20])
    def test_rounded_vector_is_closely_within_the_clip(self, monkeypatch, norm):
        config = make("ddg", 1.0, 8, cohort_size=4)
        codec, grid = distributed.IntegerCodec(config, D, nx), config.grid(D)
        shared = codec.decode_broadcast({"round_seed": tf.constant([1, 2], tf.int64)})
        seen = {}

        def within(vector, seed, max_norm, max_coordinate):
            seen.update(vector=vector, max_norm=max_norm, largest=max_coordinate)
            return tf.zeros_like(vector, tf.int32)

        monkeypatch.setattr(distributed.rounding, "randomized_round", within)
        codec.encode(updates([norm])[0], shared, tf.constant([5, 3], tf.int64))
        event = config.round_dp_event(D, 1.0)
        assert seen["max_norm"] == pytest.approx(
            event.clip_norm / event.granularity, rel=1e-12
        )
        assert seen["largest"] == pytest.approx(event.max_steps, rel=1e-12)
        length = np.linalg.norm(seen["vector"].numpy().astype(np.float64))
        wanted = min(norm / 2.0, 1.0) / grid.granularity
        assert wanted * (1 - 1e-4) < length < wanted * (1 + 2e-6)

    def test_sums_with_too_few_shares_are_refused(self):
        config = make("ddg", 1.0, cohort_size=10, expected_dropout=0.2)
        codec = distributed.IntegerCodec(config, D, nx)
        run_codec(codec, updates([1.0] * 8), 0)
        with refuses(tf.errors.InvalidArgumentError, "8 clients", 7):
            run_codec(codec, updates([1.0] * 7), 0)
        # A client that is not finite still sends its share.
        bad = tf.tensor_scatter_nd_update(updates([1.0] * 8), [[2, 3]], [math.nan])
        run_codec(codec, bad, 0)

    def test_surviving_clients_noise_is_as_promised(self):
        config = make("ddg", 1.0, cohort_size=10, expected_dropout=0.5)
        codec = distributed.IntegerCodec(config, D, nx)
        noise = many_means(codec, tf.zeros([5, D]), 40)
        assert noise.std() * 10 / 2.0 == pytest.approx(1.0, rel=0.025)

    @pytest.mark.parametrize("clients", [0, 3])
    def test_helpers_noise_does_not_depend_on_who_joins(self, clients):
        config = make("skellam", 1.0, noise_source="helpers")
        codec = distributed.IntegerCodec(config, D, nx)
        if not clients:
            shared = codec.decode_broadcast(
                {"round_seed": tf.constant([1, 2], tf.int64)}
            )
            sums = dict.fromkeys(("clients", "l2_clipped"), tf.zeros([], tf.float64))

            def without_clients(number):
                seed = tf.stack([number, 5])
                received = Received({}, codec.zero(), sums, shared, seed)
                return codec.decode(received).mean

            noise = many(without_clients, 40)
        else:
            noise = many_means(codec, tf.zeros([clients, D]), 40)
        assert noise.std() * N / 2.0 == pytest.approx(1.0, rel=0.025)

    def test_wrap_around_is_measured(self):
        """Against the part of Gaussian coordinates that leave the modulus."""
        config = make("ddg", 1.0, 5)
        codec = distributed.IntegerCodec(config, D, nx)
        decoded, _ = run_codec(codec, tf.zeros([N, D]), 0)
        measured = float(decoded.measurements["wrap_probability"])
        half = 2**4
        noise_steps = config.grid(D).local_stddev_steps * math.sqrt(N)
        expected = math.erfc(half / (math.sqrt(2) * noise_steps))
        assert measured == pytest.approx(expected, rel=0.5)
        assert expected < config.grid(D).wrap_probability(config.modulus_bits)

    def test_too_coarse_a_grid_is_refused_at_the_start(self):
        with refuses(ValueError, "bits", 6):
            distributed.IntegerCodec(make("ddg", 0.05, 6, cohort_size=100), D, nx)


class TestAdaptiveClip:
    def test_clip_follows_the_rule_without_noise(self):
        codec = distributed.IntegerCodec(make(adaptive_clipping=True), D, nx)
        cohorts.check_clip_rule(codec)

    @pytest.mark.parametrize("source", ["clients", "helpers"])
    def test_noise_on_the_count_is_the_accounted_one(self, source):
        options = {"clip_learning_rate": 1.0, "count_stddev": 1.5, "cohort_size": 2}
        options.update(adaptive_clipping=True, noise_source=source)
        config = make("ddg", 0.9, **options)
        draws = 4500
        steps = cohorts.clip_steps(distributed.IntegerCodec(config, 1, nx), 2, draws)
        # Three standard deviations of the estimate are 3.2%; the seeds are fixed.
        assert steps.std() * 2 == pytest.approx(1.5, rel=0.032)
        assert steps.mean() == pytest.approx(-0.5, abs=4.5 * 0.75 / math.sqrt(draws))
        count = config.round_dp_event(1, 1.0).count
        assert count.noise_multiplier == pytest.approx(2 * 1.5)

    def test_zero_updates_do_not_vote(self):
        """Replaced by zeros a client moves the count by 1, as the event says."""
        codec = distributed.IntegerCodec(make(adaptive_clipping=True), D, nx)
        totals = np.array(list(cohorts.votes(codec, N))) % 2**24
        assert (totals - (N - 1)).tolist() == [0, 1, -1, 0, 0]

    def test_noise_scales_with_the_clip(self):
        codec = distributed.IntegerCodec(
            make("ddg", 1.0, adaptive_clipping=True, count_stddev=1.0), D, nx
        )
        cohorts.check_noise_scales_with_the_clip(codec, N)


class TestExecution:
    def test_replayed_rounds_match_the_codec(self, tff_secure_context):
        """Through the secure sum comes what the plain sum of integers gives."""
        value_type = cohorts.with_ids((np.float32, (D,)))
        process = aggregators.build(make("ddg", 0.0), seed=1).create(value_type)
        x = updates([1.0] * N).numpy()
        state, values = process.initialize(), cohorts.identified(x)
        first, again = (process.next(state, values).result for _ in range(2))
        assert_array_equal(first, again)
        assert_allclose(first, x.mean(0), atol=3e-5)
