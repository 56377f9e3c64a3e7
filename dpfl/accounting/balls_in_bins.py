# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients that draw one of b groups in secret, for a run with correlated noise.

A client of group g shifts the rows of C G + Z by m_g, the sum of the columns of C of
its rounds, in units of the noise. Whatever clients send, and however they adapt, every
convex function of the likelihood ratio has at most the mean that it has under

  R = (1/b) sum_g exp(W_g - K_gg / 2),   W ~ N(0, K),   K_gh = <m_g, m_h>,

which is the ratio of P, the mean over g of N(m_g, I), to Q = N(0, I). It rises with
each entry of K. So delta of both directions is an integral over b numbers, of which
draws give an upper bound that fails with a probability that is stated. The proofs are
in docs/privacy/balls_in_bins.md.

Sources: Choquette-Choo et al. (2024), 'Near Exact Privacy Amplification for Matrix
Mechanisms'; Chua et al. (2024), 'Balls-and-Bins Sampling for DP-SGD'; Kahane (1986),
'Une inegalite du type de Slepian et Gordon'; Wang et al. (2023), 'A Randomized Approach
for Tight Privacy Accounting'.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Optional

import attr
import dp_accounting
import numpy as np
from scipy import linalg, special

from dpfl import checks
from dpfl.accounting import events, gaussian, log_space, random_slot

FAILURE = 1e-15
"""A figure is below the true epsilon with at most this probability, times delta."""

# Normal numbers that a figure takes for each direction, and the least and most draws.
_NUMBERS = 2**22
_LEAST_DRAWS, _MOST_DRAWS = 2**12, 2**17
# Draws are worked on so many numbers at a time.
_BLOCK = 2**13
# A pilot of one in so many draws chooses how far draws are shifted, in deviations of
# the noise beyond what P or Q are themselves.
_PILOT = 16
_SHIFTS = range(7)
# Relative allowance for rounding, of the matrix and of sums.
_ROUNDING = 1e-9
_STEPS = 32


def _read_only(value: Any) -> np.ndarray:
    found = np.array(value, np.float64)
    found.setflags(write=False)
    return found


