# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The result of every method of this package: a workload and its factors.

    factors = compute(prefix_sum(1000), "banded", bands=16)  # a `Factorization`
    decoder, encoder = factors.materialize()
    factors.errors().root_mean, factors.sensitivity(MinSeparation(16)).value

The functions below are what noise and events take of one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import checks
from dpfl.factorization import factors as factors_lib
from dpfl.factorization.sensitivity import (
    OneParticipation,
    ParticipationSchema,
    Sensitivity,
)
from dpfl.factorization.workloads import Workload

# Largest relative error of the product; a matrix of thousands of rounds has some 1e-13.
_PRODUCT_RTOL = 1e-6


@dataclasses.dataclass(frozen=True)
class ErrorSummary:
    """Squared errors over the T released iterates, per unit noise multiplier.

    Attributes:
      total: Their sum: with one participation this is the loss ||B||_F^2 max_j ||C[:,
        j]||^2 (Denisov et al. 2022, Equation 2).
      mean: total / T.
      root_mean: Square root of the mean (a standard deviation).
      max: The largest.
      last: The last iterate's.
    """

    total: float
    mean: float
    root_mean: float
    max: float
    last: float


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
    factors: factors_lib.Factors
    lower_bound: float | None = None

    def __post_init__(self) -> None:
        rounds = self.factors.rounds
        wanted = f"for {self.rounds} rounds"
        checks.require(rounds == self.rounds, "factors", wanted, rounds)
        error = self.factors.product_error(self.workload)
        # NaN fails this comparison, too.
        wanted = f"of the product A, to a relative error of {_PRODUCT_RTOL:g}"
        checks.require(error <= _PRODUCT_RTOL, "factors", wanted, float(f"{error:.3g}"))

    @property
    def rounds(self) -> int:
        """T, the number of rounds."""
        return self.workload.rounds

    def encoder(self) -> np.ndarray:
        """C, dense float64 of shape (m, T)."""
        return self.factors.encoder(self.workload)

    def decoder(self) -> np.ndarray:
        """B, dense float64 of shape (T, m)."""
        return self.factors.decoder(self.workload)

    def materialize(self) -> tuple[np.ndarray, np.ndarray]:
        """(B, C), dense."""
        return self.decoder(), self.encoder()

    def noising_rows(self) -> np.ndarray:
        """A^-1 B: row t is the noise of round t's sum before A is applied.

        A server whose optimizer applies A itself adds (A^-1 B Z)[t, :] in round t.
        """
        return self.workload.solve(self.decoder())

    def sensitivity(
        self, plan: ParticipationSchema | None = None, rounds: int | None = None
    ) -> Sensitivity:
        """The sensitivity of the released part of C, per clip norm.

        Args:
          plan: The rounds that a client may take part in; None is one participation.
          rounds: r, if only the first r rows of A G + B Z are released; None for all.

        Raises:
          ValueError: If there are not so many rounds.
        """
        plan = OneParticipation() if plan is None else plan
        if rounds is not None:
            rounds = checks.integer("rounds", rounds, 1, self.rounds)
        return _sensitivity(self, plan, rounds)

    def step_errors(self, plan: ParticipationSchema | None = None) -> np.ndarray:
        """Each iterate's squared error per unit noise multiplier, shape (T,)."""
        norms = self.factors.row_norms_squared(self.workload)
        norms = checks.vector("row_norms_squared", norms)
        return norms * checks.positive("sensitivity", self.sensitivity(plan).value) ** 2

    def errors(self, plan: ParticipationSchema | None = None) -> ErrorSummary:
        """The total, mean, root mean, largest and last squared error."""
        errors = self.step_errors(plan)
        mean = float(np.mean(errors))
        return ErrorSummary(
            total=float(np.sum(errors)),
            mean=mean,
            root_mean=float(np.sqrt(mean)),
            max=float(np.max(errors)),
            last=float(errors[-1]),
        )

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


