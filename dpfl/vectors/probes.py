# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random probes that share out the coordinates, processed a block at a time.

Probe i of n has coordinates i, i + n, and so on, with random signs: a count sketch of
one row. The probes are orthogonal by construction and take d steps to apply, however
many there are.

A block has equally many coordinates of each probe, apart from the last block. It stays
in the processor's cache while several operations use it. Two blocks are processed at
once; totals are taken in the order of the blocks, so that parallelism changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

# Coordinates in a block: 64 rows of them take 2 MiB in float32.
_COLUMNS_AT_A_TIME = 2**13
_BLOCKS_AT_ONCE = 2


def norms(count: tf.Tensor, dimension: int) -> tf.Tensor:
    """The norm of each probe before scaling, the root of its number of coordinates.

    Probe i has coordinates i, i + count, and so on.
    """
    return tf.sqrt(tf.cast((dimension - 1 - tf.range(count)) // count + 1, tf.float32))


def _shares(rows: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """The coordinates of [m, c] rows by probe, [m, ceil(c / width), width]."""
    missing = -tf.shape(rows)[1] % width
    padded = tf.cond(
        missing > 0, lambda: tf.pad(rows, [[0, 0], [0, missing]]), lambda: rows
    )
    return tf.reshape(padded, tf.stack([tf.shape(rows)[0], -1, width]))


def apply(signs: tf.Tensor, count: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The products Q v before scaling, [m, count], of rows v.

    Args:
      signs: float32[c], the signs of the coordinates.
      count: int32 scalar, the number of probes; it may be 0.
      rows: float32[m, c].
    """
    shares = _shares(rows * signs, tf.maximum(count, 1))
    return tf.reduce_sum(shares, 1)[:, :count]


def at_coordinates(values: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Spreads each probe's value, [m, count], over its coordinates with their signs."""
    width = tf.maximum(tf.shape(values)[1], 1)
    values = tf.pad(values, [[0, 0], [0, width - tf.shape(values)[1]]])
    spread = values[:, tf.newaxis] * _shares(signs[tf.newaxis], width)
    flat = tf.reshape(spread, tf.stack([tf.shape(values)[0], -1]))
    return flat[:, : tf.shape(signs)[0]]


def _block_size(dimension: int, count: tf.Tensor) -> tf.Tensor:
    """The number of coordinates in a block."""
    width = tf.maximum(count, 1)
    return width * tf.maximum(min(_COLUMNS_AT_A_TIME, dimension) // width, 1)


def over_columns(
    dimension: int,
    count: tf.Tensor,
    add: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
    first: tf.Tensor,
) -> tf.Tensor:
    """Folds a function over all blocks of d coordinates, in their order.

    Args:
      dimension: d.
      count: int32 scalar, the number of probes.
      add: Function from the begin and end of a block and the total before it to the
        total after it.
      first: The total before any block.
    """
    size = _block_size(dimension, count)
    return tf.while_loop(
        lambda begin, _: begin < dimension,
        lambda begin, total: (
            begin + size,
            add(begin, tf.minimum(begin + size, dimension), total),
        ),
        (tf.constant(0), first),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None] * len(first.shape)),
        ),
        parallel_iterations=_BLOCKS_AT_ONCE,
    )[1]


def by_columns(
    dimension: int,
    count: tf.Tensor,
    function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    result: tf.TensorSpec,
) -> tf.Tensor:
    """Computes a matrix of d columns by a function for the columns of a block.

    Args:
      dimension: d.
      count: int32 scalar, the number of probes.
      function: Function from the begin and end of a block to [m, end - begin].
      result: Spec of the result, which has m rows and its dtype.
    """
    size = _block_size(dimension, count)
    number = -(-dimension // size)
    shape = tf.stack([number, result.shape[0], size])
    first = tf.raw_ops.Empty(shape=shape, dtype=result.dtype)

    def body(i: tf.Tensor, blocks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        begin = i * size
        some = function(begin, tf.minimum(begin + size, dimension))
        missing = size - tf.shape(some)[1]
        # Padded to the size of all others, so that the blocks can be stacked.
        whole = tf.cond(
            missing > 0, lambda: tf.pad(some, [[0, 0], [0, missing]]), lambda: some
        )
        written = tf.raw_ops.InplaceUpdate(x=blocks, i=[i], v=whole[tf.newaxis])
        return i + 1, written

    blocks = tf.while_loop(
        lambda i, _: i < number,
        body,
        (tf.constant(0), first),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None, None])),
        parallel_iterations=_BLOCKS_AT_ONCE,
    )[1]
    stacked = tf.transpose(blocks, [1, 0, 2])
    rows = tf.reshape(stacked, tf.stack([result.shape[0], number * size]))
    return tf.ensure_shape(rows[:, :dimension], [result.shape[0], dimension])
