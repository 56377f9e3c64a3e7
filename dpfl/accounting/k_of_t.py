# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients that draw k of T rounds in secret, all sets of k being equally likely.

    event = slots(dp_accounting.GaussianDpEvent(1.0), rounds=48, law=Law(6, 48))
    event = KOfTDpEvent(1.0, rounds=48, k=6, of_rounds=48, chance=0.0)

Such a set is one round of each block of a random partition of the rounds. Whoever is
told the partition sees slots, so that the run costs no more than their composition. In
the first r of T rounds the number of the client's is hypergeometric, a sum of
independent coins: there the slots are of blocks in which it may sit out.

With Gaussian noise the ratio of a run is R = sum_i h_i M_i. h is the law of the number
of the client's rounds and M_i the mean of the products of i of x_1, ..., x_r, the
ratios of rounds. delta is estimated from draws with a density that is R^2 U^b over its
mean, U = prod_t (1 + y x_t).

docs/privacy/random_allocation.md has the proofs.
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import attr
import dp_accounting
import numpy as np
from scipy import linalg, special

from dpfl import checks
from dpfl.accounting import (
    events,
    gaussian,
    log_space,
    random_allocation,
    secret_participation,
    trees,
)
from dpfl.accounting.secret_participation import Draws
from dpfl.fields import said

# Chances of more coins than that are rounded up to powers of 2^(1/64).
_FEW_COINS, _OCTAVE = 32, 64
# Most coins for which they are computed, from a matrix of this size.
_MOST_COINS = 2**11
# Allowance for the rounding of chances.
_ROUNDING = 1e-9
# Above the error of a coin near 0.
_LEAST_COIN = 1e-15
# Products of numbers in all draws, the most draws, and the least that are worth it.
_PRODUCTS = 2**30
_MOST_DRAWS, _LEAST_DRAWS = 2**17, 2**13
# Numbers in a block of draws.
_BLOCK = 2**18
# The most rounds of a client, and the least noise, of which draws are made.
_MOST_ROUNDS, _LEAST_NOISE = 64, 0.2
# Exponents b, and factors of y over k / r, of which the least bound is chosen.
_POWERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24)
_FACTORS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)


class Law(NamedTuple):
    """The law of a client's rounds in a run.

    Attributes:
      k: The number of its rounds, at least 0.
      rounds: T, the number of rounds of which they are drawn.
      chance: The probability that it draws k + 1 of them, in [0, 1).
    """

    k: int
    rounds: int
    chance: float = 0.0

    @property
    def most(self) -> int:
        """The most rounds that it may draw: k, rounded up."""
        return self.k + (self.chance > 0)


def coins(count: int, rounds: int, first: int) -> np.ndarray:
    """Probabilities of coins whose sum is the number of the client's first rounds.

    That number is hypergeometric, and its generating function is, in z / (z - 1), a
    Jacobi polynomial, whose zeros are real (Vatutin and Mikhailov 1982).

    Args:
      count: k, from 0 to `rounds`.
      rounds: T, of which k are drawn.
      first: r, the number of first rounds, from 0 to `rounds`.

    Returns:
      The probabilities that are not 0, largest first; float64 [min(k, r)].
    """
    sure = count + first - rounds
    if sure > 0:
        ones = np.ones(sure)
        return np.append(ones, coins(rounds - count, rounds, rounds - first))
    size = min(count, first)
    if not size:
        return np.zeros(0)
    a, b = -float(sure), float(abs(first - count))
    n = np.arange(size)
    both = 2 * n + a + b
    with np.errstate(invalid="ignore", divide="ignore"):
        own = (b - a) * (b + a) / (both * (both + 2))
    # Without a and b the first one is 0 / 0.
    own[0] = (b - a) / (a + b + 2)
    n, both = n[1:], both[1:]
    squares = n * (n + a) * (n + b) * ((n + a + b) / ((both - 1) * (both + 1)))
    zeros = linalg.eigvalsh_tridiagonal(own, 2 / both * np.sqrt(squares))
    return np.clip(0.5 * (1 + zeros[::-1]), 0, 1)


