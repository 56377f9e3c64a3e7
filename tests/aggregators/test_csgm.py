# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import aggregators, mechanisms, seed_domains
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import csgm
from tests.aggregators import cohorts
from tests.aggregators.rounds import many_means, run_codec

D, N = 700, 4


def config(**kwargs):
    numbers = {"noise_multiplier": 0.0, "keep_fraction": 0.25, "linf_ratio": 1.0}
    numbers.update(cohort_size=N, clip_norm=2.0)
    return mechanisms.L2Csgm(**{**numbers, **kwargs})


def updates(norm=2.0, d=D):
    return cohorts.updates([norm] * N, d)


class TestCodec:
    @pytest.mark.parametrize("turn", mechanisms.csgm.ROTATIONS)
    @pytest.mark.parametrize("norm", [1.0, 50.0])
    def test_uncompressed_and_noiseless_is_the_clipped_mean(self, turn, norm):
        codec = csgm.CsgmCodec(config(keep_fraction=1.0, rotation=turn), D, nx)
        x = updates(norm)
        decoded, _ = run_codec(codec, x, 0)
        expected = x.numpy().mean(0) * min(1, 2 / norm)
        # Room for the rounding to integers shortens a clipped vector by 2e-5 of it.
        assert_allclose(decoded.mean, expected, rtol=5e-5, atol=1e-6)

    @pytest.mark.parametrize("rotation", ["hadamard", "dft"])
    def test_is_unbiased(self, rotation):
        count = 1300
        codec = csgm.CsgmCodec(config(rotation=rotation), D, nx)
        x = updates()
        means = many_means(codec, x, count)
        error = means.mean(0) - x.numpy().mean(0)
        mse = cohorts.mean_error(means, x)
        # The squared error of the average is that of one over `count`, and no more.
        assert np.sum(error**2) == pytest.approx(mse / count, rel=0.35)
        signal = np.linalg.norm(x.numpy().mean(0))
        assert math.sqrt(mse / count) < 0.05 * signal

    @pytest.mark.parametrize("rotation", ["hadamard", "dft"])
    def test_noise_is_gaussian_of_the_accounted_size(self, rotation):
        numbers = config(noise_multiplier=1.3, rotation=rotation, keep_fraction=0.01)
        noise = many_means(csgm.CsgmCodec(numbers, D, nx), tf.zeros([N, D]), 300)
        event = numbers.round_dp_event(D, 1.0)
        # sigma / (gamma Delta_2), as measured, against what is accounted for.
        measured = noise.std() * N / numbers.clip_norm
        assert measured == pytest.approx(event.noise_multiplier, rel=0.01)
        cohorts.check_white(noise)

    def test_enforced_bounds_are_the_accounted_ones(self):
        """Coordinates, norm and kept fraction of the messages, against the event."""
        numbers = config(linf_ratio=None, keep_fraction=0.3, clip_norm=0.5)
        codec = csgm.CsgmCodec(numbers, D, nx)
        event = numbers.round_dp_event(D, 1.0)
        spike = np.zeros(D, np.float32)
        spike[3] = 9.0
        # Undoes the rotation of round 0, so that the client meets it with a spike.
        shared = _shared(codec)
        hostile = codec._rotation.invert(_pad(codec, spike), shared["rotation"])
        kept = []
        for i in range(60):
            encoded = codec.encode(hostile, shared, tf.constant([i, 1], tf.int64))
            values = encoded.message["values"]
            kept.append(len(values))
            values = codec._sum.to_float(values, 0.5).numpy()
            assert np.abs(values).max() <= event.linf_ratio * 0.5 * (1 + 1e-6)
            assert np.linalg.norm(values) <= 0.5 * (1 + 1e-6)
        fraction = np.mean(kept) / event.dimension
        stddev = math.sqrt(0.3 * 0.7 / (event.dimension * 60))
        assert fraction == pytest.approx(event.keep_fraction, abs=4.5 * stddev)

    def test_coordinates_are_clipped_and_counted(self):
        numbers = config(linf_ratio=0.01, keep_fraction=0.5)
        codec = csgm.CsgmCodec(numbers, D, nx)
        decoded, total = run_codec(codec, updates(), 0)
        largest = np.abs(codec._sum.to_float(total["total"], 2.0)).max()
        assert 0.02 < largest <= N * 0.02 * (1 + 1e-6)
        # Rotated coordinates are N(0, 4 / 1024): |x| > 0.02 in most of them.
        expected = 2 * scipy.stats.norm.sf(0.02 / math.sqrt(4 / 1024))
        measured = decoded.measurements["linf_clipped_fraction"].numpy()
        assert measured == pytest.approx(expected, abs=0.05)
        assert decoded.measurements["malformed_clients"] == 0

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda v: v[:-1],
            lambda v: v[:0],
            lambda v: tf.concat([v, v], 0),
            lambda v: tf.concat([[2**24 + 1], 0 * v[1:]], 0),
            lambda v: tf.concat([[-(2**24) - 1], 0 * v[1:]], 0),
            lambda v: tf.concat([[tf.int32.min], 0 * v[1:]], 0),
            lambda v: tf.concat([[2**24, 1], 0 * v[2:]], 0),
            lambda v: tf.ones_like(v) * 2**23,
        ],
        ids=["short", "empty", "long", "large", "small", "least", "norm", "many large"],
    )
    def test_malformed_messages_add_nothing_and_are_counted(self, spoil):
        codec = csgm.CsgmCodec(config(), D, nx)
        update = _pad(codec, updates()[0])
        message = codec.encode(update, _shared(codec), _seed(5)).message
        good = codec.accumulate(codec.zero(), message)
        values = message["values"]
        message["values"] = spoil(values)
        both = codec.accumulate(good, message)
        assert_array_equal(both["total"], good["total"])
        assert (good["malformed"], both["malformed"]) == (0, 1)
        # The clip itself, 2^24 steps, is a message that a client may send.
        message["values"] = tf.concat([[-(2**24)], 0 * values[1:]], 0)
        assert codec.accumulate(both, message)["malformed"] == 1

    @pytest.mark.parametrize("d", [1, 2, 3])
    @pytest.mark.parametrize("turn", mechanisms.csgm.ROTATIONS)
    def test_the_smallest_models(self, d, turn):
        codec = csgm.CsgmCodec(config(rotation=turn, keep_fraction=1.0), d, nx)
        decoded, _ = run_codec(codec, tf.fill([N, d], 0.5), 0)
        assert_allclose(decoded.mean, np.full(d, 0.5), atol=1e-6)


