# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ways to hold the two factors of A = B C.

The class says how they are held, and is what a stream of correlated noise reads:

  DenseFactors        B and C in full
  TreeFactors         B in full, the nodes of C
  BandLowRankFactors  B as a band plus a low-rank part; C = B^-1 A
  ToeplitzFactors     C as its first column; B = A C^-1
  BandedFactors       C as its diagonals; B = A C^-1
  BufferedFactors     C as a rational generating function; B = A C^-1

For the last three the noise is A (C^-1 Z), and C^-1 Z obeys a short recurrence:
y_t = (z_t - sum_{j>=1} C[t, t-j] y_{t-j}) / C[t, t].
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy import linalg, signal

from dpfl import checks
from dpfl.factorization.sensitivity import OneParticipation, Plan, Sensitivity
from dpfl.factorization.workloads import Workload, check_dense, check_products


class Factors(abc.ABC):
    """One way to hold B and C; the fields of a subclass are its arrays."""

    kind: ClassVar[str]

    @property
    @abc.abstractmethod
    def rounds(self) -> int:
        """T."""

    @abc.abstractmethod
    def encoder(self, workload: Workload) -> np.ndarray:
        """Returns C, dense float64 of shape (m, T)."""

    @abc.abstractmethod
    def decoder(self, workload: Workload) -> np.ndarray:
        """Returns B, dense float64 of shape (T, m)."""

    def released_encoder(self, workload: Workload) -> np.ndarray:
        """Returns L^-1 A, B = L Q the LQ decomposition: what is released of C.

        Only the part of C G + Z in the row space of B is ever released. With Q of
        orthonormal rows that part is Q C G + Q Z, Q Z has the law of Z, and
        Q C = L^-1 A is lower triangular. So the first r rows of A G + B Z are
        released by the first r rows and columns of it, for every r.

        Returns:
          float64 of shape (T, T), lower triangular. Where C is so itself, it is C (its
          columns may be longer elsewhere).
        """
        encoder = self.encoder(workload)
        square = encoder.shape[0] == encoder.shape[1]
        if square and not np.any(np.triu(encoder, 1)):
            return encoder
        lower = linalg.qr(self.decoder(workload).T, mode="r")[0][: self.rounds].T
        return linalg.solve_triangular(lower, workload.matrix(), lower=True)

    def row_norms_squared(self, workload: Workload) -> np.ndarray:
        """Returns ||B[i, :]||^2, shape (T,)."""
        decoder = self.decoder(workload)
        return np.einsum("ij,ij->i", decoder, decoder)

    def sensitivity(
        self, workload: Workload, plan: Plan, rounds: int | None = None
    ) -> Sensitivity:
        """Returns the sensitivity of the release under a plan of participation.

        That is the sensitivity of C as far as it is released, see `released_encoder`.

        Args:
          workload: A.
          plan: How a client takes part.
          rounds: r, of which only the first r rows are released; None for all.
        """
        encoder = self.encoder(workload)[:, :rounds]
        released = self.released_encoder(workload)[:rounds, :rounds]
        if encoder.shape == released.shape:
            return plan.sensitivity(released)
        # What is released is less, but a bound on it need not be.
        found = (plan.sensitivity(released), plan.sensitivity(encoder))
        return min(found, key=lambda one: one.value)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the fields by name: with the class, all there is to it."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
        }


def _freeze(instance: Factors) -> None:
    """Makes the fields read-only arrays: a frozen value must not change inside."""
    for name, array in instance.arrays().items():
        array = np.array(array, order="C")
        array.setflags(write=False)
        object.__setattr__(instance, name, array)


def toeplitz_matrix(coefficients: np.ndarray, rounds: int) -> np.ndarray:
    """Returns the lower-triangular Toeplitz matrix of a column, padded by zeros.

    Raises:
      ValueError: If it is too large to be written out, see `workloads.check_dense`.
    """
    check_dense(rounds)
    column = np.zeros(rounds)
    kept = min(rounds, len(coefficients))
    column[:kept] = coefficients[:kept]
    return linalg.toeplitz(column, np.zeros(rounds))


