# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random rotations that spread a vector evenly over its coordinates.

    rotation = HadamardRotation(length)
    expanded = rotation.expand(seed)
    rotated = rotation.rotate(vector, expanded)
    vector = rotation.invert(rotated, expanded)

`ROTATIONS` has the classes by the names that configurations use. The draw of
`expand` serves all vectors of a seed; `invert` is the transpose of `rotate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg

from dpfl import arrays
from dpfl.arrays import Array
from dpfl.vectors import randomness

# The largest Hadamard factor is 2**4: at 2**20 coordinates five products with 16x16
# matrices take 1.3 ms, two with 1024x1024 ones 10 ms, the usual loop 10 ms.
_FACTOR_BITS = 4


def hadamard_transform(vector: Array) -> Array:
    """The orthonormal Walsh-Hadamard transform of a float32[2**k] vector."""
    return _interleaved_transform(vector, vector.shape[0].bit_length() - 1)


def _interleaved_transform(vector: Array, bits: int) -> Array:
    """The transforms of blocks of float32[m 2**bits], one block after the other.

    Block b holds each m-th coordinate from b on. H_(2**k) is the Kronecker product of
    small Hadamard matrices. Each product works on the leading axis of the reshaped
    vector and puts it last, so that after the last factor the axis of the m blocks is
    the first one, and with one block the axes are in their first order again:

      X <- reshape(X, [s, -1])^T H_s    for each factor s.
    """
    nx = arrays.of(vector)
    for factor in _factors(bits, vector.dtype):
        size = factor.shape[0]
        vector = nx.matmul(nx.reshape(vector, [size, -1]), factor, transpose_a=True)
    return nx.reshape(vector, [-1])


def _interleaved_back(vector: Array, bits: int) -> Array:
    """The transpose of `_interleaved_transform`: X <- H_s reshape(X, [-1, s])^T."""
    nx = arrays.of(vector)
    for factor in _factors(bits, vector.dtype):
        size = factor.shape[0]
        vector = nx.matmul(factor, nx.reshape(vector, [-1, size]), transpose_b=True)
    return nx.reshape(vector, [-1])


def _factors(bits: int, dtype: Any) -> list[np.ndarray]:
    """Orthonormal Hadamard matrices of nearly equal sizes, 2**bits together."""
    parts = math.ceil(bits / _FACTOR_BITS)
    each = [(bits + part) // parts for part in range(parts)]
    # TensorFlow's dtypes know numpy's.
    kind = getattr(dtype, "as_numpy_dtype", dtype)
    return [(hadamard_matrix(b) / math.sqrt(1 << b)).astype(kind) for b in each]


class HadamardRotation:
    """A rotation by random signs and Hadamard transforms of interleaved blocks.

    A length that is a power of two is one block. For a length m 2**k, m odd, block b
    holds the coordinates b, b + m, b + 2m, ..., so that coordinates that are near or a
    power of two apart are in different blocks. A coordinate of the result has 2**-k of
    its block's squared norm on average: the result is flat as long as no block has a
    much larger norm than the others, as a single large coordinate can give it.
    """

    def __init__(self, length: int):
        self.length = length
        self._bits = (length & -length).bit_length() - 1

    def expand(self, seed: Array) -> Array:
        """The random signs, float32[length]."""
        return randomness.rademacher(seed, self.length)

    def rotate(self, vector: Array, expanded: Array) -> Array:
        """The blocks of signs * vector, each transformed, one after the other."""
        return _interleaved_transform(vector * expanded, self._bits)

    def invert(self, vector: Array, expanded: Array) -> Array:
        """The transpose of `rotate`; for one block it is faster by `rotate`'s way."""
        is_one = self.length == 1 << self._bits
        back = _interleaved_transform if is_one else _interleaved_back
        return back(vector, self._bits) * expanded


class FourierRotation:
    """A rotation by independent random phases and the discrete Fourier transform.

    The two halves of the vector are taken as real and imaginary parts, so the length
    must be even; nothing else is padded.

    It computes in double precision: TensorFlow's transform in single precision makes a
    vector of length 1,018,174 longer by 1.1e-3, which would break the bound on its norm
    that privacy rests on, and is hardly faster. Unless half the length is a power of
    two it is slow: 0.1 s there, some 35 times the Hadamard transform.
    """

    def __init__(self, length: int):
        self.length = length

    def expand(self, seed: Array) -> Array:
        """The cosines and sines of the phases, float64[2, length / 2]."""
        nx = arrays.of(seed)
        phases = 2 * math.pi * nx.uniform(seed, self.length // 2)
        return nx.stack([nx.cos(phases), nx.sin(phases)])

    def rotate(self, vector: Array, expanded: Array) -> Array:
        """Computes F (phases * vector), F the orthonormal Fourier transform."""
        nx = arrays.of(vector)
        turned = self._complex(vector) * nx.make_complex(expanded[0], expanded[1])
        return self._real(nx.fft(turned), 1 / math.sqrt(self.length / 2))

    def invert(self, vector: Array, expanded: Array) -> Array:
        """Computes conj(phases) * (F^H vector)."""
        nx = arrays.of(vector)
        turned = nx.ifft(self._complex(vector))
        back = turned * nx.make_complex(expanded[0], -expanded[1])
        return self._real(back, math.sqrt(self.length / 2))

    def _complex(self, vector: Array) -> Array:
        nx = arrays.of(vector)
        halves = nx.asarray(nx.reshape(vector, [2, -1]), np.float64)
        return nx.make_complex(halves[0], halves[1])

    def _real(self, vector: Array, scale: float) -> Array:
        nx = arrays.of(vector)
        halves = nx.concatenate([nx.real(vector), nx.imag(vector)])
        return nx.asarray(halves * scale, np.float32)


class OverlapRotation:
    """A random rotation of vectors of any length, without padding.

    It applies random signs and the Hadamard transform to the leading 2**k coordinates,
    then to the trailing 2**k ones, where 2**k is the largest power of two that fits:
    over half the length, so that the two overlap or coincide. It is orthogonal, and a
    coordinate of the result has at most 2**-k of the squared norm on average.
    """

    def __init__(self, length: int):
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
        head = hadamard_transform(vector[:flat] * expanded[0])
        if not rest:
            return head
        tail = nx.concatenate([head[rest:], vector[flat:]], 0)
        tail = hadamard_transform(tail * expanded[1])
        return nx.concatenate([head[:rest], tail])

    def invert(self, vector: Array, expanded: Array) -> Array:
        """Inverts `rotate` by its transpose."""
        nx = arrays.of(vector)
        flat, rest = self.flat_length, self.length - self.flat_length
        if not rest:
            return hadamard_transform(vector) * expanded[0]
        tail = hadamard_transform(vector[rest:]) * expanded[1]
        head = nx.concatenate([vector[:rest], tail[: flat - rest]], 0)
        head = hadamard_transform(head) * expanded[0]
        return nx.concatenate([head, tail[flat - rest :]])


ROTATIONS: dict[str, Callable[[int], Any]] = {
    "hadamard": HadamardRotation,
    "block_hadamard": HadamardRotation,
    "dft": FourierRotation,
    "overlap": OverlapRotation,
}


def hadamard_matrix(bits: int) -> np.ndarray:
    """The Hadamard matrix of +-1 of size 2**bits, symmetric."""
    return linalg.hadamard(1 << bits)
