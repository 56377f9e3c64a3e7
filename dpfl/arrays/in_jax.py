# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`jax.numpy`, and the functions that it lacks; 64-bit types must be enabled.

    with jax.enable_x64(True):
        nx = arrays.named("jax")
        nx.below(nx.fold_in(seed, 1), length=5, bound=10)

`in_numpy` describes the functions that `jax.numpy` does not have. Shapes are fixed:
draws are made for a fixed number of places, and values behind the last are zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpfl.arrays import in_numpy, philox

FIXES_SHAPES = True

bitcast, make_complex = lax.bitcast_convert_type, lax.complex
fft, ifft, slice_at = jnp.fft.fft, jnp.fft.ifft, lax.dynamic_slice
tree_map, structure_leaves = jax.tree.map, jax.tree.leaves
eigvalsh = jnp.linalg.eigvalsh
computed_zeros = jnp.zeros
# Operators and attributes that arrays of both libraries have.
bitwise_and, right_shift = in_numpy.bitwise_and, in_numpy.right_shift


def __getattr__(name: str) -> Any:
    """The functions of `jax.numpy` that are used as they are."""
    return getattr(jnp, name)


# Numbers that are added up in float32; the sums of so many squares in float64.
_ROW = 256


def asarray(value: Any, dtype: Any) -> Any:
    """See `in_numpy`."""
    return jnp.asarray(value).astype(dtype)


