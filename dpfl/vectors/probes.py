# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random probes that share out the coordinates, processed a block at a time.

    probed = apply(signs, 0, count, most, vector[np.newaxis])[0]   # one block
    probed = probed / norms(count, most, dimension)

Probe i of n has coordinates i, i + n, and so on, with random signs: a count sketch of
one row. The probes are orthogonal by construction and take d steps to apply, however
many there are.

A block has equally many coordinates of each probe, apart from the last block. It stays
in the processor's cache while several operations use it.

Where shapes are fixed, the number of probes is not known when they are applied, only
that there are at most k: they are a matrix of k rows then, a block at a time, and what
is computed for probes beyond the last one means nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl import arrays
from dpfl.arrays import Array

# Coordinates in a block: 64 rows of them take 2 MiB in float32.
_COLUMNS_AT_A_TIME = 2**13
# As many where shapes are fixed, whose libraries take long to begin a block.
_FIXED_COLUMNS_AT_A_TIME = 2**16


def block_size(nx: Any, dimension: int, count: Array) -> Array:
    """The number of coordinates in a block, of d and of a number of probes.

    Args:
      nx: Module of an array library.
      dimension: d, the number of coordinates.
      count: int32 scalar, the number of probes.
    """
    if nx.FIXES_SHAPES:
        return min(_FIXED_COLUMNS_AT_A_TIME, dimension)
    width = nx.maximum(count, 1)
    return width * nx.maximum(min(_COLUMNS_AT_A_TIME, dimension) // width, 1)


def norms(count: Array, most: int, dimension: int) -> Array:
    """The norm of each probe before scaling, the root of its number of coordinates.

    Args:
      count: int32 scalar, the number of probes.
      most: Upper bound on it, k.
      dimension: d.
    """
    nx = arrays.of(count)
    places, _ = nx.split_at(nx.arange(most), count, most)
    number = (dimension - 1 - places) // nx.maximum(count, 1) + 1
    return nx.sqrt(nx.asarray(number, np.float32))


def apply(signs: Array, begin: Array, count: Array, most: int, rows: Array) -> Array:
    """The products Q v before scaling, [m, count], of rows v of some coordinates.

    Args:
      signs: [c], the signs of the coordinates.
      begin: The first of these coordinates, the begin of a block.
      count: int32 scalar, the number of probes; it may be 0.
      most: Upper bound on it, k; the columns of the result where shapes are fixed.
      rows: [m, c], of the dtype of `signs`.
    """
    nx = arrays.of(rows)
    if nx.FIXES_SHAPES:
        return _products(signs, begin, count, most, rows)
    shares = _shares(rows * signs, nx.maximum(count, 1))
    return nx.sum(shares, 1)[:, :count]


def at_coordinates(values: Array, signs: Array, begin: Array, count: Array) -> Array:
    """Spreads each probe's value, [m, count], over coordinates with their signs.

    Args:
      values: [m, count], or [m, k] where shapes are fixed; zeros if there is no probe.
      signs: [c], the signs of the coordinates.
      begin: The first of these coordinates, the begin of a block.
      count: int32 scalar, the number of probes; it may be 0.
    """
    nx, width = arrays.of(signs), arrays.of(signs).maximum(count, 1)
    if nx.FIXES_SHAPES:
        return nx.take(values, _probe_of(nx, begin, signs.shape[0], width), 1) * signs
    values = nx.pad(values, [[0, 0], [0, width - nx.shape(values)[1]]])
    shares = _shares(signs[np.newaxis], width)
    spread = values[:, np.newaxis] * shares
    flat = nx.reshape(spread, nx.stack([nx.shape(values)[0], nx.size(shares)]))
    return flat[:, : nx.shape(signs)[0]]


def _shares(rows: Array, width: Array) -> Array:
    """The coordinates of [m, c] rows by probe, [m, ceil(c / width), width]."""
    nx = arrays.of(rows)
    missing = -nx.shape(rows)[1] % width
    padded = nx.cond(
        missing > 0, lambda: nx.pad(rows, [[0, 0], [0, missing]]), lambda: rows
    )
    count = nx.shape(padded)[1] // width
    return nx.reshape(padded, nx.stack([nx.shape(rows)[0], count, width]))


def _products(
    signs: Array, begin: Array, count: Array, most: int, rows: Array
) -> Array:
    """`apply` by products with the matrix of the probes."""
    nx, length = arrays.of(rows), rows.shape[1]
    width, signed = nx.maximum(count, 1), rows * signs

    def add(first: Array, number: int, total: Array) -> Array:
        probe = _probe_of(nx, begin + first, number, width)
        is_own = nx.equal(probe[:, np.newaxis], nx.arange(most))
        some = nx.columns(signed, first, number)
        return total + nx.matmul(some, nx.asarray(is_own, rows.dtype))

    zeros = nx.zeros([rows.shape[0], most], rows.dtype)
    return nx.fold_blocks(length, block_size(nx, length, count), add, zeros)


def _probe_of(nx: Any, begin: Array, length: int, width: Array) -> Array:
    """The probe of each coordinate from `begin` on."""
    return (begin + nx.arange(length)) % width
