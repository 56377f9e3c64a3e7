# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import mechanisms
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import dome
from dpfl.codecs.base import Received
from dpfl.vectors import adaptive_sketch
from tests.aggregators import cohorts
from tests.aggregators.rounds import compiled_round, many_means, many_totals, run_codec
from tests.many_draws import many
from tests.refusals import refuses

D, K, N = 40, 6, 5
HOSTILE = [math.nan, math.inf, -math.inf, 1e30, -3.4e38]


def make(noise_multiplier=0.0, cohort_size=N, clip_norm=1e3, sketch_size=K, **kwargs):
    return mechanisms.Dome(
        cohort_size, clip_norm, noise_multiplier, sketch_size, **kwargs
    )


def updates(count=N, d=D, seed=0, scale=1.0):
    values = np.random.default_rng(seed).standard_normal([count, d])
    return tf.constant(scale * values, tf.float32)


def make_ddg(noise_multiplier=0.0, bits=24, cohort_size=N, sketch_size=K, **kwargs):
    return mechanisms.DomeDdg(
        cohort_size, 2.0, noise_multiplier, sketch_size, bits=bits, **kwargs
    )


def shared_of(codec, state, number):
    """What clients share, and are sent, in a round that `run_codec` runs."""
    from dpfl.vectors import randomness

    seed = tf.stack([tf.cast(number, tf.int64), 99])
    message = codec.broadcast(state, randomness.fold_in(seed, 1))
    return codec.decode_broadcast(message), message


def sketch_of(codec, state, number):
    """Its rows."""
    return adaptive_sketch.dense(shared_of(codec, state, number)[0]["sketch"]).numpy()


def check_independent(noise):
    assert abs(noise.mean()) < 4.5 * noise.std() / math.sqrt(noise.size)
    correlation = np.corrcoef(noise.T) - np.eye(noise.shape[1])
    assert np.abs(correlation).max() < 4.5 / math.sqrt(len(noise))


