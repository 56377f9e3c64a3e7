# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Matrix factorization (DP-FTRL): noise correlated over rounds.

Its stream lasts an epoch, in which a client takes part once, or the whole run. Over a
run the rounds of one client are to be as far apart as C has diagonals: each of them is
then one release (`accounting.matrix_factorization`), which client sampling amplifies.
Updates that are not sparsified may have any C, at the sensitivity of all rounds of a
client together, without amplification. The proofs are in
docs/privacy/matrix_factorization.md.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Optional

import dp_accounting
import numpy as np

from dpfl import accounting, checks, files
from dpfl import factorization as fact
from dpfl.accounting import events, matrix_factorization
from dpfl.factorization import factorization, sensitivity
from dpfl.fields import option, required
from dpfl.mechanisms import mechanism
from dpfl.mechanisms.participation import (
    CyclicPoisson,
    OncePerEpoch,
    Participation,
    RandomSlot,
)

EPOCH, RUN = "epoch", "run"
NOISE_STREAMS = (EPOCH, RUN)

# From the noise over what `noise_multiplier` asks for to the event of a release.
ReleaseEvent = Callable[[float], dp_accounting.DpEvent]


@dataclasses.dataclass(frozen=True)
class EpochFields:
    """What a stream of noise that restarts cannot do without.

    Attributes:
      rounds_per_epoch: Rounds after which the noise starts afresh; those of an epoch of
        the participation, in which a client takes part at most once. Of no meaning, and
        None, for a stream over the whole run.
    """

    rounds_per_epoch: Optional[int] = required(
        "Rounds of an epoch, in which a client takes part at most once; for any "
        "mechanism if --participation has epochs."
    )


@dataclasses.dataclass(frozen=True)
class StreamFields:
    """How long a stream of noise lasts.

    Attributes:
      noise_stream: "epoch": the noise starts afresh each epoch. "run": it does not, and
        the matrix has all rounds of the run.
      rounds: T, for a stream over the whole run; None for the other.
    """

    noise_stream: str = option(
        EPOCH,
        "epoch: the noise starts afresh each epoch; run: it is one stream over all "
        "rounds, of a matrix with at most --min_separation diagonals.",
    )
    rounds: Optional[int] = option(None, "Rounds of a stream over the whole run.")

    @classmethod
    def filled_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See `Mechanism.filled_in`."""
        return {"rounds_per_epoch": None} if values.get("noise_stream") == RUN else {}

    @property
    def is_over_run(self) -> bool:
        """Whether the noise never starts afresh."""
        return self.noise_stream == RUN

    @property
    def stream_rounds(self) -> int:
        """Rounds of one stream, and of its matrix."""
        streamed: Any = self
        return self.rounds if self.is_over_run else streamed.rounds_per_epoch


def check_fields(config: Any) -> None:
    """Raises ValueError or TypeError for the first field that will not do.

    Args:
      config: With `StreamFields` and `EpochFields`.
    """
    checks.choice("noise_stream", config.noise_stream, NOISE_STREAMS)
    if config.is_over_run:
        if config.rounds is None:
            raise ValueError("rounds must be given for noise_stream 'run'")
        checks.integer("rounds", config.rounds)
        checks.optional_integer("rounds_per_epoch", config.rounds_per_epoch)
        return
    checks.integer("rounds_per_epoch", config.rounds_per_epoch)
    if config.rounds is not None:
        raise ValueError(
            f"rounds must be left out for noise_stream 'epoch', found {config.rounds}"
        )


def stream_sensitivity(found: fact.Factorization, rounds: int) -> float:
    """Returns the sensitivity of the first rows of a stream, each client in one row.

    Args:
      found: The factorization A = B C, perhaps of more rounds.
      rounds: Rows of A G + B Z that are released.
    """
    return found.sensitivity(rounds=rounds).value


def bands(config: Any) -> int:
    """Returns h, the diagonals of a mechanism's C as far as its factors tell."""
    return factorization.bands(config.factorization)


def kept_bytes(config: Any, dimension: int) -> Optional[int]:
    """Returns what a stream remembers between rounds, as float32, where it is known.

    Args:
      config: The mechanism.
      dimension: Length d of the flattened model update.
    """
    rows = factorization.kept_rows(config.factorization)
    return None if rows is None else 4 * rows * dimension


def numbers(config: Any, dimension: int) -> dict[str, Any]:
    """Returns what a run's summary says of its streams.

    Args:
      config: The mechanism.
      dimension: Length d of the flattened model update.
    """
    return {
        "lasts": config.noise_stream,
        "rounds": config.stream_rounds,
        "bands": bands(config),
        "kept_bytes": kept_bytes(config, dimension),
    }


