# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Count-mean sketches: sparse random projections S that add up and decode by S^T.

A sketch maps float32[input_length] to float32[length], length m = l w for l rows of
width w; the compression rate is r = d / m. It is made for one dimension d and has

  * `expand(seed)`: the sketch's random tensors, drawn once a round and shared;
  * `encode(vector, expanded)`: S g;
  * `decode(sketch, expanded)`: S^T y, float32[dimension].

Both are linear. S^T S has ones on its diagonal, and off it entries of mean zero and
variance at most 1/m, no two entries of a row correlated, so that

  E[S^T S g] = g,   E ||S^T S g - g||^2 <= (d/m) ||g||^2 <= (2 d/m) ||g||^2,
  E ||S g||^2 = ||g||^2,   Var <Sg, Sh> <= (2/m) ||g||^2 ||h||^2.

(Chen et al. 2022, "The Fundamental Price of Secure Aggregation", section 4 and
Algorithms 4 and 5.) Scaling: S is scaled by 1/sqrt(l) in both directions ("sqrt", the
paper's theory), or by 1/l in encoding and not at all in decoding ("mean", its
experiments). The product is the same; the sketch's norm, and so its clip, is smaller
by sqrt(l) with the latter.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl import arrays, seed_domains
from dpfl.arrays import Array
from dpfl.vectors import randomness, rotation

Expanded = collections.OrderedDict


class ShiftSketch:
    """A count-mean sketch in a few sequential passes, with collisions no more likely.

    With l a power of two and d padded to l B w, the vector is an l x (B w) matrix X.
    Let D be independent random signs of all coordinates, H the orthonormal l x l
    Hadamard matrix, Z = H (D X) and Z_ib the b-th block, of width w, of its row i. Then

      row i of S g = sum over b of rho_ib shift(Z_ib, s_ib)

    with rho_ib = +-1 and circular shifts s_ib uniform, one for each row and block and
    all independent.

    Claim: for coordinates j != k, (S^T S)_jk has mean 0; its variance is 1/m if their
    blocks differ, as in the paper's sketch, where every coordinate has a bucket of its
    own in each row, and otherwise 0; and (S^T S)_jk and (S^T S)_jk' are uncorrelated
    for k != k'.
    Proof: Let coordinate j be in row a, block b and place p. Column j of S has D_j
    rho_ib H_ia at place p + s_ib (mod w) of each row i: l entries of size 1/sqrt(l),
    so that (S^T S)_jj = 1. For k in row a', block b', place p',
      (S^T S)_jk = D_j D_k sum_i H_ia H_ia' rho_ib rho_ib' [p + s_ib = p' + s_ib'].
    The mean of D_j D_k is 0, and that of D_j D_k D_j D_k' = D_k D_k' is 0.
      Same block: the bracket says p = p'; then a != a', and the sum is <H_a, H_a'> = 0.
      Other block: s_ib - s_ib' is uniform, so that each bracket is 1 with probability
    1/w; the products rho_ib rho_ib' are independent over
    i, so that the variance is sum_i (H_ia H_ia')^2 / w = l (1/l^2) / w = 1/m. QED

    So E ||S^T S g - g||^2 = sum_k g_k^2 #{j of another block} / m <= (d/m) ||g||^2;
    with r <= 1 there is one block, and S^T S g = g.
    """

    def __init__(self, dimension: int, rows: int, width: int):
        """Makes the sketch of length l w; l is a power of two."""
        self.dimension = dimension
        self.rows, self.width, self.length = rows, width, rows * width
        self.blocks = math.ceil(dimension / self.length)
        self.input_length = self.blocks * self.length
        self._blocks = [rows * self.blocks, width]
        hadamard = rotation.hadamard_matrix(rows.bit_length() - 1)
        self._matrix = (rows**-0.5 * hadamard).astype(np.float32)

    def expand(self, seed: Array) -> Expanded:
        """Signs float32[input_length], and the shifts and signs of l B blocks."""
        number = self.rows * self.blocks
        signs, shifts, block_signs = (
            randomness.fold_in(seed, domain)
            for domain in seed_domains.ShiftSketchDomain
        )
        return collections.OrderedDict(
            signs=randomness.rademacher(signs, self.input_length),
            shifts=arrays.of(seed).below(shifts, number, self.width),
            block_signs=randomness.rademacher(block_signs, number),
        )

    def encode(self, vector: Array, expanded: Expanded) -> Array:
        """The sketch S g, float32[l w], row after row.

        Passes over the vector: signs, H, shifts, and the signed sum of the blocks.
        """
        nx = arrays.of(vector)
        matrix = nx.reshape(vector * expanded["signs"], [self.rows, -1])
        mixed = nx.reshape(nx.matmul(self._matrix, matrix), self._blocks)
        blocks = nx.rolled(mixed, self.width - expanded["shifts"])
        blocks = nx.reshape(blocks, [self.rows, self.blocks, self.width])
        signs = nx.reshape(expanded["block_signs"], [self.rows, 1, self.blocks])
        return nx.reshape(nx.matmul(signs, blocks), [self.length])

    def decode(self, sketch: Array, expanded: Expanded) -> Array:
        """The decoded S^T y, float32[d]."""
        nx = arrays.of(sketch)
        rows = nx.reshape(sketch, [self.rows, 1, self.width])
        signs = nx.reshape(expanded["block_signs"], [self.rows, self.blocks, 1])
        blocks = nx.reshape(rows * signs, self._blocks)
        blocks = nx.rolled(blocks, expanded["shifts"])
        matrix = nx.reshape(blocks, [self.rows, -1])
        mixed = nx.reshape(nx.matmul(self._matrix, matrix), [-1])
        return (mixed * expanded["signs"])[: self.dimension]


class GroupedSketch:
    """Consecutive parts of a vector, such as a model's layers, each in its own sketch.

    The sketches follow each other in the message.
    """

    def __init__(self, sketches: Sequence[Any]):
        """Initializes the sketch from the sketches of the parts, in order."""
        self._sketches = list(sketches)
        self.dimension = self.input_length = sum(s.dimension for s in sketches)
        self.length = sum(s.length for s in sketches)

    def expand(self, seed: Array) -> Expanded:
        """The parts' tensors, each from its own seed."""
        return collections.OrderedDict(
            (f"part_{i}", sketch.expand(randomness.fold_in(seed, i)))
            for i, sketch in enumerate(self._sketches)
        )

    def encode(self, vector: Array, expanded: Expanded) -> Array:
        """The sketches of the parts, float32[sum of the lengths]."""
        nx, encoded = arrays.of(vector), []
        parts = _split(vector, [sketch.dimension for sketch in self._sketches])
        for sketch, part, own in zip(self._sketches, parts, expanded.values()):
            padding = sketch.input_length - sketch.dimension
            encoded.append(sketch.encode(nx.pad(part, [[0, padding]]), own))
        return nx.concatenate(encoded)

    def decode(self, sketch: Array, expanded: Expanded) -> Array:
        """The decoded vector, float32[dimension]."""
        parts = _split(sketch, [inner.length for inner in self._sketches])
        triples = zip(self._sketches, parts, expanded.values())
        decoded = [inner.decode(part, own) for inner, part, own in triples]
        return arrays.of(sketch).concatenate(decoded)


def _split(vector: Array, lengths: Sequence[int]) -> list[Array]:
    """Consecutive parts of a vector."""
    ends = list(itertools.accumulate(lengths, initial=0))
    return [vector[begin:end] for begin, end in zip(ends, ends[1:])]