def cond(condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """See `in_numpy`; branches are compiled only where the condition is traced.

    Args:
      condition: bool scalar.
      then: Function of no arguments, called if it is true.
      other: Function of no arguments, called if it is false.
    """
    is_known = not isinstance(condition, jax.core.Tracer)
    return (in_numpy.cond if is_known else lax.cond)(condition, then, other)


def while_loop(condition: Callable, body: Callable, carried: Sequence[Any]) -> Any:
    """See `in_numpy`.

    Args:
      condition: Function of the carried values to a bool scalar.
      body: Function of the carried values to a tuple of their new values, of the same
        shapes and dtypes.
      carried: The initial values.
    """
    return lax.while_loop(
        lambda values: condition(*values),
        lambda values: tuple(body(*values)),
        tuple(carried),
    )


def fori_loop(begin: Any, end: Any, body: Callable, *carried: Any) -> Any:
    """See `in_numpy`.

    Args:
      begin: The first index.
      end: The exclusive last index.
      body: Function of an index and the carried values to a tuple of their new values.
      *carried: The initial values.
    """
    return lax.fori_loop(
        begin, end, lambda index, values: tuple(body(index, *values)), tuple(carried)
    )


def divide_no_nan(above: Any, below: Any) -> Any:
    """See `in_numpy`."""
    is_zero = jnp.equal(below, 0)
    quotient = above / jnp.where(is_zero, jnp.ones_like(below), below)
    return jnp.where(is_zero, jnp.zeros_like(quotient), quotient)


def multiply_no_nan(left: Any, right: Any) -> Any:
    """See `in_numpy`."""
    product = left * right
    return jnp.where(jnp.equal(right, 0), jnp.zeros_like(product), product)


def half_square_sum(vector: Any) -> Any:
    """See `in_numpy`.

    XLA adds a long vector one number after the other, which in float32 loses small ones
    behind a large one. So rows are added in float32, and their sums in float64.
    """
    squares = jnp.square(vector)
    padding = -vector.size % _ROW
    rows = jnp.sum(jnp.reshape(jnp.pad(squares, (0, padding)), (-1, _ROW)), 1)
    total = jnp.sum(rows.astype(jnp.float64))
    return (total / 2).astype(vector.dtype)


def norm(vector: Any) -> Any:
    """The L2 norm; see `half_square_sum`."""
    return jnp.sqrt(2 * half_square_sum(vector))


def lower_solve(factor: Any, right: Any) -> Any:
    """See `in_numpy`."""
    return jax.scipy.linalg.solve_triangular(factor, right, lower=True)


def to_bfloat16(floats: Any) -> Any:
    """See `in_numpy`."""
    return bitcast(floats.astype(jnp.bfloat16), jnp.int16)


def from_bfloat16(words: Any, dtype: Any) -> Any:
    """See `in_numpy`."""
    return bitcast(words, jnp.bfloat16).astype(dtype)


def split_at(values: Any, number: Any, most: int) -> tuple[Any, Any]:
    """See `in_numpy`.

    Args:
      values: [..., k] of any dtype.
      number: int32 scalar.
      most: Upper bound on `number`.
    """
    places = jnp.arange(values.shape[-1])
    first = jnp.where(places < number, values, 0)[..., :most]
    others = jnp.roll(values, -number, axis=-1)
    return first, jnp.where(places < values.shape[-1] - number, others, 0)


def join_at(first: Any, second: Any, number: Any, axis: int = -1) -> Any:
    """See `in_numpy`.

    Args:
      first: Array of any dtype.
      second: Array of that dtype.
      number: int32 scalar.
      axis: The axis along which they are joined.
    """
    first, second = jnp.swapaxes(first, axis, -1), jnp.swapaxes(second, axis, -1)
    length = second.shape[-1]
    widths = [(0, 0)] * (first.ndim - 1) + [(0, length - first.shape[-1])]
    is_first = jnp.arange(length) < number
    rolled = jnp.roll(second, number, axis=-1)
    joined = jnp.where(is_first, jnp.pad(first, widths), rolled)
    return jnp.swapaxes(joined, axis, -1)


def columns(array: Any, begin: Any, length: int) -> Any:
    """See `in_numpy`.

    Args:
      array: [..., k] of any dtype.
      begin: The first column.
      length: The number of columns.
    """
    return lax.dynamic_slice_in_dim(array, begin, length, -1)


def fold_blocks(length: int, size: int, add: Callable, first: Any) -> Any:
    """See `in_numpy`.

    Args:
      length: The number of columns.
      size: Columns of a block, but for the last one, which may have fewer.
      add: Function from a block's begin and length and the total before it to the total
        after it.
      first: The total before any block.
    """
    number, rest = divmod(length, size)
    total = lax.fori_loop(0, number, lambda i, total: add(i * size, size, total), first)
    return add(number * size, rest, total) if rest else total


def map_blocks(
    length: int, size: int, function: Callable, rows: int, dtype: Any
) -> Any:
    """See `in_numpy`.

    Args:
      length: The number of columns.
      size: Columns of a block, but for the last one, which may have fewer.
      function: Function from a block's begin and length to its columns.
      rows: The number of rows.
      dtype: The dtype of the columns.
    """

    def add(begin: Any, width: int, blocks: Any) -> Any:
        some = function(begin, width)
        return lax.dynamic_update_slice_in_dim(blocks, some, begin, -1)

    return fold_blocks(length, size, add, jnp.zeros([rows, length], dtype))


def matmul(
    left: Any, right: Any, transpose_a: bool = False, transpose_b: bool = False
) -> Any:
    """See `in_numpy`; a GPU would take TF32 by itself.

    Args:
      left: Matrix, [n, k] once transposed.
      right: Matrix, [k, m] once transposed.
      transpose_a: Whether `left` is transposed first.
      transpose_b: Whether `right` is transposed first.
    """
    left, right = jnp.asarray(left), jnp.asarray(right)
    left, right = left.T if transpose_a else left, right.T if transpose_b else right
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def count_below(values: Any, bound: int) -> Any:
    """See `in_numpy`."""
    return jnp.sum(values < bound, dtype=jnp.int32)


def prefix(values: Any, number: Any) -> Any:
    """See `in_numpy`.

    A loop of one step, which XLA does not fuse: otherwise each use would compute the
    values anew, the sums of a `cumsum` many times over.
    """
    return lax.fori_loop(0, jnp.minimum(values.size, 1), lambda _, v: v, values)


def take_or_zero(vector: Any, places: Any) -> Any:
    """See `in_numpy`."""
    return jnp.take(vector, places, mode="fill", fill_value=0)


def add_at(total: Any, places: Any, values: Any, number: Any) -> Any:
    """See `in_numpy`.

    Args:
      total: [n] of any dtype.
      places: Integers [k], different and below n.
      values: [k] of the dtype of `total`.
      number: int32 scalar.
    """
    matches = jnp.all((values == 0) | (jnp.arange(values.size) < number))
    added = total.at[places].add(jnp.where(matches, values, 0), mode="drop")
    return added, matches


def replaced(
    values: Any, is_meant: Any, draw: Callable[..., Any], share: float = 1.0
) -> Any:
    """See `in_numpy`; `most_of` the places are drawn for, few if the share is small.

    Args:
      values: [n] of any dtype.
      is_meant: bool[n].
      draw: Function from a selector of the meant places of any array of n, their ranks
        among each other, and their number, to the new values.
      share: The probability that a place is meant; below 1 the selector is None.
    """
    ranks = _counts(is_meant) - 1
    number, most = ranks[-1] + 1, most_of(values.size, share)
    is_all = most == values.size

    def drawn(_: Any, few: Any) -> tuple[Any]:
        if is_all:
            return (draw(lambda array: array, ranks, number),)
        return (draw(None, jnp.arange(most), number),)

    few = jnp.zeros([most], values.dtype)
    if isinstance(number, jax.core.Tracer):
        # A loop of one step, which XLA does not fuse: it would draw for each place.
        [few] = fori_loop(0, jnp.minimum(number, 1), drawn, few)
    else:
        [few] = drawn(0, few)
    found = few if is_all else jnp.take(few, ranks, mode="clip")
    return jnp.where(is_meant, found, values)


def most_of(length: int, share: float) -> int:
    """Places of which more are meant with a probability below 1e-60 at most.

    Args:
      length: Number of places, each meant independently.
      share: The probability of each.
    """
    deviation = math.sqrt(length * share * (1 - share))
    return min(length, math.ceil(length * share + 20 * deviation + 100))


def _counts(flags: Any) -> Any:
    """Sums of the first flags, int32[n].

    Products with a triangular matrix: `cumsum` takes XLA four times as long to compile
    on a processor, and twice as long to run.
    """
    # Integers up to 2**24 are exact.
    wide = jnp.float32 if flags.size < 1 << 24 else jnp.float64
    return _sums(flags.astype(wide)).astype(jnp.int32)


def _sums(values: Any) -> Any:
    rows = jnp.reshape(jnp.pad(values, (0, -values.size % _ROW)), (-1, _ROW))
    sums = matmul(rows, np.triu(np.ones([_ROW, _ROW], values.dtype)))
    if len(rows) > 1:
        totals = sums[:, -1]
        sums = sums + (_sums(totals) - totals)[:, jnp.newaxis]
    return jnp.reshape(sums, [-1])[: values.size]


def fold_in(seed: Any, value: Any) -> Any:
    """See `in_numpy`."""
    seed = jnp.asarray(seed, jnp.int64)
    words = _enciphered((*_halves(value), *_halves(seed[1])), _halves(seed[0]))
    # Otherwise XLA may fuse a chain of seeds, and compile it for minutes.
    return lax.optimization_barrier(
        jnp.stack([_joined(*words[:2]), _joined(*words[2:])])
    )


def random_words(seed: Any, count: int, dtype: Any = np.uint32) -> Any:
    """See `in_numpy`.

    Args:
      seed: int64[2].
      count: Number of words.
      dtype: An integer dtype of 32 or 64 bits.
    """
    return words_at(seed, lax.iota(jnp.uint32, int(count)), count, dtype)


def words_at(seed: Any, places: Any, count: Any, dtype: Any = np.uint32) -> Any:
    """See `in_numpy`.

    Each word enciphers its own block: to put four words side by side takes XLA 100
    times as long on a processor.

    Args:
      seed: int64[2].
      places: Integers, each at least 0 and below `count`.
      count: Number of words among which the places are.
      dtype: An integer dtype of 32 or 64 bits.
    """
    places = jnp.asarray(places).astype(jnp.uint32)
    if np.dtype(dtype).itemsize == 4:
        return bitcast(_word(seed, places), dtype)
    return bitcast(_joined(*_word_pair(seed, places)), dtype)


def uniform(seed: Any, length: int) -> Any:
    """See `in_numpy`."""
    high, low = _word_pair(seed, lax.iota(jnp.uint32, length))
    bits = (_joined(low, high) & ((1 << 52) - 1)) | (1023 << 52)
    return bitcast(bits, jnp.float64) - 1


def float_uniform(seed: Any, length: int) -> Any:
    """See `in_numpy`."""
    words = random_words(seed, length, np.uint32)
    bits = words & np.uint32((1 << 23) - 1) | np.uint32(127 << 23)
    return bitcast(bits, jnp.float32) - np.float32(1)


@jax.jit
def _word(seed: Any, places: Any) -> Any:
    """uint32, the words of Philox at places below 2**32."""
    first, second = _word_pair(seed, places >> np.uint32(1))
    return jnp.where(places & np.uint32(1) == 0, first, second)


@jax.jit
def _word_pair(seed: Any, pairs: Any) -> tuple[Any, Any]:
    """Two uint32, the words of Philox at twice some places, and those behind them."""
    seed = jnp.asarray(seed, jnp.int64)
    mixed = _enciphered(
        (*_halves(seed[0]), *_halves(seed[1])), _halves(philox.SEED_KEY)
    )
    key, upper = mixed[:2], mixed[2:]
    blocks, is_second = pairs >> np.uint32(1), pairs & np.uint32(1) == 1
    zero = jnp.zeros_like(blocks)
    words = _enciphered((blocks, zero, zero + upper[0], zero + upper[1]), key)
    first = jnp.where(is_second, words[2], words[0])
    return first, jnp.where(is_second, words[3], words[1])


def _halves(value: Any) -> tuple[Any, Any]:
    """Two uint32 of an int64, the lower half first."""
    value = jnp.asarray(value, jnp.int64)
    return value.astype(jnp.uint32), (value >> 32).astype(jnp.uint32)


def _joined(low: Any, high: Any) -> Any:
    return low.astype(jnp.int64) | (high.astype(jnp.int64) << 32)


@jax.jit
def _enciphered(counter: Any, key: Any) -> Any:
    """Applies Philox4x32-10 to four uint32 arrays under two uint32.

    Most of a program's ciphers are of single seeds. A processor compiles a loop of
    rounds in a fifth of the time, and runs it as fast; a card runs one kernel faster.
    """
    given = (*counter, *key)
    if counter[0].ndim:
        return _all_rounds(*given)
    return lax.platform_dependent(*given, cpu=_loop_of_rounds, default=_all_rounds)


def _all_rounds(*values: Any) -> Any:
    for _ in range(philox.ROUNDS):
        values = _round(*values)
    return values[:4]


def _loop_of_rounds(*values: Any) -> Any:
    return fori_loop(0, philox.ROUNDS, lambda _, *each: _round(*each), *values)[:4]


def _round(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """The counter and the key after a round."""
    high0, low0 = _product(c0, philox.MULTIPLIERS[0])
    high1, low1 = _product(c2, philox.MULTIPLIERS[1])
    after = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return *after, k0 + np.uint32(philox.WEYL[0]), k1 + np.uint32(philox.WEYL[1])


def _product(word: Any, multiplier: Any) -> tuple[Any, Any]:
    wide = word.astype(jnp.uint64) * np.uint64(multiplier)
    return (wide >> 32).astype(jnp.uint32), wide.astype(jnp.uint32)


def below(seed: Any, length: int, bound: int) -> Any:
    """See `in_numpy`.

    Args:
      seed: int64[2].
      length: Number of integers.
      bound: The exclusive upper bound.
    """
    words = random_words(seed, length, np.uint64)
    return (words % np.uint64(bound)).astype(jnp.int64)


table = shared_table = jnp.asarray


def with_row(rows: Any, place: Any, row: Any) -> Any:
    """See `in_numpy`.

    Args:
      rows: [n, k] of any dtype.
      place: Index of the row.
      row: [k] of the same dtype.
    """
    return rows.at[place].set(row)


def product(left: Any, right: Any) -> Any:
    """See `in_numpy`; an exclusive or of its bits forces a product to be rounded."""
    rounded = left * right
    is_nan = jnp.isnan(rounded).astype(jnp.int32)
    return bitcast(bitcast(rounded, np.int32) ^ is_nan, np.float32)


def minus_weighted(total: Any, weights: Any, vectors: Sequence[Any]) -> Any:
    """See `in_numpy`.

    Args:
      total: [n] of floats.
      weights: [k] of the same dtype.
      vectors: k vectors, [n] of the same dtype.
    """
    for weight, vector in zip(weights, vectors):
        total = total - product(weight, vector)
    return total


def halves(words: Any) -> Any:
    """See `in_numpy`."""
    low, high = words & np.uint32(0xFFFF), words >> np.uint32(16)
    return jnp.stack([low, high], 1).reshape(-1).astype(jnp.int32)


def signed_halves(words: Any) -> Any:
    """See `in_numpy`."""
    low = jnp.right_shift(jnp.left_shift(words, 16), 16)
    return jnp.stack([low, jnp.right_shift(words, 16)], 1).reshape(-1)


def rolled(rows: Any, starts: Any) -> Any:
    """See `in_numpy`."""
    return jax.vmap(jnp.roll)(rows, -starts)


def map_rows(function: Callable[[Any], Any], places: Any, length: int) -> Any:
    """See `in_numpy`; one at a time, since draws of all would fill the memory.

    Args:
      function: Function from a place to its row, float32[length].
      places: [n] of any dtype.
      length: Length of a row.
    """
    return lax.map(function, places)


def required(condition: Any, message: str, value: Any, tree: Any) -> Any:
    """See `in_numpy`.

    Args:
      condition: bool scalar.
      message: The beginning of the error's text.
      value: A scalar, the end of the error's text.
      tree: Structure of arrays.
    """
    return tree_map(lambda part: jnp.where(condition, part, 0), tree)


erfc, segment_sum = jax.scipy.special.erfc, jax.ops.segment_sum


def argsort(values: Any) -> Any:
    """See `in_numpy`."""
    return jnp.argsort(values, stable=True).astype(jnp.int32)


def last_argmax(values: Any) -> Any:
    """See `in_numpy`."""
    return jnp.argmax(values, -1).astype(np.int32)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """See `in_numpy`."""
    shifted = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(shifted, labels[..., np.newaxis], -1)[..., 0]
