# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Clients of the tests of aggregators, and what all noise must be like."""

import collections
import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose

from tests.aggregators.rounds import run_codec
from tests.many_draws import many

FLOAT_MAX = float(np.finfo(np.float32).max)
HOSTILE = [math.nan, math.inf, -math.inf, 1e30, -1e30, FLOAT_MAX, -FLOAT_MAX]


def updates(norms, d=500):
    """float32[len(norms), d], in random directions."""
    values = np.random.default_rng(0).standard_normal([len(norms), d])
    values *= np.array(norms)[:, None] / np.linalg.norm(values, axis=1, keepdims=True)
    return tf.constant(values, tf.float32)


def mean_error(means, x):
    """The mean squared error of means of updates."""
    return np.mean(np.sum(np.square(means - x.numpy().mean(0)), 1))


def neighbours(honest, client, place, value):
    """Cohorts without a client's update, and with a value in a place of it."""
    without, with_hostile = np.array(honest), np.array(honest)
    without[client] = 0
    with_hostile[client, place] = value
    return without, with_hostile


def check_white(noise):
    """Rounds of noise are normal, and white within a round and over rounds."""
    limit = 4.5 / math.sqrt(noise.size)
    assert abs(noise.mean()) < limit * noise.std()
    scaled = noise / noise.std()
    assert scipy.stats.kstest(scaled.ravel(), "norm").pvalue > 1e-3
    check_uncorrelated(scaled)


def check_uncorrelated(noise):
    scaled, limit = noise / noise.std(), 4.5 / math.sqrt(noise.size)
    assert abs(np.mean(scaled[:, 1:] * scaled[:, :-1])) < limit
    assert abs(np.mean(scaled[1:] * scaled[:-1])) < limit


def check_sum_of_clipped(codec, atol):
    """Without noise: four of an expected five report; the divisor stays five."""
    norms = np.array([0.5, 1.0, 2.5, 8.0])
    x = updates(norms, codec.dimension)
    decoded, _ = run_codec(codec, x, 0)
    scale = np.minimum(1, 2 / norms)[:, None]
    assert_allclose(decoded.mean, (x.numpy() * scale).sum(0) / 5, atol=atol)
    assert decoded.measurements["l2_clipped_fraction"] == 0.5


def votes(codec, clients):
    """The summed votes where one client has zeros, is within, beyond, NaN, infinity."""
    others = updates([1.0] * (clients - 1), codec.dimension)
    for value in (0.0, 0.01, 50.0, math.nan, math.inf):
        x = tf.concat([tf.fill([1, codec.dimension], value), others], 0)
        yield run_codec(codec, x, 0)[1]["within"]


def clip_steps(codec, clients, draws):
    """What the logarithm of a clip of 2 moves by, where all clients are within."""

    def clip(number):
        return run_codec(codec, tf.ones([clients, 1]), number)[0].state["clip_norm"]

    return np.log(many(clip, draws) / 2)


def check_clip_rule(codec):
    """C exp(-0.2 (3/5 - 1/2)) without noise, then again with what is clipped by then."""
    x = updates([0.5, 1.0, 1.99, 3.0, 3.0])
    first, _ = run_codec(codec, x, 0)
    clip = 2 * math.exp(-0.2 * 0.1)
    assert first.state["clip_norm"].numpy() == pytest.approx(clip)
    second, _ = run_codec(codec, x, 1, first.state)
    assert second.measurements["clip_norm"].numpy() == pytest.approx(clip)
    # 1.99 is clipped now: two of five are within.
    clip *= math.exp(0.2 * 0.1)
    assert second.state["clip_norm"].numpy() == pytest.approx(clip)


def check_noise_scales_with_the_clip(codec, clients):
    """From the first clip of 2 to one of 20."""
    state = collections.OrderedDict(clip_norm=tf.constant(20.0))
    zeros = tf.zeros([clients, codec.dimension])
    first, second = (run_codec(codec, zeros, 0, s)[0].mean for s in (None, state))
    assert_allclose(second, 10 * first, rtol=1e-4, atol=1e-5)


def with_ids(value_type):
    """The type of a value and its client's id."""
    return tff.to_type(collections.OrderedDict(update=value_type, client_id=np.int64))


def identified(values):
    """Values, each with its place for its client's id."""
    return [
        collections.OrderedDict(update=value, client_id=np.int64(i))
        for i, value in enumerate(values)
    ]


def fed_avg(factory):
    """TFF's federated averaging of a linear model from 4 numbers to 3."""

    def model_fn():
        layer = tf.keras.layers.Dense(3, kernel_initializer="zeros", input_shape=[4])
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([layer]),
            loss=tf.keras.losses.MeanSquaredError(),
            input_spec=(tf.TensorSpec([None, 4]), tf.TensorSpec([None, 3])),
        )

    return tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn,
        tff.learning.optimizers.build_sgdm(0.1),
        tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=factory,
    )