def _coins_of(law: Law, first: int) -> np.ndarray:
    """Probabilities of being in each of as many blocks of the first rounds."""
    if first == law.rounds or law.most > _MOST_COINS:
        return np.append(np.ones(law.k), [law.chance] * (law.most - law.k))
    if not law.k:
        return np.array([law.chance * first / law.rounds])
    # One round more costs no less.
    each = coins(law.most, law.rounds, first) * (1 + _ROUNDING) + _LEAST_COIN
    if each.size > _FEW_COINS:
        each = 2 ** (np.ceil(_OCTAVE * np.log2(each)) / _OCTAVE)
    return np.minimum(1.0, each)


def _lengths(chances: np.ndarray, rounds: int) -> np.ndarray:
    """The lengths of the blocks: equal, but for a last one that alone has a chance."""
    others, last = chances.size - 1, rounds // chances.size
    if others and np.all(chances[:-1] == 1):
        ideal = rounds * chances[-1] / np.sum(chances)
        last = min(last, max(1, round(float(ideal))))
    size, more = divmod(rounds - last, max(1, others))
    return np.append(size + (np.arange(others) < more), last)


def slots(
    release: dp_accounting.DpEvent, rounds: int, law: Law
) -> dp_accounting.DpEvent:
    """The composition of slots that costs no less than the first rounds of a run.

    Args:
      release: The release of a round that the client is in, as for
        `RandomAllocationDpEvent`.
      rounds: r, the number of first rounds, at most T.
      law: The law of the client's rounds.
    """
    chances = _coins_of(law, rounds)[:rounds]
    lengths = _lengths(chances, rounds)
    counts = collections.Counter(zip(lengths.tolist(), chances.tolist()))
    kind = random_allocation.RandomAllocationDpEvent
    parts = [
        dp_accounting.SelfComposedDpEvent(kind(release, length, length / chance), n)
        for (length, chance), n in counts.items()
    ]
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(tuple(parts))


