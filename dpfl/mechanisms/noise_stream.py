# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""How long a stream of correlated noise lasts, and what its releases come to.

It lasts an epoch, in which a client takes part once, or the whole run. Over a run the
rounds of one client are to be as far apart as C has diagonals: each of them is then one
release (`accounting.banded_stream`), which client sampling amplifies. Updates that are
not sparsified may have any C, at the sensitivity of all rounds of a client together,
without amplification. The proofs are in docs/privacy/matrix_factorization.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Optional

import dp_accounting

from dpfl import checks
from dpfl import factorization as fact
from dpfl.accounting import banded_stream, events
from dpfl.factorization import diagonals, sensitivity
from dpfl.fields import option, required
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
    return diagonals.bands(config.factorization)


def kept_bytes(config: Any, dimension: int) -> Optional[int]:
    """Returns what a stream remembers between rounds, as float32, where it is known.

    Args:
      config: The mechanism.
      dimension: Length d of the flattened model update.
    """
    rows = diagonals.kept_rows(config.factorization)
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
    rows = diagonals.kept_rows(config.factorization)
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
    longest = diagonals.longest_column(found, whole)
    # A client that is in as many rounds as fit is in the last of them from here on.
    last = diagonals.longest_column(found, rounds, (-(-rounds // b) - 1) * b)
    stream = banded_stream.banded_stream_event(
        release(longest / diagonals.longest_column(found, rounds)),
        rounds=rounds,
        bands=diagonals.bands(found),
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
