# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Dataclass fields with the sentence that a binary shows for their flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

# The value of a number that is left to be chosen; see `dpfl.planning.choice`.
AUTO = "auto"


def option(default: Any, text: str, *, auto: bool = False) -> Any:
    """A dataclass field with a default, and a sentence that says what it is.

    With `auto` it may be `AUTO`, which leaves the number to be chosen.
    """
    return dataclasses.field(default=default, metadata={"help": text, "auto": auto})


def required(text: str, *, auto: bool = False) -> Any:
    """A dataclass field without a default; see `option`."""
    return dataclasses.field(metadata={"help": text, "auto": auto})


def takes_auto(field: dataclasses.Field) -> bool:
    """Whether a field's number may be `AUTO`."""
    return bool(field.metadata.get("auto", False))


def help_text(field: dataclasses.Field) -> str:
    """The sentence of a field, "" if it has none."""
    return field.metadata.get("help", "")


def flag_help(
    users: Iterable[tuple[str, str, Any]], everyone: Collection[str] = ()
) -> str:
    """The sentence of a flag that is a field of several configurations.

    Sentences, and defaults, that differ are given with the names that they are for.

    Args:
      users: A configuration's name, its sentence, and its default; the defaults None
        and `dataclasses.MISSING` are not spoken of.
      everyone: All configurations there are, so that a field of all is said to be one.
    """
    users = list(users)
    texts = _groups((text, name) for name, text, _ in users)
    names = [name for name, _, _ in users]
    parts = [
        text if len(texts) == 1 else f"{', '.join(of)}: {text}"
        for text, of in texts.items()
    ]
    if len(texts) == 1:
        is_everyones = bool(everyone) and set(everyone) <= set(names)
        parts.append(f"Used by {'all' if is_everyones else ', '.join(names)}.")
    defaults = _groups(
        (str(default), name)
        for name, _, default in users
        if default is not None and default is not dataclasses.MISSING
    )
    if defaults:
        told = [
            value if len(of) == len(names) else f"{value} ({', '.join(of)})"
            for value, of in defaults.items()
        ]
        parts.append(f"Default: {', '.join(told)}.")
    return " ".join(parts)


def _groups(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value, name in pairs:
        found.setdefault(value, []).append(name)
    return found
