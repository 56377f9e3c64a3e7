# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME's rounds by hand; its noise is in `test_every_mechanism.py`."""

import dataclasses
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dpfl
from dpfl import mechanisms
from dpfl.arrays import in_numpy
from dpfl.codecs import dome
from dpfl.codecs.base import Received
from dpfl.vectors import adaptive_sketch
from tests.codecs import rounds
from tests.refusals import refuses

D, K, N = 40, 6, 5
GRADIENT = {"direction": "gradient"}


def make(noise_multiplier=0.0, cohort_size=N, clip_norm=1e3, **changes):
    return mechanisms.Dome(cohort_size, clip_norm, noise_multiplier, K, **changes)


def updates(seed=0, count=N):
    values = np.random.default_rng(seed).standard_normal([count, D])
    return values.astype(np.float32)


def sketch_of(found):
    """The rows of the sketch of a round."""
    return adaptive_sketch.dense(found.shared["sketch"])


def test_decoded_mean_by_hand():
    """g = S^T (sum of clipped S (g_i - m)) / B + m, over three rounds."""
    config, state, first_moment = make(clip_norm=2.0, **GRADIENT), None, np.zeros(D)
    for number in range(3):
        given = updates(number, 4)
        found = rounds.run(config, given, number, state)
        s, decoded = sketch_of(found), found.decoded
        mean = first_moment / (1 - 0.9**number) if number else 0 * first_moment
        inside = (given - mean) @ s.T
        norms = np.linalg.norm(inside, axis=1, keepdims=True)
        clipped = inside * np.minimum(1, 2 / norms)
        # Four of an expected five report.
        want = clipped.sum(0) / 5 @ s + mean
        assert_allclose(decoded.mean, want, rtol=5e-5, atol=2e-5)
        assert found.total["update"].shape == (K,)
        fraction = found.exact["l2_clipped_fraction"]
        assert fraction == pytest.approx(np.mean(norms > 2))
        first_moment = 0.9 * first_moment + 0.1 * want
        state = decoded.state
        assert_allclose(state["first_moment"], first_moment, rtol=5e-5, atol=2e-5)


@pytest.mark.parametrize("debiasing", [True, False])
def test_adam_matches_numpy(debiasing):
    options = {"beta_1": 0.8, "second_moment_floor": 1e-3}
    config = make(0.8, clip_norm=3.0, debiasing=debiasing, **options)
    twin = dataclasses.replace(config, **GRADIENT)
    state, m, v = None, np.zeros(D), np.zeros(D)
    for t in range(1, 4):
        # The twin has no second moment, and otherwise the same state.
        own = {k: x for k, x in (state or {}).items() if k != "second_moment"}
        found = rounds.run(twin, updates(t), t, own or None)
        gradient = found.decoded.mean
        variance = (0.8 * 3.0 / N) ** 2 * np.sum(sketch_of(found) ** 2, 0) * debiasing
        m = 0.8 * m + 0.2 * gradient
        v = 0.999 * v + 0.001 * (gradient**2 - variance)
        want = m / (1 - 0.8**t)
        want = want / np.sqrt(np.maximum(v / (1 - 0.999**t), 1e-3))
        decoded = rounds.run(config, updates(t), t, state).decoded
        assert_allclose(decoded.mean, want, rtol=1e-3, atol=1e-4)
        state = decoded.state
        assert int(state["steps"]) == t


def test_without_mean_removal():
    config, state = make(mean_removal=False, **GRADIENT), None
    for number in range(2):
        given = updates(number)
        found = rounds.run(config, given, number, state)
        s, state = sketch_of(found), found.decoded.state
        want = given.mean(0) @ s.T @ s
        assert_allclose(found.decoded.mean, want, rtol=5e-5, atol=2e-5)
        assert "first_moment" not in state and "second_moment" not in state


@pytest.mark.parametrize("target", ["gradient", "residual"])
def test_sketch_learns_from_released_means(target):
    config = make(sketch_target=target, sketch_decay=1e-6, **GRADIENT)
    state = rounds.run(config, updates()).decoded.state
    mean = state["first_moment"] / 0.1
    decoded = rounds.run(config, updates(1), 1, state).decoded
    learned = decoded.mean - (mean if target == "residual" else 0)
    # All that came before is forgotten: one direction, that of the last.
    direction = adaptive_sketch.unpack(decoded.state["basis"])[0]
    cosine = direction @ learned / np.linalg.norm(learned)
    assert abs(cosine) == pytest.approx(1, abs=2e-3)


