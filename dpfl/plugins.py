# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms and tasks of other packages, found by their entry points.

An entry point of the group `dpfl.mechanisms` or `dpfl.tasks` names a module, which
calls `dpfl.register` or `dpfl.register_task` when it is imported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import warnings
from typing import Any


def load(group: str) -> None:
    """Imports the modules that installed packages name for a group of entry points.

    A module that fails is left out with a warning, since whoever runs another mechanism
    may not be able to mend it.
    """
    for entry in _entries(group):
        try:
            importlib.import_module(entry.value)
        except Exception as error:
            warnings.warn(
                f"{entry.name} of the entry points {group} is left out, since "
                f"{entry.value} cannot be imported ({error})",
                stacklevel=2,
            )


def resolve(found: Any) -> Any:
    """An object that may be given as "module:name", to be imported now."""
    if not isinstance(found, str):
        return found
    module, _, name = found.partition(":")
    return getattr(importlib.import_module(module), name)


def _entries(group: str) -> list[importlib.metadata.EntryPoint]:
    if sys.version_info >= (3, 10):
        return list(importlib.metadata.entry_points(group=group))
    # A package that is found twice on the path is listed twice.
    return list(dict.fromkeys(importlib.metadata.entry_points().get(group, [])))
