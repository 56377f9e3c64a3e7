# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Representations of the two factors of A = B C.

The class determines the representation, which a stream of correlated noise reads:

  DenseFactors          B and C in full
  TreeFactors           B in full, the nodes of C
  BandLowRankFactors    B as a band plus a low-rank part; C = B^-1 A

and by C alone, a lower-triangular one with B = A C^-1:

  ToeplitzFactors       C as its first column
  BandedFactors         C as its diagonals
  BufferedFactors       C as a rational generating function
  InverseBandedFactors  C^-1 as the few entries of its first column

The noise is A (C^-1 Z). For the first three of these C^-1 Z obeys a short recurrence,
y_t = (z_t - sum_{j>=1} C[t, t-j] y_{t-j}) / C[t, t]; for the last it is a short sum.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

import numpy as np
from scipy import linalg, signal

from dpfl import checks
from dpfl.factorization.sensitivity import (
    OneParticipation,
    ParticipationSchema,
    Sensitivity,
)
from dpfl.factorization.workloads import Workload, check_dense, check_products

# Classes by the kind that a file of a factorization names.
KINDS: dict[str, type[Factors]] = {}

# Most diagonals of a recurrence, and rounds per diagonal: with more than both allow it
# costs more than blocks of a dense matrix. A row of those draws some rounds / 60 rows
# of normals, and to draw a row costs as much as to add 30.
_MOST_BANDS, _ROUNDS_PER_BAND = 128, 8
# Columns of random signs that the product of two factors is compared with.
_PROBES = 64


class Factors(abc.ABC):
    """One representation of B and C; a subclass's fields are its arrays, read-only."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        self._check()
        for name, array in self.arrays().items():
            array = np.array(array, order="C")
            if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
                raise ValueError(f"{name} must be an array of finite numbers")
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @abc.abstractmethod
    def _check(self) -> None:
        """Raises ValueError if the arrays have wrong shapes or values."""

    @property
    def rounds(self) -> int:
        """T, the number of rounds."""
        return len(next(iter(self.arrays().values())))

    def product_error(self, workload: Workload) -> float:
        """Relative error of B C as A; 0 where B or C is computed from the other.

        C determines the necessary amount of noise, and B makes it: with another product
        it would be another amount.
        """
        return 0.0

    @property
    def bands(self) -> int:
        """h, the number of C's diagonals as far as the class shows; T for others."""
        return self.rounds

    def kept_rows(self, workload: Workload) -> int | None:
        """See `factorization.kept_rows`; None by default."""
        return None

    @abc.abstractmethod
    def encoder(self, workload: Workload) -> np.ndarray:
        """C, dense float64 of shape (m, T)."""

    @abc.abstractmethod
    def decoder(self, workload: Workload) -> np.ndarray:
        """B, dense float64 of shape (T, m)."""

    def released_encoder(self, workload: Workload) -> np.ndarray:
        """L^-1 A, B = L Q the LQ decomposition: the part of C that is released.

        Only the part of C G + Z in the row space of B is ever released. With Q of
        orthonormal rows that part is Q C G + Q Z, Q Z has the law of Z, and
        Q C = L^-1 A is lower triangular. So the first r rows of A G + B Z are
        released by the first r rows and columns of it, for every r.

        Returns:
          float64 of shape (T, T), lower triangular: C itself if C is so (the columns of
          L^-1 A may be longer elsewhere).
        """
        encoder = self.encoder(workload)
        square = encoder.shape[0] == encoder.shape[1]
        if square and not np.any(np.triu(encoder, 1)):
            return encoder
        lower = linalg.qr(self.decoder(workload).T, mode="r")[0][: self.rounds].T
        return linalg.solve_triangular(lower, workload.matrix(), lower=True)

    def row_norms_squared(self, workload: Workload) -> np.ndarray:
        """||B[i, :]||^2, shape (T,)."""
        decoder = self.decoder(workload)
        return np.einsum("ij,ij->i", decoder, decoder)

    def sensitivity(
        self, workload: Workload, plan: ParticipationSchema, rounds: int | None = None
    ) -> Sensitivity:
        """The sensitivity of the released part of C, see `released_encoder`.

        Args:
          workload: A.
          plan: The rounds that a client may take part in.
          rounds: r, if only the first r rows are released; None for all.
        """
        encoder = self.encoder(workload)[:, :rounds]
        released = self.released_encoder(workload)[:rounds, :rounds]
        if encoder.shape == released.shape:
            return plan.sensitivity(released)
        # The released part has less sensitivity, but a bound on it need not be smaller.
        bounds = (plan.sensitivity(released), plan.sensitivity(encoder))
        return min(bounds, key=lambda bound: bound.value)

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields by name, which with the class determine the factors."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
        }


