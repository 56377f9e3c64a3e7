# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Residues of integers for secure sums, and a flat rotation.

    sent = wrap(rounded, bits=16)           # a client's
    total = center(sums, bits=16)           # the sum of residues, back to integers
    rotation = ROTATIONS["overlap"](length)

Residues are added modulo 2^bits, as a secure sum adds them.
"""

from __future__ import annotations

from collections.abc import Callable

from dpfl import arrays, checks
from dpfl.arrays import Array
from dpfl.vectors import randomness, rotation


def wrap(values: Array, bits: int) -> Array:
    """Residues in [0, 2**bits) of int32 values that may have overflowed."""
    return arrays.of(values).bitwise_and(values, (1 << bits) - 1)


def center(values: Array, bits: int) -> Array:
    """Maps integers modulo 2**bits to residues in [-2**(bits-1), 2**(bits-1))."""
    half = 1 << (bits - 1)
    return wrap(values + half, bits) - half


class OverlapRotation:
    """A random rotation of vectors of any length, without padding.

    It applies random signs and the Hadamard transform to the leading 2**k coordinates,
    then to the trailing 2**k ones, where 2**k is the largest power of two that fits:
    over half the length, so that the two overlap or coincide. It is orthogonal, and a
    coordinate of the result has at most 2**-k of the squared norm on average.
    """

    def __init__(self, length: int):
        length = checks.integer("length", length)
        self.length = length
        self.flat_length = 1 << (length.bit_length() - 1)

    def expand(self, seed: Array) -> Array:
        """The random signs, float32[2, 2**k]."""
        signs = randomness.rademacher(seed, 2 * self.flat_length)
        return arrays.of(signs).reshape(signs, [2, self.flat_length])

    def rotate(self, vector: Array, expanded: Array) -> Array:
        """Rotates a float32[length] vector."""
        nx = arrays.of(vector)
        flat, rest = self.flat_length, self.length - self.flat_length
        head = rotation.hadamard_transform(vector[:flat] * expanded[0])
        if not rest:
            return head
        tail = nx.concatenate([head[rest:], vector[flat:]], 0)
        tail = rotation.hadamard_transform(tail * expanded[1])
        return nx.concatenate([head[:rest], tail])

    def invert(self, vector: Array, expanded: Array) -> Array:
        """Inverts `rotate` by its transpose."""
        nx = arrays.of(vector)
        flat, rest = self.flat_length, self.length - self.flat_length
        if not rest:
            return rotation.hadamard_transform(vector) * expanded[0]
        tail = rotation.hadamard_transform(vector[rest:]) * expanded[1]
        head = nx.concatenate([vector[:rest], tail[: flat - rest]], 0)
        head = rotation.hadamard_transform(head) * expanded[0]
        return nx.concatenate([head, tail[flat - rest :]])


ROTATIONS: dict[str, Callable[[int], rotation.Rotation]] = {
    **rotation.ROTATIONS,
    "overlap": OverlapRotation,
}
