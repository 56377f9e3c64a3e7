# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What every mechanism's configuration offers.

A `Mechanism` is a frozen set of numbers. From the same numbers come the TFF
aggregator that adds the noise, the DpEvent that accounts for it and the bits of
its messages, so that they cannot disagree. Nothing here imports TensorFlow.

The relation between neighbours that a run is private for follows from the mechanism
and from how clients are chosen (`Mechanism.relations`), and the run's event carries it.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Optional, TypeVar

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from dpfl import checks, files
from dpfl.accounting import calibration, events, trees
from dpfl.covered import EXACT_FOR_SIMULATION, MEASURES
from dpfl.fields import Checked, required
from dpfl.mechanisms.participation import (
    HIDDEN_TURNS,
    MOST_CLIENTS,
    Participation,
    PoissonSampling,
    RandomSlot,
    WithoutReplacement,
)

FLOAT_BITS = 32
# A stateless seed is two 64-bit integers.
SEED_BITS = 128
# The length in front of a list of values.
COUNT_BITS = 32
# More noise than this is a mistake, and sums of it would leave the float32 numbers.
MOST_NOISE_MULTIPLIER = 1e9
LEAST_NOISE_MULTIPLIER = events.LEAST_NOISE_MULTIPLIER
# Keeps a clip, its square and all that is computed from it within float32.
CLIP_RANGE = (1e-15, 1e15)
# For other factors and thresholds: what is beyond them is a mistake too, and their
# squares and products stay far from the ends of the floats.
LARGEST_FACTOR = 1e9
MOST_DIMENSIONS = checks.MOST_DIMENSIONS
# Of mechanisms that compress, where nothing else is asked for.
DEFAULT_COMPRESSION_RATE = 100.0


_Self = TypeVar("_Self", bound="Mechanism")

# Of methods and functions alike, by name.
ARGUMENTS: Mapping[str, checks.Check] = {
    "participation": checks.instance(Participation),
    "dimension": checks.dimension,
    "sampling_probability": checks.probability,
}


def gaussian_event(noise_multiplier: float, sampling_probability: float) -> DpEvent:
    """A Gaussian event, Poisson-sampled if the probability is below 1."""
    event = GaussianDpEvent(noise_multiplier)
    if sampling_probability == 1:
        return event
    return PoissonSampledDpEvent(sampling_probability, event)


def secure_sum_trust(noise_source: str) -> str:
    """Whom the clients of a secure sum trust; the noise is "clients" or "helpers"."""
    if noise_source == "helpers":
        return (
            "a secure sum of clients and helpers who do not collude with the server, "
            "which does not know who joined; in this simulation the server itself "
            "opens the clients' sum without noise and adds the helpers' shares, so "
            "that whoever runs it is trusted"
        )
    return (
        "a secure sum, simulated here: the server learns how many clients report, and "
        "their sum, to which they add the noise"
    )


def _carrying(method: Callable[..., DpEvent]) -> Callable[..., DpEvent]:
    """A `round_dp_event` of which the result carries the mechanism's relations."""

    @functools.wraps(method)
    def round_dp_event(self: Mechanism, *arguments: Any, **named: Any) -> DpEvent:
        return trees.carrying(method(self, *arguments, **named), self.release_relations)

    return round_dp_event