def test_explained_energy_by_hand():
    config = make(measures_energy=True, clip_norm=0.1)
    state = rounds.run(config, updates()).decoded.state
    given = np.concatenate([updates(1), np.full([1, D], np.nan)])
    found = rounds.run(config, given, 1, state)
    centred = given[:N].mean(0) - state["first_moment"] / 0.1
    want = np.sum((sketch_of(found) @ centred) ** 2) / np.sum(centred**2)
    assert found.exact["explained_energy"] == pytest.approx(want, rel=1e-4)
    # What is measured is not what is sent.
    codec = dpfl.make_codec(config, D)
    assert codec.message_bits(found.total) == config.uplink_bits(D)


@pytest.mark.parametrize(
    ("noise_multiplier", "cohort_size", "bits"),
    [(1.0, N, 32), (0.0, N, 32), (1e-3, 10**5, 62)],
)
def test_the_modulus_holds_any_sum(noise_multiplier, cohort_size, bits):
    config = make(noise_multiplier, cohort_size, clip_norm=1.0)
    assert config.modulus_bits == bits
    assert config.uplink_bits(D) == bits * K
    codec = dome.LocalNoiseCodec(config, in_numpy)
    grid = codec._sum.grid
    most = cohort_size * grid.max_size + 16 * int(grid.noise_stddev)
    assert most < 2 ** (bits - 1)
    sent = np.array([most, -most, 0, 1, -1, 7])
    counted = {"clients": np.float64(cohort_size)}
    for total in (sent, sent % 2**bits):
        opened = codec.release(Received({}, {"update": total}, counted, {}))
        assert_array_equal(opened, sent)


@pytest.mark.parametrize(
    ("config", "rel"),
    [
        (mechanisms.Dome(N, 2.0, 1.5, 64, beta_1=0.0), 0.06),
        # At 5 bits rounding is a part of the noise that would be missed.
        (mechanisms.DomeDdg(N, 2.0, 1.0, 64, bits=5, beta_1=0.0), 0.06),
    ],
    ids=["normal", "integers"],
)
def test_debiasing_removes_noise_from_the_second_moment(config, rel):
    """Updates as long as the clip, in a sketch that is a rotation."""
    given = rounds.updates([1.9999] * N, 64)
    given[1:3] = given[0]
    # As if the noise had to be removed from nothing else.
    truth = given.mean(0)
    found = [rounds.run(config, given, i).decoded.state for i in range(60)]
    gradients, squares = (
        np.stack([state[part] for state in found])
        for part in ("first_moment", "second_moment")
    )
    noise = gradients - truth
    # 3840 squared normals: a standard error of 2.3%.
    assert noise.var() == pytest.approx(config.stddev**2, rel=2 * rel)
    bias = np.mean(squares / 0.001 - np.square(truth))
    assert bias / config.stddev**2 == pytest.approx(0, abs=2 * rel)
    if isinstance(config, mechanisms.DomeDdg):
        assert config.stddev**2 / (1.0 * 2 / N) ** 2 - 1 > rel


def test_missing_clients_are_refused():
    for config in (make(1.0), mechanisms.DomeDdg(N, 2.0, 1.0, K, bits=16)):
        with refuses(ValueError, "5 clients", 4.0):
            rounds.run(config, updates(count=4))
    # Without noise there is nothing that could be missing.
    rounds.run(make(0.0), updates(count=4))


@pytest.mark.parametrize("size", [0.0, 1e-30])
def test_zero_gradients(size):
    state = None
    for number in range(3):
        decoded = rounds.run(make(), size * updates(), number, state).decoded
        state = decoded.state
        assert np.all(np.isfinite(decoded.mean))
    assert size or int(state["rank"]) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30, -3.4e38])
def test_one_client_moves_the_mean_within_the_clip(value):
    config = make(1.0, clip_norm=2.0, **GRADIENT)
    state = rounds.run(config, updates()).decoded.state
    given = updates(1)
    given[4] = state["first_moment"] / 0.1
    honest = rounds.run(config, given, 1, state).decoded.mean
    given[4, 0] = value
    decoded = rounds.run(config, given, 1, state).decoded
    moved = np.linalg.norm(decoded.mean - honest)
    assert moved <= 2.0 / N * (1 + 1e-5)
    # What is not finite is an S (g - m) of zero; the noise stays.
    assert math.isfinite(value) or moved < 1e-6
    parts = in_numpy.structure_leaves(dict(decoded.state))
    assert all(part.dtype == np.int16 or np.all(np.isfinite(part)) for part in parts)
