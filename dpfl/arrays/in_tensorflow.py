# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TensorFlow by the names of `jax.numpy`: eager, in graphs and in TFF.

    nx = arrays.named("tensorflow")
    nx.below(nx.fold_in(nx.fresh_seed(), 1), length=5, bound=10)

`in_numpy` describes the functions that `jax.numpy` does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl.arrays import in_numpy, philox

FIXES_SHAPES = False
# Blocks of columns computed at once. Totals are taken in the order of the blocks, so
# that parallelism changes no bit.
_BLOCKS_AT_ONCE = 2
# Philox, as TensorFlow's operations number it.
_ALGORITHM = 1
# Rows that are computed at the same time.
_ROWS_AT_ONCE = 16

abs, arange, clip, cos, cumsum = tf.abs, tf.range, tf.clip_by_value, tf.cos, tf.cumsum
all, max, sum = tf.reduce_all, tf.reduce_max, tf.reduce_sum
take = take_or_zero = tf.gather
erfc, expm1, mean, pad = tf.math.erfc, tf.math.expm1, tf.reduce_mean, tf.pad
eigvalsh, norm = tf.linalg.eigvalsh, tf.norm
count_nonzero = tf.math.count_nonzero
diag, eye, linalg = tf.linalg.diag, tf.eye, tf.linalg
lower_solve, shape = tf.linalg.triangular_solve, tf.shape
# In the graphs that TFF builds `==` would compare the tensors' identities.
equal, exp, fft, floor, ifft = tf.equal, tf.exp, tf.signal.fft, tf.floor, tf.signal.ifft
imag, isfinite = tf.math.imag, tf.math.is_finite
log, matmul, maximum, minimum = tf.math.log, tf.matmul, tf.maximum, tf.minimum
ones_like, real, reshape = tf.ones_like, tf.math.real, tf.reshape
round, sign, sin, sqrt, square = tf.round, tf.sign, tf.sin, tf.sqrt, tf.square
size, stack, transpose, where = tf.size, tf.stack, tf.transpose, tf.where
ones, zeros, zeros_like = tf.ones, tf.zeros, tf.zeros_like
bitcast, cond, make_complex = tf.bitcast, tf.cond, tf.complex
product, slice_at = tf.multiply, tf.slice
divide_no_nan, multiply_no_nan = tf.math.divide_no_nan, tf.math.multiply_no_nan
tree_map, structure_leaves = tf.nest.map_structure, tf.nest.flatten
# Slices that arrays of both libraries have.
columns, prefix, split_at = in_numpy.columns, in_numpy.prefix, in_numpy.split_at


def asarray(value: Any, dtype: Any) -> tf.Tensor:
    """See `in_numpy`; `tf.cast` alone would make a float32 of a number first."""
    if isinstance(value, (int, float)):
        value = np.asarray(value)
    return tf.cast(value, dtype)


def concatenate(parts: Sequence[Any], axis: int = 0) -> tf.Tensor:
    """The parts, one behind the other along an axis."""
    return tf.concat(parts, axis)


def right_shift(words: tf.Tensor, bits: int) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.bitwise.right_shift(words, tf.cast(bits, words.dtype))


def bitwise_and(words: tf.Tensor, mask: int) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.bitwise.bitwise_and(words, tf.constant(mask, words.dtype))


