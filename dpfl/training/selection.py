# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Selection of cohorts, as a pure function of the run's seed and the round.

    key = selection.run_key(seed, provenance.digest(plan))
    clients = selection.select_cohort(participation, key, round_index)

Nothing is remembered between rounds, so a resumed run selects the same clients as an
uninterrupted one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl import checks
from dpfl.mechanisms import (
    BallsInBins,
    BMinSeparation,
    CyclicPoisson,
    FixedSize,
    KOfT,
    OncePerEpoch,
    Participation,
    PoissonSampling,
    RandomAllocation,
    WithoutReplacement,
)
from dpfl.seed_domains import RunDomain


def select_cohort(
    participation: Participation, seed: int, round_index: int
) -> np.ndarray:
    """Selects the clients of one round.

    Args:
      participation: The way of choosing clients.
      seed: The run's key.
      round_index: Index of the round, from 0 on.

    Returns:
      int64[n], indices of the clients.
    """
    select = _RULES.get(type(participation))
    if select is None:
        wanted = f"one of {', '.join(cls.__name__ for cls in _RULES)}"
        raise TypeError(checks.message("participation", wanted, participation))
    return np.sort(select(participation, seed, round_index)).astype(np.int64)


def _generator(seed: int, domain: RunDomain, index: int) -> np.random.Generator:
    key = derive_seed(seed, domain, index)
    return np.random.Generator(np.random.Philox(key=key))


def _places(participation: Any, seed: int, index: int) -> np.ndarray:
    """Each client's place, one of as many as there are clients."""
    generator = _generator(seed, RunDomain.SLOT, index)
    return generator.integers(participation.population, size=participation.population)


def _poisson(participation: Any, seed: int, round_index: int) -> np.ndarray:
    generator = _generator(seed, RunDomain.POISSON_COHORT, round_index)
    draws = generator.random(participation.population)
    return np.flatnonzero(draws < participation.sampling_probability)


def _fixed_size(participation: Any, seed: int, round_index: int) -> np.ndarray:
    generator = _generator(seed, RunDomain.FIXED_COHORT, round_index)
    return generator.permutation(participation.population)[: participation.cohort_size]


def _once_per_epoch(participation: Any, seed: int, round_index: int) -> np.ndarray:
    epoch, place = divmod(round_index, participation.rounds_per_epoch)
    if participation.separation > 1:
        return _of_window(participation, seed, epoch, place)
    generator = _generator(seed, RunDomain.EPOCH_ORDER, epoch)
    order = generator.permutation(participation.population)
    start = place * participation.cohort_size
    return order[start : start + participation.cohort_size]


def _of_window(participation: Any, seed: int, epoch: int, place: int) -> np.ndarray:
    """Selects the clients of a place in an epoch by a shuffle within its window.

    Surplus clients are shared among the windows too.
    """
    length, population = participation.rounds_per_epoch, participation.population
    first = place // participation.window * participation.window
    last = min(first + participation.window, length)
    dealt = _generator(seed, RunDomain.GROUP, 0).permutation(population)
    members = dealt[first * population // length : last * population // length]
    begun = epoch * length + first
    order = _generator(seed, RunDomain.WINDOW_ORDER, begun).permutation(members)
    start = (place - first) * participation.cohort_size
    return order[start : start + participation.cohort_size]


def _cyclic_poisson(participation: Any, seed: int, round_index: int) -> np.ndarray:
    # One group leaves nothing to draw.
    own = _generator(seed, RunDomain.GROUP, 0)
    groups = own.integers(participation.groups, size=participation.population)
    turn = groups == participation.group_of(round_index)
    generator = _generator(seed, RunDomain.POISSON_COHORT, round_index)
    draws = generator.random(participation.population)
    return np.flatnonzero(turn & (draws < participation.turn_probability))


def _random_allocation(participation: Any, seed: int, round_index: int) -> np.ndarray:
    epoch, place = divmod(round_index, participation.rounds_per_epoch)
    # Each client draws one of N places, n of which are in the round: probability n / N.
    places = _places(participation, seed, epoch)
    return np.flatnonzero(places // participation.cohort_size == place)


def _b_min_separation(participation: Any, seed: int, round_index: int) -> np.ndarray:
    population, p = participation.population, participation.turn_probability
    blocked = participation.separation - 1
    # Each client draws one of N places; with n of them it waits for one of the first b
    # - 1 rounds, and with those that are left it is free at once.
    places = _places(participation, seed, 0)
    waits = places // participation.cohort_size + 1
    free = np.where(waits <= blocked, waits, 0)

    def coins(number: int) -> np.ndarray:
        """The number of rounds from when a client is free to its next, inclusive."""
        generator = _generator(seed, RunDomain.SLOT, number)
        return generator.geometric(p, size=population)

    turn, number = free + coins(1) - 1, 1
    while np.any(before := turn < round_index):
        number += 1
        turn += np.where(before, blocked + coins(number), 0)
    return np.flatnonzero(turn == round_index)


def _k_of_t(participation: Any, seed: int, round_index: int) -> np.ndarray:
    population, law = participation.population, participation.law
    extra = participation.cohort_size * law.rounds % population
    places = _places(participation, seed, 0)
    # The number of each client's rounds from `first` to `last` - 1, which is halved
    # down to the round; a generator for each node of the tree.
    numbers = law.k + (places < extra)
    first, last, node = 0, law.rounds, 1
    while last - first > 1:
        middle = (first + last) // 2
        generator = _generator(seed, RunDomain.SLOT, node)
        others = last - first - numbers
        earlier = generator.hypergeometric(numbers, others, middle - first)
        if round_index < middle:
            last, numbers, node = middle, earlier, 2 * node
        else:
            first, numbers, node = middle, numbers - earlier, 2 * node + 1
    return np.flatnonzero(numbers)


_RULES: dict[type, Callable[[Any, int, int], np.ndarray]] = {
    PoissonSampling: _poisson,
    FixedSize: _fixed_size,
    WithoutReplacement: _fixed_size,
    OncePerEpoch: _once_per_epoch,
    RandomAllocation: _random_allocation,
    CyclicPoisson: _cyclic_poisson,
    BallsInBins: _cyclic_poisson,
    BMinSeparation: _b_min_separation,
    KOfT: _k_of_t,
}


SEED_BITS = 126


def run_key(seed: int, digest: str) -> int:
    """The key of a run, from which its other seeds are derived."""
    seed = checks.integer("seed", seed, 0)
    text = f"dpfl run:{digest}:{seed}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def derive_seed(seed: int, domain: RunDomain, index: int = 0) -> int:
    """Derives a seed for a domain and index, independent of all others.

    Args:
      seed: The run's key, or a seed derived from it.
      domain: Domain of the derived seed.
      index: Index of the round or client.
    """
    seed = checks.integer("seed", seed, 0)
    index = checks.integer("index", index, 0)
    text = f"dpfl:{domain.value}:{index}:{seed}"
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest, "big") >> (256 - SEED_BITS)


def client_key(key: int, client: int) -> tuple[int, int]:
    """The two words of a client's secret key, each in [0, 2**63)."""
    words = derive_seed(key, RunDomain.CLIENT, client)
    return words >> 63, words & ((1 << 63) - 1)
