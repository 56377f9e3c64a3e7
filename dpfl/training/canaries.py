# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Canaries in a run: who is present, and what an attacker learns of them.

    canaries = Canaries(plan, key)
    scores = canaries.scores(released)      # of each round
    canaries.audit(all_scores, weights)     # at the end

Canaries are the clients behind the task's own, and are selected as these are. A fair
coin says of each whether it is in: otherwise it sends zeros, or, where the run's
relation removes a client, is absent. The attacker knows all directions, the model
before and after, and perhaps what each round released. It knows no coin, and a canary's
rounds only where these are not secret.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import attr
import numpy as np

from dpfl.accounting import events, one_run
from dpfl.training import plan as plan_lib
from dpfl.training import selection
from dpfl.vectors import canaries as vectors

CONFIDENCE = 0.95
# Most numbers of directions at once, and rounds among which correlations are estimated.
_NUMBERS, _ROUNDS = 1 << 24, 1000
# The median of the size of a normal number, and one that hardly any has.
_MEDIAN, _FAR = 0.6745, 3.0
# Lengths of a canary over the spread of a round's scores, among which one is chosen.
_LENGTHS = np.geomspace(0.01, 100, 41)


def present(plan: plan_lib.Plan, key: int, clients: Sequence[int]) -> list[int]:
    """The clients of a round without canaries that are absent.

    Args:
      plan: The plan of the run.
      key: The run's key.
      clients: All clients of the round.
    """
    removed = events.NAMES[events.Relation.ADD_OR_REMOVE_ONE]
    if plan.config.canaries and plan.cost.planned.relation == removed:
        own = plan.task.population
        return [client for client in clients if client < own or _is_in(key, client)]
    return list(clients)


@functools.lru_cache(maxsize=1 << 20)
def _is_in(key: int, client: int) -> bool:
    return vectors.is_in(selection.client_key(key, client))


@functools.lru_cache(maxsize=1)
def _directions(key: int, first: int, last: int, dimension: int) -> np.ndarray:
    """The directions of clients from `first` to `last` - 1, float32[n, d] of +-1."""
    keys = [selection.client_key(key, client) for client in range(first, last)]
    return np.stack([vectors.signs(each, dimension) for each in keys])


