# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A sketch that tracks the subspace of the gradients (Nicolas et al. 2025).

  S   sketch, k orthonormal rows of length d: the paper's S transposed
  U'  kept directions, with the span of S's first r rows: past gradients lie in it
  Q   probes, k - r of them: random, new in each round
  L   strengths of the kept directions, their eigenvalues in the sum of g g^T

Rows, not columns, are the directions, so that each is contiguous in memory and leaving
some out costs nothing. Only U', L and r are kept from round to round, U' in bfloat16:
its rounding turns a direction by about a thousandth, far less than the noise that a
private gradient brings, and S is made orthonormal to float32 anew in each round, so
that nothing drifts. A probe is a function of the round's seed.

S is never written out: it is T [U'; Q] with a k x k matrix T, the inverse of the
Cholesky factor of the Gram matrix of U' and Q. The probes share out the coordinates,
see `probes`. They are orthonormal by themselves, take d steps to apply whatever their
number, and see every vector alike, E ||Q v||^2 = (k - r) / d ||v||^2, by the signs
alone. So S costs what its r kept rows cost.

Matrices of d columns are processed a block of coordinates at a time: U' is read once
per computation, and is never in float32 as a whole.

The update of Algorithm 2, the columns of whose Y are completed by the probes,

  Y = S^T diag(L, 0) + g (S g)^T

lies in the span of S and of the part e of g outside of it. All but a few products with
S is therefore done on matrices of size k + 1.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpfl import arrays, checks
from dpfl.arrays import Array
from dpfl.vectors import probes, randomness

# Threshold, relative to the gradient's norm, below which the part of a gradient outside
# of the sketch is attributed to rounding.
_SMALLEST_RESIDUE = 1e-4
# Least eigenvalue below which the Gram matrix is computed again, in float64.
_SMALLEST_EASY_EIGENVALUE = 0.2
# Least eigenvalue below which a probe lies in the span of the rest: it becomes short.
_SMALLEST_EIGENVALUE = 1e-6

# The arrays of a sketch S: `kept` float32[r, d], U', or int16 of `pack`; `rank` int32
# scalar, r; `signs` float32[d], the signs of the probes; `mix` float32[k, k], T. Where
# shapes are fixed, `kept` has `max_rank` rows, of which those behind r are zeros.
Sketch = collections.OrderedDict


class UpdatedSketch(NamedTuple):
    """The result of `AdaptiveSketch.update`.

    Attributes:
      directions: float32[max_rank, d], the first `rank` rows the new U', then zeros; or
        int16 from `pack`.
      strengths: float32[max_rank], the directions' strengths, not increasing, then
        zeros.
      rank: int32 scalar, r.
      overlap: float32 scalar, ||U'_new U'_old^T||_F^2 over the smaller of the ranks: 1
        if the subspaces are the same or one holds the other.
    """

    directions: Array
    strengths: Array
    rank: Array
    overlap: Array


class _Core(NamedTuple):
    """An update in coordinates of (S, e): float64[k, k + 1] rows and float64[k]."""

    rows: Array
    strengths: Array


class AdaptiveSketch:
    """Sketches of one size on vectors of one length.

    Attributes:
      dimension: d.
      size: k, at most d.
      max_rank: Most directions kept.
    """

    def __init__(
        self,
        dimension: int,
        size: int,
        *,
        max_rank: int,
        energy_fraction: float,
        decay: float = 1.0,
        rule: str = "eigen",
        has_probes: bool = True,
    ):
        """Initializes the sketch; `max_rank` is k at most.

        Args:
          dimension: d.
          size: k, at most d.
          max_rank: Most directions kept, at most k.
          energy_fraction: q in (0, 1]: r is the least with sum_(i<=r) L_i^2 at least q
            of the whole sum.
          decay: Factor of the strengths before an update; 1 never forgets.
          rule: Name of the update rule, one of `UPDATE_RULES`.
          has_probes: Whether there are probes; without them the first sketch is random,
            all k directions are always kept, and `max_rank` must be k.

        Raises:
          ValueError: If an argument is out of its range.
        """
        size = checks.integer("size", size, at_most=dimension)
        least, limit = (1, "the size") if has_probes else (size, "without probes")
        max_rank = checks.integer("max_rank", max_rank, least, size, limit)
        rule = checks.choice("rule", rule, UPDATE_RULES)
        self.dimension = dimension
        self.size = size
        self.max_rank = max_rank
        self._energy_fraction = energy_fraction
        self._decay = decay
        self._rule = UPDATE_RULES[rule]
        self._has_probes = has_probes

    def initial_state(self, nx: Any) -> collections.OrderedDict:
        """The empty basis: int16[max_rank, d] of `pack`, strengths, rank."""
        return collections.OrderedDict(
            basis=nx.computed_zeros([self.max_rank, self.dimension], np.int16),
            strengths=nx.zeros([self.max_rank], np.float32),
            rank=nx.zeros([], np.int32),
        )

    def expand(self, kept: Array, rank: Array, seed: Array) -> Sketch:
        """Expands the kept directions to the sketch; its rows are orthonormal to 1e-5.

        Should a probe lie in the span of the kept directions, which takes probes of
        hardly any coordinates, a row of the sketch is shorter instead.

        Args:
          kept: float32[r, d], U', nearly orthonormal, or int16 from `pack`. The first r
            rows of the result span the same subspace.
          rank: int32 scalar, r.
          seed: int64[2], the seed of the probes.
        """
        nx = arrays.of(seed)
        signs = randomness.rademacher(seed, self.dimension)
        gram = _gram(kept, rank, signs, self.size, np.float32)
        gram = nx.cond(
            nx.eigvalsh(gram)[0] < _SMALLEST_EASY_EIGENVALUE,
            lambda: _gram(kept, rank, signs, self.size, np.float64),
            lambda: gram,
        )
        mix = self._orthonormalizer(gram)
        return Sketch(kept=kept, rank=rank, signs=signs, mix=mix)

    def _orthonormalizer(self, gram: Array) -> Array:
        """T, for which T G T^T = I: Gram-Schmidt in the order of the rows."""
        nx = arrays.of(gram)
        identity = nx.eye(self.size, dtype=np.float64)
        is_hard = nx.eigvalsh(gram)[0] < _SMALLEST_EIGENVALUE
        shift = 10 * _SMALLEST_EIGENVALUE * nx.asarray(is_hard, np.float64)
        factor = nx.linalg.cholesky(gram + shift * identity)
        inverse = nx.asarray(nx.lower_solve(factor, identity), np.float32)
        # A shape that graphs of TensorFlow know.
        return nx.reshape(inverse, [self.size, self.size])

    def update(
        self,
        sketch: Sketch,
        strengths: Array,
        rank: Array,
        gradient: Array,
        *,
        is_packed: bool = False,
    ) -> UpdatedSketch:
        """Updates the directions with one more gradient: Algorithm 2 up to line 11.

        Args:
          sketch: The sketch of this round.
          strengths: float32[max_rank], the strengths of the sketch's first `rank` rows.
          rank: int32 scalar, r.
          gradient: float32[d].
          is_packed: Whether the new directions are packed, so that few of them are in
            float32 at a time.
        """
        nx = arrays.of(gradient)
        inside = project(sketch, gradient)
        outside = gradient - lift(sketch, inside)
        size = nx.norm(outside)
        is_real = size > _SMALLEST_RESIDUE * nx.norm(gradient)
        size = nx.where(is_real, size, nx.zeros_like(size))
        unit = nx.divide_no_nan(outside, size)

        padding = [[0, self.size - self.max_rank]]
        core = self._rule(
            nx.pad(nx.asarray(self._decay * strengths, np.float64), padding),
            nx.asarray(inside, np.float64),
            nx.asarray(size, np.float64),
        )
        new_rank = self._choose_rank(core.strengths)
        is_kept = nx.arange(self.max_rank) < new_rank
        rows = nx.where(is_kept[:, np.newaxis], core.rows[: self.max_rank], 0.0)
        shared = nx.sum(nx.square(rows[:, : self.max_rank]), 0)
        overlap = nx.divide_no_nan(
            nx.sum(nx.where(nx.arange(self.max_rank) < rank, shared, 0.0)),
            nx.asarray(nx.minimum(rank, new_rank), np.float64),
        )
        coordinates = nx.asarray(rows, np.float32)
        combined = _combined(sketch, coordinates[:, :-1])

        def directions(begin: Array, length: Array) -> Array:
            beside = coordinates[:, -1:] * nx.columns(unit, begin, length)
            both = combined(begin, length) + beside
            return pack(both) if is_packed else both

        dtype = np.int16 if is_packed else np.float32
        kept = nx.where(is_kept, core.strengths[: self.max_rank], 0.0)
        return UpdatedSketch(
            _by_columns(sketch, directions, self.max_rank, dtype),
            nx.asarray(kept, np.float32),
            new_rank,
            nx.asarray(overlap, np.float32),
        )

    def _choose_rank(self, strengths: Array) -> Array:
        """The least r that holds the energy, int32; k without probes."""
        nx = arrays.of(strengths)
        if not self._has_probes:
            return nx.asarray(self.size, np.int32)
        energy = nx.cumsum(nx.square(strengths))
        # Rounded down, so that q = 1 does not ask for directions of no strength.
        enough = self._energy_fraction * energy[-1] * (1 - 1e-12)
        rank = nx.where(energy[-1] > 0, nx.count_below(energy, enough) + 1, 0)
        return nx.asarray(nx.minimum(rank, self.max_rank), np.int32)


def pack(directions: Array) -> Array:
    """Packs the bits of bfloat16 into int16, a type that every format can hold."""
    return arrays.of(directions).to_bfloat16(directions)


def unpack(rows: Array, dtype: Any = np.float32) -> Array:
    """Converts rows, either from `pack` or floats, to a dtype."""
    nx = arrays.of(rows)
    if rows.dtype == np.int16:
        return nx.from_bfloat16(rows, dtype)
    return nx.asarray(rows, dtype)


def project(sketch: Sketch, vector: Array) -> Array:
    """The projection S v, float32[k], of a float32[d] vector."""
    nx, kept, signs = arrays.of(vector), sketch["kept"], sketch["signs"]
    dimension, size, count = _sizes(sketch)

    def add(begin: Array, length: Array, total: Array) -> Array:
        rows = unpack(nx.columns(kept, begin, length))
        return total + _times(rows, nx.columns(vector, begin, length))

    zeros = nx.zeros([nx.shape(kept)[0]], np.float32)
    blocks = probes.block_size(nx, dimension, count)
    inside = nx.fold_blocks(dimension, blocks, add, zeros)
    probed = probes.apply(signs, 0, count, size, vector[np.newaxis])[0]
    probed = probed / probes.norms(count, size, dimension)
    return _times(sketch["mix"], nx.join_at(inside, probed, sketch["rank"]))


def lift(sketch: Sketch, coordinates: Array) -> Array:
    """The combination S^T c of the rows, float32[d], of float32[k] coordinates."""
    return combine(sketch, coordinates[np.newaxis])[0]


def combine(sketch: Sketch, coordinates: Array) -> Array:
    """The combinations C S of the rows, float32[m, d], of float32[m, k] coordinates."""
    rows, columns = coordinates.shape[0], _combined(sketch, coordinates)
    return _by_columns(sketch, columns, rows, np.float32)


def diagonal(sketch: Sketch) -> Array:
    """The diagonal of S^T S, float32[d]: a coordinate's share of the sketch.

    With M = T^T T and W = [U'; Q] it is the diagonal of W^T M W; in column j of Q only
    the probe p that has j is not zero. With the Cholesky factor of M's part for U', L
    L^T, it is ||L^T U'_j + Q_pj L^-1 M_p||^2, and the rest of the probe's own M_pp.
    """
    kept, rank, signs = sketch["kept"], sketch["rank"], sketch["signs"]
    nx, (dimension, size, count) = arrays.of(signs), _sizes(sketch)
    most = nx.shape(kept)[0]
    mix = nx.asarray(sketch["mix"], np.float64)
    own, probed = nx.split_at(mix, rank, most)
    # Ones for rows that there are not, where shapes are fixed.
    absent = nx.diag(nx.asarray(nx.arange(most) >= rank, np.float64))
    factor = nx.linalg.cholesky(nx.matmul(own, own, transpose_a=True) + absent)
    across = nx.lower_solve(factor, nx.matmul(own, probed, transpose_a=True))
    left = nx.sum(nx.square(probed), 0) - nx.sum(nx.square(across), 0)
    norms = probes.norms(count, size, dimension)
    factor = nx.asarray(factor, np.float32)
    across = nx.asarray(across, np.float32) / norms
    left = nx.asarray(nx.maximum(left, 0.0), np.float32)
    left = left[np.newaxis] / nx.square(norms)

    def shares(begin: Array, length: Array) -> Array:
        rows, some = (nx.columns(each, begin, length) for each in (kept, signs))
        both = nx.matmul(factor, unpack(rows), transpose_a=True)
        both = both + probes.at_coordinates(across, some, begin, count)
        share = nx.sum(nx.square(both), 0)[np.newaxis]
        return share + probes.at_coordinates(left, nx.abs(some), begin, count)

    return _by_columns(sketch, shares, 1, np.float32)[0]


def dense(sketch: Sketch) -> Array:
    """The matrix S itself, float32[k, d], for tests and small sketches."""
    nx = arrays.of(sketch["mix"])
    return combine(sketch, nx.eye(sketch["mix"].shape[0], dtype=np.float32))


def _sizes(sketch: Sketch) -> tuple[int, int, Array]:
    """d, k and the number of probes."""
    size = sketch["mix"].shape[0]
    return sketch["signs"].shape[0], size, size - sketch["rank"]


def _times(matrix: Array, vector: Array) -> Array:
    """The product of a matrix and a vector."""
    return arrays.of(vector).matmul(matrix, vector[:, np.newaxis])[:, 0]


def _by_columns(
    sketch: Sketch,
    function: Callable[[Array, Array], Array],
    rows: int,
    dtype: Any,
) -> Array:
    """[rows, d] of a dtype by a function of the begin and length of some columns."""
    nx, (dimension, _, count) = arrays.of(sketch["signs"]), _sizes(sketch)
    blocks = probes.block_size(nx, dimension, count)
    return nx.map_blocks(dimension, blocks, function, rows, dtype)


def _combined(sketch: Sketch, coordinates: Array) -> Callable[[Array, Array], Array]:
    """A function that computes columns of C S from their begin and their number."""
    kept, signs = sketch["kept"], sketch["signs"]
    nx, (dimension, size, count) = arrays.of(signs), _sizes(sketch)
    mixed = nx.matmul(coordinates, sketch["mix"])
    mixed, probed = nx.split_at(mixed, sketch["rank"], nx.shape(kept)[0])
    scaled = probed / probes.norms(count, size, dimension)

    def columns(begin: Array, length: Array) -> Array:
        rows, some = (nx.columns(each, begin, length) for each in (kept, signs))
        inside = nx.matmul(mixed, unpack(rows))
        return inside + probes.at_coordinates(scaled, some, begin, count)

    return columns


def _gram(kept: Array, rank: Array, signs: Array, size: int, dtype: Any) -> Array:
    """The Gram matrix of U' and Q, float64[k, k], from products in a dtype."""
    nx, count, dimension = arrays.of(signs), size - rank, signs.shape[0]

    def add(begin: Array, length: Array, total: Array) -> Array:
        some = unpack(nx.columns(kept, begin, length), dtype)
        own = nx.asarray(nx.columns(signs, begin, length), dtype)
        products = nx.matmul(some, some, transpose_b=True)
        probed = probes.apply(own, begin, count, size, some)
        return total + nx.asarray(nx.concatenate([products, probed], 1), np.float64)

    norms = nx.asarray(probes.norms(count, size, dimension), np.float64)
    most, behind = nx.shape(kept)[0], nx.shape(norms)[0]
    first = nx.zeros([most, most + behind], np.float64)
    blocks = probes.block_size(nx, dimension, count)
    both = nx.fold_blocks(dimension, blocks, add, first)
    across = both[:, most:] / norms
    upper = nx.join_at(both[:, :most], across, rank)
    identity = nx.eye(behind, dtype=np.float64)
    lower = nx.join_at(nx.transpose(across), identity, rank)
    return nx.join_at(upper, lower, rank, axis=0)


def _paper_rule(strengths: Array, inside: Array, outside: Array) -> _Core:
    """The QR of Y, strengths the norms of R's columns (Algorithm 2).

    The columns of Y are sorted by their norms first, largest first. These are those of
    R's columns, and a QR decomposition favours the first columns, so that the energy
    that is counted for the first r columns is that of r kept directions, and more.
    """
    nx = arrays.of(inside)
    y = nx.concatenate([nx.diag(strengths), nx.zeros_like(inside)[np.newaxis]], 0)
    vector = nx.concatenate([inside, nx.stack([outside])], 0)
    y = y + vector[:, np.newaxis] * inside
    norms = nx.linalg.norm(y, axis=0)
    order = nx.argsort(-norms)
    q, _ = nx.linalg.qr(nx.take(y, order, axis=1))
    return _Core(nx.transpose(q), nx.take(norms, order))


def _eigen_rule(strengths: Array, inside: Array, outside: Array) -> _Core:
    """The eigenvectors of S^T diag(L, 0) S + g g^T, which Y only approximates."""
    nx = arrays.of(inside)
    vector = nx.concatenate([inside, nx.stack([outside])], 0)
    # If there is no direction outside, that axis must be the one that is dropped. In
    # the graphs that TFF builds `==` would compare identities.
    absent = nx.asarray(nx.equal(outside, 0), np.float64)
    matrix = nx.diag(nx.concatenate([strengths, nx.stack([-absent])], 0))
    matrix = matrix + vector[:, np.newaxis] * vector
    values, vectors = nx.linalg.eigh(matrix)
    # Eigenvalues increase; the least of k + 1 is dropped.
    rows = nx.transpose(vectors)[:0:-1]
    return _Core(rows, nx.maximum(values[:0:-1], 0.0))


UPDATE_RULES = {"eigen": _eigen_rule, "qr": _paper_rule}
