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
from typing import NamedTuple

import tensorflow as tf

from dpfl import checks
from dpfl.vectors import probes, randomness

# Threshold, relative to the gradient's norm, below which the part of a gradient outside
# of the sketch is attributed to rounding.
_SMALLEST_RESIDUE = 1e-4
# Least eigenvalue below which the Gram matrix is computed again, in float64.
_SMALLEST_EASY_EIGENVALUE = 0.2
# Least eigenvalue below which a probe lies in the span of the rest: it becomes short.
_SMALLEST_EIGENVALUE = 1e-6

# The tensors of a sketch S: `kept` float32[r, d], U', or int16 of `pack`; `signs`
# float32[d], the signs of the probes; `mix` float32[k, k], T.
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

    directions: tf.Tensor
    strengths: tf.Tensor
    rank: tf.Tensor
    overlap: tf.Tensor


class _Core(NamedTuple):
    """An update in coordinates of (S, e): float64[k, k + 1] rows and float64[k]."""

    rows: tf.Tensor
    strengths: tf.Tensor


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
        if not 1 <= max_rank <= size or (not has_probes and max_rank != size):
            wanted = f"from 1 to {size}" if has_probes else f"{size} without probes"
            raise ValueError(checks.message("max_rank", wanted, max_rank))
        rule = checks.choice("rule", rule, UPDATE_RULES)
        self.dimension = dimension
        self.size = size
        self.max_rank = max_rank
        self._energy_fraction = energy_fraction
        self._decay = decay
        self._rule = UPDATE_RULES[rule]
        self._has_probes = has_probes

    def initial_state(self) -> collections.OrderedDict:
        """The empty basis: int16[max_rank, d] of `pack`, strengths, rank."""
        # Computed zeros: TFF's compiler would keep constant ones in Python's memory
        # too.
        basis = tf.raw_ops.Empty(
            shape=[self.max_rank, self.dimension], dtype=tf.int16, init=True
        )
        return collections.OrderedDict(
            basis=basis,
            strengths=tf.zeros([self.max_rank]),
            rank=tf.zeros([], tf.int32),
        )

    def expand(self, kept: tf.Tensor, seed: tf.Tensor) -> Sketch:
        """Expands the kept directions to the sketch; its rows are orthonormal to 1e-5.

        Should a probe lie in the span of the kept directions, which takes probes of
        hardly any coordinates, a row of the sketch is shorter instead.

        Args:
          kept: float32[r, d], U', nearly orthonormal, or int16 from `pack`. The first r
            rows of the result span the same subspace.
          seed: int64[2], the seed of the probes.
        """
        signs = randomness.rademacher(seed, self.dimension)
        count = self.size - tf.shape(kept)[0]
        gram = _gram(kept, signs, count, tf.float32)
        gram = tf.cond(
            tf.linalg.eigvalsh(gram)[0] < _SMALLEST_EASY_EIGENVALUE,
            lambda: _gram(kept, signs, count, tf.float64),
            lambda: gram,
        )
        return Sketch(kept=kept, signs=signs, mix=self._orthonormalizer(gram))

    def _orthonormalizer(self, gram: tf.Tensor) -> tf.Tensor:
        """T, for which T G T^T = I: Gram-Schmidt in the order of the rows."""
        identity = tf.eye(self.size, dtype=tf.float64)
        is_hard = tf.linalg.eigvalsh(gram)[0] < _SMALLEST_EIGENVALUE
        shift = 10 * _SMALLEST_EIGENVALUE * tf.cast(is_hard, tf.float64)
        factor = tf.linalg.cholesky(gram + shift * identity)
        inverse = tf.linalg.triangular_solve(factor, identity)
        return tf.ensure_shape(tf.cast(inverse, tf.float32), [self.size, self.size])

    def update(
        self,
        sketch: Sketch,
        strengths: tf.Tensor,
        rank: tf.Tensor,
        gradient: tf.Tensor,
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
        inside = project(sketch, gradient)
        outside = gradient - lift(sketch, inside)
        size = tf.norm(outside)
        is_real = size > _SMALLEST_RESIDUE * tf.norm(gradient)
        size = tf.where(is_real, size, 0.0)
        unit = tf.math.divide_no_nan(outside, size)

        padding = [[0, self.size - self.max_rank]]
        core = self._rule(
            tf.pad(tf.cast(self._decay * strengths, tf.float64), padding),
            tf.cast(inside, tf.float64),
            tf.cast(size, tf.float64),
        )
        new_rank = self._choose_rank(core.strengths)
        is_kept = tf.range(self.max_rank) < new_rank
        rows = tf.where(is_kept[:, tf.newaxis], core.rows[: self.max_rank], 0.0)
        shared = tf.reduce_sum(tf.square(rows[:, : self.max_rank]), 0)
        overlap = tf.math.divide_no_nan(
            tf.reduce_sum(tf.where(tf.range(self.max_rank) < rank, shared, 0.0)),
            tf.cast(tf.minimum(rank, new_rank), tf.float64),
        )
        form = pack if is_packed else tf.identity
        coordinates = tf.cast(rows, tf.float32)
        combined = _combined(sketch, coordinates[:, :-1])
        directions = probes.by_columns(
            self.dimension,
            _probe_count(sketch),
            lambda begin, end: form(
                combined(begin, end) + coordinates[:, -1:] * unit[begin:end]
            ),
            tf.TensorSpec([self.max_rank, None], tf.int16 if is_packed else tf.float32),
        )
        kept = tf.where(is_kept, core.strengths[: self.max_rank], 0.0)
        kept, overlap = (tf.cast(each, tf.float32) for each in (kept, overlap))
        return UpdatedSketch(directions, kept, new_rank, overlap)

    def _choose_rank(self, strengths: tf.Tensor) -> tf.Tensor:
        """The least r that holds the energy, int32; k without probes."""
        if not self._has_probes:
            return tf.constant(self.size)
        energy = tf.cumsum(tf.square(strengths))
        # Rounded down, so that q = 1 does not ask for directions of no strength.
        enough = self._energy_fraction * energy[-1] * (1 - 1e-12)
        rank = tf.reduce_sum(tf.cast(energy < enough, tf.int32)) + 1
        rank = tf.where(energy[-1] > 0, rank, 0)
        return tf.minimum(rank, self.max_rank)


def pack(directions: tf.Tensor) -> tf.Tensor:
    """Packs the bits of bfloat16 into int16, a type that every format can hold."""
    return tf.bitcast(tf.cast(directions, tf.bfloat16), tf.int16)


def unpack(rows: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Converts rows, either from `pack` or floats, to a dtype."""
    if rows.dtype == tf.int16:
        rows = tf.bitcast(rows, tf.bfloat16)
    return tf.cast(rows, dtype)


def project(sketch: Sketch, vector: tf.Tensor) -> tf.Tensor:
    """The projection S v, float32[k], of a float32[d] vector."""
    kept, signs, count = sketch["kept"], sketch["signs"], _probe_count(sketch)
    inside = probes.over_columns(
        signs.shape[0],
        count,
        lambda begin, end, total: (
            total + tf.linalg.matvec(unpack(kept[:, begin:end]), vector[begin:end])
        ),
        tf.zeros(tf.shape(kept)[:1]),
    )
    probed = probes.apply(signs, count, vector[tf.newaxis])[0]
    probed /= probes.norms(count, signs.shape[0])
    return tf.linalg.matvec(sketch["mix"], tf.concat([inside, probed], 0))


def lift(sketch: Sketch, coordinates: tf.Tensor) -> tf.Tensor:
    """The combination S^T c of the rows, float32[d], of float32[k] coordinates."""
    return combine(sketch, coordinates[tf.newaxis])[0]


def combine(sketch: Sketch, coordinates: tf.Tensor) -> tf.Tensor:
    """The combinations C S of the rows, float32[m, d], of float32[m, k] coordinates."""
    dimension, count = sketch["signs"].shape[0], _probe_count(sketch)
    result = tf.TensorSpec([coordinates.shape[0], None], tf.float32)
    return probes.by_columns(dimension, count, _combined(sketch, coordinates), result)


def diagonal(sketch: Sketch) -> tf.Tensor:
    """The diagonal of S^T S, float32[d]: a coordinate's share of the sketch.

    With M = T^T T and W = [U'; Q] it is the diagonal of W^T M W; in column j of Q only
    the probe p that has j is not zero. With the Cholesky factor of M's part for U', L
    L^T, it is ||L^T U'_j + Q_pj L^-1 M_p||^2, and the rest of the probe's own M_pp.
    """
    kept, signs, count = sketch["kept"], sketch["signs"], _probe_count(sketch)
    rank = tf.shape(kept)[0]
    mix = tf.cast(sketch["mix"], tf.float64)
    inner = tf.matmul(mix, mix, transpose_a=True)
    factor = tf.linalg.cholesky(inner[:rank, :rank])
    across = tf.linalg.triangular_solve(factor, inner[:rank, rank:])
    own = tf.linalg.diag_part(inner[rank:, rank:]) - tf.reduce_sum(across**2, 0)
    norms = probes.norms(count, signs.shape[0])
    factor = tf.cast(factor, tf.float32)
    across = tf.cast(across, tf.float32) / norms
    left = tf.cast(tf.maximum(own, 0.0), tf.float32)[tf.newaxis] / tf.square(norms)

    def shares(begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        some = tf.matmul(factor, unpack(kept[:, begin:end]), transpose_a=True)
        some += probes.at_coordinates(across, signs[begin:end])
        return tf.reduce_sum(tf.square(some), 0, keepdims=True) + probes.at_coordinates(
            left, tf.abs(signs[begin:end])
        )

    result = tf.TensorSpec([1, None], tf.float32)
    return probes.by_columns(signs.shape[0], count, shares, result)[0]


def dense(sketch: Sketch) -> tf.Tensor:
    """The matrix S itself, float32[k, d], for tests and small sketches."""
    return combine(sketch, tf.eye(sketch["mix"].shape[0]))


def _probe_count(sketch: Sketch) -> tf.Tensor:
    return tf.shape(sketch["mix"])[0] - tf.shape(sketch["kept"])[0]


def _combined(
    sketch: Sketch, coordinates: tf.Tensor
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """A function that computes the columns of C S from `begin` to before `end`."""
    kept, signs = sketch["kept"], sketch["signs"]
    rank = tf.shape(kept)[0]
    mixed = tf.matmul(coordinates, sketch["mix"])
    scaled = mixed[:, rank:] / probes.norms(_probe_count(sketch), signs.shape[0])

    def columns(begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        inside = tf.matmul(mixed[:, :rank], unpack(kept[:, begin:end]))
        return inside + probes.at_coordinates(scaled, signs[begin:end])

    return columns


def _gram(
    kept: tf.Tensor, signs: tf.Tensor, count: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """The Gram matrix of U' and Q, float64[k, k], from products in a dtype."""
    rank = tf.shape(kept)[0]

    def add(begin: tf.Tensor, end: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
        some = unpack(kept[:, begin:end], dtype)
        products = tf.matmul(some, some, transpose_b=True)
        probed = probes.apply(tf.cast(signs[begin:end], dtype), count, some)
        return total + tf.cast(tf.concat([products, probed], 1), tf.float64)

    first = tf.zeros(tf.stack([rank, rank + count]), tf.float64)
    upper = probes.over_columns(signs.shape[0], count, add, first)
    norms = tf.cast(probes.norms(count, signs.shape[0]), tf.float64)
    across = upper[:, rank:] / norms
    upper = tf.concat([upper[:, :rank], across], 1)
    lower = tf.concat([tf.transpose(across), tf.eye(count, dtype=tf.float64)], 1)
    return tf.concat([upper, lower], 0)


def _paper_rule(strengths: tf.Tensor, inside: tf.Tensor, outside: tf.Tensor) -> _Core:
    """The QR of Y, strengths the norms of R's columns (Algorithm 2).

    The columns of Y are sorted by their norms first, largest first. These are those of
    R's columns, and a QR decomposition favours the first columns, so that the energy
    that is counted for the first r columns is that of r kept directions, and more.
    """
    y = tf.concat([tf.linalg.diag(strengths), tf.zeros_like(inside)[tf.newaxis]], 0)
    y += tf.concat([inside, [outside]], 0)[:, tf.newaxis] * inside
    norms = tf.norm(y, axis=0)
    order = tf.argsort(norms, direction="DESCENDING", stable=True)
    q, _ = tf.linalg.qr(tf.gather(y, order, axis=1))
    return _Core(tf.transpose(q), tf.gather(norms, order))


def _eigen_rule(strengths: tf.Tensor, inside: tf.Tensor, outside: tf.Tensor) -> _Core:
    """The eigenvectors of S^T diag(L, 0) S + g g^T, which Y only approximates."""
    vector = tf.concat([inside, [outside]], 0)
    # If there is no direction outside, that axis must be the one that is dropped. In
    # the graphs that TFF builds `==` would compare identities.
    absent = tf.cast(tf.equal(outside, 0), tf.float64)
    matrix = tf.linalg.diag(tf.concat([strengths, [-absent]], 0))
    matrix += vector[:, tf.newaxis] * vector
    values, vectors = tf.linalg.eigh(matrix)
    # TensorFlow sorts eigenvalues upwards; the least of k + 1 is dropped.
    rows = tf.transpose(vectors)[:0:-1]
    return _Core(rows, tf.maximum(values[:0:-1], 0.0))


UPDATE_RULES = {"eigen": _eigen_rule, "qr": _paper_rule}
