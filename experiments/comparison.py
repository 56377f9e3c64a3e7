# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Comparison of mechanisms at equal epsilon or error, with their bits.

    cost = comparison.cost(mechanism, participation, dimension, delta=1e-4)
    cost.epsilon, cost.mean_squared_error, cost.uplink_bits

`cost_at_error` and `points` set the noise by an error or by an epsilon.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

import attr

from dpfl import accounting, checks
from dpfl.accounting.bisection import bisected
from dpfl.mechanisms import build
from dpfl.mechanisms.mechanism import FLOAT_BITS, Mechanism
from dpfl.mechanisms.participation import Participation
from dpfl.planning import budget, choice

# The `accounting_method` of a mechanism that cannot have the requested error.
UNREACHABLE = "unreachable"


@dataclasses.dataclass(frozen=True)
class MechanismCost:
    """A mechanism with its noise set: its error, epsilon and bits.

    `accounting_method` is that of the epsilon, or `UNREACHABLE` if no noise gives the
    requested error. The error is None if it depends on the updates. `relation` is a
    name of `accounting.events.NAMES`, and `order` the Renyi order that gave epsilon,
    None for other methods. `audit_figures` has `accounting.AuditFigures`, if asked for.
    """

    mechanism: str
    compression_rate: float
    noise_multiplier: Optional[float]
    epsilon: float
    delta: float
    accounting_method: str
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
    audit_figures: Optional[Mapping[str, Any]] = None


@checks.of_arguments(budget.OF_A_RUN)
def compression_rate(mechanism: Mechanism, dimension: int) -> float:
    """The requested rate of a mechanism, or else that of its messages."""
    if mechanism.compression_rate is not None:
        return mechanism.compression_rate
    return FLOAT_BITS * dimension / mechanism.uplink_bits(dimension)


def candidates(
    names: Sequence[str], rates: Sequence[float], values: Mapping[str, Any]
) -> list[Mechanism]:
    """Every mechanism at every compression rate, or once if it has no rate.

    Args:
      names: Names of mechanisms.
      rates: Compression rates, each at least 1.
      values: Values for `build.build`, without a rate.
    """
    mechanisms = []
    for name in names:
        if "compression_rate" not in build.accepted_fields(name):
            mechanisms.append(build.build(name, values))
            continue
        mechanisms += [
            build.build(name, {**values, "compression_rate": rate}) for rate in rates
        ]
    return mechanisms


@checks.of_arguments({**budget.OF_A_RUN, "target": checks.positive})
def with_error(
    mechanism: Mechanism, dimension: int, target: float
) -> Optional[Mechanism]:
    """The mechanism with the noise that makes its mean squared error `target`.

    The error is a constant plus a multiple of the squared noise multiplier, or nearly
    so where a grid follows the noise: the guess from two points is bracketed and
    bisected.

    Args:
      mechanism: The mechanism; its own noise multiplier is ignored.
      dimension: Length d of the flattened model update.
      target: The mean squared error, greater than 0.

    Returns:
      The mechanism; None if its error without noise is already at least `target`.
    """

    def error(noise_multiplier: float) -> float:
        try:
            noised = mechanism.with_noise_multiplier(noise_multiplier)
        except accounting.NoiseTooLargeError:
            # Below this limit the noise of a clip's count leaves ever more noise to the
            # update.
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
    _, high = bisected(lambda z: error(z) < target, low, high, rtol=1e-12)
    return mechanism.with_noise_multiplier(high)


@checks.of_arguments(budget.OF_A_RUN)
def cost(
    mechanism: Mechanism,
    participation: Participation,
    dimension: int,
    delta: float,
    accounting_method: str = "auto",
    figures: bool = False,
) -> MechanismCost:
    """The error, epsilon and bits of a mechanism with its noise set.

    Args:
      mechanism: The mechanism with its noise.
      participation: The choice of clients over the run.
      dimension: Length d of the flattened model update.
      delta: The delta that epsilon is at, in (0, 1).
      accounting_method: See `dpfl.accounting.epsilon`.
      figures: Whether to compute `audit_figures`.
    """
    event = mechanism.dp_event(participation, dimension)
    report = accounting.epsilon(
        event, delta, accounting_method=accounting_method, figures=figures
    )
    error = None
    if mechanism.has_whole_error:
        error = mechanism.mean_squared_error(dimension)
    return MechanismCost(
        mechanism=mechanism.name,
        compression_rate=compression_rate(mechanism, dimension),
        noise_multiplier=mechanism.noise_multiplier,
        epsilon=report.epsilon,
        delta=report.delta,
        accounting_method=report.accounting_method,
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
        audit_figures=attr.asdict(report.figures) if report.figures else None,
    )


