# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sensitivity of an encoder C under several plans of participation.

    MinSeparation(separation=16, limit=4).sensitivity(encoder).value

A client that takes part in the rounds pi adds u_i, ||u_i|| <= 1, to G[i, :] for i in
pi. Then the encoder's output moves by || sum_i C[:, i] u_i^T ||_F, whose square is
sum_ij X_ij <u_i, u_j> with X = C^T C. It is at most sum_ij |X_ij| over i, j in pi, and
reaches that when X_pi has no negative entry (all u_i equal). So for every plan

  sens(C)^2 <= max over the plan's pi of sum_{i,j in pi} |X_ij|

with equality when X has no negative entry where the plan looks. A result says whether
it is exact. The separation of rounds i < j is j - i; a separation of 1 is consecutive
rounds.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Optional

import numpy as np

from dpfl import checks
from dpfl.factorization.workloads import check_products
from dpfl.fields import Checked, option, required

# Relative size of negative entries that are rounded zeros, and of rises between equal
# entries.
_ROUNDING = 1e-12
_EPS = float(np.finfo(np.float64).eps)
# Relative decrease of the bound on the square at which sweeps of messages end.
_LEAST_GAIN = 3e-4


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """A sensitivity per unit clip norm.

    Attributes:
      value: An upper bound, always safe to calibrate noise to.
      exact: False when `value` may be larger than the sensitivity.
    """

    value: float
    exact: bool


class ParticipationSchema(Checked, abc.ABC):
    """Sets of rounds that one client may take part in."""

    @abc.abstractmethod
    def sensitivity(self, encoder: np.ndarray) -> Sensitivity:
        """The sensitivity of a dense encoder of shape (m, T)."""


def _root(squared: float, rounds: int) -> float:
    """The root of a sum over a Gram matrix of T rounds, rounded up.

    An entry of m products errs by m eps / 2 ||C[:, i]|| ||C[:, j]||, m < 2 T, and those
    sum over k <= T rounds to k sum_i X_ii at most: T^2 eps of the sum.
    """
    return math.sqrt(squared) * (1 + (rounds**2 + 64) * _EPS)


