# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients that draw k of T rounds in secret, all sets of k being equally likely.

    event = slots(dp_accounting.GaussianDpEvent(1.0), rounds=48, law=Law(6, 48))

Such a set is one round of each block of a random partition of the rounds. Whoever is
told the partition sees slots, so that the run costs no more than their composition. In
the first r of T rounds the number of the client's is hypergeometric, a sum of
independent coins: there the slots are of blocks in which it may sit out.

docs/privacy/random_allocation.md has the proofs.
"""

from __future__ import annotations

import collections
from typing import NamedTuple

import dp_accounting
import numpy as np
from scipy import linalg

from dpfl.accounting import random_allocation

# Chances of more coins than that are rounded up to powers of 2^(1/64).
_FEW_COINS, _OCTAVE = 32, 64
# Most coins for which they are computed, from a matrix of this size.
_MOST_COINS = 2**11
# Allowance for the rounding of chances.
_ROUNDING = 1e-9


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
    more = law.chance > 0
    if first == law.rounds or law.k + more > _MOST_COINS:
        return np.append(np.ones(law.k), [law.chance] * more)
    if not law.k:
        return np.array([law.chance * first / law.rounds])
    # One round more costs no less.
    each = coins(law.k + more, law.rounds, first) * (1 + _ROUNDING)
    if each.size > _FEW_COINS:
        each = 2 ** (np.ceil(_OCTAVE * np.log2(each)) / _OCTAVE)
    return np.minimum(1.0, each)


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
    size, more = divmod(rounds, chances.size)
    counts = collections.Counter(
        (size + (i < more), chance) for i, chance in enumerate(chances.tolist())
    )
    kind = random_allocation.RandomAllocationDpEvent
    parts = [
        dp_accounting.SelfComposedDpEvent(kind(release, length, length / chance), n)
        for (length, chance), n in counts.items()
    ]
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(tuple(parts))