def half_square_sum(vector: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`; Eigen sums a whole tensor as a tree.

    l2_loss does not write the squares down, as tf.square would.
    """
    return tf.nn.l2_loss(vector)


def to_bfloat16(floats: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.bitcast(tf.cast(floats, tf.bfloat16), tf.int16)


def from_bfloat16(words: tf.Tensor, dtype: Any) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.cast(tf.bitcast(words, tf.bfloat16), dtype)


def join_at(first: Any, second: Any, number: Any, axis: int = -1) -> tf.Tensor:
    """See `in_numpy`.

    Args:
      first: Array of any dtype.
      second: Array of that dtype.
      number: int32 scalar.
      axis: The axis along which they are joined.
    """
    return tf.concat([first, second], axis)


def fold_blocks(length: int, size: Any, add: Callable, first: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`.

    Args:
      length: The number of columns.
      size: Columns of a block, but for the last one, which may have fewer.
      add: Function from a block's begin and length and the total before it to the total
        after it.
      first: The total before any block.
    """
    return tf.while_loop(
        lambda begin, _: begin < length,
        lambda begin, total: (
            begin + size,
            add(begin, tf.minimum(size, length - begin), total),
        ),
        (tf.constant(0), first),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None] * len(first.shape)),
        ),
        parallel_iterations=_BLOCKS_AT_ONCE,
    )[1]


def map_blocks(
    length: int, size: Any, function: Callable, rows: int, dtype: Any
) -> tf.Tensor:
    """See `in_numpy`.

    Args:
      length: The number of columns.
      size: Columns of a block, but for the last one, which may have fewer.
      function: Function from a block's begin and length to its columns.
      rows: The number of rows.
      dtype: The dtype of the columns.
    """
    number = -(-length // size)
    first = tf.raw_ops.Empty(shape=tf.stack([number, rows, size]), dtype=dtype)

    def body(i: tf.Tensor, blocks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        begin = i * size
        some = function(begin, tf.minimum(size, length - begin))
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
    result = tf.reshape(stacked, tf.stack([rows, number * size]))
    return tf.ensure_shape(result[:, :length], [rows, length])


def computed_zeros(shape: Sequence[int], dtype: Any) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=True)


def while_loop(condition: Callable, body: Callable, carried: Sequence[Any]) -> Any:
    """See `in_numpy`.

    Args:
      condition: Function of the carried values to a bool scalar.
      body: Function of the carried values to a tuple of their new values, of the same
        shapes and dtypes.
      carried: The initial values.
    """
    return tf.while_loop(condition, body, list(carried))


def fori_loop(begin: Any, end: Any, body: Callable, *carried: Any) -> Any:
    """Runs one iteration at a time, since draws made early would fill the memory.

    Args:
      begin: The first index.
      end: The exclusive last index.
      body: Function of an index and the carried values to a tuple of their new values.
      *carried: The initial values.
    """
    _, *carried_out = tf.while_loop(
        lambda index, *_: index < end,
        lambda index, *each: (index + 1, *body(index, *each)),
        [tf.cast(begin, tf.int32), *carried],
        parallel_iterations=1,
    )
    return tuple(carried_out)


def fold_in(seed: Any, value: Any) -> tf.Tensor:
    """See `in_numpy`."""
    first, second = tf.unstack(tf.convert_to_tensor(seed, tf.int64))
    counter = tf.stack([tf.cast(value, tf.int64), second])
    return _enciphered(counter, tf.bitcast(tf.stack([first]), tf.uint64), tf.int64)


def _enciphered(counter: tf.Tensor, key: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Enciphers a counter of int64[2] under a key of uint64[1] to two words."""
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[2],
        key=key,
        counter=tf.bitcast(counter, tf.uint64),
        alg=_ALGORITHM,
        dtype=dtype,
    )


def drawn(operation: Any, shape: Any, seed: tf.Tensor, **more: Any) -> tf.Tensor:
    """Draws as `tf.random.stateless_*` does, which takes far longer to be traced.

    `StatelessRandomGetKeyCounter`, TensorFlow's shorter way from a seed to a key, is
    not used: compiled by XLA, it gives another key.

    Args:
      operation: A raw operation of stateless random numbers.
      shape: Shape of the result.
      seed: int64[2].
      **more: Further arguments of the operation.
    """
    seed_key = tf.constant([philox.SEED_KEY], tf.uint64)
    mixed = _enciphered(tf.convert_to_tensor(seed, tf.int64), seed_key, tf.uint64)
    key, upper = tf.unstack(mixed)
    counter = tf.stack([tf.constant(0, tf.uint64), upper])
    key = tf.stack([key])
    return operation(shape=shape, key=key, counter=counter, alg=_ALGORITHM, **more)