@attr.s(frozen=True, auto_attribs=True)
class BallsInBinsDpEvent(events.RdpDpEvent):
    """A run in which each client is in the rounds of one group, which is its secret.

    Each client draws one of b groups with equal probability, independently of the other
    clients and of all data, once for the run, and takes part in rounds of that group
    alone; it may stay away from some. What it sends is of L2 norm at most Delta2, and
    may depend on its data, its group, what it sent before, coins of its own, and all
    that was released. C G + Z is released row by row, Z of independent N(0, stddev^2)
    and C lower triangular; row t of G is the sum of round t.

    Assumptions: nobody who sees the release sees who takes part when; the divisor of a
    mean is a constant; the noise is there whoever takes part.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.

    Attributes:
      noise_multiplier: stddev / Delta2, at least 0.
      gram: K, the inner products of m_g, the sum of the columns of |C| of group g's
        rounds, as far as these rows are released; float64 [r, r], of the groups that
        have had a turn or of all.
      groups: b, at least r, which it is if left out.
    """

    # Each prefix of a run has a matrix of its own.
    is_remembered: ClassVar[bool] = False

    noise_multiplier: float = attr.ib(validator=checks.validator(checks.nonnegative))
    gram: np.ndarray = attr.ib(converter=_read_only, eq=np.ndarray.tobytes)
    groups: int = attr.ib()

    @groups.default
    def _all(self) -> int:
        return len(self.gram)

    @groups.validator
    def _check_groups(self, attribute: attr.Attribute, value: int) -> None:
        checks.integer(attribute.name, value, len(self.gram))

    @gram.validator
    def _check(self, attribute: attr.Attribute, value: np.ndarray) -> None:
        checks.matrix(attribute.name, value)
        if value.shape[0] != value.shape[1] or np.min(value) < 0:
            raise ValueError(
                f"{attribute.name} must be square, and without an entry below 0, found "
                f"the shape {value.shape} and the least entry {np.min(value):g}"
            )

    @property
    def relations(self) -> events.Relations:
        """See base class: the client has no noise of its own in the sum."""
        return events.TRUSTED_RELATIONS

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class.

        The least of two: that of the group with the longest shift, and of a matrix K
        that is nowhere smaller, of which all entries but the diagonal are equal. R is
        then that of one Gaussian release times that of one epoch of random slots.
        """
        longest = float(np.max(self.gram))
        shared = float(np.max(self.gram - np.diag(np.diag(self.gram))))
        whole = _gaussian_rdp(self.noise_multiplier, longest, orders)
        own = longest - shared
        if not own or not self.noise_multiplier:
            return whole
        slot = random_slot.RandomSlotDpEvent(
            dp_accounting.GaussianDpEvent(self.noise_multiplier / math.sqrt(own)),
            int(np.count_nonzero(np.diag(self.gram))),
            self.groups,
        )
        common = _gaussian_rdp(self.noise_multiplier, shared, orders)
        return np.minimum(whole, common + slot.rdp(orders))


def _gaussian_rdp(
    noise_multiplier: float, squared: float, orders: events.Orders
) -> np.ndarray:
    """The RDP of a Gaussian release that a client shifts by a vector; [m]."""
    if not squared:
        return np.zeros(np.shape(orders))
    return gaussian.gaussian_rdp(noise_multiplier / math.sqrt(squared), orders)


def alone(event: dp_accounting.DpEvent) -> Optional[BallsInBinsDpEvent]:
    """The event of balls in bins that is all of a tree, or None."""
    while True:
        if isinstance(event, BallsInBinsDpEvent):
            return event
        if isinstance(event, events.RunDpEvent) or (
            isinstance(event, dp_accounting.SelfComposedDpEvent) and event.count == 1
        ):
            event = event.event
        elif (
            isinstance(event, dp_accounting.ComposedDpEvent) and len(event.events) == 1
        ):
            event = event.events[0]
        else:
            return None


class Draws(NamedTuple):
    """Log-losses of draws and the logs of their weights, and a bound on what they give.

    Attributes:
      losses: log R for P against Q, -log R for Q against P; float64 [n].
      weights: Log of how much likelier a draw is without its shift; float64 [n].
      log_bound: Log of the largest that weight (1 - e^(epsilon - loss)) can be, from
        epsilon.
    """

    losses: np.ndarray
    weights: np.ndarray
    log_bound: Callable[[float], float]

    def delta(self, epsilon: float, failure: float) -> float:
        """An upper bound on delta that fails with at most this probability.

        X >= 0 has P(mean of n < E X - t) <= exp(-n t^2 / (2 E X^2)). That is used for
        X^2 first, which is at most X's largest value squared, and then for X.
        """
        n = self.losses.size
        each = math.log(2 / failure) / n
        rare = np.minimum(epsilon - self.losses, 0.0)
        # In units of the bound: X is then at most 1.
        log_bound = self.log_bound(epsilon)
        with np.errstate(divide="ignore", under="ignore"):
            x = np.exp(self.weights + np.log(-np.expm1(rare)) - log_bound)
        mean, square = float(np.mean(x)), float(np.mean(x * x))
        root = math.sqrt(each / 2)
        root += math.sqrt(each / 2 + square * (1 + _ROUNDING))
        found = mean * (1 + _ROUNDING) + root * math.sqrt(2 * each)
        return found * math.exp(min(log_bound, 700.0))

    def epsilon(self, delta: float, failure: float, most: float) -> float:
        """The least epsilon of at least 0 at which `delta` is met, `most` if none.

        The bound falls in epsilon for any draws, so that this fails no more often than
        the bound at the true epsilon does.
        """
        low, high = 0.0, most
        if self.delta(0.0, failure) <= delta:
            return 0.0
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            if self.delta(middle, failure) <= delta:
                high = middle
            else:
                low = middle
        return high


def _log_mean_exp(terms: np.ndarray, groups: int) -> np.ndarray:
    """The log of the mean over all groups; those that are not there have a term 0."""
    found = log_space.log_sum_exp(terms)
    if terms.shape[1] < groups:
        found = np.logaddexp(found, math.log(groups - terms.shape[1]))
    return found - math.log(groups)


def _of_turns(gram: np.ndarray) -> np.ndarray:
    """The matrix of the groups that have had a turn.

    It is a little larger than that, so that it has a Cholesky factor.
    """
    had = np.diag(gram) > 0
    part = gram[np.ix_(had, had)]
    return part + 1e-13 * len(gram) * np.max(gram) * np.eye(len(part))


def _blocks(gram: np.ndarray, draws: int, seed: int) -> Any:
    """Rows of N(0, gram) from the seed, few at a time, and whose turn each is."""
    groups = len(gram)
    root = linalg.cholesky(gram, lower=True).T
    generator = np.random.default_rng(seed)
    size = max(64, _BLOCK // groups)
    for first in range(0, draws, size):
        count = min(size, draws - first)
        rows = generator.standard_normal((count, groups)) @ root
        yield rows, np.arange(first, first + count) % groups


def removal_draws(
    gram: np.ndarray, draws: int, shift: float, seed: int, groups: Optional[int] = None
) -> Draws:
    """Draws for P against Q, from P with its means a factor longer.

    Groups that have had a turn are drawn one after the other. With the factor l >= 1 a
    draw weighs R / mean_g exp(l W_g - l^2 K_gg / 2), the mean over these r groups. It
    is at least M^l exp(-l (l-1) K / 2) by Jensen's inequality, K the largest K_gg and
    M = 1 + (R - 1) b / r.

    Args:
      gram: K in units of the noise, of r groups or all; float64 [r, r].
      draws: n; whole turns of the groups are drawn, at least as many.
      shift: How many deviations of the noise the longest mean gets longer, at least 0.
      seed: Of the draws.
      groups: b; None is r.
    """
    groups, gram = groups or len(gram), _of_turns(gram)
    own, turned = np.diag(gram), len(gram)
    longest = float(np.max(own))
    factor = 1 + shift / math.sqrt(longest)
    losses, weights = [], []
    for rows, turns in _blocks(gram, -(-draws // turned) * turned, seed):
        rows = rows + factor * gram[turns]
        found = _log_mean_exp(rows - 0.5 * own, groups)
        drawn = _log_mean_exp(factor * rows - 0.5 * factor * factor * own, turned)
        losses.append(found)
        weights.append(found - drawn)
    more = factor - 1

    def log_bound(epsilon: float) -> float:
        # The largest of (R - e^epsilon) M^-factor, at M = least factor / more.
        top = float(special.xlogy(more, more)) - factor * math.log(factor)
        share = math.log(groups / turned)
        least = epsilon + math.log1p(-math.expm1(-epsilon) * (groups - turned) / turned)
        return top - share - more * least + 0.5 * factor * more * longest

    return Draws(np.concatenate(losses), np.concatenate(weights), log_bound)


def addition_draws(
    gram: np.ndarray, draws: int, shift: float, seed: int, groups: Optional[int] = None
) -> Draws:
    """Draws for Q against P, from Q with a mean opposite to that of P.

    By the inequality of the means log R is at least the mean of W_g - K_gg / 2, so that
    what counts has a mean of W_g of at most the mean of K_gg / 2 less epsilon.

    Args:
      gram: K in units of the noise, of r groups or all; float64 [r, r].
      draws: n.
      shift: How far the mean is from Q's, in deviations of the noise.
      seed: Of the draws.
      groups: b; None is r.
    """
    groups, gram = groups or len(gram), _of_turns(gram)
    own = np.diag(gram)
    factor = shift * groups / math.sqrt(np.sum(gram))
    losses, weights = [], []
    for rows, _ in _blocks(gram, draws, seed):
        rows = rows - factor / groups * np.sum(gram, axis=0)
        losses.append(-_log_mean_exp(rows - 0.5 * own, groups))
        weights.append(factor / groups * np.sum(rows, axis=1) + 0.5 * shift * shift)

    def log_bound(epsilon: float) -> float:
        mean = 0.5 * float(np.sum(own)) / groups
        return factor * (mean - epsilon) + 0.5 * shift * shift

    return Draws(np.concatenate(losses), np.concatenate(weights), log_bound)


def _sampled(
    draw: Callable[[np.ndarray, int, float, int, int], Draws],
    gram: np.ndarray,
    groups: int,
    delta: float,
    failure: float,
    most: float,
    seed: int,
) -> float:
    """The epsilon of one direction, at the shift that a pilot chooses."""
    draws = min(_MOST_DRAWS, max(_LEAST_DRAWS, _NUMBERS // len(gram)))

    def of_pilot(shift: float) -> float:
        pilot = draw(gram, max(1, draws // _PILOT), shift, 2 * seed + 1, groups)
        return pilot.epsilon(delta, failure, most)

    best = min(_SHIFTS, key=of_pilot)
    return draw(gram, draws, best, 2 * seed, groups).epsilon(delta, failure, most)


def tight_epsilon(
    event: dp_accounting.DpEvent, delta: float, seed: int = 0
) -> Optional[tuple[float, str]]:
    """The epsilon of one run of balls in bins by draws, and the method.

    Equal questions have equal answers. Of all seeds no more than the share `FAILURE`
    times delta would give a figure below the true epsilon, whatever the event is, as
    long as it was not chosen by what the seed gives.

    Args:
      event: A tree of events; None is returned if it is not one `BallsInBinsDpEvent`.
      delta: In (0, 1).
      seed: Of the draws, at least 0.
    """
    found = alone(event)
    return None if found is None else _epsilon_of(found, delta, seed)


@functools.lru_cache(maxsize=16)
def _epsilon_of(
    found: BallsInBinsDpEvent, delta: float, seed: int
) -> tuple[float, str]:
    if not found.noise_multiplier:
        return math.inf, "exact-gaussian"
    scale = 1 / found.noise_multiplier
    gram = found.gram * scale * scale * (1 + _ROUNDING)
    longest = float(np.max(gram))
    most = gaussian.gaussian_epsilon(delta, max(longest, 1e-300) ** -0.5)
    if found.groups == 1 or not 0 < most < math.inf:
        return most, "exact-gaussian"
    goal, failure = delta * (1 - FAILURE), 0.5 * FAILURE * delta
    by_draws = max(
        _sampled(draw, gram, found.groups, goal, failure, most, seed)
        for draw in (removal_draws, addition_draws)
    )
    return (by_draws, "monte-carlo") if by_draws < most else (most, "exact-gaussian")
