# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Streams of correlated noise for matrix factorizations, whatever the array library.

    stream = build_stream(factorization, dimension, nx=arrays.named("jax"))
    noise, state = stream.next(stream.init(seed))   # for the sum of round 0

docs/noise.md explains the noise of each round, and its cost.
"""

from dpfl.noise_streams.build import build_stream
from dpfl.noise_streams.dense import DenseStream
from dpfl.noise_streams.encoders import BandedStream
from dpfl.noise_streams.stream import NoiseStream

__all__ = [
    "BandedStream",
    "DenseStream",
    "NoiseStream",
    "build_stream",
]