class TestRound:
    def test_decoded_mean_by_hand(self):
        """g = S^T (sum of clipped S (g_i - m)) / B + m, over two rounds."""
        codec = dome.DomeCodec(make(clip_norm=2.0, direction="gradient"), D, nx)
        state, first_moment = codec.initial_state(), np.zeros(D)
        for number in range(3):
            x = updates(seed=number).numpy()[:4]
            s = sketch_of(codec, state, number)
            mean = first_moment / (1 - 0.9**number) if number else 0 * first_moment
            inside = (x - mean) @ s.T
            norms = np.linalg.norm(inside, axis=1, keepdims=True)
            clipped = inside * np.minimum(1, 2 / norms)
            # Four of an expected five report.
            want = clipped.sum(0) / 5 @ s + mean
            decoded, total = run_codec(codec, tf.constant(x), number, state)
            assert_allclose(decoded.mean, want, rtol=5e-5, atol=2e-5)
            assert total["update"].shape == [K]
            clipped_fraction = float(decoded.measurements["l2_clipped_fraction"])
            assert clipped_fraction == pytest.approx(np.mean(norms > 2))
            first_moment = 0.9 * first_moment + 0.1 * want
            state = decoded.state
            assert_allclose(state["first_moment"], first_moment, rtol=5e-5, atol=2e-5)

    @pytest.mark.parametrize("debiasing", [True, False])
    def test_adam_matches_numpy(self, debiasing):
        options = {"beta_1": 0.8, "second_moment_floor": 1e-3}
        config = make(0.8, clip_norm=3.0, debiasing=debiasing, **options)
        codec = dome.DomeCodec(config, D, nx)
        twin = dome.DomeCodec(dataclasses.replace(config, direction="gradient"), D, nx)
        state, m, v = codec.initial_state(), np.zeros(D), np.zeros(D)
        for t in range(1, 4):
            x = updates(seed=t)
            sketch = sketch_of(codec, state, t)
            # The twin has no second moment, and otherwise the same state.
            own = collections.OrderedDict(state)
            del own["second_moment"]
            gradient = run_codec(twin, x, t, own)[0].mean.numpy()
            variance = (0.8 * 3.0 / N) ** 2 * np.sum(sketch**2, 0) * debiasing
            m = 0.8 * m + 0.2 * gradient
            v = 0.999 * v + 0.001 * (gradient**2 - variance)
            want = m / (1 - 0.8**t)
            want = want / np.sqrt(np.maximum(v / (1 - 0.999**t), 1e-3))
            decoded = run_codec(codec, x, t, state)[0]
            assert_allclose(decoded.mean, want, rtol=1e-3, atol=1e-4)
            state = decoded.state
            assert int(state["steps"]) == t

    def test_without_mean_removal(self):
        codec = dome.DomeCodec(make(mean_removal=False, direction="gradient"), D, nx)
        state = codec.initial_state()
        assert "first_moment" not in state and "second_moment" not in state
        for number in range(2):
            x = updates(seed=number)
            s = sketch_of(codec, state, number)
            decoded = run_codec(codec, x, number, state)[0]
            want = x.numpy().mean(0) @ s.T @ s
            assert_allclose(decoded.mean, want, rtol=5e-5, atol=2e-5)
            state = decoded.state

    @pytest.mark.parametrize("target", ["gradient", "residual"])
    def test_sketch_learns_from_released_means(self, target):
        config = make(sketch_target=target, direction="gradient", sketch_decay=1e-6)
        codec = dome.DomeCodec(config, D, nx)
        state = run_codec(codec, updates(), 0)[0].state
        mean = state["first_moment"].numpy() / 0.1
        decoded = run_codec(codec, updates(seed=1), 1, state)[0]
        learned = decoded.mean.numpy() - (mean if target == "residual" else 0)
        # All that came before is forgotten: one direction, that of the last.
        direction = adaptive_sketch.unpack(decoded.state["basis"]).numpy()[0]
        cosine = direction @ learned / np.linalg.norm(learned)
        assert abs(cosine) == pytest.approx(1, abs=2e-3)

    def test_explained_energy_by_hand(self):
        codec = dome.DomeCodec(make(measures_energy=True, clip_norm=0.1), D, nx)
        state = run_codec(codec, updates(), 0)[0].state
        x = np.concatenate([updates(seed=1).numpy(), np.full([1, D], np.nan)])
        s = sketch_of(codec, state, 1)
        centred = x[:N].mean(0) - state["first_moment"].numpy() / 0.1
        want = np.sum((s @ centred) ** 2) / np.sum(centred**2)
        decoded, total = run_codec(codec, tf.constant(x, tf.float32), 1, state)
        energy = float(decoded.measurements["explained_energy"])
        assert energy == pytest.approx(want, rel=1e-4)
        # What is measured is not what is sent.
        assert codec.message_bits(total) == codec._config.uplink_bits(D)

    @pytest.mark.parametrize(
        ("noise_multiplier", "cohort_size", "bits"),
        [(1.0, N, 32), (0.0, N, 32), (1e-3, 10**5, 62)],
    )
    def test_the_modulus_holds_any_sum(self, noise_multiplier, cohort_size, bits):
        config = make(noise_multiplier, cohort_size, clip_norm=1.0)
        assert config.modulus_bits == bits
        assert config.uplink_bits(D) == bits * K
        codec = dome.LocalNoiseCodec(config, nx)
        grid = codec._sum.grid
        most = cohort_size * grid.max_size + 16 * int(grid.noise_stddev)
        assert most < 2 ** (bits - 1)
        sent = np.array([most, -most, 0, 1, -1, 7])
        counted = {"clients": tf.constant(float(cohort_size), tf.float64)}
        for total in (sent, sent % 2**bits):
            total = {"update": tf.constant(total, tf.int64)}
            opened = codec.release(Received({}, total, counted, {}))
            assert_array_equal(opened, sent)


class TestNoise:
    def test_noise_is_the_accounted_one(self):
        config = make(1.3, clip_norm=2.0, sketch_size=24, direction="gradient")
        codec = dome.DomeCodec(config, D, nx)
        totals = many_totals(codec, tf.zeros([N, D]), 400)
        counted = {"clients": tf.constant(float(N), tf.float64)}
        sums = codec._inner.release(Received({}, totals, counted, {}))
        noise = codec._inner._sum.to_float(sums, 2.0).numpy()
        # 9600 normals: a standard error of 0.72%.
        event = config.dp_event(mechanisms.OncePerEpoch(100, N, 20), D)
        once = event.event.event.noise_multiplier
        assert noise.std() / 2.0 == pytest.approx(once, rel=0.025)
        assert noise.std() / N == pytest.approx(config.stddev, rel=0.025)
        check_independent(noise)

    def test_error_is_noise_for_updates_within_the_sketch(self):
        """sigma^2 k, and a client that is not there does not lessen the divisor."""
        d = 32
        sizes = {"clip_norm": 10.0, "sketch_size": d, "max_rank": 4}
        config = make(2.0, direction="gradient", **sizes)
        codec = dome.DomeCodec(config, d, nx)
        x = updates(d=d)
        error = cohorts.mean_error(many_means(codec, x, 400), x)
        # 12,800 squared normals: a standard error of 1.2%.
        assert error == pytest.approx(config.mean_squared_error(d), rel=0.04)

    def test_debiasing_removes_noise_from_the_second_moment(self):
        k = 24
        config = make(3.0, sketch_size=k, beta_1=0.0)
        codec = dome.DomeCodec(config, D, nx)

        def moments(number):
            state = run_codec(codec, tf.zeros([N, D]), number)[0].state
            return state["first_moment"], state["second_moment"]

        gradient, second = many(moments, 200)
        noise = config.stddev**2 * k / D
        # 4800 squared normals: a standard error of 2%.
        assert np.mean(gradient**2) / noise == pytest.approx(1, abs=0.05)
        assert second.mean() / 0.001 / noise == pytest.approx(0, abs=0.05)


