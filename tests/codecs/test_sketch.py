# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sketched sums: their errors, layers, thresholds and clips, and sparse recovery."""

import dataclasses
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dpfl
from dpfl import mechanisms
from tests.codecs import rounds
from tests.refusals import refuses

D, N = 600, 4
DDG = mechanisms.SketchedDdg(N, 2.0, 0.0, 18, compression_rate=5.0, sketch_length=4)
CENTRAL = mechanisms.ProjectAndPerturb(N, 2.0, 0.0, 5.0, sketch_length=4)
HOLDS = {"noise_multiplier": 1.0, "threshold": 1.5}


def squared_error(found, given):
    return np.mean(np.sum(np.square(found - given.mean(0)), 1))


@pytest.mark.parametrize("config", [DDG, CENTRAL], ids=lambda config: config.name)
def test_error_is_the_formula_for_equal_updates(config):
    """Compression alone, then noise alone (it does not depend on the updates)."""
    d = 6000
    given = np.full([N, d], 1.9 / math.sqrt(d))
    # A clip that never binds: sketches of one vector vary in norm.
    still = dataclasses.replace(config, sketch_clip=2.0)
    error = squared_error(rounds.means(still, given, 6), given)
    expected = dataclasses.replace(still, clip_norm=1.9).mean_squared_error(d)
    assert error == pytest.approx(expected, rel=0.1)
    assert error < 2 * 5 * 1.9**2
    noisy = dataclasses.replace(still, noise_multiplier=0.8)
    zeros = np.zeros([N, d])
    error = squared_error(rounds.means(noisy, zeros, 4), zeros)
    compression = noisy.shape(d).error * 4.0
    expected = noisy.mean_squared_error(d) - compression
    assert error == pytest.approx(expected, rel=0.06)
    assert expected == pytest.approx(d * (0.8 * 2 * 2 / N) ** 2, rel=0.01)


def test_rows_layers_and_bits():
    config = dataclasses.replace(DDG, layers="100,200", layer_rates="1,5,5")
    given = rounds.updates([1.0] * N, D)
    found, length = rounds.run(config, given), config.shape(D).length
    assert len(found.total["update"]) == length
    assert dpfl.make_codec(config, D).message_bits(found.total) == 18 * length
    off = np.abs(found.decoded.mean - given.mean(0))
    assert off[:100].max() < 1e-3 and off[100:].max() > 0.01


def test_thresholding_delays_but_loses_nothing():
    """What was applied and the error add up to what was decoded."""
    plain = dataclasses.replace(DDG, noise_multiplier=1.0)
    held = dataclasses.replace(DDG, **HOLDS)
    given, state = rounds.updates([1.0] * N, D), None
    applied, decoded = np.zeros(D), np.zeros(D)
    for number in range(6):
        output = rounds.run(held, given, number, state).decoded
        state = output.state
        applied += output.mean
        decoded += rounds.run(plain, given, number).decoded.mean
    assert_allclose(applied + state["error"], decoded, atol=1e-3)
    assert np.linalg.norm(state["error"]) > 0.1 * np.linalg.norm(decoded)


def test_residual_stays_below_the_threshold():
    """Also at a high rate and in many rounds, where an error must not grow."""
    held = dataclasses.replace(DDG, compression_rate=30.0, **HOLDS)
    given, state = rounds.updates([1.0] * N, D), None
    for number in range(25):
        output = rounds.run(held, given, number, state).decoded
        state = output.state
        limit = 1.5 * output.measurements["noise_stddev"]
        assert 0 < np.abs(state["error"]).max() <= limit * 1.0001


def test_thresholding_keeps_the_large_coordinates():
    """Above 1.5 standard deviations are 13% of the coordinates of pure noise."""
    held = dataclasses.replace(DDG, compression_rate=1.0, **HOLDS)
    mean = rounds.run(held, np.zeros([N, 1 << 14])).decoded.mean
    assert np.mean(mean != 0) == pytest.approx(0.1336, rel=0.06)


def test_adaptive_clip_scales_the_sketch_s_clip():
    config = dataclasses.replace(DDG, adaptive_clipping=True, sketch_clip=1.5)
    state = {"clip_norm": np.float32(0.25)}
    decoded = rounds.run(config, rounds.updates([10.0] * N, D), 0, state).decoded
    assert decoded.measurements["clip_norm"] == 0.25
    assert np.linalg.norm(decoded.mean) < 0.25 * math.sqrt(6)
    assert decoded.state["clip_norm"] > 0.25


SPARSE = mechanisms.SparseRecovery(N, 1.0, 0.02, 18, sparsity=4, measurements=4.0)


def test_recovers_sparse_means_better_than_the_noise_on_all():
    d = 400
    given = np.zeros([N, d], np.float32)
    given[:, [5, 100, 200, 399]] = [0.5, -0.5, 0.4, 0.4]
    found = rounds.means(SPARSE, given, 5)
    error, formula = squared_error(found, given), SPARSE.mean_squared_error(d)
    assert formula / 4 < error < 4 * formula
    assert error < d * (0.02 * SPARSE.typical_vector_clip(d) / N) ** 2 / 2
    for mean in found:
        assert set(np.argsort(-np.abs(mean))[:4]) == {5, 100, 200, 399}


def test_the_sparse_clip_is_the_largest_singular_value():
    codec = dpfl.make_codec(SPARSE, 200)
    shared = codec.decode_broadcast({"round_seed": np.array([1, 99])})
    largest = np.linalg.norm(shared["sketch"], 2)
    assert shared["vector_clip"] == pytest.approx(largest, rel=1e-5)


def test_matrices_beyond_a_gigabyte_are_refused_early():
    with refuses(ValueError, "sparsity", "measurements", 1_200_000):
        dpfl.make_codec(SPARSE, 1_200_000)
