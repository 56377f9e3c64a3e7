# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fields of configurations: their checks, and the sentences that binaries show.

class Config(fields.Checked):    # a frozen dataclass
    bits: int = fields.option(16, "Bits of a message.", at_least=1)
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Optional, TypeVar, Union, cast

import attr

from dpfl import checks

# The value of a number to be chosen automatically; see `dpfl.planning.choice`.
AUTO = "auto"
# Advice on how to resolve it, for the error where a number is needed.
CHOSEN_BEFORE = (
    "a number, as in dpfl.resolve(mechanism, participation, dimension, epsilon=..., "
    "delta=...).mechanism"
)

_Method = TypeVar("_Method", bound=Callable[..., None])
# Default checks of fields by their annotations.
_CHECKS: Mapping[Any, Callable[..., Any]] = {
    **{int: functools.partial(checks.integer, at_least=None), float: checks.real},
    **{bool: checks.boolean, str: checks.text},
}
# X | None has another origin than Optional[X] from Python 3.10 on.
_UNIONS = (Union, getattr(types, "UnionType", Union))


def option(default: Any, text: Optional[str], **described: Any) -> Any:
    """A dataclass field with a default, and a sentence for the help of its flag.

    The other arguments are those of `said`: `auto`, `check` and bounds.
    """
    return dataclasses.field(default=default, metadata=said(text, **described))


def required(text: Optional[str], **described: Any) -> Any:
    """A dataclass field without a default; see `option`."""
    return dataclasses.field(metadata=said(text, **described))


def said(
    text: Optional[str] = None,
    *,
    auto: bool = False,
    check: Optional[Callable[..., Any]] = None,
    **bounds: Any,
) -> dict[str, Any]:
    """The metadata of a field, of a dataclass or of attrs.

    Args:
      text: Help of the field's flag; None for a field without a flag.
      auto: Whether it may be `AUTO`, which leaves the number to be chosen.
      check: Maps the field's name and a value to the value that is kept, or raises
        TypeError or ValueError; one of `dpfl.checks`, or None for that of the
        annotation: a number, a bool, a str, or an instance of a class. A field that is
        declared again keeps its base's check. Optional fields may be None.
      **bounds: Keywords of the check, such as `at_least` and `below` of a number, and
        `choices` of a str, which a text without its full stop is completed by.
    """
    if check is None and "choices" in bounds:
        check = checks.choice
    if "choices" in bounds and text is not None and not text.endswith("."):
        text = f"{text}, one of {', '.join(bounds['choices'])}."
    metadata: dict[str, Any] = {"auto": auto, "check": check, "bounds": bounds}
    return metadata if text is None else {"help": text, **metadata}


def _keeping(method: _Method) -> _Method:
    """Wraps `__post_init__` so that fields first get the values their checks return."""

    @functools.wraps(method)
    def kept(self: Any, *arguments: Any) -> None:
        # Only the outermost of methods that call each other by `super` runs the checks.
        if getattr(type(self), method.__name__) is kept:
            config: Any = type(self)
            for name, check in checks_of(config).items():
                value = getattr(self, name)
                checked = check(name, value)
                if checked is not value:
                    object.__setattr__(self, name, checked)
        method(self, *arguments)

    kept.keeps = True  # type: ignore[attr-defined]
    return cast(_Method, kept)


class Checked:
    """Base of the frozen dataclasses, and attrs classes, whose fields are checked.

    Each field holds the value that its check returned, a number as a Python number,
    before `__post_init__` sees it. Subclasses inherit this without doing anything.

    Attributes:
      checked_arguments: Checks by argument name. A public method with an argument of
        that name gets the value that the check returns.
    """

    __slots__ = ()

    checked_arguments: ClassVar[Mapping[str, checks.Check]] = {}

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        for name in ("__post_init__", "__attrs_post_init__"):
            method = getattr(cls, name)
            if not hasattr(method, "keeps"):
                setattr(cls, name, _keeping(method))
        hand = checks.of_arguments(cls.checked_arguments)
        for name, value in list(vars(cls).items()):
            if isinstance(value, types.FunctionType) and not name.startswith("_"):
                setattr(cls, name, hand(value))

    @_keeping
    def __post_init__(self) -> None:
        """Called by a dataclass; a subclass's own may check fields together."""

    @_keeping
    def __attrs_post_init__(self) -> None:
        """As `__post_init__`, called by attrs."""


@functools.cache
def checks_of(config: type) -> Mapping[str, checks.Check]:
    """The check of each field of a class, by name.

    Attributes of attrs that have a converter are left out.

    Raises:
      TypeError: If a field has no check, and its annotation is no class.
    """
    hints = typing.get_type_hints(config)
    field_checks: dict[str, checks.Check] = {}
    for field in _fields(config):
        if not field.init or getattr(field, "converter", None) is not None:
            continue
        check = _check_of(_metadata(config, field), hints[field.name])
        if check is None:
            raise TypeError(
                f"{field.name} of {config.__name__} has no check, and its annotation "
                f"{hints[field.name]} is not a class: pass check=... to dpfl.option "
                "or dpfl.required"
            )
        field_checks[field.name] = check
    return field_checks


def _fields(config: type) -> tuple[Any, ...]:
    return attr.fields(config) if attr.has(config) else dataclasses.fields(config)


def _metadata(config: type, field: Any) -> dict[str, Any]:
    """Metadata of a field, with the check that it or the nearest base declares."""
    for base in config.__mro__:
        known = vars(base).get("__dataclass_fields__", {}).get(field.name)
        said_there = {} if known is None else known.metadata
        if said_there.get("check") or said_there.get("bounds"):
            return {**said_there, "auto": field.metadata.get("auto", False)}
    return dict(field.metadata)


def _check_of(metadata: Mapping[str, Any], hint: Any) -> Optional[checks.Check]:
    """The check that metadata and an annotation ask for; None if they ask for none."""
    is_union = typing.get_origin(hint) in _UNIONS
    kinds = typing.get_args(hint) if is_union else (hint,)
    own = [kind for kind in kinds if kind is not type(None)]
    check = metadata.get("check")
    if check is None and len(own) == 1:
        check = _CHECKS.get(own[0])
        # A generic class, such as Mapping[str, int], cannot be used with isinstance.
        if check is None and own[0] is not Any and isinstance(own[0], type):
            if not typing.get_args(own[0]):
                check = checks.instance(own[0])
    if check is None:
        return None
    check = functools.partial(check, **metadata.get("bounds", {}))
    allowed = [None] * (type(None) in kinds) + [AUTO] * metadata.get("auto", False)
    return functools.partial(_kept, check, allowed) if allowed else check


def _kept(check: checks.Check, allowed: list[Any], name: str, value: Any) -> Any:
    """Checks a value, unless it is an allowed one, such as None or `AUTO`."""
    if value is None or isinstance(value, str):
        for other in allowed:
            if value == other:
                return other
    return check(name, value)


def takes_auto(field: dataclasses.Field) -> bool:
    """Whether a field's number may be `AUTO`."""
    return bool(field.metadata.get("auto", False))


def help_text(field: dataclasses.Field) -> str:
    """The sentence of a field, "" if it has none."""
    return field.metadata.get("help", "")
