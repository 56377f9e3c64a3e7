# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients that join by independent coins, at least b rounds apart, in secret.

A free client joins a round with probability p, and is free again b rounds later. If C
has no more than b diagonals, the columns of a client's rounds share no row. The ratio R
of `secret_participation` is then a sum over all patterns that takes one step a round:
with x_t the ratio of round t alone, and A_t that of a client that is free in round t,

  A_t = (1 - p) A_{t+1} + p x_t A_{t+b},   A_t = 1 after the last round.

So does E R^l, a sum over the patterns of l independent copies of the client: its states
are the numbers of rounds until each copy is free. That bounds Renyi divergences, and
draws with the density R^l / E R^l have a delta within parts in a hundred.

Source: Dong and Ganesh (2026), arXiv 2602.09338, for the sampling and the recursion;
the proofs are in docs/privacy/balls_in_bins.md.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from typing import Any, ClassVar, NamedTuple, Optional

import attr
import dp_accounting
import numpy as np
from scipy import sparse, special

from dpfl import checks
from dpfl.accounting import (
    events,
    gaussian,
    log_space,
    random_allocation,
    secret_participation,
)
from dpfl.accounting.secret_participation import Draws
from dpfl.fields import said

# Normal numbers drawn for an epsilon, the most draws, and numbers in a block of them.
_NUMBERS, _MOST_DRAWS, _BLOCK = 2**25, 2**18, 2**18
# The most copies of a client, and terms of the recursion over them.
_MOST_COPIES, _MOST_TERMS = 24, 2**25
# Above this E R^l is near the end of float64, whose rounding counts for less than a
# part in 1e9 below.
_LARGEST = 1e290


def _without_signs(value: Any) -> np.ndarray:
    return secret_participation.read_only(np.abs(value))


