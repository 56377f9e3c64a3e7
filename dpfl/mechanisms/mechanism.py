# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Base of all mechanisms' configurations.

A `Mechanism` is a frozen set of numbers. From the same numbers come the TFF
aggregator that adds the noise, the DpEvent that accounts for it and the bits of
its messages, so that they cannot disagree. Nothing here imports TensorFlow.

    mechanism = L2Csgm(1000, clip_norm=0.3, noise_multiplier=0.9, keep_fraction=0.1)
    plan = PoissonSampling(population=100_000, cohort_size=1000, rounds=1500)
    mechanism.dp_event(plan, dimension=7850)
    mechanism.uplink_bits(7850)

The relation between neighbours that a run is private for follows from the mechanism
and from the choice of clients (`Mechanism.neighboring_relations`), and the run's event
carries it.
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
from dpfl.accounting.integer import grid_numbers
from dpfl.fields import Checked, required
from dpfl.mechanisms.participation import (
    MOST_CLIENTS,
    SECRET_PARTICIPATIONS,
    Participation,
    PoissonSampling,
)
from dpfl.privacy_coverage import EXACT_FOR_SIMULATION, MEASURES

FLOAT_BITS = 32
# A stateless seed is two 64-bit integers.
SEED_BITS = 128
# Bits of the length in front of a list of values.
COUNT_BITS = 32
# Largest noise multiplier: a larger one is a mistake, and its sums would overflow
# float32.
MOST_NOISE_MULTIPLIER = 1e9
LEAST_NOISE_MULTIPLIER = events.LEAST_NOISE_MULTIPLIER
# Range of a clip with which its square and all results stay within float32.
CLIP_RANGE = (1e-15, 1e15)
# Largest factor or threshold: a larger one is a mistake too, and squares and products
# stay far from the ends of the floats.
LARGEST_FACTOR = 1e9
MOST_DIMENSIONS = checks.MOST_DIMENSIONS
# Default of mechanisms that compress.
DEFAULT_COMPRESSION_RATE = 100.0


_Self = TypeVar("_Self", bound="Mechanism")

# Checks of arguments of methods and functions, by name.
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
    """The parties that clients of a secure sum trust.

    Args:
      noise_source: "clients" or "helpers".
    """
    if noise_source == "helpers":
        return (
            "a secure sum of clients and helpers who do not collude with the server, "
            "which does not know who joined; this simulation's operator is trusted, "
            "since the server itself opens the clients' sum without noise and adds "
            "the helpers' shares"
        )
    return (
        "a secure sum, simulated here: the server learns the number of reporting "
        "clients and their sum, to which each of them adds noise"
    )


