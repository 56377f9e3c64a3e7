# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Error against bits at equal epsilon, for mechanisms of any kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

from dpfl import accounting
from dpfl.mechanisms import budget, choice, comparison
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.mechanisms.participation import Participation


@dataclasses.dataclass(frozen=True)
class Point(comparison.Cost):
    """What a mechanism costs with a number of bits.

    Attributes:
      bits: b of a coordinate of a message; None if the mechanism sends float32.
      rate: The compression rate that the mechanism was asked for; None if it has none.
      bits_per_parameter: Those that a client sends in a round, over the dimension.
      error_over_gaussian: The error over that of the Gaussian mechanism, uncompressed,
        at the same epsilon, which is found by Renyi differential privacy there.
    """

    bits: Optional[int] = None
    rate: Optional[float] = None
    bits_per_parameter: float = 0.0
    error_over_gaussian: Optional[float] = None


def widened(mechanism: Mechanism, widths: Sequence[int]) -> list[Mechanism]:
    """Returns the mechanism with each number of bits; itself if it has none."""
    fields = {field.name for field in dataclasses.fields(mechanism)}
    if "bits" not in fields:
        return [mechanism]
    changes: list[dict[str, Any]] = [{"bits": bits} for bits in sorted(set(widths))]
    return [dataclasses.replace(mechanism, **change) for change in changes]


def points(
    found: Iterable[Mechanism],
    dimension: int,
    participation: Participation,
    epsilon: float,
    delta: float,
    method: str = "auto",
) -> Iterator[tuple[Mechanism, Optional[Point], str]]:
    """Yields each mechanism, its point, and why it has none.

    Args:
      found: Configurations with any noise; the noise is calibrated.
      dimension: d.
      participation: Who takes part in which rounds.
      epsilon: Of the budget, which all of them meet.
      delta: Of the budget.
      method: As for `accounting.epsilon`.

    Yields:
      The mechanism; its `Point`, None where it cannot run with so few bits; and the
      sentence that says so, "" otherwise.
    """
    reference: dict[Mechanism, float] = {}
    for mechanism in found:
        try:
            noised = budget.calibrate(
                mechanism, dimension, epsilon, delta, participation, method
            )
            noised.check_noise(dimension)
        except (accounting.CalibrationError, ValueError) as error:
            yield mechanism, None, str(error)
            continue
        plain: Any = choice.gaussian_like(mechanism)  # type: ignore[arg-type]
        if plain not in reference:
            gaussian = budget.calibrate(
                plain, dimension, epsilon, delta, participation, "rdp"
            )
            reference[plain] = gaussian.mean_squared_error(dimension)
        cost = comparison.cost(noised, dimension, participation, delta, method)
        error_of = cost.mean_squared_error
        yield (
            mechanism,
            Point(
                **dataclasses.asdict(cost),
                bits=getattr(mechanism, "bits", None),
                rate=getattr(mechanism, "compression_rate", None),
                bits_per_parameter=cost.uplink_bits / dimension,
                error_over_gaussian=(
                    None if error_of is None else error_of / reference[plain]
                ),
            ),
            "",
        )
