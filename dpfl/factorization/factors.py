# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ways to hold the two factors of A = B C.

The class says how they are held, and is what a stream of correlated noise reads:

  DenseFactors        B and C in full
  TreeFactors         B in full, the nodes of C
  BandLowRankFactors  B as a band plus a low-rank part; C = B^-1 A

Those that are given by C alone are in `encoders`.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

import numpy as np
from scipy import linalg

from dpfl import checks
from dpfl.factorization.sensitivity import Plan, Sensitivity
from dpfl.factorization.workloads import Workload


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


def freeze(instance: Factors) -> None:
    """Makes the fields read-only arrays: a frozen value must not change inside."""
    for name, array in instance.arrays().items():
        array = np.array(array, order="C")
        array.setflags(write=False)
        object.__setattr__(instance, name, array)


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
        freeze(self)

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
        freeze(self)

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
        freeze(self)

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
