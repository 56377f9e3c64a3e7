# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Which mechanisms are shown by dpfl-privacy, which has the flags."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from dpfl import checks, mechanisms, planning
from dpfl.mechanisms import Mechanism, Participation, build

PRIVATE = sorted(
    name for name, config in mechanisms.MECHANISMS.items() if config.is_private
)


def rates() -> list[float]:
    """The compression rates that are asked for.

    Raises:
      ValueError: If there are none, or what is named is no rate.
    """
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


def names(values: Mapping[str, Any]) -> list[str]:
    """The mechanisms to compare; says on stderr what the others want of the values.

    Raises:
      ValueError: If a mechanism is named that there is not, or none is.
    """
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
        print(f"not shown for want of a flag: {', '.join(notes)}", file=sys.stderr)
    return [name for name, missing in wants.items() if not missing]


def fitting(
    candidates: Sequence[Mechanism],
    participation: Participation,
    by_error: bool = False,
) -> list[Mechanism]:
    """Those that can run in this setting, with all their numbers.

    The others are said on stderr. Those to be compared at equal error need a whole one.

    Raises:
      ValueError: If one cannot run and --mechanisms has named it.
    """
    found, refused = [], []
    for mechanism in candidates:
        try:
            ready = complete(mechanism, participation)
            if by_error and not ready.has_whole_error:
                raise ValueError(
                    "--equal must be epsilon, since what its compression misses "
                    f"depends on the updates, for {ready.name}, found error"
                )
            found.append(ready)
        except ValueError as error:
            if flags.FLAGS.mechanisms is not None:
                raise
            refused.append(f"{mechanism.name}: {error}")
    for what in dict.fromkeys(refused):
        print(f"not shown: {what}", file=sys.stderr)
    return found


def complete(mechanism: Mechanism, participation: Participation) -> Mechanism:
    """The mechanism with the numbers that were left open; stderr says which.

    Raises:
      ValueError: If it cannot run in this setting.
    """
    values: Any = flags.FLAGS
    chosen = planning.chosen(
        *(mechanism, participation, values.dimension),
        epsilon=values.epsilon,
        delta=values.delta,
    )
    for sentence in chosen.sentences:
        print(f"{mechanism.name}: {sentence}", file=sys.stderr)
    found = chosen.mechanism
    found.check(participation, values.dimension)
    found.check_accountant(values.accountant, participation, values.dimension)
    return found
