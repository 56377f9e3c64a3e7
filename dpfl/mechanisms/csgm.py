# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The sparsified Gaussian mechanism (CSGM), accounted by its L2 or its L-inf bound.

    mechanism = L2Csgm(1000, clip_norm=0.3, noise_multiplier=0.9, keep_fraction=0.1)
    bits = mechanism.uplink_bits(dimension)

Both mechanisms have the same numbers and the same codec.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Optional

from dp_accounting import DpEvent

from dpfl import accounting, checks
from dpfl.fields import option, required
from dpfl.mechanisms import mechanism
from dpfl.mechanisms.integer import ROTATED_DIMENSION

ROTATIONS = ("block_hadamard", "dft", "hadamard")


@checks.of_arguments({**mechanism.ARGUMENTS, "cohort_size": checks.integer})
def default_linf_ratio(dimension: int, cohort_size: int) -> float:
    """Delta_inf / Delta_2 = sqrt(2 ln(d n) / d), or 1 if that is less.

    The value of Chen et al. 2024, Appendix C. A vector of length d spread by a
    random rotation exceeds it in any of its coordinates, for any of n clients, with
    probability of the order of one half.
    """
    log = math.log(max(dimension * cohort_size, 2))
    return min(1.0, math.sqrt(2 * log / dimension))


@dataclasses.dataclass(frozen=True)
class L2Csgm(mechanism.NoiseMechanism):
    """L2-CSGM (Chen et al. 2024, Algorithm 1 and Theorem 4.1).

    A client clips its update to `clip_norm`, rotates it by the round's shared
    rotation, clips each coordinate to +-Delta_inf, keeps each with probability gamma
    by a mask of its own, and sends the kept values and the mask's seed. The server
    adds N(0, sigma^2 I) to the sum, divides by n gamma and rotates back.

    `noise_multiplier` is sigma / (gamma clip_norm), the paper's Fig. 1: the noise on
    the decoded mean is then that of the Gaussian mechanism with the same multiplier.

    `keep_fraction` is gamma, `linf_ratio` Delta_inf / clip_norm or None for
    `default_linf_ratio`; rotation "hadamard" pads to a power of two, "dft" to an even
    length, "block_hadamard" to a multiple of 2**12 that it rotates in blocks.
    """

    keep_fraction: float = required(
        "Expected fraction of the rotated coordinates that a client sends.",
        check=checks.fraction,
    )
    linf_ratio: Optional[float] = option(
        None,
        "Bound of a rotated coordinate over clip_norm; unset for sqrt(2 ln(d n) / d), "
        "with d parameters and n the cohort_size.",
        check=checks.fraction,
    )
    rotation: str = option("hadamard", "The shared rotation", choices=ROTATIONS)

    name: ClassVar[str] = "l2_csgm"
    released_measurements = (
        *mechanism.NoiseMechanism.released_measurements,
        "linf_clip",
    )
    privacy_page: ClassVar[str] = "integer_release.md"
    shares_a_seed: ClassVar[bool] = True
    # Rotated vectors have up to twice the coordinates.
    peak_vectors: ClassVar[float] = 70
    _event_class: ClassVar[type] = accounting.SparsifiedGaussianDpEvent

    @classmethod
    def filled_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See base class: the kept fraction is 1 / `compression_rate`."""
        more = super().filled_in(values)
        if "keep_fraction" not in values:
            rate = values.get("compression_rate", mechanism.DEFAULT_COMPRESSION_RATE)
            rate = checks.real("compression_rate", rate, at_least=1)
            more["keep_fraction"] = 1 / rate
        return more

    @property
    def compression_rate(self) -> float:  # type: ignore[override]
        """The inverse of `keep_fraction`."""
        return 1 / self.keep_fraction

    @property
    def stddev(self) -> float:
        """sigma, the standard deviation of the noise on the masked updates' sum."""
        return self.noise_multiplier * self.keep_fraction * self.clip_norm

    def rotated_dimension(self, dimension: int) -> int:
        """The length of the rotated vector."""
        return ROTATED_DIMENSION[self.rotation](dimension)

    def resolved_linf_ratio(self, dimension: int) -> float:
        """Delta_inf / clip_norm as the clients use it."""
        if self.linf_ratio is not None:
            return self.linf_ratio
        return default_linf_ratio(dimension, self.cohort_size)

    def linf_clip(self, dimension: int) -> float:
        """Delta_inf, the bound of a rotated coordinate."""
        return self.resolved_linf_ratio(dimension) * self.clip_norm

    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """A SparsifiedGaussianDpEvent with client sampling."""
        return self._event_class(
            noise_multiplier=self.noise_multiplier,
            keep_fraction=self.keep_fraction,
            linf_ratio=self.resolved_linf_ratio(dimension),
            dimension=self.rotated_dimension(dimension),
            sampling_probability=sampling_probability,
        )

    def uplink_bits(self, dimension: int) -> float:
        """The bits of the kept values, their number and the mask's seed."""
        kept = self.keep_fraction * self.rotated_dimension(dimension)
        return mechanism.FLOAT_BITS * kept + mechanism.COUNT_BITS + mechanism.SEED_BITS

    def noise_error(self, dimension: int) -> float:
        """The part of the error by noise, d sigma^2 / (n gamma)^2."""
        divisor = self.cohort_size * self.keep_fraction
        return dimension * (self.stddev / divisor) ** 2

    def mean_squared_error(self, dimension: int) -> float:
        """The error by noise, and (1-gamma)/gamma * n C^2 / n^2 * d/D by the masks.

        Both are spread evenly over the D rotated coordinates, and rotating back drops
        the D - d padded ones.
        """
        gamma, rotated = self.keep_fraction, self.rotated_dimension(dimension)
        masks = (1 - gamma) / gamma * self.clip_norm**2 / self.cohort_size
        return self.noise_error(dimension) + masks * dimension / rotated


@dataclasses.dataclass(frozen=True)
class LinfCsgm(L2Csgm):
    """L-inf-CSGM (Chen et al. 2023): the same release, accounted by Delta_inf alone."""

    name: ClassVar[str] = "linf_csgm"
    _event_class: ClassVar[type] = accounting.LinfSparsifiedGaussianDpEvent
