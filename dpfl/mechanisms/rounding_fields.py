# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The fields that say how vectors become integers, of several mechanisms."""

from __future__ import annotations

import dataclasses
from typing import Optional

from dpfl import checks
from dpfl.accounting import distributed
from dpfl.fields import option, required
from dpfl.mechanisms import mechanism

# Bits of a coordinate of a message.
LEAST_BITS, MOST_BITS = 2, 30


def check_bits(bits: int) -> None:
    """Raises ValueError unless it is a number of bits that there can be."""
    if not LEAST_BITS <= checks.integer("bits", bits) <= MOST_BITS:
        raise ValueError(f"bits must be from {LEAST_BITS} to {MOST_BITS}, found {bits}")


@dataclasses.dataclass(frozen=True)
class MessageBits(mechanism.NoiseMechanism):
    """The field without a default, which has to come before those with one."""

    bits: int = required(
        "Bits of a coordinate of a message, from 2 to 30; auto for the fewest that "
        "bits_tolerance allows.",
        auto=True,
    )


@dataclasses.dataclass(frozen=True)
class RoundingFields:
    """How vectors become integers, and how these are accounted for.

    Attributes:
      rounding_bias: beta of the conditional rounding that the published bound needs, in
        [0, 1); of no meaning otherwise.
      wrap_probability: The granularity is the finest at which a coordinate of the sum
        wraps around with this probability, were it Gaussian; None is what makes the
        least error, and 6.33e-5, 4 standard deviations, under the published bound.
      integer_bound: "exact" (every coordinate is rounded once, which is accounted for
        as the noise that it is) or "published" (the papers' bounds, with rounding that
        is repeated until a norm is met).
      bits_tolerance: Where `bits` is "auto", how much larger the error by noise may be
        than with Gaussian noise at the same epsilon; see `choice`.
    """

    rounding_bias: float = option(
        distributed.DEFAULT_ROUNDING_BIAS,
        "beta of the conditional rounding of the published bound, at least 0 and "
        "below 1.",
    )
    wrap_probability: Optional[float] = option(
        None,
        "Probability with which a coordinate of the sum may wrap around; unset for "
        "that of the least error.",
    )
    integer_bound: str = option(
        "exact", f"The accountant's bound, one of {', '.join(distributed.BOUNDS)}."
    )

    bits_tolerance: float = option(
        1.02,
        "Where bits is auto, the most that the error may be, over that of Gaussian "
        "noise at the same epsilon.",
    )

    @property
    def conditional_rounding(self) -> bool:
        """Whether rounding is repeated until a norm is met: for the published bound."""
        return self.integer_bound == "published"
