# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms side by side: at equal epsilon or error, and what each then costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dpfl import accounting
from dpfl.mechanisms import build
from dpfl.mechanisms.mechanism import FLOAT_BITS, Mechanism
from dpfl.mechanisms.participation import Participation

# The accountant of a mechanism without the noise that was asked for.
UNREACHABLE = "unreachable"


@dataclasses.dataclass(frozen=True)
class Cost:
    """A mechanism with its noise set: what it gives and what it takes.

    Attributes:
      mechanism: Its name.
      compression_rate: At least 1; see `compression_rate`.
      noise_multiplier: Its noise; None if it has none.
      epsilon: Epsilon of the whole run; infinity where `accountant` is "unreachable".
      delta: See `epsilon`.
      accountant: How epsilon was found, or "unreachable" if no noise has the error that
        was asked for.
      relation: The relation between neighbours that epsilon is for, a name of
        `accounting.adjacency.NAMES`.
      order: The Renyi order that gave epsilon, None if it was found in another way.
      mean_squared_error: Expected squared L2 error of the mean of the updates; None if
        it depends on the updates.
      uplink_bits: Bits that a client sends in a round.
      downlink_bits: Bits that a client receives in a round, without the model.
      dimension: d.
      cohort_size: n.
      population: Number of clients.
      rounds: Number of rounds.
      participation: Name of the participation.
    """

    mechanism: str
    compression_rate: float
    noise_multiplier: Optional[float]
    epsilon: float
    delta: float
    accountant: str
    relation: Optional[str]
    order: Optional[float]
    mean_squared_error: Optional[float]
    uplink_bits: float
    downlink_bits: float
    dimension: int
    cohort_size: int
    population: int
    rounds: int
    participation: str


def compression_rate(mechanism: Mechanism, dimension: int) -> float:
    """Returns the rate that a mechanism was asked for, or else that of its messages."""
    asked: Optional[float] = getattr(mechanism, "compression_rate", None)
    kept: Optional[float] = getattr(mechanism, "keep_fraction", None)
    if asked is not None:
        return asked
    if kept is not None:
        return 1 / kept
    return FLOAT_BITS * dimension / mechanism.uplink_bits(dimension)


def candidates(
    names: Sequence[str], rates: Sequence[float], values: Mapping[str, Any]
) -> list[Mechanism]:
    """Returns every mechanism at every compression rate.

    Args:
      names: Names of mechanisms.
      rates: Compression rates; a mechanism without a rate is there once.
      values: Values of fields as for `build.build`, without a rate.
    """
    found = []
    for name in names:
        if build.accepted_fields(name).isdisjoint(build.RATE_FIELDS):
            found.append(build.build(name, values))
            continue
        found += [
            build.build(name, {**values, "compression_rate": rate}) for rate in rates
        ]
    return found


def with_error(
    mechanism: Mechanism, dimension: int, target: float
) -> Optional[Mechanism]:
    """Returns the mechanism with the noise that makes its error `target`.

    The error is a constant plus a multiple of the squared noise multiplier, or, where
    a grid follows the noise, about that: the guess from two points is bracketed and
    bisected.

    Args:
      mechanism: A configuration with any noise.
      dimension: d.
      target: Expected squared L2 error of the mean of the updates.

    Returns:
      The configuration; None if what compression misses is already more.
    """

    def error(noise_multiplier: float) -> float:
        try:
            noised = mechanism.with_noise_multiplier(noise_multiplier)
        except accounting.NoiseTooLargeError:
            # Up to there the noise of a clip's count leaves ever more to the update.
            return math.inf
        return noised.mean_squared_error(dimension)

    without_noise, some = error(0.0), mechanism.some_noise_multiplier
    if without_noise >= target:
        return None
    low = high = some * math.sqrt(
        (target - without_noise) / (error(some) - without_noise)
    )
    while error(low) > target:
        low /= 2
    while error(high) < target:
        high *= 2
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if error(middle) < target else (low, middle)
    return mechanism.with_noise_multiplier(high)


def cost(
    mechanism: Mechanism,
    dimension: int,
    participation: Participation,
    delta: float,
    method: str = "auto",
) -> Cost:
    """Returns what a mechanism with its noise set gives and takes.

    Args:
      mechanism: A configuration.
      dimension: d.
      participation: Who takes part in which rounds.
      delta: At which epsilon is given.
      method: As for `accounting.epsilon`.
    """
    event = mechanism.dp_event(dimension, participation)
    report = accounting.epsilon(event, delta, method=method)
    error = None
    if mechanism.has_whole_error:
        error = mechanism.mean_squared_error(dimension)
    return Cost(
        mechanism=mechanism.name,
        compression_rate=compression_rate(mechanism, dimension),
        noise_multiplier=getattr(mechanism, "noise_multiplier", None),
        epsilon=report.epsilon,
        delta=report.delta,
        accountant=report.method,
        relation=report.relation,
        order=report.order,
        mean_squared_error=error,
        uplink_bits=mechanism.uplink_bits(dimension),
        downlink_bits=mechanism.downlink_bits(dimension),
        dimension=dimension,
        cohort_size=participation.cohort_size,
        population=participation.population,
        rounds=participation.rounds,
        participation=participation.name,
    )


def cost_at_error(
    mechanism: Mechanism,
    dimension: int,
    participation: Participation,
    delta: float,
    target: float,
    method: str = "auto",
) -> Cost:
    """Returns the cost of a mechanism at the noise that makes its error `target`.

    If no noise does, the row is that of the mechanism without noise, whose epsilon is
    infinite, and its `accountant` is "unreachable".
    """
    noised = with_error(mechanism, dimension, target)
    if noised is not None:
        return cost(noised, dimension, participation, delta, method)
    bare = mechanism.with_noise_multiplier(0.0)
    return dataclasses.replace(
        cost(bare, dimension, participation, delta, method),
        noise_multiplier=None,
        epsilon=math.inf,
        accountant=UNREACHABLE,
        order=None,
    )