def sentence(config: Any, dimension: int) -> str:
    """Returns how long a mechanism's streams last, and what they keep.

    Args:
      config: The mechanism.
      dimension: Length d of the flattened model update.
    """
    lasts = "one over the whole run" if config.is_over_run else "one for each epoch"
    h, found = bands(config), kept_bytes(config, dimension)
    text = f"{lasts}, {config.stream_rounds} rounds and {h} diagonals"
    if found is None:
        return text
    rows = factorization.kept_rows(config.factorization)
    return f"{text}; it keeps {found / 1e6:.4g} MB, {rows} vectors"


def check_stream(
    config: Any, participation: Participation, *, any_matrix: bool
) -> None:
    """Raises ValueError unless what a client does in a stream can be accounted for.

    Args:
      config: The mechanism, whose own fields are checked.
      participation: How clients are chosen.
      any_matrix: Whether C may have more diagonals than lie between the rounds of a
        client, over a run.
    """
    if not config.is_over_run:
        _check_epochs(config, participation)
        return
    if isinstance(participation, RandomSlot):
        raise ValueError(
            "participation must not be 'random_slot' for noise_stream 'run', whose "
            "rounds are accounted for where they are known or each drawn by itself"
        )
    if participation.rounds > config.stream_rounds:
        raise ValueError(
            f"rounds must be at least the {participation.rounds} of the participation, "
            f"found {config.stream_rounds}"
        )
    h, b = bands(config), participation.separation
    if h > b and not any_matrix:
        raise ValueError(
            f"min_separation must be at least the {h} diagonals of C for {config.name} "
            "with noise_stream 'run' (matrix_method 'toeplitz' or 'banded' has as many "
            f"as matrix_bands says), found {b} for participation {participation.name}"
        )


def _check_epochs(config: Any, participation: Participation) -> None:
    """Raises ValueError unless each client is in a stream of noise at most once."""
    if not isinstance(participation, OncePerEpoch):
        raise ValueError(
            "participation must be 'once_per_epoch', since correlated noise is "
            "accounted for one participation in each epoch, "
            f"found {participation.name!r}"
        )
    if participation.rounds_per_epoch != config.rounds_per_epoch:
        raise ValueError(
            "rounds_per_epoch must be that of the participation, "
            f"{participation.rounds_per_epoch}, found {config.rounds_per_epoch}"
        )


def round_event(
    config: Any,
    release: dp_accounting.DpEvent,
    sampling_probability: float,
) -> dp_accounting.DpEvent:
    """Returns the release that one round of a client is, client sampling included.

    Args:
      config: The mechanism.
      release: Of a client that takes part, an epoch's or a round's.
      sampling_probability: With which each client joins.

    Raises:
      ValueError: If clients are sampled for a stream of an epoch: no amplification is
        proven.
    """
    if sampling_probability == 1:
        return release
    if not config.is_over_run:
        raise ValueError(
            "sampling_probability must be 1 for correlated noise, "
            f"found {sampling_probability}"
        )
    return dp_accounting.PoissonSampledDpEvent(sampling_probability, release)


