# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Measured errors of the mean of vectors, by the codecs of the aggregators.

    config = mechanisms.ProjectAndPerturb(10, 1.0, 0.1, 5.0)
    errors = measured_means.measured_errors(config, 512, repeats=50, seed=8)

There is one error for each repeat, of the mean of `similar_vectors` by default.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import codecs, mechanisms, seed_domains
from dpfl.arrays import in_tensorflow
from dpfl.codecs.base import Codec, Received
from dpfl.codecs.sketch import SketchedCodec
from dpfl.vectors import randomness

from .hash_sketch import HashSketch
from .secure_sums import HashedDdg

# Function from d and a seed to the function that makes a client's vector, float32[d],
# from the client's own seed, int64[2].
Vectors = Callable[[int, int], Callable[[tf.Tensor], tf.Tensor]]

# Domains of the seed of a measured round, besides its clients from 1 on.
_SHARED, _NOISE = 0, -1


def similar_vectors(dimension: int, seed: int = 0) -> Callable[[tf.Tensor], tf.Tensor]:
    """Unit vectors, any two of which have an inner product of about 1/2.

    They share a direction, as updates in training do, and differ besides.
    """

    def vector(client_seed: tf.Tensor) -> tf.Tensor:
        common = _normal(tf.constant([seed, 0], tf.int64), dimension)
        both = common + _normal(client_seed, dimension)
        return both / tf.norm(both)

    return vector


def independent_vectors(dimension: int, _: int = 0) -> Callable[[tf.Tensor], tf.Tensor]:
    """Independent unit vectors; the common seed is ignored."""

    def vector(client_seed: tf.Tensor) -> tf.Tensor:
        own = _normal(client_seed, dimension)
        return own / tf.norm(own)

    return vector


def _normal(seed: tf.Tensor, length: int) -> tf.Tensor:
    return tf.random.stateless_normal([length], seed, alg="philox")


VECTORS: dict[str, Vectors] = {
    "similar": similar_vectors,
    "independent": independent_vectors,
}


def sparse_vectors(sparsity: int) -> Vectors:
    """Unit vectors on the same coordinates, any two of product about 1/2."""

    def vectors(dimension: int, seed: int = 0) -> Callable[[tf.Tensor], tf.Tensor]:
        support = np.random.default_rng(seed).permutation(dimension)
        places = tf.constant(np.sort(support[:sparsity])[:, None], tf.int64)
        values = similar_vectors(sparsity, seed)
        shape = tf.constant([dimension], tf.int64)
        return lambda client_seed: tf.scatter_nd(places, values(client_seed), shape)

    return vectors


def _codec(config: mechanisms.Mechanism, dimension: int) -> Codec:
    if not isinstance(config, HashedDdg):
        return codecs.make_codec(config, dimension, arrays="tensorflow")
    shape = config.shape(dimension)
    sketch = HashSketch(dimension, shape.rows, *shape.widths)
    return SketchedCodec(config, dimension, in_tensorflow, sketch)


def measured_errors(
    config: mechanisms.Mechanism,
    dimension: int,
    repeats: int,
    vectors: Vectors = similar_vectors,
    seed: int = 0,
) -> np.ndarray:
    """Squared errors of the mean of n vectors, float64[repeats].

    Each round has a new mask or sketch, and new noise. If the sum is secure, messages
    are added as integers modulo 2^32.

    Args:
      config: The mechanism, with its noise.
      dimension: d.
      repeats: Number of rounds.
      vectors: Function that makes the clients' vectors.
      seed: Seed of all randomness.
    """
    codec = _codec(config, dimension)
    make_vector = vectors(dimension, seed)
    padding = [[0, codec.input_length - dimension]]

    @tf.function(autograph=False)
    def client(seed: Any, shared: Any, total: Any) -> Any:
        vector = make_vector(seed)
        client_seed = randomness.fold_in(seed, seed_domains.RoundDomain.CLIENT)
        encoded = codec.encode(tf.pad(vector, padding), shared, client_seed)
        return codec.accumulate(total, encoded.message), vector

    @tf.function
    def squared_error(seed: Any) -> Any:
        state = codec.initial_state()
        shared_seed = randomness.fold_in(seed, _SHARED)
        shared = codec.decode_broadcast(codec.broadcast(state, shared_seed))
        total, exact = codec.zero(), tf.zeros([dimension])
        for i in tf.range(1, config.cohort_size + 1):
            total, vector = client(randomness.fold_in(seed, i), shared, total)
            exact += vector
        counts = dict.fromkeys(("l2_clipped", "linf_clipped", "kept"), 1.0)
        counts["clients"] = float(config.cohort_size)
        sums = collections.OrderedDict(
            (name, tf.constant(value, tf.float64)) for name, value in counts.items()
        )
        noise_seed = randomness.fold_in(seed, _NOISE)
        received = Received(state, total, sums, shared, noise_seed)
        decoded = codec.decode(received)
        return tf.reduce_sum(tf.square(decoded.mean - exact / config.cohort_size))

    # Folded in, so that the rounds of two seeds are unrelated.
    first = tf.constant([seed, 1], tf.int64)
    seeds = (randomness.fold_in(first, i) for i in range(repeats))
    return np.array([squared_error(seed).numpy() for seed in seeds], np.float64)
