# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""One flag for every field of every mechanism's configuration.

A mechanism added to the registry gets its flags from here: a field that several
mechanisms have is one flag. A flag that is not given leaves the field at its default.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Container, Mapping
from typing import Any, Optional

from absl import flags

from dpfl import mechanisms
from dpfl.mechanisms import base

_DEFINE: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
# The fields that `define` made a flag for.
_defined: set[str] = set()


def configs() -> dict[str, type[base.Mechanism]]:
    """Every mechanism in the registry: its name and its configuration's class."""
    return {name: entry.config for name, entry in mechanisms.MECHANISMS.items()}


def field_types(config: type[base.Mechanism]) -> dict[str, type]:
    """The fields of a configuration that a flag can hold, and the flag's type."""
    hints = typing.get_type_hints(config)
    found = {}
    for field in dataclasses.fields(config):
        kinds = [k for k in typing.get_args(hints[field.name]) if k is not type(None)]
        kind = kinds[0] if kinds else hints[field.name]
        if field.init and kind in _DEFINE:
            found[field.name] = kind
    return found


def required_fields(config: type[base.Mechanism]) -> list[str]:
    """The fields of a configuration that have no default."""
    missing = dataclasses.MISSING
    return [
        field.name
        for field in dataclasses.fields(config)
        if field.init and field.default is missing and field.default_factory is missing
    ]


def _help(config: type[base.Mechanism], field: str) -> Optional[str]:
    """What the docstring of the configuration, or of a base, says of a field."""
    for cls in config.__mro__:
        text = inspect.cleandoc(cls.__doc__ or "")
        match = re.search(rf"^  {field}: (.*(?:\n {{4,}}.*)*)", text, re.M)
        if match:
            return " ".join(match.group(1).split())
    return None


def define(
    defaults: Mapping[str, Any], module_name: str, omit: Container[str] = ()
) -> None:
    """Defines the flags.

    Args:
      defaults: Defaults by field name; None for a field that is not in it.
      module_name: The module in whose help the flags appear.
      omit: Fields that get no flag and stay at their defaults, since the binary has
        another flag of that name.
    """
    kinds: dict[str, type] = {}
    texts: dict[str, Optional[str]] = {}
    users: dict[str, list[str]] = {}
    for name, config in configs().items():
        for field, kind in field_types(config).items():
            kinds.setdefault(field, kind)
            texts[field] = texts.get(field) or _help(config, field)
            users.setdefault(field, []).append(name)
    for field, kind in kinds.items():
        if field in omit:
            continue
        _defined.add(field)
        text = f"{texts[field] or ''} Of {', '.join(users[field])}.".strip()
        _DEFINE[kind](field, defaults.get(field), text, module_name=module_name)


def given() -> dict[str, Any]:
    """The fields that the command line sets, and those with a default in `define`."""
    values = {field: flags.FLAGS[field].value for field in sorted(_defined)}
    return {field: value for field, value in values.items() if value is not None}


def build(name: str, values: Mapping[str, Any]) -> base.Mechanism:
    """Makes the configuration of one mechanism.

    Args:
      name: A name from `configs`.
      values: Values by field name; those that the mechanism does not have are left
        out.

    Raises:
      ValueError: A field without a default is not among the values, or a value is
        refused by the configuration.
    """
    config = configs()[name]
    missing = [field for field in required_fields(config) if field not in values]
    if missing:
        raise ValueError(f"--{missing[0]} must be given for {name}")
    own = {field.name for field in dataclasses.fields(config) if field.init}
    return config(**{key: value for key, value in values.items() if key in own})


def check_meaning(name: str) -> None:
    """Raises ValueError if a flag was given that the mechanism does not have."""
    own = field_types(configs()[name])
    for field in given():
        if flags.FLAGS[field].present and field not in own:
            raise ValueError(f"--{field} has no meaning for {name}")
