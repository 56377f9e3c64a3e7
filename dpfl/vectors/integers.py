# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Residues of integers for secure sums.

    sent = wrap(rounded, bits=16)           # a client's
    total = center(sums, bits=16)           # the sum of residues, back to integers

Residues are added modulo 2^bits, as a secure sum adds them.
"""

from __future__ import annotations

from dpfl import arrays
from dpfl.arrays import Array


def wrap(values: Array, bits: int) -> Array:
    """Residues in [0, 2**bits) of int32 values that may have overflowed."""
    return arrays.of(values).bitwise_and(values, (1 << bits) - 1)


def center(values: Array, bits: int) -> Array:
    """Maps integers modulo 2**bits to residues in [-2**(bits-1), 2**(bits-1))."""
    half = 1 << (bits - 1)
    return wrap(values + half, bits) - half