class TestDdg:
    def test_noise_and_debiasing_follow_the_configuration(self):
        """Noise and rounding in k-space, of updates as long as the clip."""
        d = k = 32
        config = make_ddg(1.0, 5, sketch_size=k, beta_1=0.0)
        codec = dome.DomeCodec(config, d, nx)
        x = updates(d=d).numpy()
        x *= 1.9999 / np.linalg.norm(x, axis=1, keepdims=True)
        x[1:3] = x[0]

        def moments(number):
            state = run_codec(codec, tf.constant(x), number)[0].state
            return state["first_moment"], state["second_moment"]

        gradients, squares = many(moments, 350)
        # The sketch is a rotation here, which leaves noise as it is.
        noise = gradients - x.mean(0)
        # 11,200 numbers: a standard error of 1.3%.
        assert noise.var() == pytest.approx(config.stddev**2, rel=0.05)
        assert scipy.stats.kstest(noise.ravel() / config.stddev, "norm").pvalue > 1e-3
        check_independent(noise)
        bias = np.mean(squares / 0.001 - np.square(x.mean(0)))
        assert bias / config.stddev**2 == pytest.approx(0, abs=0.06)
        # At 5 bits rounding is a part of it that would be missed.
        assert config.stddev**2 / (1.0 * 2 / N) ** 2 - 1 > 0.06

    def test_missing_clients_and_too_few_bits_are_refused(self):
        for config in (make_ddg(1.0, 16), make(1.0)):
            codec = dome.DomeCodec(config, D, nx)
            with refuses(tf.errors.InvalidArgumentError, "5 clients", 4):
                run_codec(codec, updates(4), 0)
        # Without noise there is nothing that could be missing.
        run_codec(dome.DomeCodec(make(0.0), D, nx), updates(4), 0)
        with refuses(ValueError, "bits", 5):
            dome.DomeCodec(make_ddg(0.02, 5), D, nx)


@pytest.fixture(scope="module")
def hostile_round():
    config = make(1.0, clip_norm=2.0, direction="gradient")
    return compiled_round(dome.DomeCodec(config, D, nx))


class TestHostile:
    @pytest.mark.parametrize("value", HOSTILE)
    @pytest.mark.parametrize("place", [0, slice(None)])
    def test_one_client_moves_the_mean_within_the_clip(
        self, hostile_round, value, place
    ):
        state = hostile_round(updates(), 0)[2]
        x = updates(seed=1).numpy()
        x[4] = state["first_moment"].numpy() / 0.1
        honest, _, _ = hostile_round(x, 1, state)
        x[4, place] = value
        mean, _, state = hostile_round(x, 1, state)
        moved = np.linalg.norm(mean - honest)
        assert moved <= 2.0 / N * (1 + 1e-5)
        # What is not finite is an S (g - m) of zero; the noise stays.
        assert math.isfinite(value) or moved < 1e-6
        for part in tf.nest.flatten(state):
            assert part.dtype == tf.int16 or np.all(np.isfinite(part))

    def test_round_without_clients(self):
        codec = dome.DomeCodec(make(), D, nx)
        state = codec.initial_state()
        shared = shared_of(codec, state, 0)[0]
        sums = dict.fromkeys(("clients", "l2_clipped"), tf.zeros([], tf.float64))
        seed = tf.zeros([2], tf.int64)
        decoded = codec.decode(Received(state, codec.zero(), sums, shared, seed))
        assert all(np.isfinite(list(decoded.measurements.values())))

    @pytest.mark.parametrize("size", [0.0, 1e-30])
    def test_zero_gradients(self, size):
        codec = dome.DomeCodec(make(), D, nx)
        state = None
        for number in range(3):
            decoded = run_codec(codec, updates(scale=size), number, state)[0]
            state = decoded.state
            assert np.all(np.isfinite(decoded.mean))
        assert size or int(state["rank"]) == 0
