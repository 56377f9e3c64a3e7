# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""numpy by the names of `jax.numpy`, and the functions that `jax.numpy` lacks.

    nx = arrays.named("numpy")
    nx.below(nx.fold_in(nx.fresh_seed(), 1), length=5, bound=10)

The other libraries have the same functions with the same arguments.
"""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import linalg as scipy_linalg
from scipy import special

from dpfl.arrays import philox

FIXES_SHAPES = False
"""Whether shapes are known before anything is computed, as under `jax.jit`."""

abs, all, arange, clip, concatenate = np.abs, np.all, np.arange, np.clip, np.concatenate
cos, count_nonzero, equal, exp = np.cos, np.count_nonzero, np.equal, np.exp
fft, ifft, floor, imag = np.fft.fft, np.fft.ifft, np.floor, np.imag
isfinite, log = np.isfinite, np.log
maximum, minimum = np.maximum, np.minimum
ones, ones_like, real, reshape = np.ones, np.ones_like, np.real, np.reshape
round, sign, sin, sqrt, square = np.round, np.sign, np.sin, np.sqrt, np.square
stack, sum, take, transpose = np.stack, np.sum, np.take, np.transpose
where, zeros, zeros_like, cumsum = np.where, np.zeros, np.zeros_like, np.cumsum
max, mean, size = np.max, np.mean, np.size
eigvalsh, expm1, norm = np.linalg.eigvalsh, np.expm1, np.linalg.norm
diag, eye, linalg = np.diag, np.eye, np.linalg
pad, shape, fold_in = np.pad, np.shape, philox.fold_in


def asarray(value: Any, dtype: Any) -> np.ndarray:
    """`value` as an array of a dtype; floats are truncated to integers."""
    return np.asarray(value).astype(dtype)


def bitcast(array: np.ndarray, dtype: Any) -> np.ndarray:
    """The bits of an array as another dtype of the same width."""
    return np.asarray(array).view(dtype)


def right_shift(words: np.ndarray, bits: int) -> np.ndarray:
    """`words` shifted to the right; unsigned words are filled with zeros."""
    return words >> words.dtype.type(bits)


def bitwise_and(words: np.ndarray, mask: int) -> np.ndarray:
    """`words` with the bits of a constant mask."""
    return words & words.dtype.type(mask)


def make_complex(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    """Complex128 from two float64 arrays."""
    return real + 1j * imaginary


def divide_no_nan(above: Any, below: Any) -> Any:
    """The quotient, and 0 where the divisor is 0, whatever is divided."""
    is_zero = np.equal(below, 0)
    return np.where(is_zero, 0, np.divide(above, np.where(is_zero, 1, below)))


def multiply_no_nan(left: Any, right: Any) -> Any:
    """The product, and 0 where the right factor is 0, whatever is multiplied."""
    with np.errstate(invalid="ignore", over="ignore"):
        product = left * right
    return np.where(np.equal(right, 0), np.zeros_like(product), product)


def half_square_sum(vector: np.ndarray) -> Any:
    """Half the sum of squares, in the dtype of the vector, to 1e-5 of it."""
    with np.errstate(over="ignore"):
        return np.sum(np.square(vector)) / vector.dtype.type(2)


def matmul(
    left: Any, right: Any, transpose_a: bool = False, transpose_b: bool = False
) -> Any:
    """The product of two matrices in their own precision, each transposed if asked.

    Args:
      left: Matrix, [n, k] once transposed.
      right: Matrix, [k, m] once transposed.
      transpose_a: Whether `left` is transposed first.
      transpose_b: Whether `right` is transposed first.
    """
    left, right = np.asarray(left), np.asarray(right)
    return (left.T if transpose_a else left) @ (right.T if transpose_b else right)


def lower_solve(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """X with L X = R for a lower triangular matrix L, [k, k], and R, [k, m]."""
    if not right.size:
        return right
    return scipy_linalg.solve_triangular(factor, right, lower=True)


def to_bfloat16(floats: np.ndarray) -> np.ndarray:
    """The bits of floats, rounded to bfloat16, as int16."""
    words = np.asarray(floats, np.float32).view(np.uint32)
    is_odd = words >> np.uint32(16) & np.uint32(1)
    rounded = words + (is_odd + np.uint32(0x7FFF)) >> np.uint32(16)
    rounded = np.where(np.isnan(floats), np.uint32(0x7FC0), rounded)
    return rounded.astype(np.uint16).view(np.int16)


def from_bfloat16(words: np.ndarray, dtype: Any) -> np.ndarray:
    """Floats of a dtype from the bits of bfloat16, int16."""
    wide = words.view(np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).astype(dtype)


def split_at(values: np.ndarray, number: Any, most: int) -> tuple[Any, Any]:
    """The first `number` columns, and the others.

    Where shapes are fixed, they are `most` columns and as many as all, with zeros
    behind.

    Args:
      values: [..., k] of any dtype.
      number: int32 scalar.
      most: Upper bound on `number`.
    """
    return values[..., :number], values[..., number:]


def join_at(first: Any, second: Any, number: Any, axis: int = -1) -> np.ndarray:
    """The first `number` parts of `first` along an axis, and `second` behind them.

    Where shapes are fixed, the result has as many parts as `second`, and `first` has at
    most so many.

    Args:
      first: Array of any dtype.
      second: Array of that dtype.
      number: int32 scalar.
      axis: The axis along which they are joined.
    """
    return np.concatenate([first, second], axis)


def columns(array: np.ndarray, begin: Any, length: Any) -> np.ndarray:
    """Columns `begin` to before `begin + length`, the last axis.

    Args:
      array: [..., k] of any dtype.
      begin: The first column.
      length: The number of columns.
    """
    return array[..., begin : begin + length]


def fold_blocks(length: int, size: Any, add: Callable, first: Any) -> Any:
    """Folds a function over blocks of columns, in their order.

    Args:
      length: The number of columns.
      size: Columns of a block, but for the last one, which may have fewer.
      add: Function from a block's begin and length and the total before it to the total
        after it.
      first: The total before any block.
    """
    for begin in range(0, length, size):
        first = add(begin, builtins.min(size, length - begin), first)
    return first


def map_blocks(
    length: int, size: Any, function: Callable, rows: int, dtype: Any
) -> np.ndarray:
    """[rows, length] of a dtype, computed by a function for a block of columns.

    Args:
      length: The number of columns.
      size: Columns of a block, but for the last one, which may have fewer.
      function: Function from a block's begin and length to its columns.
      rows: The number of rows.
      dtype: The dtype of the columns.
    """
    result = np.empty([rows, length], dtype)
    for begin in range(0, length, size):
        some = function(begin, builtins.min(size, length - begin))
        result[:, begin : begin + size] = some
    return result


def computed_zeros(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Zeros that are no constant of a graph, which TFF's compiler would hold too."""
    return np.zeros(shape, dtype)


