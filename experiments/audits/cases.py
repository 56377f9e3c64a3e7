# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The canaries of an audit: the cases of each mechanism and their numbers.

    for case in cases.of("l2_csgm"):
        print(case.setting, case.claim().epsilon)

`cases.csv` has a line a case: the choice of clients with population, cohort, rounds and
the least separation of a client's rounds, the number of coordinates over which the
canary is spread alike, the number of canaries in a round, and fields of the mechanism.

Noise, masks and dimensions are small, so that an optimal test finds most of the claimed
epsilon from some thousand releases; a delta below 1e-3 would show little. All clients
take part if each adds a share of the noise. A canary with all coordinates at their
bound, which L-inf-CSGM charges for, is alone in its round, and one of sparse recovery
nearly fills the clip of a Gaussian sketch, which only one does. In a stream over a run
each client has at most three turns of two groups. A quick audit has the first case of
each mechanism.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpfl import files, mechanisms
from dpfl.mechanisms import build

from .. import tables
from .canaries import Case
from .streams import StreamCase


def _case(row: tables.Row) -> Case:
    options = tables.options(row["options"])
    choice, *numbers = row["participation"].split()
    population, cohort, rounds, *separation = map(int, numbers)
    size = int(row["block"])
    kind: Any = mechanisms.MECHANISMS[row["mechanism"]]
    mechanism = kind(
        cohort_size=cohort, clip_norm=1.0, noise_multiplier=float(row["z"]), **options
    )
    own = StreamCase if options.get("noise_stream") == "run" else Case
    return own(
        mechanism,
        int(row["dimension"]),
        build.participation(
            *(choice, population, cohort, rounds),
            min_separation=separation[0] if separation else None,
        ),
        (size**-0.5,) * size,
        int(row["canaries"]),
        float(row["delta"]),
        row["vector"],
    )


CASES: dict[str, list[Case]] = {}
"""The cases of each mechanism that is private, by its name."""

STREAMS: dict[str, list[StreamCase]] = {}
"""The cases of each mechanism with a stream over a run, by its name."""

for _each in map(_case, files.read_csv(Path(__file__).with_name("cases.csv"))):
    if isinstance(_each, StreamCase):
        STREAMS.setdefault(_each.mechanism.name, []).append(_each)
    else:
        CASES.setdefault(_each.mechanism.name, []).append(_each)


def of(name: str) -> list[Case]:
    """The cases of a mechanism.

    A mechanism of another package is audited in its example: a canary in one
    coordinate, and noise that is claimed to be Gaussian.

    Raises:
      ValueError: If a mechanism of another package has no example.
    """
    if name in CASES:
        return CASES[name]
    if name not in mechanisms.TEST_CONFIGS:
        raise ValueError(f"mechanisms must be registered with an example, found {name}")
    example = mechanisms.TEST_CONFIGS[name].with_noise_multiplier(1.0)
    n = example.cohort_size
    return [Case(example, 64, mechanisms.PoissonSampling(n, n, 1), (1.0,), 1)]


def names() -> list[str]:
    """The names of all private mechanisms."""
    others = set(mechanisms.TEST_CONFIGS) - set(CASES)
    private = (name for name in others if mechanisms.MECHANISMS[name].is_private)
    return [*CASES, *sorted(private)]
