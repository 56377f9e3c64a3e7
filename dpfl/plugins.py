# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms and tasks of other packages, found by their entry points.

    plugins.load(plugins.TASKS)

An entry point of the group `dpfl.mechanisms` or `dpfl.tasks` names a module, which
calls `dpfl.register` or `dpfl.register_task` when it is imported. Both refuse a
configuration of which a command could not make flags.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import re
import typing
import warnings
from typing import Any

from dpfl import checks, fields

MECHANISMS, TASKS = "dpfl.mechanisms", "dpfl.tasks"
# The types of fields that can be parsed from text.
_SIMPLE = (bool, int, float, str)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def load(group: str) -> None:
    """Imports the modules that installed packages name for a group of entry points.

    A module that fails is skipped with a warning: a user of another mechanism may not
    be able to repair it.
    """
    # Once, if a package is on the path twice.
    entries = {
        (each.name, each.value)
        for package in importlib.metadata.distributions()
        for each in package.entry_points
        if each.group == group
    }
    for name, module in sorted(entries):
        try:
            importlib.import_module(module)
        except Exception as error:
            warnings.warn(
                f"{name} of the entry points {group} is ignored: {module} cannot be "
                f"imported ({type(error).__name__}: {error})",
                stacklevel=2,
            )


def field_types(config: type) -> dict[str, type]:
    """The types of the fields that a flag can hold, None aside."""
    hints = typing.get_type_hints(config)
    types = {}
    for field in dataclasses.fields(config):
        kinds = [k for k in typing.get_args(hints[field.name]) if k is not type(None)]
        kind = kinds[0] if kinds else hints[field.name]
        if field.init and kind in _SIMPLE:
            types[field.name] = kind
    return types


def check_name(name: Any) -> str:
    """A name, if it can stand on a command line, in a list and as a folder."""
    wanted = "letters, digits, '_', '-' and '.', the first a letter or digit"
    if not isinstance(name, str):
        raise TypeError(checks.message("name", wanted, name))
    checks.require(_NAME.fullmatch(name), "name", wanted, name)
    return name


def check(config: type) -> None:
    """Refuses a configuration of whose fields commands could not make flags.

    Raises:
      TypeError: If it is not a dataclass itself, or a field has no check (see
        `dpfl.option`).
      ValueError: If a field has no sentence, or a default that its check refuses.
    """
    if "__dataclass_params__" not in vars(config):
        raise TypeError(checks.message("config", "a frozen dataclass itself", config))
    own_types, accepts = field_types(config), fields.checks_of(config)
    for field in dataclasses.fields(config):
        text = fields.help_text(field)
        has_text = field.name not in own_types or (isinstance(text, str) and text)
        wanted = "made by dpfl.option or dpfl.required with a help text"
        checks.require(has_text, "a field of config", wanted, field.name)
        if field.default is not dataclasses.MISSING and field.name in accepts:
            accepts[field.name](field.name, field.default)


def resolve(target: Any) -> Any:
    """An object, or the one that a string "module:name" names, imported now."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