def series_inverse(coefficients: np.ndarray, rounds: int) -> np.ndarray:
    """Returns the first column of C^-1 for Toeplitz C: 1 / c(x) mod x^T.

    Raises:
      ValueError: If the column is so long that this takes too long.
    """
    column = np.trim_zeros(coefficients[:rounds], "b")
    check_products("bands", len(column), rounds)
    impulse = np.zeros(rounds)
    impulse[0] = 1.0
    return signal.lfilter([1.0], column, impulse)


@dataclasses.dataclass(frozen=True, eq=False)
class DenseFactors(Factors):
    """B and C in full.

    Attributes:
      b: float64 of shape (T, m).
      c: float64 of shape (m, T).
    """

    b: np.ndarray
    c: np.ndarray
    kind = "dense"

    def __post_init__(self) -> None:
        b, c = checks.matrix("b", self.b), checks.matrix("c", self.c)
        if b.shape != c.shape[::-1]:
            raise ValueError(
                f"b must have the shape of c transposed, found {b.shape} and {c.shape}"
            )
        _freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return len(self.b)

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        del workload
        return self.c

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        del workload
        return self.b


@dataclasses.dataclass(frozen=True, eq=False)
class TreeFactors(Factors):
    """A binary tree: C[j, t] is 1 for the rounds t of node j.

    Attributes:
      b: float64 of shape (T, m).
      nodes: int64 of shape (m, 2): first round and height of a node, which sums
        2^height rounds; ordered by the step at which it is complete.
    """

    b: np.ndarray
    nodes: np.ndarray
    kind = "tree"

    def __post_init__(self) -> None:
        b = checks.matrix("b", self.b)
        if np.shape(self.nodes) != (b.shape[1], 2):
            raise ValueError(
                f"nodes must have shape {(b.shape[1], 2)}, found {np.shape(self.nodes)}"
            )
        _freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return len(self.b)

    @property
    def complete_at(self) -> np.ndarray:
        """The step (from 0) whose round completes each node, int64 of shape (m,)."""
        return self.nodes[:, 0] + (1 << self.nodes[:, 1]) - 1

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        steps = np.arange(workload.rounds)
        first = self.nodes[:, :1]
        inside = (steps >= first) & (steps <= self.complete_at[:, None])
        return inside.astype(np.float64)

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        del workload
        return self.b


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

    def __post_init__(self) -> None:
        band = checks.matrix("band", self.band)
        if np.any(band[:, 0] == 0):
            raise ValueError("band must have a non-zero diagonal, found a zero in it")
        if np.shape(self.left) != np.shape(self.right) or len(self.left) != len(band):
            raise ValueError(
                f"left and right must both have shape ({len(band)}, r), found "
                f"{np.shape(self.left)} and {np.shape(self.right)}"
            )
        _freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return len(self.band)

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        del workload
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


class _EncoderFactors(Factors):
    """Factors given by a lower-triangular C alone: B = A C^-1."""

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        inverse = linalg.solve_triangular(
            self.encoder(workload), np.eye(workload.rounds), lower=True
        )
        return np.tril(workload.apply(inverse))


class _ToeplitzEncoderFactors(_EncoderFactors):
    """Factors given by a lower-triangular Toeplitz C alone."""

    @abc.abstractmethod
    def coefficients(self) -> np.ndarray:
        """Returns the first column of C, shape (T,)."""

    def inverse_coefficients(self) -> np.ndarray:
        """Returns the first column of C^-1, shape (T,)."""
        return series_inverse(self.coefficients(), self.rounds)

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        return toeplitz_matrix(self.coefficients(), workload.rounds)

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        inverse = toeplitz_matrix(self.inverse_coefficients(), workload.rounds)
        return np.tril(workload.apply(inverse))

    def row_norms_squared(self, workload: Workload) -> np.ndarray:
        """See base class; O(T) memory when A is Toeplitz, since then B is."""
        if not workload.is_toeplitz:
            return super().row_norms_squared(workload)
        return np.cumsum(workload.apply(self.inverse_coefficients()) ** 2)

    def sensitivity(
        self, workload: Workload, plan: Plan, rounds: int | None = None
    ) -> Sensitivity:
        """See base class; without forming C for one participation."""
        if isinstance(plan, OneParticipation):
            norm = float(np.linalg.norm(self.coefficients()[:rounds]))
            return Sensitivity(norm, True)
        return super().sensitivity(workload, plan, rounds)