@attr.s(frozen=True, auto_attribs=True)
class KOfTDpEvent(secret_participation.SecretRunDpEvent):
    """The first rounds of a run of which each client draws k rounds in secret.

    Each client draws k of T rounds, or k + 1 of them with the probability `chance`,
    every set of as many being equally likely, independently of the other clients, of
    all data and of all releases. Rounds are released one after the other, with Gaussian
    noise on updates of L2 norm at most Delta2. An update may depend on the client's
    data, its rounds, its earlier updates, coins of its own, and all earlier releases.

    Assumptions: nobody who sees the release sees who takes part when; the divisor of a
    mean is a constant; the noise is there whoever takes part.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.

    Attributes:
      noise_multiplier: stddev / Delta2, at least 0.
      rounds: r, the number of released rounds, at most T.
      k: The number of a client's rounds, at most T.
      of_rounds: T, the number of rounds of which they are drawn.
      chance: The probability of one round more, in [0, 1).
    """

    noise_multiplier: float = attr.ib(metadata=said(check=events.noise))
    rounds: int = attr.ib(metadata=said(check=events.whole))
    k: int = attr.ib(metadata=said(check=functools.partial(checks.integer, at_least=0)))
    of_rounds: int = attr.ib(metadata=said(check=events.whole))
    chance: float = attr.ib(default=0.0, metadata=said(check=checks.probability))

    pages: ClassVar[tuple[str, ...]] = ("random_allocation.md",)

    def __attrs_post_init__(self) -> None:
        """Raises ValueError if there are more rounds of some kind than in all."""
        most = self.of_rounds
        checks.integer("rounds", self.rounds, 1, most, limit="the rounds drawn from")
        least = 0 if self.chance else 1
        limit = "the rounds drawn from"
        checks.integer("k", self.k, least, most - (self.chance > 0), limit=limit)

    @property
    def law(self) -> Law:
        """The law of a client's rounds."""
        return Law(self.k, self.of_rounds, self.chance)

    def as_composition(self) -> dp_accounting.DpEvent:
        """The slots that cost no less."""
        release = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        return slots(release, self.rounds, self.law)

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class: that of slots."""
        parts = trees.releases(self.as_composition())
        return np.sum([n * gaussian.round_rdp(part, orders) for part, n in parts], 0)

    def longest(self) -> float:
        """See base class."""
        number = min(self.rounds, self.law.most)
        return number / self.noise_multiplier**2 if self.noise_multiplier else math.inf

    def drawn_epsilon(self, delta: float, most: float, seed: int) -> float:
        """See base class."""
        composed = secret_participation.composed_epsilon(self, delta)
        number = min(self.rounds, self.law.most)
        draws = _PRODUCTS // (self.rounds * (number + 8))
        is_in_reach = number <= _MOST_ROUNDS and self.noise_multiplier >= _LEAST_NOISE
        if number == 1 or draws < _LEAST_DRAWS or not is_in_reach:
            return math.inf
        if not 0 < composed < math.inf:
            return math.inf
        law = numbers(self.law, self.rounds)
        tilted = _Tilted(self.noise_multiplier, self.rounds, law)
        draws = min(draws, _MOST_DRAWS)
        failure = secret_participation.FAILURE
        with np.errstate(all="ignore"):
            drawn = tilted.removal(composed, draws, 2 * seed)
            goal = delta * (1 - failure)
            result = drawn.epsilon_by_bets(goal, failure * delta, composed)
        return result if result < composed else math.inf


def numbers(law: Law, first: int) -> np.ndarray:
    """Probabilities of the number of a client's rounds among the first; float64 [n].

    Args:
      law: The law of its rounds.
      first: r, the number of first rounds.
    """

    def of(count: int) -> np.ndarray:
        result = np.ones(1)
        for chance in coins(count, law.rounds, first):
            result = np.convolve(result, [1 - chance, chance])
        return result

    result = np.zeros(min(law.most, first) + 1)
    for more, chance in ((0, 1 - law.chance), (1, law.chance)):
        if chance:
            part = of(law.k + more)
            result[: part.size] += chance * part
    return result


class _Tilted:
    """Draws of R with a density of R^2 U^b over its mean, and their largest term."""

    def __init__(self, z: float, rounds: int, law: np.ndarray):
        """The draws of a law h of the number of the client's rounds."""
        self._z, self._rounds, self._law = z, rounds, law
        self._numbers = np.flatnonzero(law)
        self._log_law = np.log(law[self._numbers])
        self._mean = float(law @ np.arange(law.size))
        i, j = self._numbers[:, None, None], self._numbers[None, :, None]
        common = np.arange(law.size)
        # The law of the common rounds of two clients, by their numbers.
        log_pairs = (
            self._log_law[:, None, None]
            + self._log_law[None, :, None]
            + log_space.log_binomials(i, common)
            + log_space.log_binomials(rounds - i, j - common)
            - log_space.log_binomials(rounds, j)
        )
        which = np.nonzero(np.isfinite(log_pairs))
        self._log_pairs = log_pairs[which]
        self._twice = which[2]
        self._once = self._numbers[which[0]] + self._numbers[which[1]] - 2 * which[2]

    def _log_tilts(self, b: int, log_y: float) -> np.ndarray:
        """Logs of the terms of E x^s (1 + y x)^b, for s from 0 to 2; [3, b + 1]."""
        more = np.arange(b + 1)
        power = np.arange(3)[:, None] + more
        own = log_space.log_binomials(b, more) + more * log_y
        return own + power * (power - 1) / (2 * self._z * self._z)

    def _log_pair_weights(self, log_tilts: np.ndarray) -> np.ndarray:
        """Logs of the parts of E R^2 U^b, by pairs of sets."""
        none, one, both = special.logsumexp(log_tilts, axis=1)
        rest = self._rounds - self._twice - self._once
        tilts = self._twice * both + self._once * one + rest * none
        return self._log_pairs + tilts

    @functools.cached_property
    def _roots(self) -> tuple[np.ndarray, np.ndarray]:
        """Logs of U, and the largest log(y M_i^(1/i)) that each allows; [n], [k, n].

        By Maclaurin's inequality U is at least F_i(y M_i^(1/i)), F_i(v) the sum of
        C(r, j) v^j up to i.
        """
        log_u = np.linspace(0.0, 60.0, 6001)
        log_v = np.linspace(-30.0, 20.0, 20001) - math.log(self._rounds)
        j = np.arange(self._law.size)[:, None]
        terms = log_space.log_binomials(self._rounds, j) + j * log_v
        log_f = np.logaddexp.accumulate(terms, axis=0)
        above = np.append(log_v, np.inf)
        rows = [above[np.searchsorted(row, log_u)] for row in log_f[self._numbers]]
        return log_u, np.array(rows)

    def log_bound(self, epsilon: float, b: int, log_y: float) -> float:
        """The log of the largest (R - e^epsilon) / (R^2 U^b), rounded up.

        Args:
          epsilon: At least 0.
          b: The exponent of U.
          log_y: The log of y in U.
        """
        log_u, roots = self._roots
        logs = self._numbers[:, None] * np.where(
            self._numbers[:, None] > 0, roots - log_y, 0.0
        )
        # The largest R of a cell, of which no more than 2 e^epsilon counts.
        most = special.logsumexp(logs + self._log_law[:, None], axis=0)[1:]
        most = np.minimum(most, epsilon + math.log(2))
        with np.errstate(divide="ignore"):
            terms = np.log(-np.expm1(np.minimum(epsilon - most, 0))) - most
        at_end = -epsilon - math.log(4) - b * log_u[-1]
        return max(float(np.max(terms - b * log_u[:-1])), at_end)

    def removal(self, epsilon: float, draws: int, seed: int) -> Draws:
        """Draws for P against Q, of the b and y whose largest term is the least.

        Args:
          epsilon: The epsilon of that term.
          draws: The number of draws.
          seed: Their seed.
        """
        base = math.log(max(self._mean, 0.5) / self._rounds)

        def log_largest(at: float, b: int, log_y: float) -> float:
            tilts = self._log_tilts(b, log_y)
            log_mean = float(special.logsumexp(self._log_pair_weights(tilts)))
            return log_mean + self.log_bound(at, b, log_y)

        ways = [
            (b, base + math.log(f)) for b in _POWERS for f in _FACTORS if b or f == 1
        ]
        b, log_y = min(ways, key=lambda way: log_largest(epsilon, *way))
        losses, weights = self._draws(b, log_y, draws, seed)
        return Draws(losses, weights, lambda at: log_largest(at, b, log_y))

    def _draws(
        self, b: int, log_y: float, draws: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """log R of draws, and the logs of E[R^2 U^b] / (R U^b); float64 [draws]."""
        tilts = self._log_tilts(b, log_y)
        pairs = self._log_pair_weights(tilts)
        log_mean = special.logsumexp(pairs)
        chances = np.exp(tilts - special.logsumexp(tilts, axis=1)[:, None])
        edges = np.cumsum(chances, axis=1)[:, :-1]
        law = np.exp(pairs - log_mean)
        generator = np.random.default_rng(seed)
        losses, weights = [], []
        for size in _sizes(draws, self._rounds):
            pair = generator.choice(law.size, size, p=law / np.sum(law))
            twice, either = self._twice[pair], self._twice[pair] + self._once[pair]
            # Where rounds are does not matter, so that those of both come first.
            place = np.arange(self._rounds)[:, None]
            power = (place < twice).astype(np.int64) + (place < either)
            shift = power.astype(np.float64)
            if b:
                chance = generator.random(power.shape)
                some = min(self._rounds, int(np.max(either)))
                shift[some:] += np.searchsorted(edges[0], chance[some:])
                for edge in range(b):
                    shift[:some] += chance[:some] > edges[power[:some], edge]
            x = generator.standard_normal(power.shape)
            x += (shift - 0.5) / self._z
            x = np.exp(x / self._z)
            log_ratio = self._log_ratio(x)
            losses.append(log_ratio)
            log_sums = np.sum(np.log1p(np.exp(log_y) * x), axis=0) if b else 0.0
            weights.append(log_mean - log_ratio - b * log_sums)
        return np.concatenate(losses), np.concatenate(weights)

    def _log_ratio(self, x: np.ndarray) -> np.ndarray:
        """log R of ratios of rounds, float64 [r, n], by a step a round."""
        largest = self._law.size - 1
        scale = max(largest, 1) / self._rounds
        sums = np.zeros((largest + 1, x.shape[1]))
        sums[0] = 1.0
        product = np.empty((largest, x.shape[1]))
        for row in scale * x:
            np.multiply(sums[:-1], row, out=product)
            sums[1:] += product
        unit = log_space.log_binomials(
            self._rounds, self._numbers
        ) + self._numbers * math.log(scale)
        return np.log(np.exp(self._log_law - unit) @ sums[self._numbers])


def _sizes(draws: int, rounds: int) -> Iterator[int]:
    """The sizes of blocks of draws."""
    size = max(512, _BLOCK // rounds)
    for first in range(0, draws, size):
        yield min(size, draws - first)