def participations(rounds: int, separation: int, limit: int | None = None) -> int:
    """The most participations b rounds apart: ceil(T / b), or k when that is less.

    Args:
      rounds: T.
      separation: b, at least 1.
      limit: k, or None for as many as fit.
    """
    possible = -(-checks.integer("rounds", rounds) // separation)
    return possible if limit is None else min(limit, possible)


@dataclasses.dataclass(frozen=True)
class OneParticipation(ParticipationSchema):
    """Each client takes part in one round at most: max_j ||C[:, j]||, exact."""

    def sensitivity(self, encoder: np.ndarray) -> Sensitivity:
        """See base class."""
        encoder = checks.matrix("encoder", encoder)
        return Sensitivity(float(np.max(np.linalg.norm(encoder, axis=0))), True)


@dataclasses.dataclass(frozen=True)
class FixedEpochs(ParticipationSchema):
    """k participations exactly b rounds apart (Choquette-Choo et al. 2023a, Sec. 2).

    A client that starts in round j < b takes part in j, j + b, ..., k times or until
    the rounds end: a client may be absent, which is never worse here.

    Attributes:
      epochs: k.
      separation: b, rounds in an epoch.
    """

    epochs: int = required(None, at_least=1)
    separation: int = required(None, at_least=1)

    def sensitivity(self, encoder: np.ndarray) -> Sensitivity:
        """See base class."""
        encoder = checks.matrix("encoder", encoder)
        gram = encoder.T @ encoder
        worst, exact = 0.0, True
        # With more than k epochs a client may also start after the first one.
        last = max(self.separation, len(gram) - self.separation * (self.epochs - 1))
        for first in range(min(last, len(gram))):
            rounds = slice(
                first, first + self.separation * self.epochs, self.separation
            )
            part = gram[rounds, rounds]
            value = float(np.sum(np.abs(part)))
            if value > worst:
                worst = value
                exact = bool(np.min(part) >= -_ROUNDING * np.max(np.abs(part)))
        return Sensitivity(_root(worst, len(gram)), exact)


@dataclasses.dataclass(frozen=True)
class ShuffledEpochs(ParticipationSchema):
    """At most one round in each epoch, in a window that stays the same.

    Epochs have R rounds each, of which the last may be cut off. Windows begin every W
    rounds of an epoch, the last may be shorter, and a client's rounds are all in the
    same one (`mechanisms.OncePerEpoch`). With W = 1 this is `FixedEpochs`; otherwise
    the bound is `one_per_epoch_bound`.

    Attributes:
      length: R.
      window: W; None is R.
    """

    length: int = required(None, at_least=1)
    window: Optional[int] = option(None, None, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None:
            checks.integer("window", self.window, at_most=self.length)

    def sensitivity(self, encoder: np.ndarray) -> Sensitivity:
        """See base class."""
        encoder = checks.matrix("encoder", encoder)
        rounds = encoder.shape[1]
        epochs = participations(rounds, self.length)
        window = self.window or self.length
        if window == 1 or epochs == 1:
            return FixedEpochs(epochs, self.length).sensitivity(encoder)
        # Missing rounds at the end have the same effect as staying away.
        gram = np.zeros((epochs * self.length,) * 2)
        np.matmul(encoder.T, encoder, out=gram[:rounds, :rounds])
        np.abs(gram, out=gram)
        gram = gram.reshape((epochs, self.length) * 2)
        worst = max(
            one_per_epoch_bound(gram[:, k : k + window, :, k : k + window])
            for k in range(0, self.length, window)
        )
        return Sensitivity(_root(worst, rounds), False)


def one_per_epoch_bound(gram: np.ndarray) -> float:
    """An upper bound on sum_{i,j in pi} |X_ij| for one round of each epoch in pi.

    For any messages m_b(i) of epochs b to rounds i of other epochs the sum is at most

      sum_a max_{i in a} (|X_ii| + sum_b m_b(i))
      + sum_{a<b} max_{i in a, j in b} (2 |X_ij| - m_b(i) - m_a(j)),

    as the terms for i and j in pi sum to it. It starts at m_b(i) = max_{j in b} |X_ij|,
    and sweeps of sequential reweighted message passing make it smaller (Kolmogorov
    2015, 'A New Look at Reweighted Message Passing'). Rounded up.

    Args:
      gram: |X|, shape (E, W, E, W): epoch and place of i, and of j; E >= 2.
    """
    epochs = len(gram)
    every = np.arange(epochs)
    own = np.einsum("aiai->ai", gram)
    # Entry b, a, i is m_b(i) for round i of epoch a.
    messages = gram.max(axis=1)
    best, before = _bound_by_messages(gram, own, messages), np.inf
    while best < before * (1 - _LEAST_GAIN):
        before = best
        for order in (every, every[::-1]):
            for place, a in enumerate(order):
                taken = np.max(2 * gram[:, :, a] - messages[a][:, :, None], axis=1)
                taken[a] = 0
                total = own[a] + np.sum(taken, axis=0)
                # Passed on to later epochs, divided by the number on the longer side.
                taken[order[place + 1 :]] -= total / max(place, epochs - 1 - place)
                messages[:, a] = taken
        best = min(best, _bound_by_messages(gram, own, messages))
    return best


def _bound_by_messages(
    gram: np.ndarray, own: np.ndarray, messages: np.ndarray
) -> float:
    """The bound of `one_per_epoch_bound` by given messages, rounded up."""
    epochs = len(gram)
    terms = list(np.max(own + np.sum(messages, axis=0), axis=1))
    for a in range(epochs - 1):
        pairs = 2 * gram[a + 1 :, :, a] - messages[a, a + 1 :, :, None]
        pairs -= messages[a + 1 :, a, None]
        terms.append(np.sum(np.max(pairs, axis=(1, 2))))
    # Each term is a sum of E numbers or fewer, with an error of E^2 ulps of the
    # largest.
    largest = max(np.max(gram), np.max(np.abs(messages)))
    return math.fsum(terms) + 8 * epochs**3 * _EPS * float(largest)


@dataclasses.dataclass(frozen=True)
class MinSeparation(ParticipationSchema):
    """At most k participations, any two at least b rounds apart.

    Exact for an encoder whose columns i, j are orthogonal for |i - j| >= b (b bands at
    most), by `heaviest_set` over the squared column norms; for a lower-triangular
    Toeplitz encoder with coefficients that are not negative and do not rise, by
    `toeplitz_min_separation`; otherwise the bound `min_separation_upper_bound`.

    Attributes:
      separation: b.
      limit: k, or None for as many as fit.
    """

    separation: int = required(None, at_least=1)
    limit: Optional[int] = option(None, None, at_least=1)

    def sensitivity(self, encoder: np.ndarray) -> Sensitivity:
        """See base class."""
        encoder = checks.matrix("encoder", encoder)
        rounds = encoder.shape[1]
        if participations(rounds, self.separation, self.limit) == 1:
            return OneParticipation().sensitivity(encoder)
        column = _toeplitz_column(encoder)
        if column is not None and _is_monotone(column):
            value = toeplitz_min_separation(column, self.separation, self.limit)
            return Sensitivity(_root(value**2, rounds), True)
        gram = encoder.T @ encoder
        if not np.any(np.tril(gram, -self.separation)):
            squared = heaviest_set(np.diag(gram), self.separation, self.limit)
            return Sensitivity(_root(float(squared), rounds), True)
        bound = min_separation_upper_bound(gram, self.separation, self.limit)
        return Sensitivity(bound, False)


def _toeplitz_column(encoder: np.ndarray) -> np.ndarray | None:
    """The first column of a lower-triangular Toeplitz matrix, else None."""
    rows, columns = encoder.shape
    if rows != columns or np.any(np.triu(encoder, 1)):
        return None
    if not np.array_equal(encoder[1:, 1:], encoder[:-1, :-1]):
        return None
    return encoder[:, 0]


def _is_monotone(coefficients: np.ndarray) -> bool:
    rounding = _ROUNDING * np.max(np.abs(coefficients))
    return bool(
        np.all(coefficients >= -rounding) and np.all(np.diff(coefficients) <= rounding)
    )


def heaviest_set(
    weights: np.ndarray, separation: int, limit: int | None = None
) -> np.ndarray:
    """The greatest sum of w_i over at most k indices i, any two of them b apart.

    F(i, k) = max(w_i + F(i + b, k - 1), F(i + 1, k)), in O(T k) (Choquette-Choo et
    al. 2023b, Algorithm 3). The empty set counts, so the result is not negative.

    Args:
      weights: shape (..., T); one problem, and result, for each leading index.
      separation: b >= 1.
      limit: k, or None for as many as fit.
    """
    weights = np.asarray(weights, dtype=np.float64)
    rounds = weights.shape[-1]
    best = np.zeros(weights.shape[:-1] + (rounds + separation,))
    for _ in range(participations(rounds, separation, limit)):
        best[..., :rounds] = weights + best[..., separation:]
        best = np.maximum.accumulate(best[..., ::-1], axis=-1)[..., ::-1].copy()
    return best[..., 0]


def min_separation_upper_bound(
    gram: np.ndarray, separation: int, limit: int | None = None
) -> float:
    """An upper bound on the sensitivity for any X = C^T C, shape (T, T).

    The heaviest set of each row of |X|, then the heaviest set of these row sums: the
    rows need not agree on the set, so this is not less than the sensitivity
    (Choquette-Choo et al. 2023b, Algorithm 4).

    Args:
      gram: X, shape (T, T).
      separation: b >= 1.
      limit: k, or None for as many as fit.
    """
    gram = np.abs(checks.matrix("gram", gram))
    rows = heaviest_set(gram, separation, limit)
    return _root(float(heaviest_set(rows, separation, limit)), len(gram))


def comb_sum(
    coefficients: np.ndarray, separation: int, limit: int | None = None
) -> np.ndarray:
    """C applied to a comb: sum_{m < k} of c delayed by m b, shape (T,).

    Args:
      coefficients: c, the first column of C, shape (T,).
      separation: b >= 1.
      limit: k, or None for as many as fit.
    """
    coefficients = checks.vector("coefficients", coefficients)
    result = np.zeros_like(coefficients)
    rounds = len(coefficients)
    count = participations(rounds, separation, limit)
    check_products("participations", count, rounds)
    for m in range(count):
        result[m * separation :] += coefficients[: rounds - m * separation]
    return result


def toeplitz_min_separation(
    coefficients: np.ndarray, separation: int, limit: int | None = None
) -> float:
    """The exact (k, b) sensitivity of a lower-triangular Toeplitz C, in O(T k).

    The worst client takes part in rounds 0, b, ..., (k - 1) b (Kalinin and Lampert
    2024, Theorem 2).

    Args:
      coefficients: The first column of C, shape (T,); they are not negative and do not
        rise.
      separation: b >= 1.
      limit: k, or None for as many as fit.
    """
    return float(np.linalg.norm(comb_sum(coefficients, separation, limit)))