def _seed(number):
    return tf.constant([number, 8], tf.int64)


def _shared(codec):
    return codec.decode_broadcast(codec.broadcast(collections.OrderedDict(), _seed(0)))


def _pad(codec, update):
    return tf.pad(update, [[0, codec.input_length - len(update)]])


class TestExecution:
    @pytest.mark.parametrize("has_client_id", [True, False])
    def test_clients_with_equal_updates_have_different_masks(
        self, tff_context, has_client_id
    ):
        """N equal masks would leave an error of 1, as if there was one client."""
        numbers = mechanisms.L2Csgm(N, 100.0, 0.0, 0.5, linf_ratio=1.0)
        value_type = tff.TensorType(np.float32, [256])
        values = [np.ones(256, np.float32)] * N
        if has_client_id:
            value_type = cohorts.with_ids(value_type)
            values = cohorts.identified(values)
        process = aggregators.build(numbers, seed=7).create(value_type)
        state = process.initialize()
        first, again = (process.next(state, values).result for _ in range(2))
        # sqrt((1 - gamma) / gamma / N) of the updates' norm.
        error = np.linalg.norm(first - 1) / np.linalg.norm(np.ones(256))
        assert error == pytest.approx(math.sqrt(1 / N), rel=0.2)
        assert np.array_equal(first, again) == has_client_id


@pytest.mark.parametrize("kind", [seed_domains.RoundDomain, seed_domains.ClientDomain])
def test_seed_domains_differ(kind):
    assert len({int(domain) for domain in kind}) == len(kind.__members__) > 2
