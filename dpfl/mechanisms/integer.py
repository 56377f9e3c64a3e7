# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms with integer noise under secure aggregation: common base, and two laws.

    mechanism = DistributedSkellam(100, clip_norm=0.5, noise_multiplier=1.0, bits=16)
    mechanism.modulus_bits, mechanism.noise_shares

All of them clip, rotate, round to a grid, add integer noise and sum modulo 2^bits.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from dp_accounting import DpEvent, NonPrivateDpEvent

from dpfl import accounting, checks
from dpfl.accounting import events
from dpfl.accounting.integer import noise_events, summed_noise
from dpfl.fields import AUTO, CHOSEN_BEFORE, option
from dpfl.mechanisms import mechanism
from dpfl.mechanisms.gaussian import AdaptiveClipMechanism
from dpfl.mechanisms.integer_grid import (
    FORMER_FIELDS,
    MOST_BITS,
    IntegerGrid,
    MessageBits,
    best_grid,
    rounding_variance,
)
from dpfl.mechanisms.participation import Participation

# The least length of blocks that are rotated separately.
_BLOCK = 1 << 12


def _power_of_two(dimension: int) -> int:
    """The least power of two that is at least the dimension."""
    return 1 << (dimension - 1).bit_length()


# Length of the rotated vector, by rotation: the same; the next power of two; that, or
# the next multiple of a block if it is less; the next even number.
ROTATED_DIMENSION: dict[str, Callable[[int], int]] = {
    "overlap": lambda dimension: dimension,
    "hadamard": _power_of_two,
    "block_hadamard": lambda dimension: min(
        _power_of_two(dimension), math.ceil(dimension / _BLOCK) * _BLOCK
    ),
    "dft": lambda dimension: dimension + dimension % 2,
}
# Rotations that make coordinates small for every vector, as the grid assumes.
ROTATIONS = ("dft", "hadamard", "overlap")
# Width of the secure sum of the +-1 of adaptive clipping.
CLIP_COUNT_BITS = 24
NOISE_SOURCES = ("clients", "helpers")
# The largest number of parties in a secure sum.
_MOST_COHORT = 10**6
# Largest RDP of the release at order 2 over that of Gaussian noise.
_MOST_EXCESS = 2.0