def run_event(
    config: Any,
    release: ReleaseEvent,
    participation: Participation,
) -> dp_accounting.DpEvent:
    """Returns all releases of a run.

    Args:
      config: The mechanism.
      release: Maps the noise over what `noise_multiplier` asks for to the release of
        an epoch, or of one round of a client in a stream over the run.
      participation: How clients are chosen, and for how many rounds.
    """
    if not config.is_over_run:
        return _epochs_event(config, release, participation)
    if bands(config) > participation.separation:
        return _dense_event(config, release, participation)
    found, whole = config.factorization, config.stream_rounds
    rounds, b = participation.rounds, participation.separation
    longest = factorization.longest_column(found, whole)
    # A client that is in as many rounds as fit is in the last of them from here on.
    last = factorization.longest_column(found, rounds, (-(-rounds // b) - 1) * b)
    stream = matrix_factorization.banded_stream_event(
        release(longest / factorization.longest_column(found, rounds)),
        rounds=rounds,
        bands=factorization.bands(found),
        separation=b,
        participations=participation.max_participations,
        last_release=None if last == longest else release(longest / last),
        sampling_probability=participation.sampling_probability,
        independent_groups=participation.relations == events.TRUSTED_RELATIONS,
    )
    return stream.event


def _epochs_event(
    config: Any, release: ReleaseEvent, participation: Participation
) -> dp_accounting.DpEvent:
    """Returns the streams of whole epochs, and what the last began.

    Noise is in proportion to the sensitivity of an epoch's rows. Where only the first
    r of them are released the sensitivity is theirs, and the noise over it is more.
    """
    epochs, rest = divmod(participation.rounds, config.stream_rounds)
    parts = []
    if epochs:
        parts.append(dp_accounting.SelfComposedDpEvent(release(1.0), epochs))
    if rest:
        found = config.factorization
        more = stream_sensitivity(found, config.stream_rounds)
        more /= stream_sensitivity(found, rest)
        parts.append(dp_accounting.SelfComposedDpEvent(release(more), 1))
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(tuple(parts))


def _dense_event(
    config: Any, release: ReleaseEvent, participation: Participation
) -> dp_accounting.DpEvent:
    """Returns the stream as one release, of all rounds of a client together.

    Rounds count up to the end of the epoch, or of the groups' turns, that has begun:
    the sensitivity is then the same for all of its rounds.
    """
    found, separation = config.factorization, participation.separation
    length = participation.rounds_per_epoch or separation
    rounds = min(-(-participation.rounds // length) * length, config.stream_rounds)
    times = participation.first(rounds).max_participations
    plan: sensitivity.Plan = sensitivity.MinSeparation(separation, times)
    if isinstance(participation, CyclicPoisson):
        plan = sensitivity.FixedEpochs(times, separation)
    of_all = found.sensitivity(plan, rounds).value
    one = stream_sensitivity(found, config.stream_rounds)
    return dp_accounting.SelfComposedDpEvent(release(one / of_all), 1)


SCHEDULES: Mapping[str, type[fact.Schedule]] = {
    "constant": fact.ConstantRate,
    "drop": fact.DropRate,
    "cooldown": fact.LinearCooldown,
}

# The fields that each method takes, and the names of the method's own parameters.
_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "band-low-rank": {"matrix_bands": "band", "matrix_rank": "rank"},
    "toeplitz": {"matrix_bands": "bands"},
    "banded": {"matrix_bands": "bands"},
    "banded-inverse-root": {"matrix_bands": "bands"},
    "banded-inverse": {"matrix_bands": "bands"},
    "blt-rational": {"matrix_buffers": "buffers"},
    "blt": {"matrix_buffers": "buffers"},
}
_OPTIONAL = frozenset({("toeplitz", "matrix_bands")})
_SIZES = ("matrix_bands", "matrix_rank", "matrix_buffers")


@dataclasses.dataclass(frozen=True)
class MatrixFields:
    """Where the factorization A = B C comes from.

    Attributes:
      matrix_method: A key of `dpfl.factorization.METHODS`.
      matrix_momentum: beta of the workload: momentum that the aggregator applies, so
        that the noise is the best for the iterates with momentum. The server's
        optimizer must then have none.
      matrix_schedule: Rates of the workload relative to the server's: "constant",
        "drop" (a tenth in the last quarter) or "cooldown" (linear to 0.05 in the last
        quarter).
      matrix_bands: Diagonals of C ("banded", "toeplitz"), of C^-1 ("banded-inverse",
        "banded-inverse-root") or of B ("band-low-rank").
      matrix_rank: Rank of the low-rank part of B ("band-low-rank").
      matrix_buffers: Buffers ("blt", "blt-rational").
      matrix_file: A file made by `dpfl.factorization.save`, in place of all of the
        above; its matrix may have more rounds than the epoch, or the run.
      matrix_cache: Directory in which factorizations are kept once computed.
    """

    matrix_method: str = option(
        "optimal", f"How A = B C is found, one of {', '.join(sorted(fact.METHODS))}."
    )
    matrix_momentum: float = option(
        0.0, "Momentum that the aggregator applies, and the noise is the best for."
    )
    matrix_schedule: str = option(
        "constant", f"Rates of the workload, one of {', '.join(SCHEDULES)}."
    )
    matrix_bands: Optional[int] = option(
        None,
        "Diagonals of C (banded, toeplitz), of its inverse (banded-inverse, "
        "banded-inverse-root) or of B (band-low-rank).",
    )
    matrix_rank: Optional[int] = option(
        None, "Rank of the low-rank part of B (band-low-rank)."
    )
    matrix_buffers: Optional[int] = option(
        None, "Buffers of the noise stream (blt, blt-rational)."
    )
    matrix_file: Optional[str] = option(
        None, "A factorization that was saved, in place of the other matrix fields."
    )
    matrix_cache: Optional[str] = option(
        None, "Folder in which factorizations are kept once computed."
    )

    def check_matrix(self, rounds: int) -> None:
        """Raises ValueError or TypeError for the first field that will not do.

        Args:
          rounds: Of a stream of noise.
        """
        checks.choice("matrix_method", self.matrix_method, fact.METHODS)
        checks.real("matrix_momentum", self.matrix_momentum, at_least=0, below=1)
        checks.choice("matrix_schedule", self.matrix_schedule, SCHEDULES)
        if self.matrix_file is not None:
            self._check_nothing_beside_the_file()
        else:
            self._check_sizes(rounds)

    def _check_nothing_beside_the_file(self) -> None:
        """Raises ValueError if a file and a way to compute its like are both given."""
        for field in dataclasses.fields(MatrixFields):
            value = getattr(self, field.name)
            if field.name != "matrix_file" and value != field.default:
                raise ValueError(
                    f"{field.name} must be left out where a matrix_file is given, "
                    f"found {value!r}"
                )

    def _check_sizes(self, rounds: int) -> None:
        """Raises ValueError unless the method has its sizes, and no others."""
        wanted = _PARAMETERS.get(self.matrix_method, {})
        for name in _SIZES:
            value = getattr(self, name)
            if value is not None and name not in wanted:
                raise ValueError(
                    f"{name} must be left out for matrix_method "
                    f"{self.matrix_method!r}, found {value!r}"
                )
            if value is not None:
                checks.integer(name, value, 0 if name == "matrix_rank" else 1)
            elif name in wanted and (self.matrix_method, name) not in _OPTIONAL:
                raise ValueError(
                    f"{name} must be given for matrix_method {self.matrix_method!r}"
                )
        for name in ("matrix_bands", "matrix_rank"):
            value = getattr(self, name)
            if value is not None and value > rounds:
                raise ValueError(
                    f"{name} must be at most the {rounds} rounds of a stream, "
                    f"found {value}"
                )

    @property
    def file_digest(self) -> Optional[str]:
        """SHA-256 of the matrix_file, None if there is none; see `Mechanism`."""
        if self.matrix_file is None:
            return None
        path = files.input_path("matrix_file", self.matrix_file)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def find_matrix(self, rounds: int, called: str) -> fact.Factorization:
        """Returns the factorization, loaded or computed at the first call.

        Args:
          rounds: Of a stream of noise.
          called: The field that says so.

        Raises:
          ValueError: If the matrix has fewer rounds, or the file is damaged or not
            there.
        """
        if self.matrix_file is not None:
            files.input_path("matrix_file", self.matrix_file)
            changed = os.stat(self.matrix_file).st_mtime_ns
            return _load(self.matrix_file, changed, rounds)
        names = [field.name for field in dataclasses.fields(MatrixFields)]
        request = MatrixFields(**{name: getattr(self, name) for name in names})
        return _compute(rounds, called, request)


@functools.lru_cache(maxsize=8)
def _load(path: str, changed: int, rounds: int) -> fact.Factorization:
    del changed
    found = fact.load(path)
    if found.rounds < rounds:
        raise ValueError(
            f"matrix_file {path} must have at least the {rounds} rounds of a stream, "
            f"found {found.rounds}"
        )
    return found


@functools.lru_cache(maxsize=8)
def _compute(rounds: int, called: str, fields: MatrixFields) -> fact.Factorization:
    workload = fact.Workload(
        rounds, fields.matrix_momentum, SCHEDULES[fields.matrix_schedule]()
    )
    sizes = _PARAMETERS.get(fields.matrix_method, {})
    params: dict[str, Any] = {
        parameter: getattr(fields, name)
        for name, parameter in sizes.items()
        if getattr(fields, name) is not None
    }
    names = {parameter: name for name, parameter in sizes.items()}
    with checks.renaming({"rounds": called, **names}):
        if fields.matrix_cache is None:
            return fact.compute(workload, fields.matrix_method, **params)
        files.output_folder("matrix_cache", fields.matrix_cache)
        cache = fact.Cache(fields.matrix_cache)
        return cache.get(workload, fields.matrix_method, **params)


def check_server_optimizer(
    found: fact.Factorization, name: str, momentum: Optional[float]
) -> None:
    """Raises ValueError if the server would apply momentum or a schedule twice.

    Args:
      found: The factorization in use.
      name: The server's optimizer, "sgd" for plain steps.
      momentum: Its momentum; None or zero for none.
    """
    if found.workload.is_prefix_sum or (name == "sgd" and not momentum):
        return
    value = repr(name) if name != "sgd" else f"momentum {momentum}"
    raise ValueError(
        "server_optimizer must be 'sgd' without momentum where the workload is "
        f"{found.workload}, since the aggregator applies it, found {value}"
    )


@functools.lru_cache(maxsize=8)
def sum_noise(found: fact.Factorization, rounds: int) -> np.ndarray:
    """Returns each round's noise stddev for a unit of Z, float64[rounds]."""
    return np.linalg.norm(found.noising_rows(0, rounds), axis=1)


@dataclasses.dataclass(frozen=True)
class StreamedMatrix(StreamFields, MatrixFields):
    """The stream of noise of a mechanism: how long it lasts, and its factorization.

    For classes with `noise_stream.EpochFields`, which stand before those of others.
    """

    name: ClassVar[str]

    def check_streamed_matrix(self) -> None:
        """Raises ValueError or TypeError for the first field that will not do."""
        check_fields(self)
        self.check_matrix(self.stream_rounds)

    @property
    def factorization(self) -> fact.Factorization:
        """The factorization A = B C, computed at the first use."""
        called = "rounds" if self.is_over_run else "rounds_per_epoch"
        return self.find_matrix(self.stream_rounds, called)

    @property
    def matrix_sensitivity(self) -> float:
        """max_j ||C[:, j]||, of what a stream releases of C."""
        return stream_sensitivity(self.factorization, self.stream_rounds)

    def check_participation(
        self, participation: Participation, *, any_matrix: bool
    ) -> None:
        """Raises ValueError if the stream does not go with how clients are chosen.

        Args:
          participation: How clients are chosen.
          any_matrix: See `noise_stream.check_stream`.
        """
        check_stream(self, participation, any_matrix=any_matrix)
        if self.matrix_file is not None:
            _ = self.factorization

    def check_server_optimizer(self, name: str, momentum: Optional[float]) -> None:
        """Raises ValueError if the server would apply the workload a second time."""
        check_server_optimizer(self.factorization, name, momentum)


@dataclasses.dataclass(frozen=True)
class MatrixFactorization(StreamedMatrix, mechanism.NoiseMechanism, EpochFields):
    """Release of A G + B Z over an epoch, or a run (Denisov et al. 2022), A = B C.

    Row t of G is the sum of round t's clipped updates, Z has independent rows of
    N(0, sigma^2 I), and sigma = noise_multiplier clip_norm max_j ||C[:, j]||, of what
    a stream releases of C (`factorization.Factors.released_encoder`). The
    aggregator's result in round t is ((A G + B Z)_t - (A G + B Z)_{t-1}) / n, so that
    plain SGD on the server runs through the rows of A G + B Z. The stream starts afresh
    each epoch, or never (`noise_stream`).
    """

    name: ClassVar[str] = "matrix_factorization"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_streamed_matrix()

    @property
    def stddev(self) -> float:
        """sigma, the standard deviation of an entry of Z."""
        return self.noise_multiplier * self.clip_norm * self.matrix_sensitivity

    @property
    def noise_divisor(self) -> float:
        """What the noised sum is divided by, n."""
        return float(self.cohort_size)

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class."""
        super().check(participation, dimension)
        self.check_participation(participation, any_matrix=True)

    def round_dp_event(
        self, dimension: int, sampling_probability: float
    ) -> dp_accounting.DpEvent:
        """Returns the release that a client's epoch, or its round of a run, is."""
        return round_event(self, self._release_event(1.0), sampling_probability)

    def _release_event(self, factor: float) -> dp_accounting.DpEvent:
        noise = self.noise_multiplier * factor
        if self.is_over_run:
            return dp_accounting.GaussianDpEvent(noise)
        return accounting.MatrixFactorizationDpEvent(noise)

    def _run_event(
        self, participation: Participation, dimension: int
    ) -> dp_accounting.DpEvent:
        """Returns the streams of the run; see `noise_stream.run_event`."""
        return run_event(self, self._release_event, participation)

    def uplink_bits(self, dimension: int) -> float:
        """Returns 32 bits for each parameter."""
        return float(mechanism.FLOAT_BITS * dimension)

    def mean_squared_error(self, dimension: int) -> float:
        """Returns d (sigma / n)^2 ||A^-1 B||_F^2 / T, the error of a round's mean.

        It is averaged over the rounds. The errors of rounds cancel in part; those of
        the iterates, which a factorization makes small, are `factorization.errors()`.
        """
        rows = sum_noise(self.factorization, self.stream_rounds)
        return (
            dimension * (self.stddev / self.cohort_size) ** 2 * float(np.mean(rows**2))
        )


def iterate_stddev(found: fact.Factorization, stddev: float, rounds: int) -> np.ndarray:
    """Returns the standard deviation of each row of B Z, float64[rounds]."""
    return stddev * np.sqrt(found.factors.row_norms_squared(found.workload))[:rounds]
