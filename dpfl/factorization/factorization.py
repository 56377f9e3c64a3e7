# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""The frozen value all of this package makes: a workload and its factors."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import checks
from dpfl.factorization import errors
from dpfl.factorization.factors import Factors
from dpfl.factorization.sensitivity import OneParticipation, Plan, Sensitivity
from dpfl.factorization.workloads import Workload


@dataclasses.dataclass(frozen=True, eq=False)
class Factorization:
    """A = B C for one workload.

    Attributes:
      workload: A.
      method: Name of the method that made it, a key of `methods.METHODS`.
      params: The method's parameters, JSON values.
      factors: B and C.
      lower_bound: A lower bound on the loss of every factorization of A, or None
        where the method does not give one.
    """

    workload: Workload
    method: str
    params: Mapping[str, Any]
    factors: Factors
    lower_bound: float | None = None

    def __post_init__(self) -> None:
        if self.factors.rounds != self.workload.rounds:
            raise ValueError(
                f"factors must be for {self.workload.rounds} rounds, found "
                f"{self.factors.rounds}"
            )

    @property
    def rounds(self) -> int:
        """T."""
        return self.workload.rounds

    def encoder(self) -> np.ndarray:
        """Returns C, dense float64 of shape (m, T)."""
        return self.factors.encoder(self.workload)

    def decoder(self) -> np.ndarray:
        """Returns B, dense float64 of shape (T, m)."""
        return self.factors.decoder(self.workload)

    def materialize(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (B, C), dense."""
        return self.decoder(), self.encoder()

    def noising_rows(self, start: int, stop: int) -> np.ndarray:
        """Returns rows of A^-1 B: the noise of these rounds' sums before A is applied.

        A server whose optimizer applies A itself adds (A^-1 B Z)[t, :] in round t.

        Raises:
          IndexError: If 0 <= start < stop <= T does not hold.
        """
        self._check_rows(start, stop)
        return self.workload.solve(self.decoder())[start:stop]

    def _check_rows(self, start: int, stop: int) -> None:
        if not 0 <= start < stop <= self.rounds:
            raise IndexError(
                f"rows must lie in 0 <= start < stop <= {self.rounds}, found "
                f"start={start}, stop={stop}"
            )

    def sensitivity(
        self, plan: Plan | None = None, rounds: int | None = None
    ) -> Sensitivity:
        """Returns the sensitivity of what is released of C, per clip norm.

        Args:
          plan: How a client takes part; None is one participation.
          rounds: r, if only the first r rows of A G + B Z are released; None for all.

        Raises:
          ValueError: If there are not so many rounds.
        """
        plan = OneParticipation() if plan is None else plan
        if rounds is not None:
            checks.integer("rounds", rounds, 1, self.rounds)
        return _sensitivity(self, plan, rounds)

    def step_errors(self, plan: Plan | None = None) -> np.ndarray:
        """Returns each iterate's squared error per unit noise multiplier, (T,)."""
        norms = self.factors.row_norms_squared(self.workload)
        return errors.per_step(norms, self.sensitivity(plan).value)

    def errors(self, plan: Plan | None = None) -> errors.ErrorSummary:
        """Returns the total, mean, root mean, largest and last squared error."""
        return errors.summarize(self.step_errors(plan))

    @functools.cached_property
    def loss(self) -> float:
        """||B||_F^2 max_j ||C[:, j]||^2: total squared error, one participation."""
        return self.errors().total

    @property
    def gap(self) -> float | None:
        """(loss - lower_bound) / loss, or None without a bound."""
        if self.lower_bound is None:
            return None
        return (self.loss - self.lower_bound) / self.loss


@functools.lru_cache(maxsize=64)
def _sensitivity(found: Factorization, plan: Plan, rounds: int | None) -> Sensitivity:
    """Returns `Factorization.sensitivity`, once for each question."""
    return found.factors.sensitivity(found.workload, plan, rounds)
