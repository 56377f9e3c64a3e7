# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Clips that follow a noised count, at a trusted server and under secure sums."""

import math

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

import dpfl
from dpfl import mechanisms
from dpfl.codecs.base import Received
from dpfl.vectors import integers, randomness
from tests.codecs import rounds
from tests.many_draws import many

N = 5
NAMES = ("gaussian", "clients", "helpers")
NAMED = pytest.mark.parametrize("name", NAMES)


def make(name, noise_multiplier=0.0, cohort_size=N, **changes):
    changes = {"adaptive_clipping": True, **changes}
    if name == "gaussian":
        return mechanisms.Gaussian(cohort_size, 2.0, noise_multiplier, **changes)
    return mechanisms.DistributedDiscreteGaussian(
        cohort_size, 2.0, noise_multiplier, 20, noise_source=name, **changes
    )


@NAMED
def test_clip_follows_the_rule_without_noise(name):
    """C exp(-0.2 (3/5 - 1/2)), then again with what is clipped by then."""
    given = rounds.updates([0.5, 1.0, 1.99, 3.0, 3.0])
    first = rounds.run(make(name), given).decoded
    clip = 2 * math.exp(-0.2 * 0.1)
    assert first.state["clip_norm"] == pytest.approx(clip)
    second = rounds.run(make(name), given, 1, first.state).decoded
    assert second.measurements["clip_norm"] == pytest.approx(clip)
    # 1.99 is clipped now: two of five are within.
    clip *= math.exp(0.2 * 0.1)
    assert second.state["clip_norm"] == pytest.approx(clip)


@NAMED
def test_zero_updates_do_not_vote(name):
    """Replaced by zeros a client moves the count by 1, as the event says.

    Its update is zeros, within the clip, beyond, NaN or infinity.
    """
    others, votes = rounds.updates([1.0] * (N - 1)), []
    for value in (0.0, 0.01, 50.0, math.nan, math.inf):
        given = np.concatenate([np.full([1, 500], value), others])
        within = rounds.run(make(name), given).released["within"]
        # Gaussian's is half the sum, in floats.
        is_half = name == "gaussian"
        votes.append(2 * within if is_half else integers.center(within, 24))
    assert np.subtract(votes, N - 1).tolist() == [0, 1, -1, 0, 0]


@NAMED
def test_noise_on_the_count_is_the_accounted_one(name):
    """And independent of the update's: together they cost what the event says."""
    more = {"count_stddev": 1.5, "cohort_size": 2}
    config, draws = make(name, 0.9, **more), 3000
    codec = dpfl.make_codec(config, 1, "tensorflow")
    state, seed = codec.initial_state(), tf.constant([5, 6], tf.int64)
    shared = codec.decode_broadcast(codec.broadcast(state, seed))
    sums = {"clients": tf.constant(2.0, tf.float64)}
    zeros = tf.zeros([codec.input_length])

    def released(number):
        own, total = tf.stack([number, 7]), codec.zero()
        for client in range(2):
            client_seed = randomness.fold_in(own, client)
            message = codec.encode(zeros, shared, client_seed).message
            total = codec.accumulate(total, message)
        opened = codec.release(Received(state, total, sums, shared, own))
        return tuple(tf.cast(opened[part], tf.float64) for part in ("within", "update"))

    count, update = many(released, draws)
    if name != "gaussian":
        # Half the votes.
        count = integers.center(count.astype(np.int64), 24) / 2
        update = integers.center(update.astype(np.int64), 20)
    # Three standard deviations of the estimate are 4%; the seeds are fixed.
    assert count.std() == pytest.approx(1.5, rel=0.04)
    assert abs(count.mean()) < 4.5 * 1.5 / math.sqrt(draws)
    for place in range(update.shape[1]):
        between = np.corrcoef(count, update[:, place])[0, 1]
        assert abs(between) < 4.5 / math.sqrt(draws)
    event = config.round_dp_event(1, 1.0)
    if name == "gaussian":
        cost = 1 / config.update_noise_multiplier, 0.5 / count.std()
        found = event.event.noise_multiplier
        assert 1 / math.hypot(*cost) == pytest.approx(found, rel=0.02)
    else:
        assert event.count.noise_multiplier == pytest.approx(2 * 1.5)


@NAMED
def test_noise_scales_with_the_clip(name):
    """From the first clip of 2 to one of 20."""
    config, zeros = make(name, 1.0, count_stddev=1.0), np.zeros([N, 500])
    first, second = (
        rounds.run(config, zeros, 0, state).decoded.mean
        for state in (None, {"clip_norm": np.float32(20.0)})
    )
    assert_allclose(second, 10 * first, rtol=1e-4, atol=1e-5)


@NAMED
@pytest.mark.parametrize("clip", [1e-15, 1e15])
def test_an_adaptive_clip_stays_finite(name, clip):
    given = rounds.updates([1e-30 if clip < 1 else 1e30] * N)
    config, state = make(name, clip_learning_rate=10.0), {"clip_norm": np.float32(clip)}
    decoded = rounds.run(config, given, 0, state).decoded
    assert 0 < decoded.state["clip_norm"] < np.inf