def random_words(seed: tf.Tensor, count: Any, dtype: Any = np.uint32) -> tf.Tensor:
    """See `in_numpy`.

    Args:
      seed: int64[2].
      count: Number of words.
      dtype: An integer dtype of 32 or 64 bits.
    """
    operation = tf.raw_ops.StatelessRandomUniformFullIntV2
    return drawn(operation, [count], seed, dtype=dtype)


def uniform(seed: tf.Tensor, length: int) -> tf.Tensor:
    """See `in_numpy`."""
    operation = tf.raw_ops.StatelessRandomUniformV2
    return drawn(operation, [length], seed, dtype=tf.float64)


def float_uniform(seed: tf.Tensor, length: int) -> tf.Tensor:
    """See `in_numpy`."""
    operation = tf.raw_ops.StatelessRandomUniformV2
    return drawn(operation, [length], seed, dtype=tf.float32)


def replaced(
    values: tf.Tensor, is_meant: tf.Tensor, draw: Callable[..., Any], share: float = 1.0
) -> Any:
    """See `in_numpy`.

    Args:
      values: [n] of any dtype.
      is_meant: bool[n].
      draw: Function from a selector of the meant places of any array of n, their ranks
        among each other, and their number, to the new values.
      share: Ignored.
    """
    places = tf.where(is_meant)
    number = tf.shape(places)[0]
    new = draw(lambda array: tf.gather(array, places[:, 0]), tf.range(number), number)
    return tf.tensor_scatter_nd_update(values, places, new)


def words_at(seed: Any, places: Any, count: Any, dtype: Any = np.uint32) -> tf.Tensor:
    """See `in_numpy`.

    Args:
      seed: int64[2].
      places: Integers, each at least 0 and below `count`.
      count: Number of words among which the places are.
      dtype: An integer dtype of 32 or 64 bits.
    """
    return tf.gather(random_words(seed, count, dtype), places)


def count_below(values: tf.Tensor, bound: int) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.searchsorted(values, [tf.cast(bound, values.dtype)])[0]


def add_at(total: tf.Tensor, places: tf.Tensor, values: tf.Tensor, number: Any) -> Any:
    """See `in_numpy`.

    Args:
      total: [n] of any dtype.
      places: Integers [k], different and below n.
      values: [k] of the dtype of `total`.
      number: int32 scalar.
    """
    matches = tf.equal(tf.size(values), number)
    added = tf.cond(
        matches,
        lambda: tf.tensor_scatter_nd_add(total, places[:, tf.newaxis], values),
        lambda: total,
    )
    return added, matches


def below(seed: tf.Tensor, length: int, bound: int) -> tf.Tensor:
    """See `in_numpy`.

    Args:
      seed: int64[2].
      length: Number of integers.
      bound: The exclusive upper bound.
    """
    limits = {"minval": tf.constant(0, tf.int64), "maxval": tf.cast(bound, tf.int64)}
    return drawn(tf.raw_ops.StatelessRandomUniformIntV2, [length], seed, **limits)


# A file that has another 122 bits of Linux's random generator at each read.
_KERNEL_ENTROPY = "/proc/sys/kernel/random/uuid"
# Positions of 16 hexadecimal digits of a line, none of them fixed: 64 bits.
_RANDOM_DIGITS = (*range(4), *range(24, 36))
# Length of a line without its end.
_LINE_LENGTH = 36


