# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The Gaussian mechanism, with a fixed or an adaptive clip, and the plain mean.

    mechanism = Gaussian(100, clip_norm=1.0, noise_multiplier=1.0)
    adaptive = dataclasses.replace(mechanism, adaptive_clipping=True)
    plain = NoMechanism(100)

The fields of the adaptive clip are shared with the integer mechanisms.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Optional

import dp_accounting
from dp_accounting import DpEvent

from dpfl import checks
from dpfl.accounting import events
from dpfl.fields import option
from dpfl.mechanisms import mechanism

# Largest rate, with which a round multiplies the clip by at most exp(10).
_MOST_LEARNING_RATE = 10.0


@dataclasses.dataclass(frozen=True)
class AdaptiveClipMechanism(mechanism.NoiseMechanism):
    """A mechanism whose clip may adapt, with its noise split over two sums.

    Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping",
    Algorithm 1. With `adaptive_clipping` each client also sends whether its norm was
    within the clip, as +1/2 or -1/2, or 0 for an update of zeros, so that to replace
    one by zeros moves the sum by 1/2. The sum of these gets noise of standard deviation
    `count_stddev`, and
      C <- C exp(-clip_learning_rate (noised fraction within - target_quantile)).
    The two releases are one Gaussian mechanism on a vector of length d + 1 with
    sensitivity sqrt((1/z_update)^2 + (1/(2 count_stddev))^2) = 1/z in units of its
    noise, so that `noise_multiplier` z accounts for both together.

    Where `count_stddev` is None it is cohort_size / 20, the value of Andrew et al., and
    at least `noise_multiplier`, with which the count takes a quarter of 1/z^2 and every
    z is possible.
    """

    adaptive_clipping: bool = option(
        False, "Whether the clip adapts, from clip_norm on."
    )
    target_quantile: float = option(
        0.5,
        "Fraction of clients whose update should stay unclipped.",
        check=checks.probability,
    )
    clip_learning_rate: float = option(
        0.2,
        "Step of the geometric update of an adaptive clip.",
        above=0,
        at_most=_MOST_LEARNING_RATE,
    )
    count_stddev: Optional[float] = option(
        None,
        "Standard deviation of the noise on the sum of the votes, 1/2 or -1/2, of an "
        "adaptive clip; unset for the larger of cohort_size / 20 and noise_multiplier.",
        at_least=mechanism.LEAST_NOISE_MULTIPLIER,
        at_most=mechanism.MOST_NOISE_MULTIPLIER,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adaptive_clipping and self.noise_multiplier:
            _ = self.update_noise_multiplier

    def downlink_bits(self, dimension: int) -> float:
        """See base class; with the clip if it adapts."""
        more = mechanism.FLOAT_BITS * self.adaptive_clipping
        return super().downlink_bits(dimension) + more

    @property
    def some_noise_multiplier(self) -> float:
        """See base class: `count_stddev`, half of the largest possible multiplier.

        Without a `count_stddev` any multiplier is possible.
        """
        return 1.0 if self.count_stddev is None else self.count_stddev

    @property
    def resolved_count_stddev(self) -> float:
        """Standard deviation of the noise on the count; zero without noise at all."""
        if not self.noise_multiplier:
            return 0.0
        if self.count_stddev is None:
            return max(self.cohort_size / 20, self.noise_multiplier)
        return self.count_stddev

    @property
    def update_noise_multiplier(self) -> float:
        """Standard deviation of the noise on the summed updates, over the clip.

        NoiseTooLargeError is raised if the noise on the count alone is too small for z.
        """
        if not self.adaptive_clipping or not self.noise_multiplier:
            return self.noise_multiplier
        left = self.noise_multiplier**-2 - (2 * self.resolved_count_stddev) ** -2
        if left <= 0:
            raise events.NoiseTooLargeError(
                f"count_stddev must be above half the noise_multiplier of "
                f"{self.noise_multiplier}, found {self.resolved_count_stddev}"
            )
        return 1 / math.sqrt(left)


@dataclasses.dataclass(frozen=True)
class Gaussian(AdaptiveClipMechanism):
    """Sum of clipped updates + N(0, (z C)^2 I), divided by n.

    C is `clip_norm`, or follows a quantile of the update norms; see
    `AdaptiveClipMechanism`.
    """

    name: ClassVar[str] = "gaussian"
    privacy_page: ClassVar[str] = "integer_release.md"
    takes_secret_participation: ClassVar[bool] = True

    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """A Gaussian event, Poisson-sampled if the probability is below 1."""
        return mechanism.gaussian_event(self.noise_multiplier, sampling_probability)

    def uplink_bits(self, dimension: int) -> float:
        """32 bits for each parameter, and two for an adaptive clip."""
        return super().uplink_bits(dimension) + 2 * self.adaptive_clipping

    def mean_squared_error(self, dimension: int) -> float:
        """d (z C)^2 / n^2, with z that of the update alone."""
        stddev = self.update_noise_multiplier * self.clip_norm
        return dimension * (stddev / self.cohort_size) ** 2


@dataclasses.dataclass(frozen=True)
class NoMechanism(mechanism.Mechanism):
    """The mean over clients that report a finite update: the baseline without privacy.

    `cohort_size` serves the choice of clients alone.
    """

    name: ClassVar[str] = "none"
    takes_secret_participation: ClassVar[bool] = True
    is_private: ClassVar[bool] = False
    is_weighted: ClassVar[bool] = True
    trust = "a trusted server and everyone who sees the model, since there is no noise"

    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """A NonPrivateDpEvent, whose epsilon is infinite."""
        return dp_accounting.NonPrivateDpEvent()

    def mean_squared_error(self, dimension: int) -> float:
        """Zero: there is no noise."""
        return 0.0
