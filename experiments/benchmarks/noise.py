# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""What noise costs: drawn, and correlated, alone and inside of an aggregator.

A matrix of the right shape is all that matters for time, so the dense and the
structured one are not optimal ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import factorization as fact
from dpfl import mechanisms, noise_streams
from dpfl.aggregators.factory import CodecFactory
from dpfl.aggregators.matrix_factorization import MatrixFactorizationCodec, NoiseFeeder
from dpfl.training import worker
from dpfl.vectors import randomness
from dpfl.vectors.integer_noise import DiscreteGaussian

from .harness import Row, Sizes, aggregation, compare

_NORMALS = "draw: float32 normals"
_INDEPENDENT = "noise: independent"
_ALONE = "mf: independent"


def draws(sizes: Sizes) -> list[Row]:
    """Measures discrete Gaussians, of one to three tables, against normals."""

    def of(draw: Callable[..., Any]) -> Callable[[], Any]:
        call = tf.function(lambda seed: draw(seed, sizes.dimension))
        return lambda: call(_seed()).numpy()

    calls = {_NORMALS: of(randomness.standard_normal)}
    for bits in (9, 18, 22):
        sampler = DiscreteGaussian(float(1 << bits))
        calls[f"draw: discrete Gaussian of 2^{bits}"] = of(sampler.sample)
    return compare(calls, _NORMALS, sizes.repeats)


def dense(sizes: Sizes) -> list[Row]:
    """Measures a round of a dense matrix: the start, the middle and the end of the run.

    The seconds are those of a whole block over its rounds. The last row computes the
    last round alone, as it would be without blocks.
    """
    rounds, dimension = sizes.matrix_rounds, sizes.dimension
    matrix = np.tril(np.random.default_rng(0).normal(size=(rounds, rounds)))
    stream = noise_streams.DenseStream(matrix, dimension)
    block = stream.block_rounds
    last = (rounds - 1) // block * block
    middle = last // block // 2 * block
    step = tf.function(stream.next, autograph=False)
    state = step(stream.init(_seed()))[1]
    rows = []
    for name, row in (("start", 0), ("middle", middle), ("end", last)):
        seconds, state = _timed_block(step, state, row)
        rows.append((f"noise: dense, block at {name}", seconds / block))
    peak = worker.peak_bytes(os.getpid())
    del state
    alone = noise_streams.DenseStream(matrix, dimension, block_rounds=1)
    step = tf.function(alone.next, autograph=False)
    seconds, _ = _timed_block(step, step(alone.init(_seed()))[1], rounds - 1)
    rows.append(("noise: dense, last row alone", seconds))
    last_seconds = rows[2][1]
    timed = [
        {
            **{"name": name, "seconds_median": taken, "repeats": 1},
            **{"baseline": rows[2][0], "ratio": taken / last_seconds},
        }
        for name, taken in rows
    ]
    said = "peak of the process, TensorFlow itself included"
    memory = {"name": "noise: dense, memory", "bytes": peak, "description": said}
    return [*timed, memory]


def recurrences(sizes: Sizes) -> list[Row]:
    """Measures a round of the streams that remember a few vectors; they take turns."""
    calls = {
        name: _stream_call(found, sizes.dimension)
        for name, found in recurrences_of(sizes.matrix_rounds).items()
    }
    return compare(calls, _INDEPENDENT, sizes.repeats, warm_ups=2)


def bands(sizes: Sizes) -> list[Row]:
    """Measures a round of a stream over a run, by how many diagonals C has."""
    workload = fact.prefix_sum(sizes.matrix_rounds)
    # Of the square root of prefix sums: 1, 1/2, 3/8, ...
    steps = np.arange(1, sizes.matrix_rounds)
    column = np.concatenate([[1.0], np.cumprod(1 - 0.5 / steps)])
    calls = {
        _INDEPENDENT: _stream_call(fact.compute(workload, "identity"), sizes.model)
    }
    for count in (16, 64, 256):
        cut = column * (np.arange(sizes.matrix_rounds) < count)
        found = fact.Factorization(workload, "toeplitz", {}, fact.ToeplitzFactors(cut))
        calls[f"noise: {count} bands"] = _stream_call(found, sizes.model)
    return compare(calls, _INDEPENDENT, sizes.repeats, warm_ups=2)


