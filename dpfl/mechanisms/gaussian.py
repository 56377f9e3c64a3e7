# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The Gaussian mechanism, with a fixed or an adaptive clip."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import dp_accounting

from dpfl.mechanisms import mechanism
from dpfl.mechanisms.adaptive_clip import AdaptiveClip


@dataclasses.dataclass(frozen=True)
class Gaussian(AdaptiveClip):
    """Sum of clipped updates + N(0, (z C)^2 I), divided by n.

    C is `clip_norm`, or follows a quantile of the update norms; see `AdaptiveClip`.
    """

    name: ClassVar[str] = "gaussian"

    def round_dp_event(
        self, dimension: int, sampling_probability: float
    ) -> dp_accounting.DpEvent:
        """A Gaussian event, Poisson-sampled if the probability is below 1."""
        event = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        if sampling_probability == 1:
            return event
        return dp_accounting.PoissonSampledDpEvent(sampling_probability, event)

    def uplink_bits(self, dimension: int) -> float:
        """32 bits for each parameter, and two for an adaptive clip."""
        return float(mechanism.FLOAT_BITS * dimension + 2 * self.adaptive_clipping)

    def downlink_bits(self, dimension: int) -> float:
        """The bits of the model, and of the clip if it adapts."""
        return float(mechanism.FLOAT_BITS * (dimension + self.adaptive_clipping))

    def mean_squared_error(self, dimension: int) -> float:
        """d (z C)^2 / n^2, z that of the update alone."""
        stddev = self.update_noise_multiplier * self.clip_norm
        return dimension * (stddev / self.cohort_size) ** 2