def parts(factorization: Factorization) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A factorization as JSON values and the arrays of its factors, to be saved.

    `from_parts` restores it from them, to the last bit.
    """
    header = {
        "workload": factorization.workload.as_dict(),
        "method": factorization.method,
        "params": dict(factorization.params),
        "kind": factorization.factors.kind,
        "lower_bound": factorization.lower_bound,
    }
    return header, factorization.factors.arrays()


def from_parts(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Factorization:
    """The factorization from its `parts`; other keys of the header are ignored.

    Raises:
      KeyError, TypeError, ValueError: If they are parts of none.
    """
    return Factorization(
        workload=Workload.from_dict(header["workload"]),
        method=header["method"],
        params=header["params"],
        factors=factors_lib.KINDS[header["kind"]](**arrays),
        lower_bound=header["lower_bound"],
    )


@functools.lru_cache(maxsize=256)
def _sensitivity(
    factorization: Factorization, plan: ParticipationSchema, rounds: int | None
) -> Sensitivity:
    """`Factorization.sensitivity`, cached."""
    return factorization.factors.sensitivity(factorization.workload, plan, rounds)


# Most numbers in a block of rows of a dense stream, 128 MB, and rows in the chunks of Z
# that it is made from, which are the least rows of a block: fewer would hardly save
# memory, and each pass over Z would serve fewer rounds.
BLOCK_NUMBERS = 32_000_000
CHUNK_ROWS = 16
# Processor seconds for a number of Z.
_SECONDS_A_NORMAL = 1.6e-8


def kept_rows(factorization: Factorization) -> int | None:
    """The number of rows of d floats that a recurrence stores between rounds.

    None where there is no recurrence, or one of so many rows that blocks of a dense
    matrix are cheaper.
    """
    if factorization.method == "honaker-online":
        return factorization.rounds.bit_length()
    return factorization.factors.kept_rows(factorization.workload)


def block_rounds(rounds: int, dimension: int) -> int:
    """R, the number of rows that a dense stream of d numbers computes at a time."""
    return min(rounds, max(CHUNK_ROWS, BLOCK_NUMBERS // dimension))


def is_dense(factorization: Factorization) -> bool:
    """Whether a stream computes its rows in blocks of a dense matrix."""
    return kept_rows(factorization) is None


def stream_rows(factorization: Factorization, dimension: int) -> int:
    """The number of rows of d floats that a stream stores between rounds."""
    rows = kept_rows(factorization)
    return block_rounds(factorization.rounds, dimension) if rows is None else rows


def drawing_seconds(factorization: Factorization, dimension: int) -> float:
    """Processor seconds for a stream's normals, in all rounds together."""
    if is_dense(factorization):
        return dense_seconds(factorization.rounds, dimension)
    return _SECONDS_A_NORMAL * dimension * factorization.rounds


def dense_seconds(rounds: int, dimension: int) -> float:
    """The `drawing_seconds` of a dense stream.

    For each block of R rows it draws all rows of Z up to the block's last.
    """
    blocks = -(-rounds // block_rounds(rounds, dimension))
    return _SECONDS_A_NORMAL * dimension * rounds * (blocks + 1) / 2


def longest_column(factorization: Factorization, rounds: int, first: int = 0) -> float:
    """The largest norm of some columns of C, within the released rows.

    Args:
      factorization: The factorization A = B C.
      rounds: Rows of A G + B Z that are released.
      first: The first column that counts; 0 unless C has fewer diagonals than rows.
    """
    factors = factorization.factors
    if isinstance(factors, factors_lib.ToeplitzFactors):
        return float(np.linalg.norm(factors.c[: rounds - first]))
    if isinstance(factors, factors_lib.BandedFactors):
        columns = factors.diagonals[first:rounds]
        left = rounds - np.arange(first, rounds)
        released = np.arange(columns.shape[1]) < left[:, np.newaxis]
        return float(np.max(np.linalg.norm(columns * released, axis=1)))
    return factorization.sensitivity(rounds=rounds).value


@functools.lru_cache(maxsize=8)
def _released(factorization: Factorization) -> np.ndarray:
    """The absolute values of the released part of C, float64 [T, T]."""
    return np.abs(factorization.factors.released_encoder(factorization.workload))


def columns(factorization: Factorization, rounds: int) -> np.ndarray:
    """The columns of |C|, from the diagonal down, of the released rounds.

    Shape [rounds, h], with C's h diagonals; 0 below the last row.
    """
    part = _released(factorization)[:rounds, :rounds]
    kept = min(factorization.factors.bands, rounds)
    # Mirrored at the other diagonal, columns are rows, the last one first.
    return factors_lib.lower_band(part.T[::-1, ::-1], kept)[::-1]


def group_shifts(factorization: Factorization, rounds: int, groups: int) -> np.ndarray:
    """The sums of the columns of |C| of each group, for groups that take turns.

    Shape [min(groups, rounds), rounds]: groups without a turn are left out.

    Args:
      factorization: The factorization A = B C.
      rounds: Rows of A G + B Z that are released.
      groups: The number of groups; round t belongs to group t modulo this.
    """
    part = _released(factorization)[:rounds, :rounds]
    shifts = [
        part[:, first::groups].sum(axis=1) for first in range(min(groups, rounds))
    ]
    return np.stack(shifts)