class Canaries:
    """The canaries of one run, which may be none."""

    def __init__(self, plan: plan_lib.Plan, key: int):
        """Initializes the canaries.

        Args:
          plan: The plan of the run.
          key: The run's key.
        """
        self._plan, self._key = plan, key
        self._first = plan.task.population
        self._number = plan.config.canaries or 0

    def scores(self, parts: Sequence[Any]) -> np.ndarray:
        """The inner products of all directions with a vector, float32[K].

        Args:
          parts: The vector as arrays, of which those behind the first d numbers, such
            as weights that are not trained, are left out.
        """
        d = self._plan.dimension
        if not self._number:
            return np.zeros(0, np.float32)
        flat = np.concatenate([np.ravel(np.asarray(part)) for part in parts])[:d]
        at_once, found = max(1, _NUMBERS // d), []
        for first in range(self._first, self._first + self._number, at_once):
            last = min(first + at_once, self._first + self._number)
            found.append(_directions(self._key, first, last, d) @ flat)
        return np.nan_to_num(np.concatenate(found), posinf=0, neginf=0)

    def is_in(self) -> np.ndarray:
        """The coins, bool[K]."""
        own = range(self._first, self._first + self._number)
        return np.array([_is_in(self._key, client) for client in own])

    def audit(self, scores: np.ndarray, weights: Sequence[Any]) -> dict[str, Any]:
        """The findings of a run, which are exact, for its summary.

        Args:
          scores: float32[rounds + 1, K], those of the initial weights and the rounds.
          weights: The final weights.
        """
        is_in, chances = self.is_in(), self._chances(len(scores) - 1)
        could = np.any(chances > 0, 0)
        views = {"final_model": scores[0] - self.scores(weights)}
        views["all_rounds"] = self.all_rounds(scores)
        delta = self._plan.cost.delta

        def finding(view: np.ndarray) -> dict[str, Any]:
            bounds = one_run.lower_bounds(view, is_in, delta, CONFIDENCE)
            parts = view[is_in & could], view[~is_in & could]
            found = {"lower_bounds": attr.asdict(bounds)}
            if min(map(len, parts)) > 1:
                guess = one_run.estimate(*parts, delta, CONFIDENCE)
                found["estimate"] = attr.asdict(guess)
            return found

        return {
            "canaries": self._number,
            "canaries_in": int(np.sum(is_in)),
            "confidence": CONFIDENCE,
            "views": {name: finding(view) for name, view in views.items()},
        }

    def all_rounds(self, scores: np.ndarray) -> np.ndarray:
        """The canaries' log-likelihood ratios, float64[K], of the `scores` of a run."""
        return log_ratios(scores[1:], self._chances(len(scores) - 1))

    def _chances(self, rounds: int) -> np.ndarray:
        """The attacker's probability that a canary is in a round, [rounds, K]."""
        chosen = self._plan.participation
        if chosen.are_rounds_secret:
            q = chosen.cohort_size / chosen.population
            return np.full([rounds, self._number], q)
        chances = np.zeros([rounds, chosen.population])
        for index in range(rounds):
            chances[index, selection.select_cohort(chosen, self._key, index)] = 1
        return chances[:, self._first :]


def log_ratios(scores: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """The log-likelihood ratios of canaries from all rounds, float64[K].

    A round's score is compared with what those of the other rounds predict: the noise
    of rounds may be correlated, as in a stream, or where it is repeated. With P the
    inverse of the scores' correlations over rounds, and a the length of a canary, round
    t has the ratio a (P x)_t - a^2 P_tt / 2, exactly so for normal scores and a canary
    in this round alone; a round that a canary is in with probability q has log(1 - q +
    q exp(ratio)). The length is the likeliest one for fair coins. Most scores of a
    round are without its canary, so that their median size is that of noise.

    Args:
      scores: float[T, K].
      chances: float[T, K], the q.
    """
    spread = np.median(np.abs(scores), 1, keepdims=True) / _MEDIAN
    scaled = np.divide(scores, spread, out=np.zeros(scores.shape), where=spread > 0)
    inverses, own = np.zeros_like(scaled), np.zeros([len(scaled), 1])
    for rounds in np.array_split(np.arange(len(scaled)), 1 + len(scaled) // _ROUNDS):
        precision = np.linalg.inv(_correlations(scaled[rounds]))
        inverses[rounds] = precision @ scaled[rounds]
        own[rounds, 0] = np.diag(precision)
    with np.errstate(divide="ignore"):
        out, into = np.log1p(-chances), np.log(chances)

    def ratios(a: float) -> np.ndarray:
        each = into + a * inverses - a * a / 2 * own
        return np.sum(np.logaddexp(out, each), 0)

    return max(map(ratios, _LENGTHS), key=lambda each: np.sum(np.logaddexp(0, each)))


def _correlations(scaled: np.ndarray) -> np.ndarray:
    """The correlations of rows, shrunk to none by how well they are known.

    Large scores, those of canaries, count as less. The part is that of Schafer and
    Strimmer 2005, 'A Shrinkage Approach to Large-Scale Covariance Matrix Estimation',
    with the variances of normal numbers.
    """
    rows, columns = scaled.shape
    scaled = np.clip(scaled, -_FAR, _FAR)
    found = scaled @ scaled.T / columns
    squares = (found - np.diag(np.diag(found))) ** 2
    noise = np.sum((1 - squares) ** 2) - rows
    shrunk = noise / (columns - 1) / max(np.sum(squares), 1e-300)
    part = np.clip(shrunk, rows / (rows + columns), 1)
    return (1 - part) * found + part * np.eye(rows)