@dataclasses.dataclass(frozen=True, eq=False)
class ToeplitzFactors(_ToeplitzEncoderFactors):
    """C[i, j] = c[i - j].

    Attributes:
      c: float64 of shape (T,), c[0] > 0; zeros from the number of bands on.
    """

    c: np.ndarray
    kind = "toeplitz"

    def __post_init__(self) -> None:
        c = checks.vector("c", self.c)
        if c[0] <= 0:
            raise ValueError(f"c must start with a positive value, found {c[0]:g}")
        _freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return len(self.c)

    @property
    def bands(self) -> int:
        """Number of diagonals up to the last that is not zero."""
        return int(np.flatnonzero(self.c)[-1]) + 1

    def coefficients(self) -> np.ndarray:
        """See base class."""
        return self.c


@dataclasses.dataclass(frozen=True, eq=False)
class BandedFactors(_EncoderFactors):
    """C[i, j] = diagonals[j, i - j] for 0 <= i - j < h: row j is column j of C.

    Attributes:
      diagonals: float64 of shape (T, h), zero where i would be T or more; its first
        column, the main diagonal, is positive.
    """

    diagonals: np.ndarray
    kind = "banded"

    def __post_init__(self) -> None:
        diagonals = checks.matrix("diagonals", self.diagonals)
        rounds, bands = diagonals.shape
        if bands > rounds:
            raise ValueError(
                f"diagonals must have at most {rounds} columns, found {bands}"
            )
        if np.min(diagonals[:, 0]) <= 0:
            raise ValueError(
                "diagonals must start with a positive main diagonal, found "
                f"{np.min(diagonals[:, 0]):g} in it"
            )
        _freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return len(self.diagonals)

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        rounds, bands = self.diagonals.shape
        check_dense(rounds)
        result = np.zeros((rounds, rounds))
        for k in range(bands):
            np.fill_diagonal(result[k:], self.diagonals[: rounds - k, k])
        return result


@dataclasses.dataclass(frozen=True, eq=False)
class BufferedFactors(_ToeplitzEncoderFactors):
    """Buffered linear Toeplitz: c_0 = 1, c_t = sum_i scale[i] decay[i]^(t-1).

    C and C^-1 have the same form, so d buffers do for either. With s_0 = 0 of d
    buffers, C^-1 z is y_t = z_t - scale . s_t, s_{t+1} = decay * s_t + y_t; and equally
    y_t = z_t + inverse_scale . r_t, r_{t+1} = inverse_decay * r_t + z_t.

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

    def __post_init__(self) -> None:
        checks.integer("length", np.asarray(self.length).item())
        shape = checks.vector("decay", self.decay).shape
        for name in ("scale", "inverse_decay", "inverse_scale"):
            found = checks.vector(name, getattr(self, name)).shape
            if found != shape:
                raise ValueError(
                    f"{name} must have the shape of decay, {shape}, found {found}"
                )
        _freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return int(self.length)

    @property
    def buffers(self) -> int:
        """Number of buffers d."""
        return len(self.decay)

    def coefficients(self) -> np.ndarray:
        """See base class."""
        return _buffered_column(self.decay, self.scale, self.rounds)

    def inverse_coefficients(self) -> np.ndarray:
        """See base class."""
        return _buffered_column(self.inverse_decay, self.inverse_scale, self.rounds)


def _buffered_column(decay: np.ndarray, scale: np.ndarray, rounds: int) -> np.ndarray:
    powers = decay[:, None] ** np.arange(rounds - 1)
    return np.concatenate([[1.0], scale @ powers])


FACTORS: Mapping[str, type[Factors]] = {
    "dense": DenseFactors,
    "tree": TreeFactors,
    "band-low-rank": BandLowRankFactors,
    "toeplitz": ToeplitzFactors,
    "banded": BandedFactors,
    "buffered": BufferedFactors,
}
