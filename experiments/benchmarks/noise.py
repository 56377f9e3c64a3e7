# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Costs of drawing noise, and of streams of noise.

    rows = harness.measure("noise_draws", harness.settings(quick=True, repeats=2))

The functions are named as their groups in `harness.GROUPS`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from dpfl import factorization as fact
from dpfl import machine, noise_streams
from dpfl.aggregators import host_noise
from dpfl.arrays import in_tensorflow
from dpfl.noise_streams import build_stream
from dpfl.vectors.integer_noise import DiscreteGaussian

from .harness import Call, Row, Settings, row

_SEED = np.array([3, 4], np.int64)


def noise_draws(settings: Settings) -> dict[str, Call]:
    """Discrete Gaussians, of one to three tables, against normals."""

    def of(draw: Callable[..., Any]) -> Call:
        call = tf.function(lambda seed: draw(seed, settings.dimension))
        return lambda: call(tf.constant(_SEED)).numpy()

    def normals(seed: tf.Tensor, length: int) -> tf.Tensor:
        return tf.random.stateless_normal([length], seed, alg="philox")

    calls = {"draw: float32 normals": of(normals)}
    for bits in settings.noise_bits:
        sampler = DiscreteGaussian(float(1 << bits))
        calls[f"draw: discrete Gaussian of 2^{bits}"] = of(sampler.sample)
    return calls


def noise_dense(settings: Settings) -> list[Row]:
    """Rows about a dense matrix: the start, the middle and the end of the run.

    The seconds are those of a whole block over its rounds. The last row computes the
    last round alone, as without blocks. Only the shape of the matrix matters for time,
    so it is not an optimal one.
    """
    rounds, dimension = settings.matrix_rounds, settings.dimension
    matrix = np.tril(np.random.default_rng(0).normal(size=(rounds, rounds)))

    def seconds_of(call: Callable[..., Any], first: int, rows: int) -> float:
        begin = time.perf_counter()
        call(first)
        for _ in range(rows - 1):
            call()
        return (time.perf_counter() - begin) / rows

    make = partial(noise_streams.DenseStream, matrix, dimension, nx=in_tensorflow)
    stream = make()
    call, block = _stream_call(stream), stream.block_rounds
    call(0)
    last = (rounds - 1) // block * block
    places = {"start": 0, "middle": last // block // 2 * block, "end": last}
    seconds = {
        f"block at {name}": seconds_of(call, place, block)
        for name, place in places.items()
    }
    peak = machine.peak_bytes(os.getpid()) or 0
    # The block is freed before there is another stream.
    del call
    call = _stream_call(make(block_rounds=1))
    call(0)
    seconds["last row alone"] = seconds_of(call, rounds - 1, 1)
    timed = partial(row, key="seconds_median", repeats=1)
    end = timed("noise: dense, block at end", value=seconds["block at end"])
    results = [timed(f"noise: dense, {n}", value=s, of=end) for n, s in seconds.items()]
    said = "peak of the process, TensorFlow itself included"
    return [*results, row("noise: dense, memory", "bytes", peak, description=said)]


def noise_recurrences(settings: Settings) -> dict[str, Call]:
    """A round of the streams that remember a few vectors."""
    nx = host_noise.compiled_arrays()
    return {
        f"noise: {name}": _stream_call(
            build_stream(factorization, settings.dimension, nx=nx)
        )
        for name, factorization in recurrences(settings.matrix_rounds).items()
    }


def noise_bands(settings: Settings) -> dict[str, Call]:
    """A round of a stream over a run, by the number of diagonals of C."""
    rounds = settings.matrix_rounds
    workload = fact.prefix_sum(rounds)
    # Coefficients of the square root of prefix sums: 1, 1/2, 3/8 and so on.
    column = np.append(1.0, (1 - 0.5 / np.arange(1, rounds)).cumprod())
    factorizations = {"independent": fact.compute(workload, "identity")}
    for count in (8, 64, 256):
        factors = fact.ToeplitzFactors(column * (np.arange(rounds) < count))
        factorizations[f"{count} bands"] = fact.Factorization(
            workload, "toeplitz", {}, factors
        )
    ways = {"": host_noise.compiled_arrays(), ", band by band": in_tensorflow}
    return {
        f"noise: {name}{way}": _stream_call(build_stream(each, settings.model, nx=nx))
        for name, each in factorizations.items()
        for way, nx in ways.items()
        if not way or each.method == "toeplitz"
    }


def recurrences(rounds: int) -> dict[str, fact.Factorization]:
    """Factorizations whose streams are recurrences, by their row's name."""
    workload = fact.prefix_sum(rounds)
    rng = np.random.default_rng(0)
    factors = fact.BandLowRankFactors(
        np.tile(_root(fact.prefix_sum(8))[0][:, 0], (rounds, 1)),
        rng.random((rounds, 6)) / rounds,
        rng.random((rounds, 6)) / rounds,
    )
    return {
        "independent": fact.compute(workload, "identity"),
        "toeplitz, 16 bands": fact.compute(workload, "toeplitz", bands=16),
        "blt, 4 buffers": fact.compute(workload, "blt-rational", buffers=4),
        "tree": fact.compute(workload, "honaker-online"),
        "band 8, rank 6": fact.Factorization(workload, "band-low-rank", {}, factors),
    }


def _root(workload: fact.Workload) -> tuple[np.ndarray, np.ndarray]:
    """A decoder and an encoder that are dense.

    The inverse of random numbers would be so large that no sum could hold the noise.
    """
    return fact.compute(workload, "toeplitz-root").materialize()


def _stream_call(stream: Any) -> Callable[..., Any]:
    """A function that computes a row of a stream, by default the next."""
    step = tf.function(stream.next, autograph=False)
    state = stream.init(tf.constant(_SEED))

    def call(round_index: Optional[int] = None) -> Any:
        nonlocal state
        if round_index is not None:
            state["row"] = tf.constant(round_index)
        result, state = step(state)
        return result[0].numpy()

    return call