@dataclasses.dataclass(frozen=True)
class Mechanism(Checked, abc.ABC):
    """The numbers of one mechanism; see the module's text.

    Fields are what their checks return, and so are the arguments `participation`,
    `dimension` and `sampling_probability` of all public methods, subclasses' too.

    In all methods `participation` is how clients are chosen, and `dimension` is d, the
    length of the flattened model update.

    Attributes:
      cohort_size: The constant n by which the sum is divided; the expected number of
        clients in a round, never the number that reported.
    """

    cohort_size: int = required(
        "Expected number of clients in a round, by which sums are divided.",
        at_least=1,
        at_most=MOST_CLIENTS,
    )

    checked_arguments: ClassVar[Mapping[str, checks.Check]] = ARGUMENTS
    name: ClassVar[str]
    is_private: ClassVar[bool] = True
    # Whether the server learns the clients' sum alone, and none of their messages.
    sums_securely: ClassVar[bool] = False
    # Whether the clients of a round are sent a seed, such as that of a rotation.
    shares_a_seed: ClassVar[bool] = False
    # Whether clients' example counts may weight the mean.
    is_weighted: ClassVar[bool] = False
    # Whether `mean_squared_error` is all of the error: if not, what it leaves out
    # depends on the updates, so that errors cannot be compared.
    has_whole_error: ClassVar[bool] = True

    # Whether a client's rounds may be a secret that amplifies, over a whole run.
    takes_hidden_turns: ClassVar[bool] = False

    # Whether a round's noise depends on that of other rounds.
    remembers_noise: ClassVar[bool] = False

    # How many vectors of d floats the processes of a run hold at their largest, with
    # two groups of clients: as `dpfl-benchmark --rows=parameters` measured, and more.
    peak_vectors: ClassVar[float] = 50

    # Fields of some mechanisms, and what stands for them in the others. The types are
    # comments, since annotations would make them fields of all.
    noise_multiplier = None  # type: Optional[float]
    bits = None  # type: Optional[int]
    compression_rate = None  # type: Optional[float]
    keep_fraction = 1.0  # type: float

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        if "round_dp_event" in vars(cls):
            own: Any = vars(cls)["round_dp_event"]
            cls.round_dp_event = _carrying(own)  # type: ignore[method-assign]

    @classmethod
    def filled_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The fields without a default that other values, by field name, supply."""
        del values
        return {}

    def with_noise_multiplier(self: _Self, noise_multiplier: float) -> _Self:
        """The same mechanism with other noise, as calibration asks for."""
        if all(each.name != "noise_multiplier" for each in dataclasses.fields(self)):
            wanted = f"left out for {self.name}, which has no noise"
            raise TypeError(
                checks.message("noise_multiplier", wanted, noise_multiplier)
            )
        changes: dict[str, Any] = {"noise_multiplier": noise_multiplier}
        return dataclasses.replace(self, **changes)

    @property
    def some_noise_multiplier(self) -> float:
        """A noise multiplier that goes with the other numbers, above zero."""
        return 1.0

    def check(self, participation: Participation, dimension: int) -> None:
        """Raises ValueError if the mechanism cannot run in this setting."""
        if participation.cohort_size != self.cohort_size:
            raise ValueError(
                f"cohort_size must be that of the participation, "
                f"{participation.cohort_size}, found {self.cohort_size}"
            )
        if isinstance(participation, HIDDEN_TURNS) and not self.takes_hidden_turns:
            raise ValueError(
                f"participation must not be {participation.name!r} for {self.name}: "
                "only for a sum with Gaussian noise, of which nothing is dropped, is "
                "it known what rounds that are a secret cost together"
            )

    def check_accountant(
        self, accountant: str, participation: Participation, dimension: int
    ) -> None:
        """Raises ValueError if `accountant` does not account for such releases."""
        accountant = checks.choice("accountant", accountant, calibration.METHODS)
        if accountant != "tight" or not self.is_private:
            return
        # What the releases are does not depend on the noise.
        noised = self.with_noise_multiplier(self.some_noise_multiplier)
        event = noised.dp_event(participation, dimension)
        if not calibration.has_tight_figure(event):
            wanted = (
                f"auto or rdp for {self.name} with {participation.name}, of which "
                "nothing tighter is known"
            )
            raise ValueError(checks.message("accountant", wanted, accountant))

    def check_cost(  # noqa: B027
        self, participation: Participation, dimension: int
    ) -> None:
        """Raises ValueError if a run's noise would take days of computing alone.

        For what computes it, not for what accounts for it. A mechanism that says
        nothing else has noise that takes less than the training.
        """

    def run_vectors(self, dimension: int) -> float:
        """The vectors of d floats that the processes of a run hold at their largest.

        A mechanism with a number that says how many it keeps adds those.
        """
        return self.peak_vectors

    def needs_more_noise(self, dimension: int) -> bool:
        """Whether `check_noise` raises for all noise up to this.

        A calibration then looks for more before anything is accounted for.
        """
        return False

    def check_noise(self, dimension: int) -> None:  # noqa: B027
        """Raises ValueError if the noise, once it is set, does not suit the rest.

        A mechanism that says nothing else takes any noise.
        """

    def check_server_optimizer(  # noqa: B027
        self, name: str, momentum: Optional[float]
    ) -> None:
        """Raises ValueError if the server's optimizer does not go with the mechanism.

        Plain steps are "sgd" with the momentum None or zero. A mechanism that says
        nothing else takes any optimizer.
        """

    @property
    def opens_updates(self) -> bool:
        """Whether something is measured from the clients' updates themselves."""
        return False

    def check_measure(self, measure: Optional[str]) -> None:
        """Raises ValueError for measurements that there are not, or that are too few.

        Args:
          measure: One of `MEASURES`, or None for the default: exact sums over clients
            where the server is trusted with each message, and none where it is not.
        """
        if measure is not None:
            measure = checks.choice("measure", measure, MEASURES)
        if self.opens_updates and measure != EXACT_FOR_SIMULATION:
            wanted = (
                f"{EXACT_FOR_SIMULATION!r} where the updates themselves are measured"
            )
            raise ValueError(checks.message("measure", wanted, measure))

    @property
    def trust(self) -> str:
        """Whom clients trust with their updates, and who adds the noise."""
        return (
            "a trusted server: it sees each client's message and adds the noise itself"
        )

    @property
    def file_digest(self) -> Optional[str]:
        """SHA-256 of the file that the mechanism depends on, None if there is none.

        A run that is resumed must find the same file.
        """
        return None

    @property
    def identity(self) -> str:
        """A digest of all that the noise depends on besides the seed."""
        named = {"mechanism": self.name, "file": self.file_digest}
        return files.digest({**named, **dataclasses.asdict(self)})

    @abc.abstractmethod
    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """The release of one round, which each client joins with a probability.

        It carries the relations that the mechanism leaves, `release_relations`, also
        where a subclass returns an event that carries none.
        """

    @property
    def release_relations(self) -> events.Relations:
        """The relations that one release leaves: those of a round of all clients."""
        everybody = PoissonSampling(self.cohort_size, self.cohort_size, 1)
        return self.relations(everybody)

    def relations(self, participation: Participation) -> events.Relations:
        """The relations between neighbours that a run is private for, at least one.

        They are those that the choice of clients leaves. A mechanism of which the
        clients bring the noise says for itself which of them are left to it.
        """
        return participation.relations

    def dp_event(
        self, participation: Participation, dimension: int
    ) -> events.RunDpEvent:
        """All releases of a run, as one event that names its relations.

        `dpfl.accounting.DpflAccountant` composes it for one of these relations. What
        `check` raises is raised.
        """
        self.check(participation, dimension)
        return self._of_run(self._run_event(participation, dimension), participation)

    def history_event(
        self,
        participation: Participation,
        dimension: int,
        rounds: int,
        drawn: int = 0,
        whole: int = 0,
    ) -> events.RunDpEvent:
        """The first rounds of a run, and releases of rounds that were done again since.

        Args:
          drawn: The number of those whose cohorts were drawn as those of other rounds.
          whole: How many of the rest a client is in at most. It counts as in them
            whatever is drawn, which is never less than what they cost
            (docs/privacy/ledger.md).

        Raises:
          ValueError: If it is not known what they cost.
        """
        if not whole:
            return self.dp_event(participation.first(rounds + drawn), dimension)
        release = self.again_event(participation, dimension)
        parts: list[DpEvent] = [SelfComposedDpEvent(release, whole)]
        if rounds + drawn:
            run = self.dp_event(participation.first(rounds + drawn), dimension)
            parts.insert(0, run)
        return self._of_run(ComposedDpEvent(tuple(parts)), participation)

    def again_event(self, participation: Participation, dimension: int) -> DpEvent:
        """The release that a lost round of a client is, if it is done again.

        Its noise is then other noise. A mechanism whose noise is a stream says more.
        """
        del participation
        return self.round_dp_event(dimension, 1.0)

    def _of_run(
        self, event: DpEvent, participation: Participation
    ) -> events.RunDpEvent:
        """Releases of a run, with the relations that all of them leave together."""
        relations, bare = self.relations(participation), trees.bare(event)
        if bare is not event:
            own = trees.relations_of(event)
            relations = tuple(r for r in relations if r in own)
        return events.RunDpEvent(bare, relations)

    def _run_event(self, participation: Participation, dimension: int) -> DpEvent:
        """All releases of a run that suits the mechanism."""
        # Whether there is noise whoever takes part.
        has_own_noise = events.Relation.ADD_OR_REMOVE_ONE in self.release_relations
        if has_own_noise and isinstance(
            participation, (RandomSlot, WithoutReplacement)
        ):
            event = trees.bare(self.round_dp_event(dimension, 1.0))
            if isinstance(event, PoissonSampledDpEvent):
                event = event.event
            return participation.run_event(event)
        return SelfComposedDpEvent(
            self.round_dp_event(dimension, participation.sampling_probability),
            participation.max_participations,
        )

    def uplink_bits(self, dimension: int) -> float:
        """The expected bits that one client sends in one round: an update of float32.

        A mechanism that sends something else says so.
        """
        return float(FLOAT_BITS * dimension)

    def downlink_bits(self, dimension: int) -> float:
        """The bits that one client receives: a model of float32, and perhaps a seed."""
        return float(FLOAT_BITS * dimension + SEED_BITS * self.shares_a_seed)

    @abc.abstractmethod
    def mean_squared_error(self, dimension: int) -> float:
        """E of the squared L2 error of the mean of n updates of norm `clip_norm`.

        Coordinate clipping is taken to be idle.
        """