def _few_rows(diagonals: int, rounds: int) -> int | None:
    """The rows that a recurrence over diagonals stores; None with too many of them."""
    most = max(_MOST_BANDS, rounds // _ROUNDS_PER_BAND)
    return diagonals - 1 if diagonals <= most else None


class _FullDecoder(Factors):
    """Factors with B in full as `b`, float64 of shape (T, m)."""

    b: np.ndarray

    def decoder(self, workload: Workload) -> np.ndarray:
        return self.b

    def product_error(self, workload: Workload) -> float:
        """See base class; compares the products of B C and of A with random signs."""
        # Each column misses an error with a probability of at most one half.
        signs = np.random.default_rng().choice([-1.0, 1.0], (self.rounds, _PROBES))
        expected = workload.apply(signs)
        product = self.b @ (self.encoder(workload) @ signs)
        error = np.max(np.abs(product - expected))
        return float(error / np.max(np.abs(expected)))


@dataclasses.dataclass(frozen=True, eq=False)
class DenseFactors(_FullDecoder):
    """B and C in full: b of shape (T, m) and c of shape (m, T), float64."""

    b: np.ndarray
    c: np.ndarray
    kind = "dense"

    def _check(self) -> None:
        b, c = checks.matrix("b", self.b), checks.matrix("c", self.c)
        wanted = f"of the shape of c transposed, {c.shape[::-1]}"
        checks.require(b.shape == c.shape[::-1], "b", wanted, b.shape)

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        return self.c


@dataclasses.dataclass(frozen=True, eq=False)
class TreeFactors(_FullDecoder):
    """A binary tree: C[j, t] is 1 for the rounds t of node j.

    Attributes:
      b: float64 of shape (T, m).
      nodes: int64 of shape (m, 2): first round and height of a node, which sums
        2^height rounds; ordered by the step at which it is complete.
    """

    b: np.ndarray
    nodes: np.ndarray
    kind = "tree"

    def _check(self) -> None:
        b = checks.matrix("b", self.b)
        shape, wanted = np.shape(self.nodes), (b.shape[1], 2)
        checks.require(shape == wanted, "nodes", f"of shape {wanted}", shape)

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        return tree_encoder(self.nodes, workload.rounds)


def tree_encoder(nodes: np.ndarray, rounds: int) -> np.ndarray:
    """The matrix of a tree's nodes, float64 of shape (m, T) with entries 0 and 1."""
    steps = np.arange(rounds)
    first, height = nodes[:, :1], nodes[:, 1:]
    return ((steps >= first) & (steps < first + (1 << height))).astype(np.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class BandLowRankFactors(Factors):
    """B[i, j] = band[i, i - j] for i - j < h, left[i] . right[j] below; C = B^-1 A.

    Attributes:
      band: float64 of shape (T, h), h >= 1; band[:, 0] is the diagonal, non-zero.
      left: float64 of shape (T, r).
      right: float64 of shape (T, r).
    """

    band: np.ndarray
    left: np.ndarray
    right: np.ndarray
    kind = "band-low-rank"

    def _check(self) -> None:
        band = checks.matrix("band", self.band)
        checks.require(np.all(band[:, 0]), "band", "of a diagonal without zeros", 0)
        shapes = np.shape(self.left), np.shape(self.right)
        is_right = shapes[0] == shapes[1] and len(self.left) == len(band)
        wanted = f"both of shape ({len(band)}, r)"
        checks.require(is_right, "left and right", wanted, shapes)

    def noise_bands(self, workload: Workload) -> int:
        """w, the number of diagonals of A^-1 B above its low-rank part."""
        return self.band.shape[1] + (2 if workload.momentum else 1)

    def kept_rows(self, workload: Workload) -> int:
        """See base class; the running sums, and the rows of Z of the diagonals."""
        return self.left.shape[1] + self.noise_bands(workload)

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        width = self.band.shape[1]
        result = np.tril(self.left @ self.right.T, -width)
        for k in range(width):
            np.fill_diagonal(result[k:], self.band[k:, k])
        return result

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        return linalg.solve_triangular(
            self.decoder(workload), workload.matrix(), lower=True
        )


@dataclasses.dataclass(frozen=True, eq=False)
class BandedFactors(Factors):
    """C[i, j] = diagonals[j, i - j] for 0 <= i - j < h: row j is column j of C.

    Attributes:
      diagonals: float64 of shape (T, h), zero where i would be T or more; its first
        column, the main diagonal, is positive.
    """

    diagonals: np.ndarray
    kind = "banded"

    def _check(self) -> None:
        diagonals = checks.matrix("diagonals", self.diagonals)
        rounds, bands = diagonals.shape
        wanted = f"of at most {rounds} columns"
        checks.require(bands <= rounds, "diagonals", wanted, bands)
        least = float(np.min(diagonals[:, 0]))
        checks.require(least > 0, "diagonals", "of a positive main diagonal", least)

    @property
    def bands(self) -> int:
        """See base class."""
        return self.diagonals.shape[1]

    def kept_rows(self, workload: Workload) -> int | None:
        """See base class."""
        return _few_rows(self.bands, self.rounds)

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        rounds, bands = self.diagonals.shape
        check_dense(rounds)
        result = np.zeros((rounds, rounds))
        for k in range(bands):
            np.fill_diagonal(result[k:], self.diagonals[: rounds - k, k])
        return result

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        inverse = linalg.solve_triangular(
            self.encoder(workload), np.eye(workload.rounds), lower=True
        )
        return np.tril(workload.apply(inverse))


def lower_band(matrix: np.ndarray, width: int) -> np.ndarray:
    """The first `width` diagonals: M[t, t - k] at [t, k], zero for k > t."""
    band = np.zeros((len(matrix), width))
    for k in range(width):
        band[k:, k] = np.diagonal(matrix, -k)
    return band


def toeplitz_matrix(coefficients: np.ndarray, rounds: int) -> np.ndarray:
    """The lower-triangular Toeplitz matrix of a column, shape (T, T).

    Raises:
      ValueError: If it is too large to be stored, see `workloads.check_dense`.
    """
    check_dense(rounds)
    return linalg.toeplitz(coefficients, np.zeros(rounds))


def series_inverse(coefficients: np.ndarray, rounds: int) -> np.ndarray:
    """The first column of C^-1 for Toeplitz C: 1 / c(x) mod x^T.

    Raises:
      ValueError: If the column is so long that this takes too long.
    """
    column = np.trim_zeros(coefficients[:rounds], "b")
    check_products("bands", len(column), rounds)
    impulse = np.zeros(rounds)
    impulse[0] = 1.0
    return signal.lfilter([1.0], column, impulse)


class _ToeplitzEncoder(Factors):
    """A lower-triangular Toeplitz C, by its first column or by that of C^-1."""

    @abc.abstractmethod
    def coefficients(self) -> np.ndarray:
        """The first column of C, shape (T,)."""

    @abc.abstractmethod
    def inverse_coefficients(self) -> np.ndarray:
        """The first column of C^-1, shape (T,)."""

    def encoder(self, workload: Workload) -> np.ndarray:
        return toeplitz_matrix(self.coefficients(), workload.rounds)

    def decoder(self, workload: Workload) -> np.ndarray:
        inverse = toeplitz_matrix(self.inverse_coefficients(), workload.rounds)
        return np.tril(workload.apply(inverse))

    def row_norms_squared(self, workload: Workload) -> np.ndarray:
        """See base class; O(T) memory when A is Toeplitz, since then B is."""
        if not workload.is_toeplitz:
            return super().row_norms_squared(workload)
        return np.cumsum(workload.apply(self.inverse_coefficients()) ** 2)

    def sensitivity(
        self, workload: Workload, plan: ParticipationSchema, rounds: int | None = None
    ) -> Sensitivity:
        """See base class; without forming C for one participation."""
        if isinstance(plan, OneParticipation):
            norm = float(np.linalg.norm(self.coefficients()[:rounds]))
            return Sensitivity(norm, True)
        return super().sensitivity(workload, plan, rounds)


class _OneColumn(_ToeplitzEncoder):
    """Factors with one column: float64 of shape (T,), its first entry positive."""

    def _check(self) -> None:
        ((name, column),) = self.arrays().items()
        first = float(checks.vector(name, column)[0])
        checks.require(first > 0, name, "of a positive first value", first)

    @property
    def entries(self) -> int:
        """Number of the column's entries up to the last nonzero one."""
        (column,) = self.arrays().values()
        return int(np.flatnonzero(column)[-1]) + 1

    def kept_rows(self, workload: Workload) -> int | None:
        """See base class."""
        return _few_rows(self.entries, self.rounds)


@dataclasses.dataclass(frozen=True, eq=False)
class ToeplitzFactors(_OneColumn):
    """C[i, j] = c[i - j], with c zero from the number of bands on."""

    c: np.ndarray
    kind = "toeplitz"

    @property
    def bands(self) -> int:
        """See base class."""
        return self.entries

    def coefficients(self) -> np.ndarray:
        """See base class."""
        return self.c

    def inverse_coefficients(self) -> np.ndarray:
        """See base class."""
        return series_inverse(self.c, self.rounds)


@dataclasses.dataclass(frozen=True, eq=False)
class InverseBandedFactors(_OneColumn):
    """C^-1[i, j] = e[i - j], with e zero from the number of its bands on."""

    e: np.ndarray
    kind = "inverse-banded"

    def coefficients(self) -> np.ndarray:
        """See base class."""
        return series_inverse(self.e, self.rounds)

    def inverse_coefficients(self) -> np.ndarray:
        """See base class."""
        return self.e


@dataclasses.dataclass(frozen=True, eq=False)
class BufferedFactors(_ToeplitzEncoder):
    """Buffered linear Toeplitz: c_0 = 1, c_t = sum_i scale[i] decay[i]^(t-1).

    C and C^-1 have the same form, with d buffers each. With s_0 = 0 of d buffers, C^-1
    z is y_t = z_t - scale . s_t, s_{t+1} = decay * s_t + y_t; and equally y_t = z_t +
    inverse_scale . r_t, r_{t+1} = inverse_decay * r_t + z_t.

    Attributes:
      length: T, int64 scalar.
      decay: theta, float64 of shape (d,), decreasing, in (0, 1).
      scale: omega, float64 of shape (d,).
      inverse_decay: theta of C^-1, shape (d,).
      inverse_scale: omega of C^-1, shape (d,).
    """

    length: np.ndarray
    decay: np.ndarray
    scale: np.ndarray
    inverse_decay: np.ndarray
    inverse_scale: np.ndarray
    kind = "buffered"

    def _check(self) -> None:
        checks.integer("length", np.asarray(self.length).item())
        shape = checks.vector("decay", self.decay).shape
        for name in ("scale", "inverse_decay", "inverse_scale"):
            other = checks.vector(name, getattr(self, name)).shape
            wanted = f"of the shape of decay, {shape}"
            checks.require(other == shape, name, wanted, other)

    @property
    def rounds(self) -> int:
        """See base class."""
        return int(self.length)

    def kept_rows(self, workload: Workload) -> int:
        """See base class."""
        return len(self.inverse_decay)

    def coefficients(self) -> np.ndarray:
        """See base class."""
        return _buffered_column(self.decay, self.scale, self.rounds)

    def inverse_coefficients(self) -> np.ndarray:
        """See base class."""
        return _buffered_column(self.inverse_decay, self.inverse_scale, self.rounds)


def _buffered_column(decay: np.ndarray, scale: np.ndarray, rounds: int) -> np.ndarray:
    powers = decay[:, None] ** np.arange(rounds - 1)
    return np.concatenate([[1.0], scale @ powers])