def fresh_seed() -> tf.Tensor:
    """Reads 128 bits of the kernel's entropy, int64[2], fresh at each execution.

    An operation of tf.data reads Linux's random generator, since TFF's worker has no
    Python. `NonDeterministicInts` and every other operation of TensorFlow that draws a
    seed are unsuitable: they take numbers from one Mersenne Twister a process (or a
    thread), which is seeded with 32 bits, so that all clients of a worker share 32
    bits.

    Raises:
      tf.errors.NotFoundError: When it runs, if the system has no such file.
    """
    lines = tf.data.TextLineDataset([_KERNEL_ENTROPY, _KERNEL_ENTROPY])
    both = lines.batch(2, drop_remainder=True).get_single_element()
    codes = tf.cast(tf.io.decode_raw(both, tf.uint8), tf.int64)
    codes = tf.ensure_shape(codes, [2, _LINE_LENGTH])
    digits = tf.gather(codes, _RANDOM_DIGITS, axis=1)
    digits = tf.where(digits < ord("a"), digits - ord("0"), digits - ord("a") + 10)
    shifts = tf.range(0, 64, 4, tf.int64)
    return tf.reduce_sum(tf.bitwise.left_shift(digits, shifts), axis=1)


table = tf.constant


def shared_table(values: np.ndarray) -> tf.Tensor:
    """Places a table outside of the graph where possible.

    A constant inside is copied with every graph that TensorFlow derives: 150 MB more
    for 2048 rounds of noise. A `tf.function` captures the outer one instead.
    """
    with tf.init_scope():
        return tf.constant(values)


def with_row(rows: tf.Tensor, place: Any, row: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`.

    Args:
      rows: [n, k] of any dtype.
      place: Index of the row.
      row: [k] of the same dtype.
    """
    return tf.tensor_scatter_nd_update(rows, [[place]], row[tf.newaxis])


def minus_weighted(total: tf.Tensor, weights: Any, vectors: Sequence[Any]) -> Any:
    """See `in_numpy`; reads and writes the total for each vector.

    Args:
      total: [n] of floats.
      weights: [k] of the same dtype.
      vectors: k vectors, [n] of the same dtype.
    """
    for k, vector in enumerate(vectors):
        total -= weights[k] * vector
    return total


def halves(words: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.cast(tf.reshape(tf.bitcast(words, tf.uint16), [-1]), tf.int32)


def signed_halves(words: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.cast(tf.reshape(tf.bitcast(words, tf.int16), [-1]), tf.int32)


def rolled(rows: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`.

    The pieces are ragged rows, which are copied whole at the speed of memory; gathering
    one number at a time takes as long as three rotations.
    """
    number, width = rows.shape
    firsts = width * tf.range(number, dtype=tf.int64)
    cuts = tf.stack([firsts, firsts + starts], 1)
    splits = tf.concat([tf.reshape(cuts, [-1]), [number * width]], 0)
    order = np.arange(2 * number).reshape(number, 2)[:, ::-1].reshape(-1)
    gathered = tf.raw_ops.RaggedGather(
        params_nested_splits=[splits],
        params_dense_values=tf.reshape(rows, [-1]),
        indices=tf.constant(order, tf.int64),
        OUTPUT_RAGGED_RANK=1,
    )
    return tf.reshape(gathered.output_dense_values, [number, width])


def map_rows(function: Callable[[Any], Any], places: Any, length: int) -> tf.Tensor:
    """See `in_numpy`; few at a time, since draws of all would fill the memory.

    Args:
      function: Function from a place to its row, float32[length].
      places: [n] of any dtype.
      length: Length of a row.
    """
    row = tf.TensorSpec([length])
    return tf.map_fn(
        function, places, fn_output_signature=row, parallel_iterations=_ROWS_AT_ONCE
    )


def required(condition: tf.Tensor, message: str, value: tf.Tensor, tree: Any) -> Any:
    """See `in_numpy`.

    Args:
      condition: bool scalar.
      message: The beginning of the error's text.
      value: A scalar, the end of the error's text.
      tree: Structure of arrays.
    """
    check = tf.debugging.Assert(condition, [message, tf.cast(value, tf.int32)])
    # In eager mode the check has already run; in a graph it is an operation.
    with tf.control_dependencies([check] if check is not None else []):
        return tf.nest.map_structure(tf.identity, tree)


segment_sum = tf.math.unsorted_segment_sum


def argsort(values: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.argsort(values, stable=True)


def last_argmax(values: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.argmax(values, -1, output_type=tf.int32)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """See `in_numpy`."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