def _noise(name: str, value: Any) -> float:
    noise = checks.nonnegative(name, value)
    if 0 < noise < LEAST_NOISE_MULTIPLIER:
        wanted = f"0 or at least {LEAST_NOISE_MULTIPLIER:g}"
        raise ValueError(checks.message(name, wanted, value))
    if noise > MOST_NOISE_MULTIPLIER:
        wanted = f"at most {MOST_NOISE_MULTIPLIER:g}"
        raise events.NoiseTooLargeError(checks.message(name, wanted, value))
    return noise


def _clip(name: str, value: Any) -> float:
    clip = checks.positive(name, value)
    least, most = CLIP_RANGE
    if not least <= clip <= most:
        wanted = f"from {least:g} to {most:g}, so that its square is a float32"
        raise ValueError(checks.message(name, wanted, value))
    return clip


@dataclasses.dataclass(frozen=True)
class NoiseMechanism(Mechanism):
    """A mechanism with an L2 clip and Gaussian-like noise.

    Attributes:
      clip_norm: L2 bound of an update.
      noise_multiplier: Standard deviation of the noise on the decoded sum, over
        `clip_norm`. Zero is no noise, and no privacy.
    """

    clip_norm: float = required("L2 bound of an update.", check=_clip)
    noise_multiplier: float = required(
        "Standard deviation of the noise on the decoded sum, over clip_norm; 0 is no "
        "noise, and no privacy.",
        check=_noise,
    )
