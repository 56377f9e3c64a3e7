# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients that join by independent coins, at least b rounds apart, in secret.

A free client joins a round with probability p, and is free again b rounds later. If C
has no more than b diagonals, the columns of a client's rounds share no row. The ratio R
of `secret_participation` is then a sum over all patterns that takes one step a round:
with x_t the log-ratio of round t alone, and A_t the ratio of a client that is free in
round t,

  A_t = (1 - p) A_{t+1} + p e^{x_t} A_{t+b},   A_t = 1 after the last round.

Source: Dong and Ganesh (2026), arXiv 2602.09338, for the sampling and the recursion;
the proof for clients that adapt is in docs/privacy/balls_in_bins.md.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import attr
import numpy as np
from scipy import sparse, special

from dpfl import checks
from dpfl.accounting import events, gaussian, secret_participation
from dpfl.accounting.secret_participation import Draws
from dpfl.fields import said

# Normal numbers drawn for an epsilon in each direction, and the least and most draws.
_NUMBERS = 2**24
_LEAST_DRAWS, _MOST_DRAWS = 2**13, 2**17
# Numbers in a block of draws.
_BLOCK = 2**19


def _without_signs(value: Any) -> np.ndarray:
    return secret_participation.read_only(np.abs(value))


@attr.s(frozen=True, auto_attribs=True)
class MinSeparationDpEvent(secret_participation.SecretParticipationDpEvent):
    """A run in which clients join by coins of their own, at least b rounds apart.

    A client that is free joins a round with probability p, independently of the other
    clients and of all data, and is free again b rounds later. The first round in which
    it is free is drawn so that each round has the same probability, p / (1 + (b - 1)
    p). It may stay away from some of its rounds. Its update is of L2 norm at most
    Delta2, and may depend on its data, its rounds, its earlier updates, coins of its
    own, and all earlier releases. C G + Z is released row by row, Z of independent N(0,
    stddev^2) and C lower triangular; row t of G is the sum of round t.

    Assumptions: nobody who sees the release sees who takes part when; the divisor of a
    mean is a constant; the noise is there whoever takes part.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.

    Attributes:
      noise_multiplier: stddev / Delta2, at least 0.
      columns: |C| of the released rows, by columns from the diagonal down; float64 [T,
        h]. Signs are dropped. Entries below the last row must be 0.
      separation: b, at least h.
      probability: p, in (0, 1].
    """

    noise_multiplier: float = attr.ib(metadata=said(check=events.noise))
    columns: np.ndarray = attr.ib(
        converter=_without_signs,
        eq=secret_participation.matrix_key,
    )
    separation: int = attr.ib(metadata=said(check=events.whole))
    probability: float = attr.ib(metadata=said(check=checks.fraction))

    @columns.validator
    def _check_columns(self, attribute: attr.Attribute, value: np.ndarray) -> None:
        checks.matrix(attribute.name, value)
        rounds, bands = value.shape
        places = np.arange(rounds)[:, None] + np.arange(bands)
        largest = float(np.max(value[places >= rounds], initial=0.0))
        wanted = f"0 below the last of the {rounds} rows"
        checks.require(not largest, attribute.name, wanted, largest)

    @separation.validator
    def _check_separation(self, attribute: attr.Attribute, value: int) -> None:
        # Otherwise columns of one client would share rows.
        checks.integer(attribute.name, value, self.columns.shape[1])

    @property
    def rounds(self) -> int:
        """T, the number of released rounds."""
        return len(self.columns)

    @property
    def rate(self) -> float:
        """The probability that a client is in a round."""
        return self.probability / (1 + (self.separation - 1) * self.probability)

    @functools.cached_property
    def _encoder(self) -> sparse.csr_matrix:
        """|C| in units of the noise, a little larger; [T, T]."""
        scale = (1 + secret_participation.ROUNDING) / self.noise_multiplier
        bands = self.columns.shape[1]
        below = [-k for k in range(min(bands, self.rounds))]
        rows = [scale * self.columns[: self.rounds + k, -k] for k in below]
        return sparse.diags(rows, below, shape=(self.rounds,) * 2, format="csr")

    @functools.cached_property
    def _own(self) -> np.ndarray:
        """The squared norm of each column, in units of the noise; [T]."""
        scale = (1 + secret_participation.ROUNDING) / self.noise_multiplier
        return np.sum((scale * self.columns) ** 2, axis=1)

    def longest(self) -> float:
        """See base class: over all patterns of rounds that are b apart."""
        if not self.noise_multiplier:
            return math.inf
        most = np.zeros(self.rounds + self.separation)
        for t in reversed(range(self.rounds)):
            most[t] = max(most[t + 1], self._own[t] + most[t + self.separation])
        return float(most[0])

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class: the RDP of the longest pattern, as if it were public."""
        longest = self.longest()
        if not longest:
            return np.zeros(np.shape(orders))
        return gaussian.gaussian_rdp(longest**-0.5, orders)

    def draws(self) -> int:
        """See base class; none if everybody is in every round."""
        most = min(_MOST_DRAWS, max(_LEAST_DRAWS, _NUMBERS // self.rounds))
        return most if self.rate < 1 else 0

    def _first_free(self) -> np.ndarray:
        """The law of the first round in which a client is free; [b]."""
        law = np.full(self.separation, self.rate)
        law[0] = 1 - (self.separation - 1) * self.rate
        return law

    def _from_each(self, logs: np.ndarray) -> list[np.ndarray]:
        """The logs of A_0 to A_{T+b-1}, from the log-ratios of rounds, [T, n]."""
        with np.errstate(divide="ignore"):
            stay, join = np.log1p(-self.probability), math.log(self.probability)
        log_sums = [np.zeros(logs.shape[1])] * self.separation
        # Computed from the last round to the first, so that A_{t+1} is the last entry
        # and A_{t+b} is b from the end.
        for row in logs[::-1]:
            joins = row + (join + log_sums[-self.separation])
            log_sums.append(np.logaddexp(log_sums[-1] + stay, joins))
        return log_sums[::-1]

    def log_ratio(self, logs: np.ndarray) -> np.ndarray:
        """The log of the mean over patterns of the product of their rounds' ratios.

        Args:
          logs: The log-ratio of each round; float64 [T, n].
        """
        ways = np.stack(self._from_each(logs)[: self.separation])
        return special.logsumexp(ways, axis=0, b=self._first_free()[:, None])

    def patterns(
        self, weights: np.ndarray, draws: int, generator: np.random.Generator
    ) -> np.ndarray:
        """Draws patterns, tilted by exp(the sum of their rounds' weights).

        Args:
          weights: The weights of rounds; float64 [T].
          draws: n.
          generator: The source of randomness.

        Returns:
          Whether a client is in a round, bool [T, n].
        """
        after = np.concatenate(self._from_each(weights[:, None]))
        first = (
            np.log(np.maximum(self._first_free(), 1e-300)) + after[: self.separation]
        )
        law = np.exp(first - special.logsumexp(first))
        free = generator.choice(self.separation, draws, p=law / np.sum(law))
        turns = np.zeros([self.rounds, draws], bool)
        for t, weight in enumerate(weights):
            chance = self.probability * math.exp(
                weight + after[t + self.separation] - after[t]
            )
            turns[t] = (free <= t) & (generator.random(draws) < chance)
            free[turns[t]] = t + self.separation
        return turns

    def removal(self, draws: int, shift: float, seed: int) -> Draws:
        """See base class: from P with its means a factor l longer.

        Patterns are drawn with a weight e^{l (l-1) K_SS / 2}, of mean M. A draw then
        weighs R M / E_S exp(l (W_S - K_SS / 2)), and by Jensen's inequality that is at
        most M R^(1-l).
        """
        factor = 1 + shift / math.sqrt(self.rate * float(np.sum(self._own)))
        more = factor - 1
        tilts = 0.5 * factor * more * self._own
        log_mean = float(self.log_ratio(tilts[:, None])[0])
        losses, weights = [], []
        for generator, size in _blocks(draws, self.rounds, seed):
            joined = self.patterns(tilts, size, generator)
            noise = generator.standard_normal([self.rounds, size])
            noise += factor * (self._encoder @ joined.astype(np.float64))
            logs = self._encoder.T @ noise - 0.5 * self._own[:, None]
            losses.append(self.log_ratio(logs))
            drawn = losses[-1] if not more else self.log_ratio(factor * logs)
            weights.append(losses[-1] - drawn + log_mean)

        def log_bound(epsilon: float) -> float:
            # The largest of (R - e^epsilon) R^-l.
            top = float(special.xlogy(more, more)) - factor * math.log(factor)
            return log_mean + top - more * epsilon

        return Draws(np.concatenate(losses), np.concatenate(weights), log_bound)

    def addition(self, draws: int, shift: float, seed: int) -> Draws:
        """See base class: from Q with a mean opposite to that of P.

        By the inequality of the means log R is at least the mean of W_S - K_SS / 2.
        """
        mean = self.rate * self._encoder.sum(axis=1).A
        length = float(np.linalg.norm(mean))
        factor = shift / length
        half = 0.5 * self.rate * float(np.sum(self._own))
        losses, weights = [], []
        for generator, size in _blocks(draws, self.rounds, seed):
            noise = generator.standard_normal([self.rounds, size]) - factor * mean
            logs = self._encoder.T @ noise - 0.5 * self._own[:, None]
            losses.append(-self.log_ratio(logs))
            weights.append(factor * (mean.T @ noise)[0] + 0.5 * shift * shift)

        def log_bound(epsilon: float) -> float:
            return factor * (half - epsilon) + 0.5 * shift * shift

        return Draws(np.concatenate(losses), np.concatenate(weights), log_bound)


def _blocks(draws: int, rounds: int, seed: int) -> Any:
    """A generator and a size for each block of draws."""
    generator = np.random.default_rng(seed)
    size = max(64, _BLOCK // rounds)
    for first in range(0, draws, size):
        yield generator, min(size, draws - first)
