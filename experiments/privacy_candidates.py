# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms that dpfl-privacy, which has the flags, compares or leaves out.

    participation, mechanisms = privacy_candidates.of(values)

stderr names what is not shown, and why; what --mechanisms names is refused instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from dpfl import checks, mechanisms, planning
from dpfl.mechanisms import Mechanism, Participation, build

from . import comparison, mechanism_flags

PRIVATE = sorted(
    name for name, config in mechanisms.MECHANISMS.items() if config.is_private
)


def participation_of(cohort_size: int) -> Participation:
    """The participation from the flags, with cohorts of a size."""
    return build.participation(
        flags.FLAGS.participation,
        flags.FLAGS.population or cohort_size,
        cohort_size,
        flags.FLAGS.rounds,
        rounds_per_epoch=flags.FLAGS.rounds_per_epoch,
        min_separation=flags.FLAGS.min_separation,
    )


def rates() -> list[float]:
    """The requested compression rates; raises ValueError for an invalid one."""
    found = []
    for text in flags.FLAGS.compression_rates:
        try:
            found.append(checks.real("rate", float(text), at_least=1))
        except ValueError:
            wanted = "numbers of at least 1"
            message = checks.message("--compression_rates", wanted, text)
            raise ValueError(message) from None
    if not found:
        raise ValueError("--compression_rates must name at least one rate, found none")
    return found


def _names(values: Mapping[str, Any]) -> list[str]:
    """The mechanisms to compare; stderr reports the values that others need."""
    asked = flags.FLAGS.mechanisms
    if asked is not None:
        unknown = [name for name in asked if name not in PRIVATE]
        if unknown or not asked:
            raise ValueError(
                f"--mechanisms must be of {', '.join(PRIVATE)}, "
                f"found {', '.join(unknown) or 'none'}"
            )
        return list(asked)
    wants = {name: build.missing_fields(name, values) for name in PRIVATE}
    notes = [
        f"{name} (--{', --'.join(missing)})"
        for name, missing in wants.items()
        if missing
    ]
    if notes:
        print(f"not shown without a flag: {', '.join(notes)}", file=sys.stderr)
    return [name for name, missing in wants.items() if not missing]


def _fitting(
    candidates: Sequence[Mechanism], participation: Participation, by_error: bool
) -> list[Mechanism]:
    """The candidates that can run in this setting, with all their numbers.

    The others are reported on stderr, or refused if --mechanisms names them. A
    comparison at equal error needs mechanisms with a known error.
    """
    refused: list[str] = []
    fits = []
    for mechanism in candidates:
        try:
            ready = complete(mechanism, participation)
            if by_error and not ready.has_whole_error:
                raise ValueError(
                    f"--equal must be epsilon for {ready.name}, whose compression "
                    "error depends on the updates, found error"
                )
        except ValueError as error:
            if flags.FLAGS.mechanisms is not None:
                raise
            refused.append(f"{mechanism.name}: {error}")
            continue
        fits.append(ready)
    for sentence in dict.fromkeys(refused):
        print(f"not shown: {sentence}", file=sys.stderr)
    return fits


def complete(mechanism: Mechanism, participation: Participation) -> Mechanism:
    """The mechanism with automatic numbers chosen, which stderr reports."""
    size = flags.FLAGS.dimension
    chosen = planning.resolve(
        mechanism,
        participation,
        size,
        epsilon=flags.FLAGS.epsilon,
        delta=flags.FLAGS.delta,
        accounting_method=flags.FLAGS.accounting_method,
    )
    for sentence in chosen.sentences:
        print(f"{mechanism.name}: {sentence}", file=sys.stderr)
    complete = chosen.mechanism
    complete.check(participation, size)
    complete.check_accounting_method(flags.FLAGS.accounting_method, participation, size)
    return complete


def of(
    values: Mapping[str, Any], by_error: bool = False
) -> tuple[Participation, list[Mechanism]]:
    """The participation, and the requested mechanisms that can run with it."""
    requested, names = rates(), _names(values)
    own = {"cohort_size", "clip_norm"}.union(*map(build.accepted_fields, names))
    mechanism_flags.check_meaning("the mechanisms compared", own)
    participation = participation_of(flags.FLAGS.cohort_size)
    if participation.varies_cohorts and "noise_source" in own:
        # Clients that leave would take their noise along.
        values = {"noise_source": "helpers", **values}
    candidates = comparison.candidates(names, requested, values)
    return participation, _fitting(candidates, participation, by_error)
