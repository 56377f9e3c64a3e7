# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TensorFlow's array operations for noise streams: eager, in graphs and in TFF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpfl import (
    needs_tff,  # noqa: F401
    seed_domains,
)
from dpfl.noise_streams.arrays import GRID, GRID_STDDEV, Arrays, Draw
from dpfl.vectors import randomness
from dpfl.vectors.integer_noise import DiscreteGaussian

import tensorflow as tf  # isort: skip


class Tensors(Arrays):
    """Array operations in TensorFlow."""

    def seed(self, seed: Any) -> tf.Tensor:
        """See base class."""
        return tf.convert_to_tensor(seed, tf.int64)

    def index(self, value: Any) -> tf.Tensor:
        """See base class."""
        return tf.cast(value, tf.int32)

    def zeros(self, *shape: int) -> tf.Tensor:
        """See base class."""
        return tf.zeros(shape)

    def least(self, index: tf.Tensor, most: int) -> tf.Tensor:
        """See base class."""
        return tf.minimum(index, most)

    def at(self, table: np.ndarray, place: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return tf.gather(tf.constant(table), place)

    def part(self, table: Any, begins: Sequence[Any], shape: Sequence[int]) -> Any:
        """See base class."""
        return tf.slice(table, begins, shape)

    def constant(self, table: np.ndarray) -> tf.Tensor:
        """Places a table outside of the graph where possible.

        A constant inside is copied with every graph that TensorFlow derives: 150 MB
        more at T = 2048. A `tf.function` captures the outer one instead.
        """
        with tf.init_scope():
            return tf.constant(table)

    def with_row(self, rows: tf.Tensor, place: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return tf.tensor_scatter_nd_update(rows, [[place]], row[tf.newaxis])

    def minus_weighted(
        self, total: tf.Tensor, weights: Any, vectors: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """See base class; reads and writes the total for each k."""
        for k, vector in enumerate(vectors):
            total -= weights[k] * vector
        return total

    def either(self, condition: Any, then: Callable, other: Callable) -> Any:
        """See base class."""
        return tf.cond(condition, then, other)

    def loop(self, begin: Any, end: Any, body: Callable, *carried: Any) -> Any:
        """Runs one iteration at a time, since draws made early would fill the memory.

        See base class for the arguments.
        """
        _, *carried = tf.while_loop(
            lambda index, *_: index < end,
            lambda index, *each: (index + 1, *body(index, *each)),
            [self.index(begin), *carried],
            parallel_iterations=1,
        )
        return tuple(carried)

    def checked(self, row: tf.Tensor, rounds: int) -> tf.Tensor:
        """Raises tf.errors.InvalidArgumentError, where the row is used."""
        check = tf.debugging.assert_less(
            row, rounds, message=f"the noise stream has only {rounds} rows"
        )
        # In eager mode the check has already run; in a graph it is an operation.
        with tf.control_dependencies([check] if check is not None else []):
            return tf.identity(row)

    def row_seed(self, seed: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """See base class."""
        return randomness.fold_in(seed, seed_domains.NoiseStreamDomain.NORMALS, index)

    def normal(self, row_seed: tf.Tensor, length: int) -> tf.Tensor:
        """See base class."""
        drawn = DiscreteGaussian(GRID_STDDEV).sample(row_seed, length)
        return tf.cast(drawn, tf.float32) / GRID

    def rows(self, draw: Draw, begin: Any, number: int, length: int) -> tf.Tensor:
        """See base class."""
        return tf.map_fn(
            draw,
            begin + tf.range(number),
            fn_output_signature=tf.TensorSpec([length]),
            parallel_iterations=number,
        )


class FusedTensors(Tensors):
    """Array operations compiled by XLA, which TFF's worker lacks; for the program."""

    def __init__(self) -> None:
        """Initializes the operations; nothing is compiled yet."""
        # Held by the object and not the module, since a graph must end before the
        # interpreter.
        self._minus_group = tf.function(_minus_group, autograph=False, jit_compile=True)

    def minus_weighted(
        self, total: tf.Tensor, weights: Any, vectors: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """See base class; reads each vector once, with the bits of `Tensors`.

        In groups, of which those of one size are compiled once.
        """
        weights = tf.convert_to_tensor(weights)
        for begin in range(0, len(vectors), _GROUP):
            group = slice(begin, begin + _GROUP)
            total = self._minus_group(total, weights[group], tuple(vectors[group]))
        return total


# More vectors at once are no faster, and take longer to compile.
_GROUP = 8


def _minus_group(
    total: tf.Tensor, weights: tf.Tensor, vectors: tuple[tf.Tensor, ...]
) -> tf.Tensor:
    # A zero that the compiler cannot know. An exclusive or of a product with it forces
    # the product to be rounded; otherwise product and difference would be fused, with
    # other bits.
    zero = tf.cast(tf.math.is_nan(weights[0]), tf.int32)
    for k, vector in enumerate(vectors):
        product = tf.bitcast(weights[k] * vector, tf.int32)
        total -= tf.bitcast(tf.bitwise.bitwise_xor(product, zero), tf.float32)
    return total


class UnitTensors(Tensors):
    """Array operations with the identity for Z: a stream yields the rows of A^-1 B."""

    def row_seed(self, seed: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """The index itself."""
        return index

    def normal(self, row_seed: tf.Tensor, length: int) -> tf.Tensor:
        """A row of the identity."""
        return tf.one_hot(row_seed, length)