@dataclasses.dataclass(frozen=True)
class IntegerMechanism(AdaptiveClipMechanism, MessageBits):
    """Clip, rotate, round to a grid, add integer noise, sum modulo 2^bits.

    Chen et al. 2022, Algorithm 6; Kairouz et al. 2021; Agarwal et al. 2021. A client
    clips its update to `clip_norm`, rotates it by the round's shared rotation, clips
    coordinates to a size that they hardly reach, divides by the granularity, rounds
    each coordinate up or down at random, adds its share of integer noise, and sends the
    residues; the server learns their sum.

    Number of shares. The sum must carry the promised noise whatever one client does.
    With `noise_source` "clients" each client that takes part adds a share, also if its
    update counts as zeros, so that the number of shares is the number of clients that
    report. `expected_dropout` is the part of the cohort that may drop out: each share
    is scaled so that the remaining ones, `noise_shares`, give the noise of
    `noise_multiplier`; with fewer the sum is not opened. This needs cohorts of a fixed
    size. Where cohorts vary a client would bring and take its share with it, and the
    variance alone would tell whether it is there; so there the shares come from
    "helpers": `cohort_size` devices, chosen without regard to the clients that join,
    that take part in the secure sum with noise alone. (A simulation has no such devices
    and draws their shares on the server.)

    Some of the parties that bring noise may collude: they know their own.
    `colluding_clients` shares are left out of `noise_shares`, and all shares are scaled
    so that the others are enough.

    `noise_multiplier` is the standard deviation of the summed noise of `noise_shares`
    shares over the clip. Its epsilon is that of Gaussian noise, and a little more where
    the grid is coarse; the event accounts for that. With `adaptive_clipping` it is
    that of update and count together: the event has both.

    `bits` is "auto" until `choice.resolve` has chosen a number. Rotation "overlap" pads
    nothing, "hadamard" to a power of two, "dft" to an even length.
    """

    rotation: str = option("overlap", "The shared rotation", choices=ROTATIONS)
    expected_dropout: float = option(
        0.0,
        "Fraction of the cohort that may drop out, at least 0 and below 1.",
        at_least=0,
        below=1,
    )
    colluding_clients: int = option(
        0,
        "Number of noise sources that may collude with the server.",
        at_least=0,
    )
    noise_source: str = option(
        "clients", "Parties that add the noise", choices=NOISE_SOURCES
    )

    released_measurements = (
        *AdaptiveClipMechanism.released_measurements,
        "granularity",
        "wrap_probability",
    )
    former_fields: ClassVar[Mapping[str, Any]] = FORMER_FIELDS
    privacy_page: ClassVar[str] = "distributed.md"
    sums_securely: ClassVar[bool] = True
    shares_a_seed: ClassVar[bool] = True
    # Rotated vectors have up to twice the coordinates.
    peak_vectors: ClassVar[float] = 55
    # The kind of noise, "discrete_gaussian" or "skellam", and the class of its event.
    name_of_noise: ClassVar[str]
    event_class: ClassVar[type[noise_events.DistributedNoiseDpEvent]]

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("cohort_size", self.cohort_size, at_most=_MOST_COHORT)
        checks.integer(
            "colluding_clients", self.colluding_clients, 0, self.shares_summed - 1
        )

    @property
    def modulus_bits(self) -> int:
        """`bits`, once it is a number; ValueError while it is "auto"."""
        checks.require(self.bits != AUTO, "bits", CHOSEN_BEFORE, self.bits)
        return self.bits

    @property
    def shares_summed(self) -> int:
        """The least number of noise shares with which a sum is opened."""
        lost = math.floor(self.cohort_size * self.expected_dropout + 1e-9)
        return max(1, self.cohort_size - lost)

    @property
    def noise_shares(self) -> int:
        """The number of noise shares that give the promised noise."""
        return self.shares_summed - self.colluding_clients

    @property
    def local_count_stddev(self) -> float:
        """One share of noise on the sum of the +-1; zero for none."""
        return 2 * self.resolved_count_stddev / math.sqrt(self.noise_shares)

    @property
    def vector_clip(self) -> float:
        """L2 bound of the vector that is rounded, over `clip_norm`."""
        return 1.0

    def vector_dimension(self, dimension: int) -> int:
        """The length of the vector that is rotated and rounded, before padding."""
        return dimension

    def rotated_dimension(self, dimension: int) -> int:
        """The length of a message."""
        return ROTATED_DIMENSION[self.rotation](self.vector_dimension(dimension))

    def grid(self, dimension: int) -> IntegerGrid:
        """The granularity and what depends on it; see `best_grid`."""
        return _grid_for_sampling(self, dimension)

    def _rounding_grid(self, dimension: int, *, one_step: bool) -> IntegerGrid:
        return best_grid(
            cohort_size=self.cohort_size,
            bits=self.modulus_bits,
            local_stddev=self.share_stddev,
            dimension=self.rotated_dimension(dimension),
            spread=self.spread(dimension),
            one_step=one_step,
        )

    @property
    def share_stddev(self) -> float:
        """One share of the update's noise, over the clip of the rounded vector."""
        return self.update_noise_multiplier / math.sqrt(self.noise_shares)

    def spread(self, dimension: int) -> int:
        """The least number of coordinates over which the rotation spreads each one."""
        rotated = self.rotated_dimension(dimension)
        is_overlap = self.rotation == "overlap"
        return 1 << (rotated.bit_length() - 1) if is_overlap else rotated

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class."""
        super().check(participation, dimension)
        self._check_cohorts(participation.varies_cohorts)
        self.grid(dimension)

    def _check_cohorts(self, vary: bool) -> None:
        is_there = not vary or self.noise_source == "helpers"
        wanted = "'helpers' where cohorts vary, since absent clients add no noise"
        checks.require(is_there, "noise_source", wanted, self.noise_source)

    def check_noise(self, dimension: int) -> None:
        """Raises ValueError if the grid is too coarse for the noise.

        This is where the RDP of order 2 is more than twice the Gaussian's: most of the
        noise would only compensate for the grid.
        """
        if not self.noise_multiplier or not self.needs_more_noise(dimension):
            return
        advice = "noise_multiplier must be larger, or cohort_size smaller,"
        for bits in range(self.modulus_bits + 1, MOST_BITS + 1):
            if not dataclasses.replace(self, bits=bits).needs_more_noise(dimension):
                advice = f"bits must be at least {bits}"
                break
        steps = self.grid(dimension).local_stddev_steps
        raise ValueError(
            f"{advice} for cohort_size {self.cohort_size} and noise_multiplier "
            f"{self.noise_multiplier:g}, found {self.bits} bits: a client's noise of "
            f"{steps:.3g} grid steps costs far more epsilon than Gaussian noise"
        )

    def needs_more_noise(self, dimension: int) -> bool:
        """See base class."""
        steps = self.grid(dimension).local_stddev_steps
        # The RDP of order 2 is at least one over the variance of the noise, for any
        # law.
        if _MOST_EXCESS * self.share_variance(steps) < steps**2:
            return True
        event = self._update_event(self.grid(dimension), dimension)
        return bool(event.rdp([2.0])[0] > _MOST_EXCESS / event.noise_multiplier**2)

    @property
    def trust(self) -> str:
        """The parties that clients trust, and the source of the noise."""
        return mechanism.secure_sum_trust(self.noise_source)

    def neighboring_relations(self, participation: Participation) -> events.Relations:
        """Neighbouring relations; the participation's if helpers add the noise.

        If the clients add it, a removed client takes its share along, and only
        'replaced by zeros' holds.
        """
        if self.noise_source == "clients":
            return events.ZERO_OUT_ONLY
        return participation.neighboring_relations

    def _event(self, **numbers: Any) -> noise_events.DistributedNoiseDpEvent:
        return self.event_class(
            noise_clients=self.noise_shares,
            noise_of_helpers=self.noise_source == "helpers",
            **numbers,
        )

    def _update_event(
        self, grid: IntegerGrid, dimension: int
    ) -> noise_events.DistributedNoiseDpEvent:
        """The release of the sum of the updates, without client sampling."""
        clip = self.clip_norm * self.vector_clip
        return self._event(
            local_stddev=grid.local_stddev * clip,
            granularity=grid.granularity * clip,
            clip_norm=clip,
            dimension=self.rotated_dimension(dimension),
            max_coordinate=grid.max_coordinate * clip,
        )

    def _count_event(self) -> events.RdpDpEvent:
        """The release of the sum of the +-1, which need no rounding.

        An update of zeros counts as 0: replaced by zeros, a client moves it by 1.
        """
        return self._event(
            local_stddev=self.local_count_stddev,
            granularity=1.0,
            clip_norm=1.0,
            dimension=1,
            max_coordinate=1.0,
        )

    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """The integer noise as it is added; ValueError if sampled clients bring it."""
        self._check_cohorts(sampling_probability < 1)
        if not self.noise_multiplier:
            return NonPrivateDpEvent()
        event = self._update_event(self.grid(dimension), dimension)
        if self.adaptive_clipping:
            event = noise_events.WithClipCountDpEvent(event, self._count_event())
        if sampling_probability == 1:
            return event
        return event.poisson_sampled(sampling_probability)

    def uplink_bits(self, dimension: int) -> float:
        """b bits for each coordinate, and those of an adaptive clip's count.

        Helpers that bring the noise are as many as the expected clients, and each sends
        a message of its own: the bits per client are doubled.
        """
        count = CLIP_COUNT_BITS if self.adaptive_clipping else 0
        own = float(self.modulus_bits * self.rotated_dimension(dimension) + count)
        return 2 * own if self.noise_source == "helpers" else own

    def sum_noise_variance(self, dimension: int, shares: int) -> float:
        """The noise variance of a coordinate of a sum to which `shares` are added.

        It is in squared units of the clip of the rounded vector, and that of the drawn
        integers, which below a grid step differs visibly from the squared parameter.
        """
        if not self.noise_multiplier:
            return 0.0
        grid = self.grid(dimension)
        variance = self.share_variance(grid.local_stddev_steps)
        return shares * variance * grid.granularity**2

    def share_variance(self, stddev: float) -> float:
        """The variance of a share of noise of parameter `stddev`, in steps."""
        return stddev**2

    def compression_error(self, dimension: int) -> float:
        """E ||decoded - v||^2 / ||v||^2, without noise and rounding."""
        return 0.0

    def mean_squared_error(self, dimension: int) -> float:
        """The whole error of the mean of n equal updates.

        It is d (n sigma^2 + n g^2 E[f (1 - f)] + w) (clip/n)^2 by noise, rounding and
        wraps, f being the fractional part of a rotated coordinate, taken to be
        Gaussian, and w = 4^b g^2 times the probability of a wrap; plus
        (compression_error + the part lost to the clip of coordinates) clip_norm^2.
        """
        lost = self.compression_error(dimension)
        lost += self.grid(dimension).clipped_part(self._coordinate_stddev(dimension))
        return self.error_of_bits(dimension) + lost * self.clip_norm**2

    def error_of_bits(self, dimension: int) -> float:
        """The part of the error by noise, rounding and wraps."""
        grid = self.grid(dimension)
        n, step = self.cohort_size, grid.granularity
        stddev = self._coordinate_stddev(dimension)
        own = n * rounding_variance(stddev / step)
        if self.noise_multiplier:
            own += n * self.share_variance(grid.local_stddev_steps)
        half = 2.0 ** (self.modulus_bits - 1)
        wraps = math.erfc(half / math.sqrt(2 * (own + (n * stddev / step) ** 2)))
        own += 4 * half**2 * wraps
        return dimension * own * (step * self.clip_norm * self.vector_clip / n) ** 2

    def error_of_noise(self, dimension: int) -> float:
        """`error_of_bits` with Gaussian noise and without rounding."""
        noise = self.update_noise_multiplier * self.clip_norm * self.vector_clip
        shares = self.cohort_size / self.noise_shares
        return dimension * shares * (noise / self.cohort_size) ** 2

    def _coordinate_stddev(self, dimension: int) -> float:
        """Standard deviation of a rotated coordinate, over the clip of the vector."""
        return 1 / (self.vector_clip * math.sqrt(self.rotated_dimension(dimension)))


@functools.lru_cache(maxsize=256)
def _grid_for_sampling(mechanism: IntegerMechanism, dimension: int) -> IntegerGrid:
    """The grid of least error, or a coarser one that sampling amplifies better.

    Cohorts vary where helpers bring the noise. Little is proved about coordinates
    longer than a step where clients are sampled, unless the noise is practically
    Gaussian.
    """
    fine = mechanism._rounding_grid(dimension, one_step=False)
    if mechanism.noise_source == "clients" or not mechanism.noise_multiplier:
        return fine
    event = mechanism._update_event(fine, dimension)
    if event.route(sampled=True) != "shifts":
        return fine
    coarse = mechanism._rounding_grid(dimension, one_step=True)
    other, order = mechanism._update_event(coarse, dimension), [2.0]
    suits = other.rdp(order)[0] <= _MOST_EXCESS / other.noise_multiplier**2
    fewer = other.rdp_before_sampling(order)[0] < event.rdp_before_sampling(order)[0]
    return coarse if suits and fewer else fine


@dataclasses.dataclass(frozen=True)
class DistributedDiscreteGaussian(IntegerMechanism):
    """Each share is discrete Gaussian noise (Kairouz et al. 2021)."""

    name: ClassVar[str] = "distributed_discrete_gaussian"
    name_of_noise: ClassVar[str] = "discrete_gaussian"
    event_class = accounting.DistributedDiscreteGaussianDpEvent

    def share_variance(self, stddev: float) -> float:
        """The variance in squared steps, at most `stddev`^2.

        Below one grid step it is visibly less.
        """
        if not 0 < stddev < 2:
            return stddev**2
        k = np.arange(-40, 41)
        pmf = np.exp(summed_noise.DiscreteGaussianNoise(1, stddev).log_pmf_at(k))
        return float(np.sum(pmf * np.square(k)))


@dataclasses.dataclass(frozen=True)
class DistributedSkellam(IntegerMechanism):
    """Each share is a difference of two Poisson variables (Agarwal et al. 2021)."""

    name: ClassVar[str] = "distributed_skellam"
    name_of_noise: ClassVar[str] = "skellam"
    event_class = accounting.DistributedSkellamDpEvent
