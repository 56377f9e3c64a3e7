# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A sketch that follows the subspace of the gradients (Nicolas et al. 2025).

  S   sketch, float32[k, d], orthonormal rows: the paper's S transposed
  U'  kept directions, the first r rows of S: what past gradients lie in
  Q   probes, the other k - r rows: random, orthogonal to U', other in each round
  L   strengths of the kept directions, their eigenvalues in the sum of g g^T

Rows, not columns, are the directions, so that one lies in one piece of memory and to
leave some out costs nothing. Only U', L and r are kept from round to round, U' in
bfloat16: its rounding turns a direction by about a thousandth, far less than the noise
that a private gradient brings, and `expand` makes S orthonormal to float32 anew in each
round, so that nothing drifts. A probe is a function of the round's seed.

The update of Algorithm 2, the columns of whose Y are completed by the probes,

  Y = S^T diag(L, 0) + g (S g)^T

lies in the span of S and of the part e of g outside of it. All but two products with
S is therefore done on matrices of size k + 1.
"""

from __future__ import annotations

import collections
from typing import NamedTuple

import tensorflow as tf

# Rounding leaves a part of a gradient outside of a sketch that it lies in; anything
# smaller than this, over the gradient's norm, is taken for that.
_SMALLEST_RESIDUE = 1e-4
# One pass of `orthonormalize` on rows of at most this condition, squared, is enough.
_EASY_CONDITION = 4.0
# Below this ratio of eigenvalues float32 products cannot tell rows from dependent ones.
_SMALLEST_EIGENVALUE = 1e-5
_LARGEST_PASSES = 8


class UpdatedSketch(NamedTuple):
    """The outcome of `AdaptiveSketch.update`.

    Attributes:
      directions: float32[max_rank, d], the first `rank` rows the new U', then zeros.
      strengths: float32[max_rank], theirs, not increasing, then zeros.
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
        """Initializes the sketch.

        Args:
          dimension: d.
          size: k, at most d.
          max_rank: Most directions to keep, at most k.
          energy_fraction: q in (0, 1]: the least r with sum_(i<=r) L_i^2 at least q of
            the whole is kept.
          decay: What the strengths are multiplied by before an update; 1 never forgets.
          rule: One of `UPDATE_RULES`.
          has_probes: Without, the first sketch is random and all k directions are kept
            ever after; `max_rank` must be k.

        Raises:
          ValueError: If an argument is out of its range.
        """
        if not 1 <= size <= dimension:
            raise ValueError(
                f"size must be at least 1 and at most the dimension of {dimension}, "
                f"found {size}"
            )
        if not 1 <= max_rank <= size or (not has_probes and max_rank != size):
            raise ValueError(
                f"max_rank must be at least 1 and at most the size of {size}, and that "
                f"size without probes, found {max_rank}"
            )
        if rule not in UPDATE_RULES:
            raise ValueError(
                f"rule must be one of {sorted(UPDATE_RULES)}, found {rule!r}"
            )
        self.dimension = dimension
        self.size = size
        self.max_rank = max_rank
        self._energy_fraction = energy_fraction
        self._decay = decay
        self._rule = UPDATE_RULES[rule]
        self._has_probes = has_probes

    def initial_state(self) -> collections.OrderedDict:
        """Nothing kept: basis int16[max_rank, d], see `pack`, strengths and rank."""
        return collections.OrderedDict(
            basis=tf.zeros([self.max_rank, self.dimension], tf.int16),
            strengths=tf.zeros([self.max_rank]),
            rank=tf.zeros([], tf.int32),
        )

    def expand(self, kept: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """The sketch: float32[k, d], rows orthonormal to 1e-5.

        Args:
          kept: float32[r, d], U', nearly orthonormal. The first r rows of the result
            span the same subspace.
          seed: int64[2], of the probes.
        """
        probes = _draw_probes(seed, self.size - tf.shape(kept)[0], self.dimension)
        rows = tf.concat([kept, probes], 0)
        return orthonormalize(tf.ensure_shape(rows, [self.size, self.dimension]))

    def update(
        self,
        sketch: tf.Tensor,
        strengths: tf.Tensor,
        rank: tf.Tensor,
        gradient: tf.Tensor,
    ) -> UpdatedSketch:
        """Algorithm 2 up to line 11: what to keep after one more gradient.

        Args:
          sketch: float32[k, d], from `expand`.
          strengths: float32[max_rank], of its first `rank` rows.
          rank: int32 scalar.
          gradient: float32[d].
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
        rows = tf.cast(rows, tf.float32)
        directions = tf.matmul(rows[:, :-1], sketch) + rows[:, -1:] * unit
        kept_strengths = tf.where(is_kept, core.strengths[: self.max_rank], 0.0)
        return UpdatedSketch(
            directions,
            tf.cast(kept_strengths, tf.float32),
            new_rank,
            tf.cast(overlap, tf.float32),
        )

    def _choose_rank(self, strengths: tf.Tensor) -> tf.Tensor:
        """The least r that holds the energy, int32; all k without probes."""
        if not self._has_probes:
            return tf.constant(self.size)
        energy = tf.cumsum(tf.square(strengths))
        # Rounded down, so that q = 1 does not ask for directions of no strength.
        enough = self._energy_fraction * energy[-1] * (1 - 1e-12)
        rank = tf.reduce_sum(tf.cast(energy < enough, tf.int32)) + 1
        rank = tf.where(energy[-1] > 0, rank, 0)
        return tf.minimum(rank, self.max_rank)


def pack(directions: tf.Tensor) -> tf.Tensor:
    """float32 as the bits of bfloat16, in int16, a type that every format can hold."""
    return tf.bitcast(tf.cast(directions, tf.bfloat16), tf.int16)


def unpack(basis: tf.Tensor) -> tf.Tensor:
    """The inverse of `pack`, float32."""
    return tf.cast(tf.bitcast(basis, tf.bfloat16), tf.float32)


def project(sketch: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    """S v, float32[k], of a float32[d] vector."""
    return tf.linalg.matvec(sketch, vector)


def lift(sketch: tf.Tensor, coordinates: tf.Tensor) -> tf.Tensor:
    """S^T c, float32[d], of float32[k] coordinates."""
    return tf.linalg.matvec(sketch, coordinates, transpose_a=True)


def diagonal(sketch: tf.Tensor) -> tf.Tensor:
    """The diagonal of S^T S, float32[d]: a coordinate's share of the sketch."""
    return tf.reduce_sum(tf.square(sketch), 0)


def orthonormalize(rows: tf.Tensor) -> tf.Tensor:
    """Gram-Schmidt on the rows of float32[k, d], in their order, k at most d.

    By Cholesky factors, W <- L^-1 W with W W^T = L L^T: products of matrices alone, ten
    times as fast as Householder's QR. Repeated until the rows were well-conditioned
    before the last pass, which is then as good as float32; where they are nearly
    dependent the factored matrix is shifted first (Fukaya et al. 2020, Shifted Cholesky
    QR).
    """
    size = rows.shape[0]

    def one_pass(rows, unused_is_done):
        gram = tf.cast(tf.matmul(rows, rows, transpose_b=True), tf.float64)
        eigenvalues = tf.linalg.eigvalsh(gram)
        smallest, largest = eigenvalues[0], eigenvalues[-1]
        floor = _SMALLEST_EIGENVALUE * largest
        is_hard = smallest < floor
        shift = tf.where(is_hard, 10 * floor, 0.0)
        factor = tf.linalg.cholesky(gram + shift * tf.eye(size, dtype=tf.float64))
        inverse = tf.linalg.triangular_solve(factor, tf.eye(size, dtype=tf.float64))
        is_done = ~is_hard & (largest < _EASY_CONDITION * smallest)
        return tf.matmul(tf.cast(inverse, tf.float32), rows), is_done

    rows, _ = tf.while_loop(
        lambda unused_rows, is_done: ~is_done,
        one_pass,
        (rows, tf.constant(False)),
        maximum_iterations=_LARGEST_PASSES,
    )
    return rows


def _draw_probes(seed: tf.Tensor, count: tf.Tensor, dimension: int) -> tf.Tensor:
    """Random directions of norm near 1, not yet orthogonal: float32[count, d].

    Coordinates are independent and uniform on a byte's 256 values, moved to lie evenly
    around zero. Signs and order of coordinates mean nothing to them, so that any vector
    has the same chance of being seen as under normal coordinates; they are drawn in a
    tenth of the time, four of them from one 32-bit number.
    """
    words = tf.random.stateless_uniform(
        tf.stack([count, -(-dimension // 4)]),
        seed,
        minval=None,
        maxval=None,
        dtype=tf.int32,
        alg="philox",
    )
    coordinates = tf.reshape(tf.bitcast(words, tf.int8), [count, 4 * words.shape[1]])
    centred = tf.cast(coordinates[:, :dimension], tf.float32) + 0.5
    return centred * (dimension * (256**2 - 1) / 12) ** -0.5


def _paper_rule(strengths: tf.Tensor, inside: tf.Tensor, outside: tf.Tensor) -> _Core:
    """Algorithm 2: QR of Y, strengths the norms of R's columns.

    The columns of Y are sorted by their norms first, largest first. These are those of
    R's columns, and a QR decomposition favours what comes first, so that the energy
    that is counted for the first r columns is that of r kept directions, and more.
    """
    y = tf.concat([tf.linalg.diag(strengths), tf.zeros_like(inside)[tf.newaxis]], 0)
    y += tf.concat([inside, [outside]], 0)[:, tf.newaxis] * inside
    norms = tf.norm(y, axis=0)
    order = tf.argsort(norms, direction="DESCENDING", stable=True)
    q, _ = tf.linalg.qr(tf.gather(y, order, axis=1))
    return _Core(tf.transpose(q), tf.gather(norms, order))


def _eigen_rule(strengths: tf.Tensor, inside: tf.Tensor, outside: tf.Tensor) -> _Core:
    """The eigenvectors of S^T diag(L, 0) S + g g^T, which Y only approaches."""
    vector = tf.concat([inside, [outside]], 0)
    matrix = tf.linalg.diag(tf.pad(strengths, [[0, 1]]))
    matrix += vector[:, tf.newaxis] * vector
    values, vectors = tf.linalg.eigh(matrix)
    # TensorFlow sorts eigenvalues upwards; the least of k + 1 is dropped.
    rows = tf.transpose(vectors)[:0:-1]
    return _Core(rows, tf.maximum(values[:0:-1], 0.0))


UPDATE_RULES = {"eigen": _eigen_rule, "qr": _paper_rule}
