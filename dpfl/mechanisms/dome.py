# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME: a sketch that follows the gradients, local noise, private Adam."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Optional

import dp_accounting

from dpfl import accounting, checks
from dpfl.accounting import events
from dpfl.accounting.integer import grid_numbers
from dpfl.fields import option, required
from dpfl.mechanisms import integer, mechanism
from dpfl.mechanisms.integer import RoundingFields
from dpfl.mechanisms.participation import (
    CyclicPoisson,
    Participation,
    PoissonSampling,
    RandomSlot,
)

SKETCH_RULES = ("eigen", "qr")
SKETCH_TARGETS = ("gradient", "residual")
DIRECTIONS = ("adam", "gradient")
# Noise that the second moment's floor presumes where there is less, over `clip_norm`.
_SMALLEST_FLOOR_STDDEV = 1e-3


@dataclasses.dataclass(frozen=True)
class Dome(mechanism.NoiseMechanism):
    """DOME (Nicolas et al. 2025, Algorithms 1 and 2).

    A client subtracts the first moment from its update, projects on the k orthonormal
    rows of the sketch, clips that to `clip_norm` C, adds N(0, a^2 I_k), all of it in
    integers of a fine grid, and takes part in a secure sum modulo 2^32 (2^62 where
    cohorts are so large that a sum needs it). The server divides by B = `cohort_size`,
    decodes, updates Adam's moments and the sketch, and hands Adam's direction on, for
    plain SGD to apply.

    `noise_multiplier` z is that of the sum, sqrt(B) a / C. The noise comes from the
    clients: all B must take part in every round, so that Poisson sampling is refused.

    Attributes:
      sketch_size: k, the numbers that a client sends.
      energy_fraction: q in (0, 1]: share of the squared strengths that is kept.
      max_rank: Most directions that the sketch keeps; the rest are probes. None is
        a quarter of the sketch, and all of it without probes.
      sketch_rule: "eigen", or "qr" as in the paper.
      sketch_decay: What the kept strengths are multiplied by each round, in (0, 1]; the
        paper never forgets, which is 1.
      sketch_target: What the sketch learns from: the decoded "gradient" as in the
        paper, or the "residual", what is left of it without the first moment.
      probes: Whether the sketch has random directions, new in each round.
      mean_removal: Whether clients subtract the first moment.
      debiasing: Whether the second moment is rid of the noise's variance.
      direction: "adam", or "gradient" (the decoded mean) for other server optimizers.
      beta_1: Decay of the first moment, in [0, 1).
      beta_2: Decay of the second moment, in [0, 1).
      second_moment_floor: Least second moment that Adam divides by the root of; None is
        the mean noise variance of a coordinate, z^2 C^2 k / (B^2 d).
      paper_accounting: Whether a client is charged for N rounds an epoch, as in the
        paper, and not for the one that it is in.
      measures_energy: Whether the share of the mean update that the sketch holds is
        measured from the updates themselves; refused unless a simulation asks for exact
        measurements (`check_measure`).
    """

    sketch_size: int = required("Numbers that a client sends, the rows of the sketch.")
    energy_fraction: float = option(
        0.999, "Share of the squared strengths that the sketch keeps."
    )
    max_rank: Optional[int] = option(
        None,
        "Most directions that the sketch keeps; unset for a quarter of them, and for "
        "all without probes.",
    )
    sketch_rule: str = option(
        "eigen", f"How the sketch is updated, one of {', '.join(SKETCH_RULES)}."
    )
    sketch_decay: float = option(
        0.95, "What the kept strengths are multiplied by each round; 1 never forgets."
    )
    sketch_target: str = option(
        "residual", f"What the sketch learns from, one of {', '.join(SKETCH_TARGETS)}."
    )
    probes: bool = option(
        True, "Whether the sketch has random directions, new in each round."
    )
    mean_removal: bool = option(
        True, "Whether clients subtract the first moment from their updates."
    )
    debiasing: bool = option(
        True, "Whether the second moment is rid of the noise's variance."
    )
    direction: str = option(
        "adam", f"What the server's optimizer gets, one of {', '.join(DIRECTIONS)}."
    )
    beta_1: float = option(0.9, "Decay of the first moment, at least 0 and below 1.")
    beta_2: float = option(0.999, "Decay of the second moment, at least 0 and below 1.")
    second_moment_floor: Optional[float] = option(
        None,
        "Least second moment that Adam divides by the root of; unset for the mean "
        "noise variance of a coordinate.",
    )
    paper_accounting: bool = option(
        False,
        "Whether the accounting is the paper's, by which each round of a client costs "
        "it as much as population rounds; for comparison alone.",
    )
    measures_energy: bool = option(
        False,
        "Whether the share of the updates that the sketch holds is measured, from the "
        "updates themselves; with --measure=exact_for_simulation alone.",
    )

    name: ClassVar[str] = "dome"
    sums_securely: ClassVar[bool] = True
    has_whole_error: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("sketch_size", self.sketch_size)
        checks.fraction("energy_fraction", self.energy_fraction)
        checks.fraction("sketch_decay", self.sketch_decay)
        self._check_max_rank()
        for name, choices in (
            ("sketch_rule", SKETCH_RULES),
            ("sketch_target", SKETCH_TARGETS),
            ("direction", DIRECTIONS),
        ):
            checks.choice(name, getattr(self, name), choices)
        for name in ("beta_1", "beta_2"):
            checks.real(name, getattr(self, name), at_least=0, below=1)
        if self.second_moment_floor is not None:
            checks.positive("second_moment_floor", self.second_moment_floor)

    def _check_max_rank(self) -> None:
        """Raises ValueError unless the sketch has room for what it keeps."""
        if self.max_rank is None:
            return
        checks.integer("max_rank", self.max_rank)
        if self.max_rank > self.sketch_size:
            raise ValueError(
                f"max_rank must be at most the sketch_size of {self.sketch_size}, "
                f"found {self.max_rank}"
            )
        if not self.probes and self.max_rank != self.sketch_size:
            raise ValueError(
                f"max_rank must be the sketch_size of {self.sketch_size} where "
                f"probes is False, found {self.max_rank}"
            )

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class."""
        super().check(participation, dimension)
        self._check_dimension(dimension)
        if isinstance(participation, (PoissonSampling, RandomSlot, CyclicPoisson)):
            raise ValueError(
                "participation must be once_per_epoch or fixed, since every client of "
                f"a cohort adds its share of the noise, found {participation.name}"
            )

    def check_server_optimizer(self, name: str, momentum: Optional[float]) -> None:
        """Raises ValueError if plain steps do not follow Adam's direction."""
        if self.direction == "adam" and (name != "sgd" or momentum):
            found = name if name != "sgd" else f"server_momentum {momentum:g}"
            raise ValueError(
                "server_optimizer must be sgd with server_momentum 0, and a server_lr "
                f"of 0.01 or so, where {self.name} has direction 'adam', found {found}"
            )

    def _check_dimension(self, dimension: int) -> None:
        if self.sketch_size > dimension:
            raise ValueError(
                f"sketch_size must be at most the dimension of {dimension}, "
                f"found {self.sketch_size}"
            )

    @property
    def opens_updates(self) -> bool:
        """See base class: the energy is measured from them."""
        return self.measures_energy

    @property
    def message_bits(self) -> int:
        """Bits of each of the k numbers, whose secure sum is modulo 2 to as many."""
        multiplier = self.noise_multiplier or self.no_noise
        return grid_numbers.grid_of_cohort(multiplier, self.cohort_size).modulus_bits

    @property
    def no_noise(self) -> float:
        """What stands for the noise where there is none: messages are no wider then."""
        return grid_numbers.least_noise_of_32_bits(self.cohort_size)

    @property
    def resolved_max_rank(self) -> int:
        """The largest number of directions that the sketch keeps."""
        if self.max_rank is not None:
            return self.max_rank
        return -(-self.sketch_size // 4) if self.probes else self.sketch_size

    @property
    def local_stddev(self) -> float:
        """a, the standard deviation of what a client adds to each of its k numbers."""
        return self.noise_multiplier * self.clip_norm / math.sqrt(self.cohort_size)

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise on each coordinate of the decoded mean."""
        return self.noise_multiplier * self.clip_norm / self.cohort_size

    def resolved_second_moment_floor(self, dimension: int) -> float:
        """The floor as the server uses it."""
        if self.second_moment_floor is not None:
            return self.second_moment_floor
        stddev = max(self.stddev, _SMALLEST_FLOOR_STDDEV * self.clip_norm)
        return stddev**2 * self.sketch_size / dimension

    def round_dp_event(
        self, dimension: int, sampling_probability: float
    ) -> dp_accounting.DpEvent:
        """A Gaussian event of multiplier sqrt(B) a / C.

        Raises:
          ValueError: If the probability is not 1.
        """
        self._check_probability(sampling_probability)
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    @property
    def trust(self) -> str:
        """Whom clients trust, and who adds the noise."""
        return mechanism.secure_sum_trust("clients")

    def relations(self, participation: Participation) -> events.Relations:
        """'replaced by zeros': a client that goes takes its noise with it."""
        return events.ZEROS_ONLY

    def _run_event(
        self, participation: Participation, dimension: int
    ) -> dp_accounting.DpEvent:
        """A `DomeDpEvent` of all the rounds that a client may be in.

        With `paper_accounting` a client is charged N times for each of them.
        """
        if not self.noise_multiplier:
            return super()._run_event(participation, dimension)
        return accounting.DomeDpEvent(
            clients_per_round=self.cohort_size,
            local_stddev=self.local_stddev,
            clip_norm=self.clip_norm,
            epochs=participation.max_participations,
            charges_per_epoch=self._charges(participation),
        )

    @staticmethod
    def _check_probability(sampling_probability: float) -> None:
        if sampling_probability != 1:
            raise ValueError(
                f"sampling_probability must be 1, found {sampling_probability}"
            )

    def _charges(self, participation: Participation) -> int:
        """Returns how often a client is charged for a round that it is in."""
        return participation.population if self.paper_accounting else 1

    def uplink_bits(self, dimension: int) -> float:
        """The bits of the k numbers, each as an integer of 32, at the least."""
        return float(self.message_bits * self.sketch_size)

    def downlink_bits(self, dimension: int) -> float:
        """The bits of the model, U' in bfloat16, S m and the seed, at the most.

        S m is sent for mean removal alone. U' has as many directions as the sketch
        keeps at the time; they are counted as `max_rank`.
        """
        kept = self.resolved_max_rank * dimension * mechanism.FLOAT_BITS // 2
        offset = mechanism.FLOAT_BITS * self.sketch_size * self.mean_removal
        own = kept + mechanism.COUNT_BITS + offset + mechanism.SEED_BITS
        return float(mechanism.FLOAT_BITS * dimension + own)

    def mean_squared_error(self, dimension: int) -> float:
        """The error by noise, k (z C)^2 / n^2 (the paper's Lemma 3.1).

        That is all of it if the sketch holds the updates; what it misses has to be
        measured.
        """
        return self.sketch_size * self.stddev**2


@dataclasses.dataclass(frozen=True)
class DomeDdg(RoundingFields, Dome):
    """DOME with integer noise: `Dome`, its k numbers sent as a distributed Gaussian's.

    A client rotates its clipped k-vector, rounds it to a grid and adds a share of
    discrete Gaussian noise; the server learns the sum modulo 2^bits: that is
    `DistributedDiscreteGaussian` in k dimensions, `release`, which also accounts.

    Attributes:
      bits: b, bits of each of the k numbers; the sum is modulo 2^b. From 2 to 30, or
        "auto" until `choice.chosen` has chosen a number.
    """

    bits: int = option(
        16,
        "Bits of each of the numbers, from 2 to 30; auto for the fewest that "
        "bits_tolerance allows.",
        auto=True,
    )

    name: ClassVar[str] = "dome_ddg"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.release

    @property
    def release(self) -> integer.DistributedDiscreteGaussian:
        """How the k-vectors are summed."""
        return integer.DistributedDiscreteGaussian(
            cohort_size=self.cohort_size,
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
            bits=self.bits,
            rounding_bias=self.rounding_bias,
            wrap_probability=self.wrap_probability,
            integer_bound=self.integer_bound,
            bits_tolerance=self.bits_tolerance,
        )

    @property
    def message_bits(self) -> int:
        """See base class: b, once it is a number."""
        return self.release.message_bits

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class; refuses bits that are too few for the cohort, too."""
        super().check(participation, dimension)
        self.release.check(participation, self.sketch_size)

    def needs_more_noise(self, dimension: int) -> bool:
        """Returns whether the grid of `release` asks for more noise."""
        return self.release.needs_more_noise(self.sketch_size)

    def check_noise(self, dimension: int) -> None:
        """Raises ValueError if the noise does not suit the grid of `release`."""
        self.release.check_noise(self.sketch_size)

    @property
    def stddev(self) -> float:
        """Standard deviation of noise and rounding on a coordinate of the mean.

        Rounding is that of vectors as long as the clip; it depends on them a little.
        """
        error = self.release.mean_squared_error(self.sketch_size)
        return math.sqrt(error / self.sketch_size)

    def round_dp_event(
        self, dimension: int, sampling_probability: float
    ) -> dp_accounting.DpEvent:
        """The event of `release` in k dimensions.

        Raises:
          ValueError: If the probability is not 1.
        """
        self._check_probability(sampling_probability)
        return self.release.round_dp_event(self.sketch_size, 1.0)

    def _run_event(
        self, participation: Participation, dimension: int
    ) -> dp_accounting.DpEvent:
        """A round's event, composed over the rounds that a client may be in.

        With `paper_accounting` a client is charged N times for each of them.
        """
        return dp_accounting.SelfComposedDpEvent(
            self.round_dp_event(dimension, 1.0),
            participation.max_participations * self._charges(participation),
        )

    def uplink_bits(self, dimension: int) -> float:
        """B bits for each of the k numbers."""
        return self.release.uplink_bits(self.sketch_size)
