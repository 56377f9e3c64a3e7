# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Noise that a training program computes for TFF's state."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose

from dpfl import factorization as fact
from dpfl.aggregators import build, build_with_host_noise
from dpfl.aggregators.host_noise import HostNoise
from dpfl.mechanisms.matrix_factorization import MatrixFactorization
from tests.aggregators import cohorts
from tests.refusals import refuses

FIELDS = {"cohort_size": 2, "clip_norm": 1.0, "noise_multiplier": 0.5}
MOMENTUM = {"matrix_momentum": 0.9, "matrix_schedule": "cooldown"}


def matrix(**changes):
    return MatrixFactorization(**{**FIELDS, "rounds_per_epoch": 5, **changes})


def vectors(dimension, *seeds):
    rng = np.random.default_rng(seeds)
    draws = rng.normal(size=[2, dimension]).astype(np.float32) / 10
    return cohorts.keyed(draws)


def value_type(dimension):
    return cohorts.with_keys((np.float32, [dimension]))


def saved(state):
    """The state as a checkpoint brings it back: nothing but copies of arrays."""
    return tf.nest.map_structure(lambda part: np.array(part), state)


def test_host_noise_equals_the_aggregators(tff_context):
    """And a training program's state holds no block of it."""
    config = matrix(**MOMENTUM)
    factory, put_noise = build_with_host_noise(config, 20, seed=5)
    alone, process = (
        each.create(value_type(20)) for each in (build(config, seed=5), factory)
    )
    own_state, state = alone.initialize(), process.initialize()
    for number in range(7):
        if number == 3:
            # As after a restart of the program in the middle of a block.
            put_noise = HostNoise(config, 20).put_into
            state = saved(state)
        own = alone.next(own_state, vectors(20, number))
        put_noise(state)
        other = process.next(put_noise(state), vectors(20, number))
        assert_allclose(own.result, other.result, atol=1e-6)
        own_state, state = own.state, other.state
    # The moment, the past of a row, and numbers.
    assert sum(np.size(part) for part in tf.nest.flatten(state)) < 3 * 20


def test_missing_or_stale_host_noise_is_refused(tff_context):
    config = matrix(matrix_method="blt", matrix_buffers=2)
    process = build(config, seed=5, noise_on_host=True).create(value_type(20))
    noise = HostNoise(config, 20)
    state = process.initialize()
    with refuses(Exception, "HostNoise.put_into"):
        process.next(state, vectors(20, 0))
    for number in range(6):
        before = noise.put_into(state)
        state = process.next(before, vectors(20, number)).state
        with refuses(Exception, "HostNoise.put_into"):
            process.next(state, vectors(20, 0))
    stale = collections.OrderedDict(
        state, **{name: before[name] for name in ("past", "past_row", "past_seed")}
    )
    with refuses(Exception, "HostNoise.put_into"):
        process.next(stale, vectors(20, 0))
    # The same row of another epoch, or of a run that went on from a copy.
    other = noise.put_into(process.next(noise.put_into(state), vectors(20, 9)).state)
    other["row_seeds"] = other["row_seeds"] + 1
    with refuses(Exception, "HostNoise.put_into"):
        process.next(other, vectors(20, 0))
    own = build(config, seed=5).create(value_type(20))
    with refuses(ValueError, "noise_on_host"):
        noise.put_into(own.initialize())


def test_file_with_too_few_rounds_is_refused_at_build(tmp_path):
    path = tmp_path / "short.npz"
    fact.save(fact.compute(fact.prefix_sum(4), "identity"), path)
    with refuses(ValueError, "matrix_file", path, 5, 4):
        build(matrix(matrix_file=str(path)))
