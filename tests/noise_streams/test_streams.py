# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every stream against the matrix of its factorization."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import factorization as fact
from dpfl import noise_streams
from dpfl.aggregators import host_noise
from dpfl.arrays import in_numpy, in_tensorflow
from dpfl.factorization import factorization
from dpfl.vectors import integer_noise, integer_tables
from tests.refusals import refuses

ROUNDS = 19
WORKLOADS = {
    "prefix": fact.prefix_sum(ROUNDS),
    "momentum": fact.Workload(ROUNDS, 0.9, fact.LinearCooldown()),
}
METHODS = {
    "identity": (noise_streams.BandedStream, {}),
    "honaker-online": (noise_streams.tree.TreeStream, {}),
    "honaker-full": (noise_streams.DenseStream, {}),
    "optimal": (noise_streams.DenseStream, {}),
    "band-low-rank": (
        noise_streams.structured.StructuredStream,
        {"band": 3, "rank": 2},
    ),
    "toeplitz-root": (noise_streams.BandedStream, {}),
    "toeplitz": (noise_streams.BandedStream, {"bands": 4}),
    "banded": (noise_streams.BandedStream, {"bands": 3}),
    "banded-inverse": (noise_streams.encoders.MovingStream, {"bands": 4}),
    "blt-rational": (noise_streams.encoders.BufferedStream, {"buffers": 3}),
    "blt": (noise_streams.encoders.BufferedStream, {"buffers": 2}),
}
SEED = np.array([11, 5])
build = noise_streams.build_stream


@pytest.fixture(scope="module")
def factorizations():
    return {
        (name, method): fact.compute(workload, method, **params)
        for name, workload in WORKLOADS.items()
        for method, (_, params) in METHODS.items()
    }


def take(stream, seed=SEED):
    """All rows, and the state after the last."""
    return rest(stream.next, stream.init(seed), stream.rounds)


def rest(step, state, rounds):
    rows = []
    for _ in range(rounds):
        row, state = step(state)
        rows.append(np.asarray(row))
    return np.stack(rows), state


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_matrix_is_that_of_the_factorization(factorizations, workload, method):
    """Or, of trees, of the lower triangular one with the same covariance."""
    found = factorizations[workload, method]
    k = found.noising_rows()
    if method.startswith("honaker"):
        k = np.linalg.cholesky(k @ k.T)
    unit = build(found, ROUNDS, block_rounds=5)
    assert type(unit) is METHODS[method][0]
    assert_allclose(matrix_of(unit), k, atol=2e-5)


def matrix_of(stream):
    """A^-1 B of a stream of dimension T, with the identity as Z."""
    memory, rows = stream.initial_memory(), []
    identity = np.eye(stream.rounds, dtype=np.float32)
    for row in range(stream.rounds):
        noise, memory = stream.step(lambda at: identity[at], row, memory)
        rows.append(noise)
    return np.stack(rows)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("redraw", [False, True])
def test_state_holds_nothing_of_unreleased_rows(factorizations, method, redraw):
    """Other rows of Z from row 7 on leave memory and past of row 7 as they are."""
    found = factorizations["momentum", method]
    stream = build(found, 30, block_rounds=5, redraw=redraw)
    one, two = (stream.draw_from(np.array(seed)) for seed in ([1, 2], [3, 4]))

    def before(row):
        memory = stream.initial_memory()
        for t in range(row):
            _, memory = stream.step(one, t, memory)
        return memory

    def changed(row):
        return one(row) if row < 7 else two(row)

    sought = [stream.memory_before(each, 7) for each in (one, changed)]
    past = [stream.past(each, 7, sought[0]) for each in (one, changed)]
    for pair in (sought, past, (sought[0], before(7))):
        tf.nest.map_structure(assert_array_equal, *pair)
    noise = [stream.step(each, 7, sought[0])[0] for each in (one, changed)]
    own = stream.own_weights[7]
    assert_allclose(noise[1] - noise[0], own * (two(7) - one(7)), atol=1e-5)
    assert own > 0.1


@pytest.mark.parametrize("method", METHODS)
def test_any_row_can_be_recomputed_bit_for_bit(factorizations, method):
    """And there is none after the last; redrawn rows are the remembered ones."""
    found = factorizations["momentum", method]
    stream = build(found, 257, block_rounds=5)
    rows, end = take(stream)
    assert rows.dtype == np.float32
    for t in (0, 1, 4, 7, 10, 18):
        assert_array_equal(stream.next(stream.seek(SEED, t))[0], rows[t])
    again, last = rest(stream.next, stream.seek(SEED, 7), ROUNDS - 7)
    assert_allclose(again, rows[7:], atol=1e-6)
    tf.nest.map_structure(lambda a, b: assert_allclose(a, b, atol=1e-6), last, end)
    for after in (end, stream.seek(SEED, ROUNDS)):
        with refuses(ValueError, "19 rows"):
            stream.next(after)
    if method in ("band-low-rank", "banded-inverse"):
        redrawn, small = take(build(found, 257, redraw=True))
        assert_allclose(rows, redrawn, atol=1e-6)
        saved = len(tf.nest.flatten(end)) - len(tf.nest.flatten(small))
        assert saved == (5 if method == "band-low-rank" else 3)


