# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Streams of correlated noise are the same in each library.

Recurrences have the same bits; sums of several products may be rounded otherwise.
"""

import contextlib
import functools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import factorization as fact
from dpfl import mechanisms, noise_streams
from dpfl.arrays import in_numpy
from dpfl.codecs.base import Decoded, Fields
from dpfl.codecs.matrix_factorization import Release
from tests.arrays import libraries

ROUNDS, D = 11, 33
SEED = np.array([11, 5])
# Parameters of each method, and whether a row is a sum of single products.
METHODS = {
    "identity": ({}, True),
    "honaker-online": ({}, True),
    "honaker-full": ({}, False),
    "optimal": ({}, False),
    "band-low-rank": ({"band": 3, "rank": 2}, False),
    "toeplitz-root": ({}, True),
    "banded": ({"bands": 3}, True),
    "banded-inverse": ({"bands": 4}, True),
    "blt": ({"buffers": 2}, False),
}


@functools.cache
def factorization(method):
    workload = fact.Workload(ROUNDS, 0.9, fact.LinearCooldown())
    return fact.compute(workload, method, **METHODS[method][0])


def rows_of(stream, z):
    """The rows of a stream for given rows of Z, and row 7 again, sought."""
    nx = stream.nx
    z = nx.asarray(z, np.float32)

    def step(z, row, memory):
        return stream.step(lambda at: nx.take(z, at, axis=0), row, memory)

    def seek(z, row):
        return stream.memory_before(lambda at: nx.take(z, at, axis=0), row)

    step, seek = libraries.traced(nx, step), libraries.traced(nx, seek)
    places = [nx.asarray(row, np.int32) for row in range(stream.rounds)]
    memory, rows = stream.initial_memory(), []
    for place in places:
        row, memory = step(z, place, memory)
        rows.append(np.asarray(row))
    sought, _ = step(z, places[7], seek(z, places[7]))
    return np.stack(rows), np.asarray(sought)


# Two methods draw rows anew in place of memory, if asked.
CASES = [(method, False) for method in METHODS]
CASES += [("band-low-rank", True), ("banded-inverse", True)]


@pytest.mark.parametrize(("method", "redraw"), CASES)
def test_rows(method, redraw, nx):
    """Rows of numpy's stream, whose matrix is right in `noise_streams`."""
    found = factorization(method)
    build = functools.partial(noise_streams.build_stream, found, redraw=redraw)
    plain, stream = build(D, block_rounds=4), build(D, block_rounds=4, nx=nx)
    draw = plain.draw_from(SEED)
    z = np.stack([draw(row) for row in range(ROUNDS)])
    expected, _ = rows_of(plain, z)
    rows, sought = rows_of(stream, z)
    assert rows.dtype == expected.dtype == np.float32
    if METHODS[method][1]:
        # In TensorFlow rows of moving sums are added up in another order.
        atol = 1e-6 if method == "banded-inverse" else 0
        assert_allclose(rows, expected, rtol=0, atol=atol)
    assert_allclose(rows, expected, rtol=0, atol=1e-5)
    assert_array_equal(sought, rows[7])


def test_drawn_rows(nx):
    """From their seeds, in the library that makes the stream."""
    make = functools.partial(noise_streams.build_stream, factorization("banded"), D)
    stream, plain = make(nx=nx), make()
    state = stream.init(SEED)
    step = libraries.traced(nx, stream.next)
    expected = plain.init(SEED)
    for _ in range(3):
        row, state = step(state)
        other, expected = plain.next(expected)
        assert_array_equal(row, other)
    assert int(state["row"]) == 3


def test_rows_after_the_last_are_no_others(nx):
    """An error, or in JAX, which raises none, no numbers."""
    stream = noise_streams.build_stream(factorization("banded"), D, nx=nx)
    row, zeros = nx.asarray(ROUNDS, np.int32), nx.zeros([D], np.float32)
    with refused(nx):
        row = stream.checked(row, row < ROUNDS, "row")
    if nx.FIXES_SHAPES:
        noise, _ = stream.taken(row, zeros, zeros, stream.initial_memory())
        assert np.isnan(noise).all()


def test_noise_of_another_row_is_refused(nx):
    config = mechanisms.TEST_CONFIGS["matrix_factorization"]
    release = Release(config, D, nx, noise_on_host=True)
    mean, seed = nx.zeros([D], np.float32), nx.asarray(SEED, np.int64)
    with refused(nx):
        exact = Decoded(mean, release.initial_state(), Fields())
        mean = release(exact, seed).mean
    if nx.FIXES_SHAPES:
        assert np.isnan(mean).all()


def refused(nx):
    """A context in which a library raises its error, if it can."""
    if nx.FIXES_SHAPES:
        return contextlib.nullcontext()
    if nx is in_numpy:
        return pytest.raises(ValueError)
    import tensorflow as tf

    return pytest.raises(tf.errors.InvalidArgumentError)


def test_pickled_streams_have_their_library(nx):
    stream = noise_streams.build_stream(factorization("banded"), D, nx=nx)
    assert pickle.loads(pickle.dumps(stream)).nx is nx
    assert noise_streams.build_stream(factorization("banded"), D).nx is in_numpy
