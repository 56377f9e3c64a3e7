# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Who takes part in a round, as a pure function of the run's seed and the round.

Nothing is remembered between rounds, so a run that goes on after a kill chooses the
clients that it would have chosen anyway.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl.mechanisms import FixedSize, OncePerEpoch, Participation, PoissonSampling

SEED_BITS = 126


def derive_seed(seed: int, purpose: str, index: int = 0) -> int:
    """A seed for one purpose of a run, independent of those for others.

    Args:
      seed: The run's seed, a whole number of at least 0.
      purpose: What it is for.
      index: Which of several, such as the round.

    Returns:
      A whole number below 2**126: a part of the SHA-256 of the three, so that nobody
      finds the run's seed from it.

    Raises:
      TypeError: If `seed` or `index` is not a whole number.
      ValueError: If either is negative.
    """
    for name, value in (("seed", seed), ("index", index)):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise TypeError(f"{name} must be a whole number, found {value!r}")
        if value < 0:
            raise ValueError(f"{name} must be at least 0, found {value}")
    digest = hashlib.sha256(f"dpfl:{purpose}:{index}:{seed}".encode()).digest()
    return int.from_bytes(digest, "big") >> (256 - SEED_BITS)


def select_cohort(
    participation: Participation, seed: int, round_index: int
) -> np.ndarray:
    """The clients of one round.

    Args:
      participation: One of `dpfl.mechanisms.PARTICIPATIONS`.
      seed: The run's seed.
      round_index: The round, from 0 on.

    Returns:
      Sorted int64 array of clients in [0, population), each at most once; of length
      `cohort_size`, or of a random length, zero included, for Poisson sampling.

    Raises:
      TypeError: If there is no rule for this class of participation.
    """
    select = _RULES.get(type(participation))
    if select is None:
        raise TypeError(
            f"participation must be one of {[cls.__name__ for cls in _RULES]}, "
            f"found {participation!r}"
        )
    return np.sort(select(participation, seed, round_index)).astype(np.int64)


def _generator(seed: int, purpose: str, index: int) -> np.random.Generator:
    key = derive_seed(seed, purpose, index)
    return np.random.Generator(np.random.Philox(key=key))


def _poisson(participation: Any, seed: int, round_index: int) -> np.ndarray:
    draws = _generator(seed, "poisson", round_index).random(participation.population)
    return np.flatnonzero(draws < participation.sampling_probability)


def _fixed_size(participation: Any, seed: int, round_index: int) -> np.ndarray:
    generator = _generator(seed, "fixed", round_index)
    return generator.permutation(participation.population)[: participation.cohort_size]


def _once_per_epoch(participation: Any, seed: int, round_index: int) -> np.ndarray:
    epoch, place = divmod(round_index, participation.rounds_per_epoch)
    order = _generator(seed, "epoch", epoch).permutation(participation.population)
    start = place * participation.cohort_size
    return order[start : start + participation.cohort_size]


_RULES: dict[type, Callable[[Any, int, int], np.ndarray]] = {
    PoissonSampling: _poisson,
    FixedSize: _fixed_size,
    OncePerEpoch: _once_per_epoch,
}
