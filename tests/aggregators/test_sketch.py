# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from dpfl import mechanisms
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import sketch
from tests.aggregators import cohorts
from tests.aggregators.cohorts import mean_error
from tests.aggregators.rounds import many_means, run_codec
from tests.refusals import refuses

D, N = 600, 4
DDG = mechanisms.SketchedDdg(N, 2.0, 0.0, 18, compression_rate=5.0, sketch_length=4)
CENTRAL = mechanisms.ProjectAndPerturb(N, 2.0, 0.0, 5.0, sketch_length=4)
CODECS = {
    "ddg": (sketch.SketchedCodec, DDG),
    "central": (sketch.ProjectAndPerturbCodec, CENTRAL),
}
HOLDS = {"noise_multiplier": 1.0, "threshold": 1.5}
BOTH = pytest.mark.parametrize("name", sorted(CODECS))


def codec_of(name, **changes):
    codec, config = CODECS[name]
    return codec(dataclasses.replace(config, **changes), D, nx)


def updates(norms):
    return cohorts.updates(norms, D)


@BOTH
class TestBoth:
    def test_without_compression_it_is_the_clipped_mean(self, name):
        codec = codec_of(name, compression_rate=1.0, cohort_size=5)
        cohorts.check_sum_of_clipped(codec, atol=1e-4)

    def test_error_is_the_formula_for_equal_updates(self, name):
        """Compression alone, then noise alone (it does not depend on the updates)."""
        x = tf.repeat(tf.ones([1, D]) * 1.9 / math.sqrt(D), N, 0)
        # A clip that never binds: sketches of one vector vary in norm.
        changes = {"sketch_clip": 2.0}
        still = codec_of(name, **changes)
        error = mean_error(many_means(still, x, 50), x)
        expected = CODECS[name][1]
        expected = dataclasses.replace(expected, clip_norm=1.9, **changes)
        assert error == pytest.approx(expected.mean_squared_error(D), rel=0.1)
        assert error < 2 * 5 * 1.9**2
        noisy = codec_of(name, noise_multiplier=0.8, **changes)
        zeros = tf.zeros([N, D])
        error = mean_error(many_means(noisy, zeros, 50), zeros)
        config = dataclasses.replace(CODECS[name][1], noise_multiplier=0.8, **changes)
        compression = config.shape(D).error * 4.0
        expected = config.mean_squared_error(D) - compression
        assert error == pytest.approx(expected, rel=0.04)
        assert expected == pytest.approx(D * (0.8 * 2 * 2 / N) ** 2, rel=0.01)

    def test_single_coordinates_stay_within_the_sketch_clip(self, name):
        """All-equal signs after an unlucky sketch: the clip holds whatever S does."""
        codec = codec_of(name, sketch_clip=0.5)
        x = updates([2.0] * N)
        decoded, total = run_codec(codec, x, 0)
        if name == "central":
            total = codec._sum.to_float(total, 0.5 * 2.0)
            assert N * 0.5 < np.linalg.norm(total) <= N * 0.5 * 2.0 * (1 + 1e-5)
        else:
            assert np.linalg.norm(decoded.mean) < 2.0 * math.sqrt(5) * 0.6


class TestSketchedDdg:
    def test_rows_layers_and_bits(self):
        codec = codec_of("ddg", layers="100,200", layer_rates="1,5,5")
        x = updates([1.0] * N)
        decoded, total = run_codec(codec, x, 0)
        config = dataclasses.replace(DDG, layers="100,200", layer_rates="1,5,5")
        assert len(total["update"]) == config.shape(D).length
        assert float(codec.message_bits(total)) == 18 * len(total["update"])
        mean = x.numpy().mean(0)
        assert_allclose(decoded.mean[:100], mean[:100], atol=1e-3)
        assert np.abs(decoded.mean[100:] - mean[100:]).max() > 0.01

    def test_thresholding_delays_but_loses_nothing(self):
        """What was applied and the error add up to what was decoded."""
        plain = codec_of("ddg", noise_multiplier=1.0)
        held = codec_of("ddg", **HOLDS)
        x = updates([1.0] * N)
        state = held.initial_state()
        applied, decoded = np.zeros(D), np.zeros(D)
        for number in range(6):
            output, _ = run_codec(held, x, number, state)
            state = output.state
            applied += output.mean.numpy()
            decoded += run_codec(plain, x, number)[0].mean.numpy()
        assert_allclose(applied + state["error"].numpy(), decoded, atol=1e-3)
        assert np.linalg.norm(state["error"]) > 0.1 * np.linalg.norm(decoded)

    def test_residual_stays_below_the_threshold(self):
        """Also at a high rate and in many rounds, where an error must not grow."""
        held = codec_of("ddg", compression_rate=30.0, **HOLDS)
        x = updates([1.0] * N)
        run = tf.function(
            lambda number, state: run_codec(held, x, number, state)[0], autograph=False
        )
        state = held.initial_state()
        for number in range(50):
            output = run(tf.constant(number, tf.int64), state)
            state = output.state
            limit = 1.5 * output.measurements["noise_stddev"].numpy()
            assert 0 < np.abs(state["error"]).max() <= limit * 1.0001

    def test_thresholding_keeps_the_large_coordinates(self):
        """Above 1.5 standard deviations are 13% of the coordinates of pure noise."""
        held = codec_of("ddg", compression_rate=1.0, **HOLDS)
        means = many_means(held, tf.zeros([N, D]), 20)
        assert np.mean(means != 0) == pytest.approx(0.1336, rel=0.06)

    def test_adaptive_clip_scales_the_sketch_s_clip(self):
        codec = codec_of("ddg", adaptive_clipping=True, sketch_clip=1.5)
        state = codec.initial_state()
        state["clip_norm"] = tf.constant(0.25)
        x = updates([10.0] * N)
        decoded, _ = run_codec(codec, x, 0, state)
        assert decoded.measurements["clip_norm"] == 0.25
        assert np.linalg.norm(decoded.mean) < 0.25 * math.sqrt(6)
        assert decoded.state["clip_norm"] > 0.25


class TestSparseRecovery:
    CONFIG = mechanisms.SparseRecovery(N, 1.0, 0.02, 18, sparsity=4, measurements=4.0)

    def test_recovers_sparse_means_better_than_the_noise_on_all(self):
        d = 400
        x = np.zeros([N, d], np.float32)
        x[:, [5, 100, 200, 399]] = [0.5, -0.5, 0.4, 0.4]
        codec, x = sketch.SparseRecoveryCodec(self.CONFIG, d, nx), tf.constant(x)
        means = many_means(codec, x, 20)
        error = mean_error(means, x)
        formula = self.CONFIG.mean_squared_error(d)
        assert formula / 4 < error < 4 * formula
        clip = self.CONFIG.typical_vector_clip(d)
        assert error < d * (0.02 * clip / N) ** 2 / 2
        for mean in means:
            assert set(np.argsort(-np.abs(mean))[:4]) == {5, 100, 200, 399}

    def test_the_clip_is_the_largest_singular_value(self):
        codec = sketch.SparseRecoveryCodec(self.CONFIG, 200, nx)
        shared = codec.decode_broadcast({"round_seed": tf.constant([1, 99], tf.int64)})
        largest = np.linalg.norm(shared["sketch"].numpy(), 2)
        assert float(shared["vector_clip"]) == pytest.approx(largest, rel=1e-5)

    def test_matrices_beyond_a_gigabyte_are_refused_early(self):
        with refuses(ValueError, "sparsity", "measurements", 1_200_000):
            sketch.SparseRecoveryCodec(self.CONFIG, 1_200_000, nx)