def test_compiled_bands_have_the_bits_of_plain_ones():
    """11 rows are remembered: a whole group, and one of three."""
    found = fact.compute(WORKLOADS["prefix"], "toeplitz", bands=12)
    rows, _ = take(build(found, 40_001))
    for nx in (host_noise.compiled_arrays(), in_tensorflow):
        stream = build(found, 40_001, nx=nx)
        step = tf.function(stream.next, autograph=False)
        state = stream.init(tf.constant(SEED, tf.int64))
        assert_array_equal(rest(step, state, ROUNDS)[0], rows)


def test_another_seed_and_another_row_are_independent(factorizations):
    stream = build(factorizations["prefix", "identity"], 100_000)
    first, _ = take(stream)
    for seed in ([12, 5], [11, 4], [10, 5], [5, 11]):
        other, _ = take(stream, np.array(seed))
        # Rows of seeds that differ by little must not be each other's, in any order.
        assert np.abs(first @ other.T / 100_000).max() < 0.02
    between = first @ first.T / 100_000 - np.eye(ROUNDS)
    assert np.abs(between).max() < 0.02


def test_the_block_does_not_change_the_noise(factorizations):
    found = factorizations["momentum", "honaker-full"]
    ones, fours, whole = (build(found, 50, block_rounds=block) for block in (1, 4, 100))
    assert whole.block_rounds == ROUNDS
    assert build(found, 50).block_rounds == ROUNDS
    rows, *_ = take(ones)
    for other in (fours, whole):
        assert_allclose(take(other)[0], rows, atol=1e-5)


def test_more_rows_than_a_chunk():
    found = fact.compute(fact.prefix_sum(100), "optimal")
    stream = build(found, 100, block_rounds=7)
    assert not np.triu(found.noising_rows(), 1).any()
    expected = found.noising_rows()[:100]
    assert_allclose(matrix_of(stream), expected, atol=1e-5)


def test_toeplitz_of_many_bands_is_dense():
    found = fact.compute(fact.prefix_sum(140), "toeplitz-root")
    assert type(build(found, 3)) is noise_streams.DenseStream


def test_bad_sizes_are_refused(factorizations):
    found = factorizations["prefix", "optimal"]
    with refuses(ValueError, "block_rounds", 0):
        build(found, 3, block_rounds=0)


def test_default_block_fits_its_memory():
    assert factorization.block_rounds(2048, 10**6) == 32
    assert factorization.block_rounds(2048, 10**9) == 16
    assert factorization.block_rounds(32, 1000) == 32
    assert factorization.block_rounds(5, 10**9) == 5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_number_of_stored_rows_is_known_in_advance(factorizations, workload, method):
    found = factorizations[workload, method]
    stream = build(found, 3)
    leaves = tf.nest.flatten(stream.initial_memory())
    assert factorization.stream_rows(found, 3) == sum(x.size // 3 for x in leaves)
    is_dense = isinstance(stream, noise_streams.DenseStream)
    assert factorization.is_dense(found) == is_dense


def test_dense_streams_redraw_z_per_block(factorizations):
    """128 blocks of 16 rows, which draw 16, 32, ... rows of Z."""
    normals = 16 * 128 * 129 // 2 * 10**7
    factors = fact.DenseFactors(np.tri(2048), np.eye(2048))
    found = fact.Factorization(fact.prefix_sum(2048), "optimal", {}, factors)
    seconds = factorization.drawing_seconds(found, 10**7)
    assert seconds == pytest.approx(1.6e-8 * normals)
    independent = factorizations["prefix", "identity"]
    assert factorization.drawing_seconds(independent, 10**7) == pytest.approx(
        1.6e-8 * ROUNDS * 10**7
    )


def test_ties_in_numpy_are_decided_as_in_tensorflow(monkeypatch):
    """Words that leave all to the low bits of a threshold."""
    [part, _], _ = integer_tables.parts_of(integer_noise.GRID_STDDEV)
    column = np.arange(1 << part.alias.bits, dtype=np.uint32)
    tied = column | part.alias.thresholds.astype(np.uint32) << part.alias.bits
    drawn = []
    for nx in (in_tensorflow, in_numpy):
        real = nx.random_words

        def words(seed, count, dtype=np.uint32, nx=nx, real=real):
            columns = nx.asarray(tied, dtype)
            return columns if count == len(tied) else real(seed, count, dtype)

        monkeypatch.setattr(nx, "random_words", words)
        ranks = nx.asarray(np.arange(len(tied)), np.int32)
        seed = nx.asarray(SEED, np.int64)
        drawn.append(integer_noise.look_further(part.alias, seed, ranks, len(tied)))
    assert_array_equal(*drawn)
    assert len(set(np.asarray(drawn[0]))) > len(tied) / 8