@checks.of_arguments({**budget.OF_A_RUN, "target": checks.positive})
def cost_at_error(
    mechanism: Mechanism,
    participation: Participation,
    dimension: int,
    delta: float,
    target: float,
    accounting_method: str = "auto",
) -> MechanismCost:
    """The cost of a mechanism at the noise that makes its error `target`.

    If there is no such noise, the row is that of the mechanism without noise, whose
    epsilon is infinite, and its `accounting_method` is "unreachable".

    Args:
      mechanism: The mechanism; its own noise multiplier is ignored.
      participation: The choice of clients over the run.
      dimension: Length d of the flattened model update.
      delta: The delta that epsilon is at, in (0, 1).
      target: The mean squared error, greater than 0.
      accounting_method: See `dpfl.accounting.epsilon`.
    """
    noised = with_error(mechanism, dimension, target)
    if noised is not None:
        return cost(noised, participation, dimension, delta, accounting_method)
    bare = mechanism.with_noise_multiplier(0.0)
    return dataclasses.replace(
        cost(bare, participation, dimension, delta, accounting_method),
        noise_multiplier=None,
        epsilon=math.inf,
        accounting_method=UNREACHABLE,
        order=None,
    )


@dataclasses.dataclass(frozen=True)
class CostAtBits(MechanismCost):
    """A cost with a number of bits; None if the mechanism sends float32.

    `rate` is the requested compression rate, or None, and `error_over_gaussian` the
    error over that of the Gaussian mechanism, uncompressed, at the same epsilon by the
    same method.
    """

    bits: Optional[int] = None
    rate: Optional[float] = None
    bits_per_parameter: float = 0.0
    error_over_gaussian: Optional[float] = None


def widened(mechanism: Mechanism, widths: Sequence[int]) -> list[Mechanism]:
    """The mechanism with each number of bits; itself if it has none."""
    if mechanism.bits is None:
        return [mechanism]
    changes = [{"bits": bits} for bits in sorted(set(widths))]
    return [dataclasses.replace(mechanism, **change) for change in changes]


@checks.of_arguments(budget.OF_A_RUN)
def points(
    mechanisms: Iterable[Mechanism],
    participation: Participation,
    dimension: int,
    epsilon: float,
    delta: float,
    accounting_method: str = "auto",
) -> Iterator[tuple[Mechanism, Optional[CostAtBits], str]]:
    """Yields each mechanism, its point, and the reason if it has none.

    The point is None where the mechanism cannot run with so few bits, and the reason is
    "" otherwise.

    Args:
      mechanisms: The mechanisms; their own noise multipliers are ignored.
      participation: The choice of clients over the run.
      dimension: Length d of the flattened model update.
      epsilon: The budget that the noise of each is calibrated for.
      delta: The budget's, in (0, 1).
      accounting_method: See `dpfl.accounting.epsilon`.
    """
    reference: dict[Mechanism, float] = {}
    for mechanism in mechanisms:
        try:
            noised = choice.calibrate(
                mechanism, participation, dimension, epsilon, delta, accounting_method
            )
            noised.check_noise(dimension)
        except (accounting.CalibrationError, ValueError) as error:
            yield mechanism, None, str(error)
            continue
        plain = choice.gaussian_like(mechanism)
        if plain not in reference:
            gaussian = choice.calibrate(
                plain, participation, dimension, epsilon, delta, accounting_method
            )
            reference[plain] = gaussian.mean_squared_error(dimension)
        spent = cost(noised, participation, dimension, delta, accounting_method)
        error_of = spent.mean_squared_error
        yield (
            mechanism,
            CostAtBits(
                **dataclasses.asdict(spent),
                bits=mechanism.bits,
                rate=mechanism.compression_rate,
                bits_per_parameter=spent.uplink_bits / dimension,
                error_over_gaussian=(
                    None if error_of is None else error_of / reference[plain]
                ),
            ),
            "",
        )
