# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs with correlated noise in which each client's rounds are secret.

Each client draws the set S of its rounds from a public law, and tells nobody. With m_S
the sum of the columns of |C| of these rounds, in units of the noise, every convex
function of the likelihood ratio has at most the mean that it has under

  R = E_S exp(W_S - K_SS / 2),   W ~ N(0, K),   K_SU = <m_S, m_U>,

which is the ratio of P, the mean over S of N(m_S, I), to Q = N(0, I), for any and even
adaptive updates of clients. Draws give an upper bound on delta of removing a client,
which fails with a stated probability. Adding one has no larger delta: see
docs/privacy/gaussian_mixtures.md, and docs/privacy/balls_in_bins.md for the rest.

Sources: Choquette-Choo et al. (2024), 'Near Exact Privacy Amplification for Matrix
Mechanisms'; Kahane (1986), 'Une inegalite du type de Slepian et Gordon'; Wang et al.
(2023), 'A Randomized Approach for Tight Privacy Accounting'.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Optional

import dp_accounting
import numpy as np
from scipy import special

from dpfl import cache_folder, checks, disk_cache
from dpfl.accounting import bisection, events, gaussian, trees

FAILURE = 1e-15
"""An epsilon is below the true one with at most this probability, times delta."""

ROUNDING = 1e-9
"""Relative allowance for rounding, of the matrix and of sums."""

_STEPS = 32
# Stakes of the bets on a mean, over the inverse of the largest term.
_STAKES = 0.5 ** np.arange(8)


def read_only(value: Any) -> np.ndarray:
    """A matrix of an event: a copy in float64 that cannot be changed."""
    result = np.array(value, np.float64)
    result.setflags(write=False)
    return result


