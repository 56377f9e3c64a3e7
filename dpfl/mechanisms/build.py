# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Configurations from names and values, as flags and settings have them.

    build.build("l2_csgm", {"cohort_size": 100, "clip_norm": 0.5,
                            "noise_multiplier": 1.0, "compression_rate": 10})

Values may belong to several mechanisms: each takes the fields that it has. None is a
value that is not given. A mechanism with a `keep_fraction` takes its inverse,
`compression_rate`, in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

from dpfl import checks
from dpfl.mechanisms import mechanism, registry
from dpfl.mechanisms.participation import (
    PARTICIPATIONS,
    SEPARATED,
    WITH_EPOCHS,
    WITH_SEPARATION,
    BallsInBins,
    BMinSeparation,
    CyclicPoisson,
    OncePerEpoch,
    Participation,
)
from dpfl.plugins import field_types

# The two fields for the strength of compression.
RATE_FIELDS = ("keep_fraction", "compression_rate")
# Fields of an adaptive clip, without meaning for a fixed one.
ADAPTIVE_FIELDS = ("target_quantile", "clip_learning_rate", "count_stddev")
MIN_SEPARATION_HELP = (
    "Least number of rounds from one round of a client to its next: for "
    f"{CyclicPoisson.name} and {BallsInBins.name} the number of groups that take turns "
    "(unset, for the latter, for as many as the clients suffice for), for "
    f"{BMinSeparation.name} the rounds until a client is free again, for "
    f"{OncePerEpoch.name} held by shuffling clients within windows of an epoch."
)


def config_class(name: str) -> type[mechanism.Mechanism]:
    """The class of a mechanism's configuration; ValueError if there is none."""
    checks.choice("mechanism", name, registry.MECHANISMS)
    return registry.MECHANISMS[name]


def missing_fields(name: str, values: Mapping[str, Any]) -> list[str]:
    """The required fields of a mechanism that `values` do not supply."""
    config, missing = config_class(name), dataclasses.MISSING
    known = {**_given(values), **config.filled_in(_given(values))}
    return [
        field.name
        for field in dataclasses.fields(config)
        if field.init and field.default is missing and field.default_factory is missing
        if field.name not in known
    ]


def accepted_fields(name: str) -> set[str]:
    """The names of a mechanism's fields, with both fields of a kept fraction."""
    own = set(field_types(config_class(name)))
    return own.union(RATE_FIELDS) if "keep_fraction" in own else own


def build(name: str, values: Mapping[str, Any]) -> mechanism.Mechanism:
    """The configuration of a mechanism.

    Values that the mechanism does not have are left out. The rate is
    `mechanism.DEFAULT_COMPRESSION_RATE` if it is not given.

    Raises:
      TypeError: If a value has a wrong type.
      ValueError: If there is no such mechanism, a field without a default is not among
        the values, a rate is given twice, a value would have no effect without an
        adaptive clip, or the configuration refuses a value.
    """
    config = config_class(name)
    missing = missing_fields(name, values)
    if missing:
        raise ValueError(f"{missing[0]} must be given for {name}")
    own = {field.name for field in dataclasses.fields(config) if field.init}
    values = _given(values)
    is_once = "keep_fraction" not in own or not values.keys() >= set(RATE_FIELDS)
    wanted, rate = "left out with keep_fraction", values.get("compression_rate")
    checks.require(is_once, "compression_rate", wanted, rate)
    given = {**config.filled_in(values), **values}
    chosen = {key: value for key, value in given.items() if key in own}
    for field in () if chosen.get("adaptive_clipping") else ADAPTIVE_FIELDS:
        wanted = "left out without adaptive_clipping"
        checks.require(field not in chosen, field, wanted, chosen.get(field))
    return config(**chosen)


def participation(
    name: str,
    population: int,
    cohort_size: int,
    rounds: int,
    *,
    rounds_per_epoch: Optional[int] = None,
    min_separation: Optional[int] = None,
) -> Participation:
    """A participation from values of flags.

    Args:
      name: A key of `PARTICIPATIONS`.
      population: Number of clients N.
      cohort_size: Expected number of clients n in a round.
      rounds: Number of rounds T.
      rounds_per_epoch: Rounds of an epoch; without effect where there are none, for a
        mechanism may have the field. None is floor(N / n).
      min_separation: Least distance of two rounds of one client; None for the default,
        where there is one.

    Raises:
      ValueError: If there is no such participation, or it does not have a
        `min_separation`, or needs one, or a number is out of range.
    """
    checks.choice("participation", name, PARTICIPATIONS)
    more = {}
    if name in WITH_EPOCHS:
        more["epoch_rounds"] = rounds_per_epoch
    if min_separation is not None:
        wanted = f"left out unless participation is {' or '.join(WITH_SEPARATION)}"
        is_taken = name in WITH_SEPARATION
        checks.require(is_taken, "min_separation", wanted, min_separation)
        more["min_separation"] = min_separation
    elif name in SEPARATED:
        raise ValueError(f"min_separation must be given for participation {name}")
    with checks.renaming({"epoch_rounds": "rounds_per_epoch"}):
        return PARTICIPATIONS[name](population, cohort_size, rounds, **more)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