@attr.s(frozen=True, auto_attribs=True)
class MinSeparationDpEvent(secret_participation.SecretRunDpEvent):
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

    pages: ClassVar[tuple[str, ...]] = ("balls_in_bins.md",)

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
    def _shared(self) -> np.ndarray:
        """Inner products of each column with itself and those before it; [T, h]."""
        scale = (1 + secret_participation.ROUNDING) / self.noise_multiplier
        columns = scale * self.columns
        rounds, bands = columns.shape
        result = np.zeros((rounds, bands))
        for apart in range(min(bands, rounds)):
            both = columns[apart:, : bands - apart] * columns[: rounds - apart, apart:]
            result[apart:, apart] = np.sum(both, axis=1)
        return result

    def longest(self) -> float:
        """See base class: over all patterns of rounds that are b apart."""
        if not self.noise_multiplier:
            return math.inf
        most = np.zeros(self.rounds + self.separation)
        for t in reversed(range(self.rounds)):
            most[t] = max(most[t + 1], self._shared[t, 0] + most[t + self.separation])
        return float(most[0])

    def as_composition(self) -> Optional[dp_accounting.DpEvent]:
        """See base class: if C is diagonal, a slot or Poisson sampling with p."""
        norms = collections.Counter(self.columns[:, 0].tolist())
        is_slot = len(norms) == 1 and self.rounds <= self.separation
        is_certain = self.probability == 1 and not is_slot
        if self.columns.shape[1] > 1 or 0 in norms or is_certain:
            return None
        parts: list[dp_accounting.DpEvent] = []
        for norm, count in norms.items():
            noise = dp_accounting.GaussianDpEvent(self.noise_multiplier / norm)
            if is_slot:
                slot = random_allocation.RandomAllocationDpEvent
                return slot(noise, count, max(count, 1 / self.rate))
            once = dp_accounting.PoissonSampledDpEvent(self.probability, noise)
            parts.append(dp_accounting.SelfComposedDpEvent(once, count))
        return dp_accounting.ComposedDpEvent(tuple(parts))

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class: by moments, or of the longest pattern, as if it were public.

        The other direction has no more (docs/privacy/gaussian_mixtures.md).
        """
        alphas = checks.orders(orders)
        longest = self.longest()
        if not longest:
            return np.zeros(np.shape(alphas))
        result = gaussian.gaussian_rdp(longest**-0.5, alphas)
        near = alphas <= self._log_moments.size - 1
        if near.any() and math.isfinite(longest):
            asked = alphas[near]
            needed = log_space.whole_orders(asked)
            moments = self._log_moments[needed]
            own = log_space.mixture_chord(asked, needed, moments) / (asked - 1)
            result[near] = np.minimum(result[near], own)
        return result

    @functools.cached_property
    @np.errstate(over="ignore", invalid="ignore")
    def _log_moments(self) -> np.ndarray:
        """log E R^l from l = 0 on, as far as they are in reach, rounded up."""
        result = [0.0, 0.0]
        if not self.noise_multiplier:
            return np.array(result)
        for copies in range(2, _MOST_COPIES + 1):
            states = math.comb(self.separation + copies - 2, copies - 1)
            terms = states * (copies + 1) * (self.rounds + self.separation)
            if terms > _MOST_TERMS:
                break
            moment = float(np.sum(_Copies(self, copies).first))
            if not moment < _LARGEST:
                break
            result.append(math.log(moment) + secret_participation.ROUNDING)
        return np.array(result)

    def drawn_epsilon(self, delta: float, most: float, seed: int) -> float:
        """See base class: by as many copies as have the least epsilon without draws."""
        copies = np.arange(2, self._log_moments.size)
        if self.rate == 1 or not copies.size or self.rounds > _NUMBERS:
            return math.inf
        bounds = (self._log_tops[2:] - math.log(delta)) / (copies - 1)
        composed = secret_participation.composed_epsilon(self, delta)
        least = min(most, composed, max(0.0, float(np.min(bounds))))
        drawn = self._draws(int(copies[np.argmin(bounds)]), seed)
        failure = secret_participation.FAILURE
        goal = delta * (1 - failure)
        result = drawn.epsilon_by_bets(goal, failure * delta, least)
        return result if result < composed else math.inf

    @functools.cached_property
    def _log_tops(self) -> np.ndarray:
        """Logs of the largest (R - 1) R^-l E R^l, by l."""
        l = np.arange(self._log_moments.size)
        return self._log_moments + special.xlogy(l - 1, l - 1) - special.xlogy(l, l)

    def _draws(self, copies: int, seed: int) -> Draws:
        """Draws with the density R^l / E R^l, l the number of copies.

        A draw has the term (R - e^epsilon) R^-l E R^l, if that is positive.
        """
        generator = np.random.default_rng(seed)
        draws = min(_NUMBERS // self.rounds, _MOST_DRAWS)
        joined = _Copies(self, copies).drawn(draws, generator)
        parts = []
        for part in np.array_split(joined, -(-joined.size // _BLOCK), axis=1):
            noise = generator.standard_normal(part.shape)
            noise += self._encoder @ part.astype(np.float64)
            logs = self._encoder.T @ noise - 0.5 * self._shared[:, :1]
            parts.append(self.log_ratio(logs))
        losses, more, top = np.concatenate(parts), copies - 1, self._log_tops[copies]
        weights = self._log_moments[copies] - more * losses
        return Draws(losses, weights, lambda at: float(top) - more * at)

    def log_ratio(self, logs: np.ndarray) -> np.ndarray:
        """The log of the mean over patterns of the product of their rounds' ratios.

        Args:
          logs: The log-ratio of each round; float64 [T, n].
        """
        p, b = self.probability, self.separation
        # Of a client that is free in round t or one of the next, at t modulo b.
        ratios = np.ones((b, logs.shape[1]))
        for t in reversed(range(self.rounds)):
            joins = p * np.exp(logs[t]) * ratios[t % b]
            ratios[t % b] = (1 - p) * ratios[(t + 1) % b] + joins
        # Who is free in a later round than the first has just been in one.
        return np.log(
            self.rate / p * ratios[0] + self.rate * np.sum(ratios[1:], axis=0)
        )


class _Steps(NamedTuple):
    """Moves of copies of a client in a round, by the rounds until each is free.

    Attributes:
      waits: The rounds until each copy is free, rising, of all states in which one is;
        [n, l].
      ways: The number of orders of these numbers; [n].
      after: The next such state if 0 to l copies join; [n, l + 1].
      rounds: The number of rounds until then; [n, l + 1].
    """

    waits: np.ndarray
    ways: np.ndarray
    after: np.ndarray
    rounds: np.ndarray


@functools.lru_cache(maxsize=64)
def _steps(separation: int, copies: int) -> _Steps:
    rows = itertools.combinations_with_replacement(range(separation), copies - 1)
    waits = np.array([(0, *row) for row in rows], np.int64)
    # Numbers of states, which rise with them; the first digit is 0, and the others are
    # below 2^63 as long as `_MOST_TERMS` and `_MOST_COPIES` hold.
    digits = separation ** np.arange(copies - 1, dtype=np.int64)[::-1]
    after, rounds = [], []
    for joining in range(copies + 1):
        left = waits.copy()
        left[:, :joining] = separation
        passed = np.maximum(1, np.min(left, axis=1))
        left = np.sort(np.maximum(left - passed[:, None], 0), axis=1)
        after.append(np.searchsorted(waits[:, 1:] @ digits, left[:, 1:] @ digits))
        rounds.append(passed)
    alike, ways = np.ones(len(waits)), np.ones(len(waits))
    for i in range(1, copies):
        alike = np.where(waits[:, i] == waits[:, i - 1], alike + 1, 1.0)
        ways *= (i + 1) / alike
    return _Steps(waits, ways, np.stack(after, axis=1), np.stack(rounds, axis=1))


class _Copies:
    """Patterns of independent copies of a client, with the weight E of their product.

    Attributes:
      first: The parts of E R^l, by the first round with a free copy and the state
        there; [b, n].
    """

    def __init__(self, event: MinSeparationDpEvent, copies: int):
        """The sums over all that follows, from the last round to the first."""
        self._shared, self._steps = event._shared, _steps(event.separation, copies)
        waits, ways, after, rounds = self._steps
        p, rate, b = event.probability, event.rate, event.separation
        self._joining = np.arange(copies + 1)
        free = np.sum(waits == 0, axis=1)[:, None]
        # 0 for more copies than are free.
        self._chances = special.binom(free, self._joining) * p**self._joining
        self._chances *= (1 - p) ** np.maximum(free - self._joining, 0)
        # How long ago copies were in a round, and that of none that counts.
        self._apart = np.minimum(b - waits, self._shared.shape[1])
        self._places = (rounds - 1) * len(waits) + after
        self._sums = np.ones((event.rounds + b, len(waits)))
        for t in reversed(range(event.rounds)):
            self._sums[t] = np.sum(self._parts(t), axis=1)
        latest = np.arange(b)[:, None] + waits[:, -1]
        first = np.where(latest < b, ways * rate**copies, 0.0)
        first[0] *= p ** -free[:, 0].astype(np.float64)
        self.first = first * self._sums[:b]

    def _parts(self, t: int) -> np.ndarray:
        """The parts of each state's sum in round t, by the copies that join."""
        j, n = self._joining, len(self._steps.waits)
        logs = 0.5 * self._shared[t, 0] * j * (j - 1)
        if self._shared.shape[1] > 1:
            before = np.append(self._shared[t], 0.0)[self._apart]
            logs = logs + j * np.sum(before, axis=1)[:, None]
        later = self._sums.reshape(-1)[(t + 1) * n :].take(self._places)
        return self._chances * np.exp(logs) * later

    def drawn(self, draws: int, generator: np.random.Generator) -> np.ndarray:
        """Draws how many copies are in each round, with their weights; [T, draws]."""
        law = np.cumsum(self.first)
        place = np.searchsorted(law / law[-1], generator.random(draws), side="right")
        when, state = np.divmod(place, self.first.shape[1])
        joined = np.zeros((len(self._shared), draws), np.int8)
        for t in range(len(joined)):
            below = np.cumsum(self._parts(t), axis=1)
            below /= below[:, -1:]
            # Chances of all draws, so that those of one do not move those of others.
            chance, now = generator.random(draws), np.flatnonzero(when == t)
            chance, of = chance[now], state[now]
            number = np.zeros(now.size, np.int8)
            some = np.flatnonzero(chance >= below[of, 0])
            number[some] = np.sum(chance[some, None] >= below[of[some]], axis=1)
            joined[t, now] = number
            state[now] = self._steps.after[of, number]
            when[now] += self._steps.rounds[of, number]
        return joined