def aggregators(sizes: Sizes) -> list[Row]:
    """Measures a round of the aggregator on two clients; needs a running worker.

    What the stream remembers is in the aggregator's state, which goes from Python to
    the worker and back in each round. "fed" is a dense matrix whose rows a
    `NoiseFeeder` puts there; its block is computed before.
    """
    calls = {
        name.replace("noise:", "mf:"): _process_call(_config(found), sizes.dimension)
        for name, found in recurrences_of(sizes.matrix_rounds).items()
    }
    calls["mf: dense, fed"] = _fed_call(sizes)
    return compare(calls, _ALONE, min(sizes.repeats, 5), warm_ups=2)


def _seed() -> tf.Tensor:
    return tf.constant([1, 2], tf.int64)


def recurrences_of(rounds: int) -> dict[str, fact.Factorization]:
    """Factorizations whose streams are recurrences, by their row's name."""
    workload = fact.prefix_sum(rounds)
    rng = np.random.default_rng(0)
    factors = fact.BandLowRankFactors(
        np.tile(_root(fact.prefix_sum(8))[0][:, 0], (rounds, 1)),
        rng.random((rounds, 6)) / rounds,
        rng.random((rounds, 6)) / rounds,
    )
    return {
        _INDEPENDENT: fact.compute(workload, "identity"),
        "noise: toeplitz, 16 bands": fact.compute(workload, "toeplitz", bands=16),
        "noise: blt, 4 buffers": fact.compute(workload, "blt-rational", buffers=4),
        "noise: tree": fact.compute(workload, "honaker-online"),
        "noise: band 8, rank 6": fact.Factorization(
            workload, "band-low-rank", {}, factors
        ),
    }


def _timed_block(step: Callable[..., Any], state: Any, row: int) -> tuple[float, Any]:
    """Seconds of the round that begins a block, and the state after it."""
    state["row"] = tf.constant(row)
    begin = time.perf_counter()
    result, state = step(state)
    result[0].numpy()
    return time.perf_counter() - begin, state


def _root(workload: fact.Workload) -> tuple[np.ndarray, np.ndarray]:
    """A decoder and an encoder that are dense.

    Of random numbers the inverse would be so large that no sum could hold the noise.
    """
    return fact.compute(workload, "toeplitz-root").materialize()


def _stream_call(found: fact.Factorization, dimension: int) -> Callable[[], Any]:
    stream = noise_streams.build_stream(found, dimension)
    step = tf.function(stream.next, autograph=False)
    state = stream.init(_seed())

    def call() -> Any:
        nonlocal state
        result, state = step(state)
        return result[0].numpy()

    return call


def _config(found: fact.Factorization) -> Any:
    """A configuration of this factorization, which it need not compute."""
    config = mechanisms.MECHANISMS["matrix_factorization"]

    class Given(config):  # type: ignore[misc, valid-type]
        """The configuration with a matrix that was not made by its method."""

        factorization = found

    budget = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    return Given(cohort_size=2, rounds_per_epoch=found.rounds, **budget)


def _fed_call(sizes: Sizes) -> Callable[[], Any]:
    workload = fact.prefix_sum(sizes.matrix_rounds)
    config = _config(
        fact.Factorization(workload, "optimal", {}, fact.DenseFactors(*_root(workload)))
    )
    feeder = NoiseFeeder(config, sizes.dimension)
    return _process_call(config, sizes.dimension, feeder.feed, noise_from_program=True)


def _process_call(
    config: Any, dimension: int, feed: Any = None, **options: Any
) -> Callable[[], Any]:
    """A function that runs one round, with the state in Python in between."""
    # Not by the table, which has no row for a configuration with a given matrix.
    factory = CodecFactory(
        lambda d: MatrixFactorizationCodec(config, d, **options), seed=1
    )
    return aggregation(factory, dimension, 2, scale=0.0, keep_state=True, feed=feed)


ROWS: dict[str, Callable[[Sizes], list[Row]]] = {
    "noise_draws": draws,
    "noise_dense": dense,
    "noise_recurrences": recurrences,
    "noise_bands": bands,
    "noise_aggregators": aggregators,
}