def tree_map(function: Callable[..., Any], tree: Any, *more: Any) -> Any:
    """`function` of the leaves of trees of one structure: mappings and sequences."""
    if isinstance(tree, dict):
        parts = ((k, tree_map(function, tree[k], *(m[k] for m in more))) for k in tree)
        return type(tree)(parts)
    if isinstance(tree, (list, tuple)):
        leaves = [tree_map(function, *each) for each in zip(tree, *more)]
        return type(tree)(*leaves) if hasattr(tree, "_fields") else type(tree)(leaves)
    return function(tree, *more)


def cond(condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """Evaluates one of two branches of the same shapes and dtypes.

    Args:
      condition: bool scalar.
      then: Function without arguments, of the branch if true.
      other: The same, of the branch if false.
    """
    return then() if condition else other()


def while_loop(condition: Callable, body: Callable, carried: Sequence[Any]) -> Any:
    """Updates `carried` by `body` as long as `condition` of it is true.

    Args:
      condition: Function of the carried values to a bool scalar.
      body: Function of the carried values to a tuple of their new values, of the same
        shapes and dtypes.
      carried: The initial values.
    """
    while condition(*carried):
        carried = body(*carried)
    return tuple(carried)


def fori_loop(begin: Any, end: Any, body: Callable, *carried: Any) -> Any:
    """Updates `carried` by `body` of each index from `begin` to before `end`, in turn.

    Args:
      begin: The first index.
      end: The exclusive last index.
      body: Function of an index and the carried values to a tuple of their new values.
      *carried: The initial values.
    """
    for index in range(int(begin), int(end)):
        carried = body(index, *carried)
    return carried


def random_words(seed: Any, count: int, dtype: Any = np.uint32) -> np.ndarray:
    """Integers, [count], whose bits are fair and independent.

    Args:
      seed: int64[2].
      count: Number of words.
      dtype: An integer dtype of 32 or 64 bits.
    """
    width = np.dtype(dtype).itemsize // 4
    words = philox.random_words(seed, width * int(count))
    return words.astype("<u4").view(np.dtype(dtype).newbyteorder("<")).astype(dtype)


def uniform(seed: Any, length: int) -> np.ndarray:
    """float64[length], multiples of 2**-52 in [0, 1)."""
    # The first of two words is the upper one.
    words = random_words(seed, 2 * length).astype(np.uint64)
    bits = (words[::2] << np.uint64(32) | words[1::2]) & np.uint64((1 << 52) - 1)
    bits |= np.uint64(1023 << 52)
    return bits.view(np.float64) - 1


def float_uniform(seed: Any, length: int) -> np.ndarray:
    """float32[length], multiples of 2**-23 in [0, 1)."""
    words = random_words(seed, length)
    bits = words & np.uint32((1 << 23) - 1) | np.uint32(127 << 23)
    return bits.view(np.float32) - np.float32(1)


def replaced(
    values: Any, is_meant: Any, draw: Callable[..., Any], share: float = 1.0
) -> Any:
    """`values` with draws in the places that are meant, which are few.

    Args:
      values: [n] of any dtype.
      is_meant: bool[n].
      draw: Function from a selector of the meant places of any array of n, their ranks
        among each other, and their number, to the new values.
      share: The probability that a place is meant, each independently. Where shapes are
        fixed, fewer places are drawn for if it is below 1, and `draw` gets no selector.
    """
    [places] = np.nonzero(is_meant)
    values = np.array(values)
    drawn = draw(lambda array: array[places], np.arange(len(places)), len(places))
    values[places] = drawn
    return values


def words_at(seed: Any, places: Any, count: Any, dtype: Any = np.uint32) -> Any:
    """Words of `random_words`, those of some places among `count`.

    Args:
      seed: int64[2].
      places: Integers, each at least 0 and below `count`.
      count: Number of words among which the places are.
      dtype: An integer dtype of 32 or 64 bits.
    """
    return random_words(seed, count, dtype)[places]


def count_below(values: np.ndarray, bound: int) -> Any:
    """The number of sorted values below a bound, int32."""
    return np.int32(np.searchsorted(values, bound))


def prefix(values: np.ndarray, number: Any) -> np.ndarray:
    """The first `number` values; all of them where shapes are fixed."""
    return values[:number]


def take_or_zero(vector: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Values at places; zeros at places beyond the end where shapes are fixed."""
    return vector[places]


def add_at(total: Any, places: Any, values: Any, number: Any) -> Any:
    """Adds values at different places if they are `number` values.

    Where shapes are fixed, values behind the first `number` must be zeros.

    Args:
      total: [n] of any dtype.
      places: Integers [k], different and below n.
      values: [k] of the dtype of `total`.
      number: int32 scalar.

    Returns:
      The sum, or `total` unchanged, and whether the values were added.
    """
    if np.size(values) != number:
        return total, np.bool_(False)
    total = total.copy()
    total[places] += values
    return total, np.bool_(True)


def structure_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    leaves: list[Any] = []
    tree_map(leaves.append, tree)
    return leaves


def below(seed: Any, length: int, bound: int) -> np.ndarray:
    """int64[length], uniform from 0 to before a bound, to 2**-64 of it.

    Args:
      seed: int64[2].
      length: Number of integers.
      bound: The exclusive upper bound.
    """
    return (random_words(seed, length, np.uint64) % np.uint64(bound)).astype(np.int64)


def fresh_seed() -> np.ndarray:
    """128 bits of the operating system's entropy, int64[2]."""
    return np.frombuffer(secrets.token_bytes(16), np.int64)


def table(values: np.ndarray) -> np.ndarray:
    """A constant table, to take values of."""
    return values


def shared_table(values: np.ndarray) -> np.ndarray:
    """A large constant table, stored once however often it is used."""
    return values


def with_row(rows: np.ndarray, place: Any, row: Any) -> np.ndarray:
    """`rows` with another row at a place.

    Args:
      rows: [n, k] of any dtype.
      place: Index of the row.
      row: [k] of the same dtype.
    """
    rows = rows.copy()
    rows[place] = row
    return rows


def slice_at(array: np.ndarray, begins: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The slice of fixed sizes that begins at a place for each axis.

    Args:
      array: Array of any dtype.
      begins: For each axis, the first index.
      sizes: For each axis, the number of indices.
    """
    return array[tuple(slice(b, b + n) for b, n in zip(begins, sizes))]


def product(left: Any, right: Any) -> Any:
    """The product, rounded before anything is added to it.

    A compiler may round a product and a sum at once, with other bits.
    """
    return left * right


# Columns of a block, 128 KiB of a vector.
_COLUMNS = 1 << 15


def minus_weighted(total: np.ndarray, weights: Any, vectors: Sequence[Any]) -> Any:
    """`total` minus the `product` of each weight and its vector, in their order.

    A block of columns stays in the cache through all vectors.

    Args:
      total: [n] of floats.
      weights: [k] of the same dtype.
      vectors: k vectors, [n] of the same dtype.
    """
    total = total.copy()
    for begin in range(0, len(total), _COLUMNS):
        block = total[begin : begin + _COLUMNS]
        product = np.empty_like(block)
        for weight, vector in zip(weights, vectors):
            columns = vector[begin : begin + _COLUMNS]
            block -= np.multiply(columns, weight, out=product)
    return total


def halves(words: np.ndarray) -> np.ndarray:
    """int32[2 n], the 16-bit halves of uint32[n], the lower ones first."""
    return words.astype("<u4").view("<u2").astype(np.int32)


def signed_halves(words: np.ndarray) -> np.ndarray:
    """int32[2 n], the signed 16-bit halves of int32[n], the lower ones first."""
    return words.astype("<i4").view("<i2").astype(np.int32)


def rolled(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Each row of a matrix, rotated to begin with its element `start`.

    Args:
      rows: [n, w] of any dtype.
      starts: int64[n], from 0 to w.
    """
    twice = np.concatenate([rows, rows], 1)
    windows = np.lib.stride_tricks.sliding_window_view(twice, rows.shape[1], 1)
    return windows[np.arange(len(rows)), starts]


def map_rows(function: Callable[[Any], Any], places: Any, length: int) -> np.ndarray:
    """float32[n, length], the rows that a function has for n places.

    Args:
      function: Function from a place to its row, float32[length].
      places: [n] of any dtype.
      length: Length of a row.
    """
    return np.stack([function(place) for place in places])


def required(condition: Any, message: str, value: Any, tree: Any) -> Any:
    """A tree of integers, if a condition holds.

    Args:
      condition: bool scalar.
      message: The beginning of the error's text.
      value: A scalar, the end of the error's text.
      tree: Structure of arrays.

    Raises:
      ValueError: If the condition does not hold. TensorFlow raises
        InvalidArgumentError when the graph runs; JAX returns zeros.
    """
    if not condition:
        raise ValueError(f"{message} {value}")
    return tree


def erfc(value: Any) -> Any:
    """The complementary error function."""
    return np.asarray(special.erfc(value), np.asarray(value).dtype)


def segment_sum(values: np.ndarray, places: np.ndarray, length: int) -> np.ndarray:
    """Sums of the values at each place, [length].

    Args:
      values: [n] of any dtype.
      places: Integers [n], each at least 0 and below `length`.
      length: Number of sums.
    """
    total = np.zeros([length], values.dtype)
    np.add.at(total, places, values)
    return total


def argsort(values: np.ndarray) -> np.ndarray:
    """The order that sorts values, the first of equal ones first; int32[n]."""
    return np.argsort(values, kind="stable").astype(np.int32)


def last_argmax(values: np.ndarray) -> np.ndarray:
    """The place of the largest value along the last axis, int32."""
    return np.argmax(values, -1).astype(np.int32)


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The cross entropy of each label, in the dtype of the logits.

    Args:
      logits: [..., classes].
      labels: Integers [...].
    """
    shifted = logits - np.max(logits, -1, keepdims=True)
    total = np.log(np.sum(np.exp(shifted), -1))
    chosen = np.take_along_axis(shifted, labels[..., np.newaxis], -1)[..., 0]
    return total - chosen
