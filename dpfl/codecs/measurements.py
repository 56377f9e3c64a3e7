# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Measurements of every round, whatever the mechanism: counts, norms and bits.

    sums = client_sums(encoded.normed, bits, encoded.sums)   # summed over clients
    measured = exact_measurements(sums, more)                # of the round

A name that begins with `MARK` is an exact value of clients' data, outside of the
privacy guarantee. All others are public or computed from the release.
"""

from __future__ import annotations

import collections
from typing import Any, Optional

import numpy as np

from dpfl import arrays
from dpfl.arrays import Array
from dpfl.mechanisms.mechanism import COUNT_BITS, FLOAT_BITS
from dpfl.privacy_coverage import MARK
from dpfl.vectors import clipping

# Arrays, or structures of them, by name.
Fields = collections.OrderedDict


def client_sums(
    normed: clipping.NormedVector, uplink_bits: Array, extra: Optional[Fields] = None
) -> Fields:
    """The float64 scalars of one client that the server sums.

    Args:
      normed: The client's update.
      uplink_bits: Bits of the client's message, a scalar.
      extra: `Encoded.sums` of the mechanism; None for none.
    """
    nx = arrays.of(normed.direction_norm)
    sums = Fields(
        clients=1,
        nonfinite_clients=~normed.is_finite,
        norms=normed.norm,
        uplink_bits=uplink_bits,
        **(extra or {}),
    )
    return nx.tree_map(lambda value: nx.asarray(value, np.float64), sums)


def exact_measurements(sums: Fields, more: Fields) -> Fields:
    """The exact measurements of a round and a mechanism, under their marked names."""
    nx = arrays.of(sums["clients"])
    clients, nonfinite = sums["clients"], sums["nonfinite_clients"]
    measured = Fields(
        clients=nx.asarray(clients, np.int32),
        nonfinite_clients=nx.asarray(nonfinite, np.int32),
        mean_update_norm=ratio(sums["norms"], clients - nonfinite),
        uplink_bits=ratio(sums["uplink_bits"], clients),
        **more,
    )
    marked = ((MARK + name, part) for name, part in measured.items())
    return Fields(marked)


def downlink_bits(nx: Any, broadcast_bits: Array, dimension: int) -> Array:
    """The bits that a client receives, the model as float32 included.

    Args:
      nx: The array library.
      broadcast_bits: Bits of the codec's broadcast, a scalar.
      dimension: d.
    """
    bits = nx.asarray(broadcast_bits, np.float64) + FLOAT_BITS * dimension
    return nx.asarray(bits, np.float32)


def structure_bits(nx: Any, structure: Any) -> Array:
    """The bits of a structure of arrays on the wire, a float64 scalar.

    An array of TensorFlow whose shape is not known in advance is sent with its length.

    Args:
      nx: The array library.
      structure: The arrays.
    """
    bits = nx.zeros([], np.float64)
    for array in nx.structure_leaves(structure):
        # TensorFlow's dtypes have their size, numpy's that of an item.
        dtype = getattr(array.dtype, "as_numpy_dtype", array.dtype)
        width = 1 if dtype == np.bool_ else 8 * np.dtype(dtype).itemsize
        bits = bits + nx.asarray(nx.size(array), np.float64) * width
        if None in tuple(array.shape):
            bits = bits + COUNT_BITS
    return bits


def ratio(numerator: Array, denominator: Array) -> Array:
    """The float32 quotient of two float64 scalars; 0 / 0 = 0, always finite."""
    nx = arrays.of(numerator)
    quotient = nx.divide_no_nan(numerator, denominator)
    return nx.asarray(nx.minimum(quotient, np.finfo(np.float32).max), np.float32)