def _returning(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method so that its event carries the mechanism's relations.

    A number is checked to be at least 0; it may be infinite.
    """

    @functools.wraps(method)
    def returning(self: Mechanism, *arguments: Any, **named: Any) -> Any:
        result = method(self, *arguments, **named)
        if method.__name__ == "round_dp_event":
            return trees.carrying(result, self.release_relations)
        return trees.up_to_infinity(f"{method.__name__} of {self.name}", result)

    return returning


# Methods, subclasses' too, whose results are checked.
_RETURNING = {"round_dp_event", "uplink_bits", "downlink_bits", "mean_squared_error"}


@dataclasses.dataclass(frozen=True)
class Mechanism(Checked, abc.ABC):
    """The numbers of one mechanism; see the module's text.

    Fields hold the values that their checks return, and so do the arguments
    `participation`, `dimension` and `sampling_probability` of all public methods,
    subclasses' too.

    In all methods `participation` is the choice of clients over the run, and
    `dimension` is d, the length of the flattened model update.

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
    # The page of docs/privacy on why a run of it is its event; "" for others' classes.
    privacy_page: ClassVar[str] = ""
    # Whether the server learns the clients' sum alone, and none of their messages.
    sums_securely: ClassVar[bool] = False
    # Whether the clients of a round are sent a seed, such as that of a rotation.
    shares_a_seed: ClassVar[bool] = False
    # Whether clients' example counts may weight the mean.
    is_weighted: ClassVar[bool] = False
    # Names of measurements that its codec makes of the release or of public numbers.
    # They are written unmarked; the codec may measure no others in `decode`.
    released_measurements: ClassVar[tuple[str, ...]] = ()
    # Whether `mean_squared_error` is the whole error: if not, the rest depends on the
    # updates, so that errors cannot be compared.
    has_whole_error: ClassVar[bool] = True

    # Whether secret rounds of a client may amplify, over a whole run.
    takes_secret_participation: ClassVar[bool] = False

    # Whether a round's noise depends on that of other rounds.
    remembers_noise: ClassVar[bool] = False

    # Peak number of vectors of d floats in the processes of a run with two groups of
    # clients, as measured by `experiments.benchmark --rows=parameters`, rounded up.
    peak_vectors: ClassVar[float] = 50

    # Fields of some mechanisms, with their values in the others. The types are
    # comments, since annotations would make them fields of all.
    noise_multiplier = None  # type: Optional[float]
    bits = None  # type: Optional[int]
    compression_rate = None  # type: Optional[float]
    keep_fraction = 1.0  # type: float

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        for name in _RETURNING & vars(cls).keys():
            setattr(cls, name, _returning(vars(cls)[name]))

    @classmethod
    def filled_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values of required fields that follow from other values, by field name."""
        return {}

    def with_noise_multiplier(self: _Self, noise_multiplier: float) -> _Self:
        """The same mechanism with another noise multiplier, as for calibration."""
        if all(each.name != "noise_multiplier" for each in dataclasses.fields(self)):
            wanted = f"left out for {self.name}, which has no noise"
            raise TypeError(
                checks.message("noise_multiplier", wanted, noise_multiplier)
            )
        changes: dict[str, Any] = {"noise_multiplier": noise_multiplier}
        return dataclasses.replace(self, **changes)

    @property
    def some_noise_multiplier(self) -> float:
        """A noise multiplier above zero that suits the other numbers."""
        return 1.0

    def check(self, participation: Participation, dimension: int) -> None:
        """Raises ValueError if the mechanism cannot run in this setting."""
        n, own = participation.cohort_size, self.cohort_size
        checks.require(own == n, "cohort_size", f"the participation's {n}", own)
        is_secret = isinstance(participation, SECRET_PARTICIPATIONS)
        is_taken = self.takes_secret_participation or not is_secret
        wanted = (
            f"poisson, or one whose groups are no secret, for {self.name}, which has "
            "no Gaussian noise on all coordinates"
        )
        checks.require(is_taken, "participation", wanted, participation.name)

    def check_accounting_method(
        self, accounting_method: str, participation: Participation, dimension: int
    ) -> None:
        """Raises ValueError if `accounting_method` does not account for such releases.

        Args:
          accounting_method: A value of `calibration.ACCOUNTING_METHODS`.
          participation: The choice of clients.
          dimension: d, the length of the flattened update.
        """
        accounting_method = checks.choice(
            "accounting_method", accounting_method, calibration.ACCOUNTING_METHODS
        )
        if accounting_method != "tight" or not self.is_private:
            return
        # The kind of the releases does not depend on the noise.
        noised = self.with_noise_multiplier(self.some_noise_multiplier)
        event = noised.dp_event(participation, dimension)
        has_tight = calibration.has_tight_epsilon(event)
        pair = f"{self.name} with {participation.name}"
        wanted = f"auto or rdp for {pair}, which have no tight epsilon"
        checks.require(has_tight, "accounting_method", wanted, accounting_method)

    def check_cost(  # noqa: B027
        self, participation: Participation, dimension: int
    ) -> None:
        """Raises ValueError if a run's noise would take days of computing alone.

        It concerns the computation, not the accounting. By default noise takes less
        time than the training.
        """

    def run_vectors(self, dimension: int) -> float:
        """Peak number of vectors of d floats in the processes of a run.

        A mechanism adds those that it keeps in a number of its own.
        """
        return self.peak_vectors

    def needs_more_noise(self, dimension: int) -> bool:
        """Whether `check_noise` raises for all noise up to this.

        A calibration then tries more noise before any accounting.
        """
        return False

    def check_noise(self, dimension: int) -> None:  # noqa: B027
        """Raises ValueError if the noise, once it is set, does not suit the rest.

        By default any noise does.
        """

    def check_server_optimizer(  # noqa: B027
        self, name: str, momentum: Optional[float]
    ) -> None:
        """Raises ValueError if the server's optimizer does not suit the mechanism.

        Plain steps are "sgd" with the momentum None or zero. By default any optimizer
        suits.
        """

    @property
    def opens_updates(self) -> bool:
        """Whether something is measured from the clients' updates themselves."""
        return False

    def check_measure(self, measure: Optional[str]) -> None:
        """Raises ValueError for unknown measurements, or too few for the mechanism.

        Args:
          measure: One of `MEASURES`, or None for the default: exact sums over clients
            where the server is trusted with each message, and none where it is not.
        """
        if measure is not None:
            measure = checks.choice("measure", measure, MEASURES)
        if self.opens_updates and measure != EXACT_FOR_SIMULATION:
            wanted = f"{EXACT_FOR_SIMULATION!r} to measure the updates themselves"
            raise ValueError(checks.message("measure", wanted, measure))

    @property
    def trust(self) -> str:
        """The parties that clients trust with their updates, and the noise's source."""
        return (
            "a trusted server: it sees each client's message and adds the noise itself"
        )

    @property
    def file_digest(self) -> Optional[str]:
        """SHA-256 of the file that the mechanism depends on, None if there is none.

        A resumed run must find the same file.
        """
        return None

    @property
    def identity(self) -> str:
        """A digest of everything that the noise depends on, except the seed."""
        named = {"mechanism": self.name, "file": self.file_digest}
        own = {**self.gone_fields(), **dataclasses.asdict(self)}
        return files.digest({**named, **own})

    @classmethod
    def gone_fields(cls) -> dict[str, Any]:
        """Former fields with the value that they had, on whose digest noise depends."""
        fields: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            fields.update(vars(base).get("former_fields", {}))
        return fields

    @abc.abstractmethod
    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """The release of one round, which each client joins with a probability.

        It carries the relations for which the mechanism is private,
        `release_relations`, also where a subclass returns an event without relations.
        """

    @property
    def release_relations(self) -> events.Relations:
        """The relations for which one release, of a round of all clients, is private.

        A subclass may narrow them by `neighboring_relations`.
        """
        everybody = PoissonSampling(self.cohort_size, self.cohort_size, 1)
        return self.neighboring_relations(everybody)

    def neighboring_relations(self, participation: Participation) -> events.Relations:
        """The relations between neighbours that a run is private for, at least one.

        They are those of the choice of clients. A mechanism whose clients bring the
        noise overrides this.
        """
        return participation.neighboring_relations

    def dp_event(
        self, participation: Participation, dimension: int
    ) -> events.RunDpEvent:
        """All releases of a run, as one event that names its relations.

        `dpfl.accounting.DpflAccountant` composes it for one of these relations.

        Raises:
          ValueError: If `check` refuses the setting.
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
        """The first rounds of a run, and releases of rounds that were repeated since.

        Args:
          participation: The choice of clients.
          dimension: d, the length of the flattened update.
          rounds: The number of first rounds.
          drawn: The number of repeated rounds with cohorts drawn as those of other
            rounds.
          whole: The largest number of the other repeated rounds that a client is in. It
            counts as in them whatever is drawn, which never underestimates their
            privacy loss (docs/privacy/ledger.md).

        Raises:
          ValueError: If no bound for repeated rounds is known.
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
        """The release of a lost round of a client that is repeated with other noise.

        A mechanism whose noise is a stream overrides this.
        """
        return self.round_dp_event(dimension, 1.0)

    def _of_run(
        self, event: DpEvent, participation: Participation
    ) -> events.RunDpEvent:
        """Releases of a run, with the relations for which all of them are private."""
        neighboring_relations, bare = (
            self.neighboring_relations(participation),
            trees.bare(event),
        )
        if bare is not event:
            own = trees.relations_of(event)
            neighboring_relations = tuple(r for r in neighboring_relations if r in own)
        return events.RunDpEvent(bare, neighboring_relations)

    def _run_event(self, participation: Participation, dimension: int) -> DpEvent:
        """All releases of a run that suits the mechanism."""
        event = self.round_dp_event(dimension, participation.sampling_probability)
        # The noise is there whoever takes part.
        if events.Relation.ADD_OR_REMOVE_ONE in self.release_relations:
            run, own = participation.run_event(event), trees.relations_of(event)
            # What joins at random may strip an event of relations of its own.
            is_narrower = not set(self.release_relations) <= set(own)
            return events.RunDpEvent(run, own) if is_narrower else run
        return SelfComposedDpEvent(event, participation.max_participations)

    def uplink_bits(self, dimension: int) -> float:
        """The expected bits that one client sends in one round; by default d floats."""
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
    wanted = f"0 or at least {LEAST_NOISE_MULTIPLIER:g}"
    checks.require(not 0 < noise < LEAST_NOISE_MULTIPLIER, name, wanted, value)
    if noise > MOST_NOISE_MULTIPLIER:
        wanted = f"at most {MOST_NOISE_MULTIPLIER:g}"
        raise events.NoiseTooLargeError(checks.message(name, wanted, value))
    return noise


def _clip(name: str, value: Any) -> float:
    clip = checks.positive(name, value)
    least, most = CLIP_RANGE
    wanted = f"from {least:g} to {most:g}, so that its square is a float32"
    checks.require(least <= clip <= most, name, wanted, value)
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

    released_measurements: ClassVar[tuple[str, ...]] = ("clip_norm", "noise_stddev")

    def check_noise(self, dimension: int) -> None:
        """Raises ValueError if the noise is too small for a sum that holds the clip."""
        least, noise = grid_numbers.NO_NOISE / self.keep_fraction, self.noise_multiplier
        wanted = f"0 or at least {least:.3g}, for a sum that holds the clip"
        checks.require(not 0 < noise < least, "noise_multiplier", wanted, noise)
