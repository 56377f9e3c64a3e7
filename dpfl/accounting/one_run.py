# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Epsilon from one run in which many canaries are, each by a fair coin of its own.

    found = one_run.lower_bounds(scores, is_in, delta=1e-5)
    guess = one_run.estimate(scores[is_in], scores[~is_in], delta=1e-5)

A score is larger where its canary is more likely to be in. It may be any function of
what is released and of the canaries, but not of their coins.

The bounds hold for every attack. An attacker guesses 'in' for the largest scores and
'out' for the smallest ones, as many of each. Under a claim, so many correct guesses
have a small probability:

  * of (epsilon, delta), by Theorem 5.2 of Steinke, Nasr and Jagielski 2023, 'Privacy
    Auditing with One (1) Training Run';
  * of a trade-off function, here Phi(Phi^-1(1 - x) - mu), by Algorithm 3 of
    Mahloujifar, Melis and Chaudhuri 2024, 'Auditing f-Differential Privacy in One Run'.

The estimate is that of Andrew et al. 2023, 'One-shot Empirical Privacy Estimation for
Federated Learning', with one variance: the epsilon of two normal laws of the scores.
"""

from __future__ import annotations

import math

import attr
import numpy as np
from scipy import special

from dpfl import checks
from dpfl.accounting import bisection, gaussian

# Parts of the canaries that are guessed; the tests of all share the confidence.
_GUESSED = (1 / 8, 1 / 2)
_MOST_EPSILON, _MOST_MU = 500.0, 40.0
_STEPS = 60


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LowerBounds:
    """One-sided lower bounds of a confidence each; 0 where nothing was shown.

    Attributes:
      epsilon: Of epsilon at the delta, whatever the mechanism.
      mu: Of the mu of a mechanism that is no less private than a Gaussian one of noise
        multiplier 1 / mu, of mu-GDP.
      gaussian_epsilon: Epsilon of that Gaussian mechanism at the delta.
    """

    epsilon: float
    mu: float
    gaussian_epsilon: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class Estimate:
    """An estimate of mu and of epsilon, and the interval of epsilon.

    The interval, two-sided, is one if scores are normal and independent.
    """

    mu: float
    epsilon: float
    low: float
    high: float


def lower_bounds(
    scores: np.ndarray, is_in: np.ndarray, delta: float, confidence: float = 0.95
) -> LowerBounds:
    """Lower bounds from the scores of one run.

    Args:
      scores: float64[m], finite.
      is_in: bool[m], the fair and independent coins of the canaries.
      delta: The delta at which epsilon is bounded, in (0, 1).
      confidence: Probability with which each bound holds, in (0, 1).
    """
    delta = checks.delta("delta", delta)
    error = (1 - checks.delta("confidence", confidence)) / len(_GUESSED)
    order, m = np.argsort(scores, kind="stable"), len(scores)
    epsilon, mu = 0.0, 0.0
    for part in _GUESSED:
        each = round(part * m / 2)
        outs, ins = order[:each], order[m - each :]
        correct = int(np.sum(~is_in[outs]) + np.sum(is_in[ins]))
        found = of_guesses(2 * each, correct, m, delta, error)
        epsilon, mu = max(epsilon, found.epsilon), max(mu, found.mu)
    return LowerBounds(epsilon, mu, _gaussian_epsilon(mu, delta))


def of_guesses(
    guesses: int, correct: int, m: int, delta: float, error: float
) -> LowerBounds:
    """Lower bounds from a number of guesses that was fixed before the run.

    Args:
      guesses: The number of canaries of which the coin was guessed.
      correct: The number of guesses that are correct.
      m: The number of canaries.
      delta: The delta, in (0, 1).
      error: The probability with which each bound may fail.
    """
    mu = _largest_mu(m, guesses, correct, error)
    epsilon = _largest_epsilon(m, guesses, correct, error, delta)
    return LowerBounds(epsilon, mu, _gaussian_epsilon(mu, delta))


def _largest_epsilon(
    m: int, guesses: int, correct: int, error: float, delta: float
) -> float:
    """The largest epsilon for which so many correct guesses have at most `error`.

    With W ~ Binomial(guesses, e^epsilon / (1 + e^epsilon)), v or more are correct with
    a probability of at most

      P[W >= v] + 2 m delta max_i (P[W >= v - i] - P[W >= v]) / i.
    """
    i = np.arange(1, correct + 1)

    def is_refuted(epsilon: float) -> bool:
        counts = correct - 1 - np.append(0, i)
        tails = special.bdtrc(counts, guesses, special.expit(epsilon))
        slope = np.max((tails[1:] - tails[0]) / i, initial=0.0)
        return bool(tails[0] + 2 * m * delta * slope <= error)

    if not is_refuted(0.0):
        return 0.0
    return bisection.bisected(is_refuted, 0.0, _MOST_EPSILON, steps=_STEPS)[0]


def _largest_mu(m: int, guesses: int, correct: int, error: float) -> float:
    """The largest mu for which so many correct guesses have less than `error`."""
    low, high = 0.0, _MOST_MU
    for _ in range(3):
        mus = np.linspace(low, high, 101)
        is_refuted = _refuted(m, guesses, correct, mus, error)
        if not is_refuted[0]:
            return low
        # Those up to the first that is not.
        last = len(mus) - 1 if is_refuted.all() else int(np.argmin(is_refuted)) - 1
        low, high = mus[last], mus[min(last + 1, len(mus) - 1)]
    return float(low)


def _refuted(
    m: int, guesses: int, correct: int, mus: np.ndarray, error: float
) -> np.ndarray:
    """Whether each mu makes so many correct guesses less likely than `error`."""
    right = np.full(len(mus), error * correct / m)
    wrong = np.full(len(mus), error * (guesses - correct) / m)
    for i in range(correct - 1, -1, -1):
        more = np.maximum(wrong, special.ndtr(special.ndtri(right) - mus))
        if np.array_equal(more, wrong):
            break
        right = np.minimum(right + i / (guesses - i) * (more - wrong), 1.0)
        wrong = more
    return right + wrong > guesses / m


def estimate(
    present: np.ndarray, absent: np.ndarray, delta: float, confidence: float = 0.95
) -> Estimate:
    """The epsilon of two normal laws of one variance that are fitted to scores.

    Their distance in standard deviations, mu, has about the variance 1 / n + 1 / m +
    mu^2 / (2 (n + m)).

    Args:
      present: Scores of the n canaries that are in; with less than two, as of the
        others, nothing is known.
      absent: Scores of the m others.
      delta: The delta, in (0, 1).
      confidence: That of the interval, in (0, 1).
    """
    n, m = len(present), len(absent)
    if min(n, m) < 2:
        return Estimate(0.0, 0.0, 0.0, math.inf)
    squares = (n - 1) * np.var(present, ddof=1) + (m - 1) * np.var(absent, ddof=1)
    spread = max(math.sqrt(squares / (n + m - 2)), 1e-300)
    mu = (np.mean(present) - np.mean(absent)) / spread
    wide = -special.ndtri((1 - confidence) / 2)
    half = wide * math.sqrt(1 / n + 1 / m + mu * mu / (2 * (n + m)))
    mus = [max(float(each), 0.0) for each in (mu, mu - half, mu + half)]
    return Estimate(mus[0], *(_gaussian_epsilon(each, delta) for each in mus))


def _gaussian_epsilon(mu: float, delta: float) -> float:
    return gaussian.gaussian_epsilon(delta, 1 / mu) if mu else 0.0
