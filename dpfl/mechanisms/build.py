# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Configurations from names and values, as flags and settings have them.

    build.build("l2_csgm", {"cohort_size": 100, "clip_norm": 0.5,
                            "noise_multiplier": 1.0, "compression_rate": 10})

Values may belong to several mechanisms: each takes the fields that it has. The strength
of compression is given by `keep_fraction` or by `compression_rate`, its inverse,
whichever of the two is the mechanism's own field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from dpfl import checks, fields
from dpfl.mechanisms import mechanism, registry
from dpfl.plugins import field_types

# The two fields for the strength of compression.
RATE_FIELDS = ("keep_fraction", "compression_rate")
# Fields of an adaptive clip, without meaning for a fixed one.
ADAPTIVE_FIELDS = ("target_quantile", "clip_learning_rate", "count_stddev")


def config_class(name: str) -> type[mechanism.Mechanism]:
    """The class of a mechanism's configuration; ValueError if there is none."""
    checks.choice("mechanism", name, registry.MECHANISMS)
    return registry.MECHANISMS[name]


def required_fields(config: type[mechanism.Mechanism]) -> list[str]:
    """The fields of a configuration that have no default."""
    missing = dataclasses.MISSING
    return [
        field.name
        for field in dataclasses.fields(config)
        if field.init and field.default is missing and field.default_factory is missing
    ]


def missing_fields(name: str, values: Mapping[str, Any]) -> list[str]:
    """The required fields of a mechanism that `values` do not supply."""
    config = config_class(name)
    known = {*config.filled_in(values), *values, *RATE_FIELDS}
    return [field for field in required_fields(config) if field not in known]


def accepted_fields(name: str) -> set[str]:
    """The names of a mechanism's fields, with both fields of a rate if it has one."""
    own = set(field_types(config_class(name)))
    return own if own.isdisjoint(RATE_FIELDS) else own.union(RATE_FIELDS)


def build(name: str, values: Mapping[str, Any]) -> mechanism.Mechanism:
    """The configuration of a mechanism.

    Values that the mechanism does not have are left out. The rate is
    `mechanism.DEFAULT_COMPRESSION_RATE` if it is not given.

    Raises:
      TypeError: If a value has a wrong type.
      ValueError: If there is no such mechanism, a field without a default is not among
        the values, both rates are, a value would have no effect without an adaptive
        clip, or the configuration refuses a value.
    """
    config = config_class(name)
    missing = missing_fields(name, values)
    if missing:
        raise ValueError(f"{missing[0]} must be given for {name}")
    own = {field.name for field in dataclasses.fields(config) if field.init}
    given = {**config.filled_in(values), **values}
    chosen = {key: value for key, value in given.items() if key in own}
    _check_adaptive(chosen)
    return config(**{**chosen, **_rates(own, values)})


def _check_adaptive(values: Mapping[str, Any]) -> None:
    if values.get("adaptive_clipping"):
        return
    for field in ADAPTIVE_FIELDS:
        if values.get(field) is not None:
            raise ValueError(
                f"{field} must be left out without adaptive_clipping, found "
                f"{values[field]!r}"
            )


def _rates(own: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The rate, as the field that is among `own`."""
    rated = [field for field in RATE_FIELDS if field in own]
    if not rated:
        return {}
    given = [field for field in RATE_FIELDS if values.get(field) is not None]
    if len(given) > 1:
        raise ValueError(
            "compression_rate must be left out with keep_fraction, found "
            f"{values['compression_rate']!r}"
        )
    if given == rated:
        return {rated[0]: values[rated[0]]}
    if given == ["keep_fraction"]:
        fraction = checks.fraction("keep_fraction", values["keep_fraction"])
        return {rated[0]: 1 / fraction}
    default = mechanism.DEFAULT_COMPRESSION_RATE
    rate = values["compression_rate"] if given else default
    if rate == fields.AUTO:
        raise ValueError(
            "compression_rate must be a number, or left out, for a mechanism without "
            f"a sketch, found {rate!r}"
        )
    rate = checks.real("compression_rate", rate, at_least=1)
    return {rated[0]: 1 / rate if rated[0] == "keep_fraction" else rate}