def matrix_key(matrix: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    """Key that compares the matrices of events: the shape and the entries."""
    return matrix.shape, matrix.tobytes()


class SecretRunDpEvent(events.RdpDpEvent):
    """A run in which the rounds of each client are its secret."""

    is_one_round: ClassVar[bool] = False
    # Not cached: each prefix of a run has another matrix.
    is_remembered: ClassVar[bool] = False

    def as_composition(self) -> Optional[dp_accounting.DpEvent]:
        """A composition of releases that costs no less; None if none is known."""
        return None

    @abc.abstractmethod
    def longest(self) -> float:
        """The largest K_SS, in units of the noise; infinite without noise."""

    @abc.abstractmethod
    def drawn_epsilon(self, delta: float, most: float, seed: int) -> float:
        """Epsilon by draws, which fails with at most `FAILURE` times delta.

        Args:
          delta: In (0, 1).
          most: An epsilon that is known to suffice, above 0.
          seed: The seed of the draws.

        Returns:
          The epsilon; infinite if draws give none below what is known without.
        """


class Draws(NamedTuple):
    """Log-losses of draws, the logs of their weights, and a bound on a draw's term.

    Attributes:
      losses: log R; float64 [n].
      weights: Log of the likelihood of a draw without its shift, over that with it;
        float64 [n].
      log_bound: Maps epsilon to the log of the largest possible weight (1 - e^(epsilon
        - loss)).
    """

    losses: np.ndarray
    weights: np.ndarray
    log_bound: Callable[[float], float]

    def delta(self, epsilon: float, failure: float) -> float:
        """An upper bound on delta that fails with at most this probability.

        X >= 0 has P(mean of n < E X - t) <= exp(-n t^2 / (2 E X^2)). It is applied to
        X^2 first, which is at most X's largest value squared, and then to X.
        """
        n = self.losses.size
        each = math.log(2 / failure) / n
        rare = np.minimum(epsilon - self.losses, 0.0)
        # X in units of the bound is at most 1.
        log_bound = self.log_bound(epsilon)
        with np.errstate(divide="ignore", under="ignore"):
            x = np.exp(self.weights + np.log(-np.expm1(rare)) - log_bound)
        mean, square = float(np.mean(x)), float(np.mean(x * x))
        root = math.sqrt(each / 2)
        root += math.sqrt(each / 2 + square * (1 + ROUNDING))
        bound = mean * (1 + ROUNDING) + root * math.sqrt(2 * each)
        return bound * math.exp(min(log_bound, 700.0))

    def epsilon(self, delta: float, failure: float, most: float) -> float:
        """The least epsilon of at least 0 at which `delta` is met.

        The bound falls in epsilon for any draws, so that this fails no more often than
        the bound at the true epsilon does.

        Args:
          delta: The delta to meet, greater than 0.
          failure: The probability with which the bound may fail.
          most: The largest epsilon of interest, returned if no smaller one meets delta.
        """

        def is_low(epsilon: float) -> bool:
            # NaN meets no delta.
            return not self.delta(epsilon, failure) <= delta

        if not is_low(0.0):
            return 0.0
        return bisection.bisected(is_low, 0.0, most, steps=_STEPS)[1]

    def epsilon_by_bets(self, delta: float, failure: float, most: float) -> float:
        """An epsilon of at most `most` that is too small with at most a probability.

        A bet on a mean delta of terms from 0 to B, 1 + l (delta - term) for each of
        them, has a mean of at most 1 if theirs is larger, and so has the mean of
        several products of bets. So that is above 1 / failure with at most the
        probability `failure` (Markov), for l of at most 1 / (B - delta).

        Args:
          delta: The delta to meet.
          failure: The probability with which the result may be too small.
          most: The largest epsilon of interest.

        Returns:
          The epsilon; infinite if `most` is too small for these draws.
        """
        losses, weights, log_bound = self
        stakes = _STAKES * math.exp(-log_bound(most)) / 1.05

        def is_met(epsilon: float) -> bool:
            bound = math.exp(min(log_bound(epsilon), 700.0)) * (1 + 3 * ROUNDING)
            counts = losses > epsilon
            terms = np.exp(weights[counts]) * -np.expm1(epsilon - losses[counts])
            terms *= 1 + ROUNDING
            wealth = [
                np.sum(np.log1p(stake * (delta - terms)))
                + (losses.size - terms.size) * math.log1p(stake * delta)
                for stake in stakes
                if stake * (bound - delta) < 1
            ]
            if not wealth:
                return False
            log_wealth = special.logsumexp(wealth) - math.log(stakes.size)
            return log_wealth > -math.log(failure)

        if not np.all(np.isfinite(losses) & np.isfinite(weights)) or not is_met(most):
            return math.inf
        found = bisection.bisected(lambda e: not is_met(e), 0.0, most, steps=_STEPS)
        return found[1]


def alone(event: dp_accounting.DpEvent) -> Optional[SecretRunDpEvent]:
    """The run with secret rounds that makes up a whole tree, or None."""
    found = list(trees.releases(event, splits=False))
    if len(found) != 1:
        return None
    [(run, count)] = found
    is_secret = isinstance(run, SecretRunDpEvent) and count == 1
    return run if is_secret else None


def tight_epsilon(
    event: dp_accounting.DpEvent, delta: float, seed: int = 0
) -> Optional[tuple[float, str]]:
    """The epsilon of one run with secret rounds by draws, and its accounting method.

    Equal arguments give equal results. For at most the share `FAILURE` times delta of
    all seeds the result would be below the true epsilon, for any event that was not
    chosen by means of the seed.

    Args:
      event: A tree of events; None is returned if it is not one
        `SecretRunDpEvent`.
      delta: In (0, 1).
      seed: The seed of the draws, at least 0.
    """
    run = alone(event)
    return None if run is None else _epsilon_of(run, delta, seed)


def revealed_epsilon(event: SecretRunDpEvent, delta: float) -> float:
    """Epsilon of a run of hidden turns at a delta as if its rounds were no secret."""
    return gaussian.gaussian_epsilon(delta, max(event.longest(), 1e-300) ** -0.5)


def composed_epsilon(event: SecretRunDpEvent, delta: float) -> float:
    """Epsilon of a run's `as_composition` by privacy losses; infinite if none is known.

    Args:
      event: The run.
      delta: In (0, 1).
    """
    composition = event.as_composition()
    parts = composition and gaussian.gaussian_parts(trees.releases(composition))
    found = gaussian.EpsilonCurves(parts, delta).pld() if parts else ""
    return math.inf if isinstance(found, str) else found


def _cached_epsilon(
    header: cache_folder.Header, _: cache_folder.Arrays
) -> tuple[float, str]:
    """A cached epsilon and its accounting method; ValueError for other content."""
    epsilon, accounting_method = header["epsilon"], header["accounting_method"]
    checks.require(
        type(epsilon) is float and 0 <= epsilon < math.inf,
        *("epsilon", "a number of at least 0", epsilon),
    )
    kinds = "exact-gaussian", "monte-carlo"
    return epsilon, checks.choice("accounting_method", accounting_method, kinds)


@functools.lru_cache(maxsize=16)
@disk_cache.kept(
    lambda result: ({"epsilon": result[0], "accounting_method": result[1]}, {}),
    _cached_epsilon,
)
def _epsilon_of(run: SecretRunDpEvent, delta: float, seed: int) -> tuple[float, str]:
    most = revealed_epsilon(run, delta)
    if not 0 < most < math.inf:
        return most, "exact-gaussian"
    by_draws = run.drawn_epsilon(delta, most, seed)
    return (by_draws, "monte-carlo") if by_draws < most else (most, "exact-gaussian")
