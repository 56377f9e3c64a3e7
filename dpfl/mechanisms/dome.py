# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME: a sketch that follows the gradients, local noise, private Adam.

    mechanism = Dome(100, clip_norm=1.0, noise_multiplier=1.0, sketch_size=32)
    error = mechanism.mean_squared_error(dimension)

`DomeDdg` sends each of the numbers in `bits` bits, under noise in integers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Optional

from dp_accounting import DpEvent, GaussianDpEvent

from dpfl import checks
from dpfl.accounting import events
from dpfl.accounting.integer import grid_numbers
from dpfl.fields import option, required
from dpfl.mechanisms import integer, mechanism
from dpfl.mechanisms.integer_grid import FORMER_FIELDS, LEAST_BITS, MOST_BITS
from dpfl.mechanisms.participation import Independent, Participation

# Decay of Adam's second moment.
BETA_2 = 0.999
# Least noise over `clip_norm` that the second moment's floor is computed with.
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

    The fields' own sentences describe them, and besides:

    Attributes:
      sketch_size: k.
      energy_fraction: q in (0, 1].
      max_rank: The rest of the directions are probes.
      sketch_rule: "eigen", or "qr" as in the paper.
      sketch_decay: In (0, 1]; the paper never forgets, which is 1.
      sketch_target: The decoded "gradient" as in the paper, or the "residual", the
        gradient without the first moment.
      direction: "adam", or "gradient" (the decoded mean) for other server optimizers.
      second_moment_floor: None is z^2 C^2 k / (B^2 d).
      measures_energy: Refused unless a simulation asks for exact measurements
        (`check_measure`).
    """

    sketch_size: int = required(
        "Numbers that a client sends, the rows of the sketch.", at_least=1
    )
    energy_fraction: float = option(
        0.999,
        "Share of the squared strengths that the sketch keeps.",
        check=checks.fraction,
    )
    max_rank: Optional[int] = option(
        None,
        "Maximum rank of the sketch; unset for a quarter of sketch_size, or all of it "
        "without probes.",
        at_least=1,
    )
    sketch_rule: str = option(
        "eigen", "Update rule of the sketch", choices=("eigen", "qr")
    )
    sketch_decay: float = option(
        0.95,
        "Factor of the sketch's strengths in each round; 1 never forgets.",
        check=checks.fraction,
    )
    sketch_target: str = option(
        "residual",
        "Vectors that the sketch learns from",
        choices=("gradient", "residual"),
    )
    probes: bool = option(
        True, "Whether the sketch has random directions, new in each round."
    )
    mean_removal: bool = option(
        True, "Whether clients subtract the first moment from their updates."
    )
    debiasing: bool = option(
        True, "Whether the noise variance is subtracted from the second moment."
    )
    direction: str = option(
        "adam", "Direction of the server's step", choices=("adam", "gradient")
    )
    beta_1: float = option(
        0.9, "Decay of the first moment, at least 0 and below 1.", at_least=0, below=1
    )
    second_moment_floor: Optional[float] = option(
        None,
        "Lower bound on Adam's second moment; unset for the mean noise variance of a "
        "coordinate.",
        above=0,
    )
    measures_energy: bool = option(
        False,
        "Whether the share of the updates that the sketch holds is measured, from the "
        "updates themselves; with --measure=exact_for_simulation alone.",
    )

    # See `Mechanism.gone_fields`.
    former_fields: ClassVar[Mapping[str, Any]] = {
        "beta_2": BETA_2,
        "paper_accounting": False,
    }

    name: ClassVar[str] = "dome"
    released_measurements: ClassVar[tuple[str, ...]] = (
        "noise_stddev",
        "retained_rank",
        "subspace_overlap",
    )
    privacy_page: ClassVar[str] = "dome.md"
    sums_securely: ClassVar[bool] = True
    shares_a_seed: ClassVar[bool] = True
    has_whole_error: ClassVar[bool] = False
    trust = mechanism.secure_sum_trust("clients")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_rank is not None:
            size = self.sketch_size
            limit = "sketch_size" if self.probes else "sketch_size, without probes"
            least = 1 if self.probes else size
            checks.integer("max_rank", self.max_rank, least, size, limit)

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class."""
        super().check(participation, dimension)
        checks.integer("sketch_size", self.sketch_size, 1, dimension, "the dimension")
        is_fixed = not isinstance(participation, Independent)
        wanted = "once_per_epoch or fixed, since each client of a cohort adds noise"
        checks.require(is_fixed, "participation", wanted, participation.name)

    def check_server_optimizer(self, name: str, momentum: Optional[float]) -> None:
        """Raises ValueError unless Adam's direction is followed by plain steps."""
        if self.direction == "adam" and (name != "sgd" or momentum):
            value = name if name != "sgd" else f"server_momentum {momentum:g}"
            raise ValueError(
                "server_optimizer must be sgd with server_momentum 0 (and server_lr "
                f"about 0.01) for {self.name} with direction 'adam', found {value}"
            )

    @property
    def opens_updates(self) -> bool:
        """See base class: the energy is measured from them."""
        return self.measures_energy

    @property
    def modulus_bits(self) -> int:
        """Bits b of each of the k numbers, which are summed modulo 2^b."""
        multiplier = self.noise_multiplier or self.no_noise
        return grid_numbers.grid_of_cohort(multiplier, self.cohort_size).modulus_bits

    @property
    def no_noise(self) -> float:
        """Substitute for zero noise, so that messages are no wider than with noise."""
        return grid_numbers.least_noise_of_32_bits(self.cohort_size)

    @property
    def resolved_max_rank(self) -> int:
        """The largest number of directions that the sketch keeps."""
        if self.max_rank is not None:
            return self.max_rank
        return -(-self.sketch_size // 4) if self.probes else self.sketch_size

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

    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """The release of the k numbers; ValueError unless the probability is 1."""
        q = sampling_probability
        checks.require(q == 1, "sampling_probability", "1", q)
        return self._release_event()

    def _release_event(self) -> DpEvent:
        return GaussianDpEvent(self.noise_multiplier)

    def neighboring_relations(self, participation: Participation) -> events.Relations:
        """'replaced by zeros': a client that is removed takes its noise with it."""
        return events.ZERO_OUT_ONLY

    def run_vectors(self, dimension: int) -> float:
        """See base class; the kept directions exist in several copies.

        TFF's messages of them make about ten of bfloat16, as measured with 32.
        """
        return self.peak_vectors + 6 * self.resolved_max_rank

    def uplink_bits(self, dimension: int) -> float:
        """The bits of the k numbers, each an integer of at least 32 bits."""
        return float(self.modulus_bits * self.sketch_size)

    def downlink_bits(self, dimension: int) -> float:
        """The bits of the model, U' in bfloat16, S m and the seed, at the most.

        S m is sent for mean removal alone. U' has as many directions as the sketch
        keeps at the time; they are counted as `max_rank`.
        """
        kept = self.resolved_max_rank * dimension * mechanism.FLOAT_BITS // 2
        offset = mechanism.FLOAT_BITS * self.sketch_size * self.mean_removal
        own = kept + mechanism.COUNT_BITS + offset
        return super().downlink_bits(dimension) + own

    def mean_squared_error(self, dimension: int) -> float:
        """The error by noise, k (z C)^2 / n^2 (the paper's Lemma 3.1).

        It is the whole error if the sketch holds the updates; the part that the sketch
        misses has to be measured.
        """
        return self.sketch_size * self.stddev**2


@dataclasses.dataclass(frozen=True)
class DomeDdg(Dome):
    """DOME with integer noise: `Dome`, its k numbers sent as a distributed Gaussian's.

    A client rotates its clipped k-vector, rounds it to a grid and adds a share of
    discrete Gaussian noise; the server learns the sum modulo 2^bits. This is
    `DistributedDiscreteGaussian` in k dimensions, `release`, which also does the
    accounting.

    `bits` is b, or "auto" until `choice.resolve` has chosen a number.
    """

    bits: int = option(
        16,
        "Bits of each of the numbers, from 2 to 30; auto for the fewest with hardly "
        "more error than Gaussian noise.",
        auto=True,
        at_least=LEAST_BITS,
        at_most=MOST_BITS,
    )

    former_fields: ClassVar[Mapping[str, Any]] = FORMER_FIELDS
    name: ClassVar[str] = "dome_ddg"
    released_measurements = (
        *Dome.released_measurements,
        "clip_norm",
        "granularity",
        "wrap_probability",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.release

    @property
    def release(self) -> integer.DistributedDiscreteGaussian:
        """The mechanism that sums the k-vectors."""
        kind = integer.DistributedDiscreteGaussian
        own = {field.name for field in dataclasses.fields(self)}
        own &= {field.name for field in dataclasses.fields(kind)}
        return kind(**{name: getattr(self, name) for name in own})

    @property
    def modulus_bits(self) -> int:
        """See base class: b, once it is a number."""
        return self.release.modulus_bits

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class; refuses bits that are too few for the cohort, too."""
        super().check(participation, dimension)
        self.release.check(participation, self.sketch_size)

    def needs_more_noise(self, dimension: int) -> bool:
        """Whether the grid of `release` needs more noise."""
        return self.release.needs_more_noise(self.sketch_size)

    def check_noise(self, dimension: int) -> None:
        """Raises ValueError if the noise does not suit the grid of `release`."""
        self.release.check_noise(self.sketch_size)

    @property
    def stddev(self) -> float:
        """Standard deviation of noise and rounding on a coordinate of the mean.

        The part of rounding depends a little on the vectors; it is that of vectors as
        long as the clip.
        """
        error = self.release.mean_squared_error(self.sketch_size)
        return math.sqrt(error / self.sketch_size)

    def _release_event(self) -> DpEvent:
        return self.release.round_dp_event(self.sketch_size, 1.0)

    def uplink_bits(self, dimension: int) -> float:
        """The b bits of each of the k numbers."""
        return self.release.uplink_bits(self.sketch_size)
