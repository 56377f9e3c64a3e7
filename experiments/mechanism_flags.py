# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Flags for the fields of every mechanism's configuration.

    mechanism_flags.define({"cohort_size": 100}, cli.help_module(__name__))
    mechanism = mechanism_flags.build("gaussian", mechanism_flags.given())

A mechanism added to the registry gets its flags from here: a field that several
mechanisms have is one flag. A flag that is not given leaves the field at its default.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from absl import flags

from dpfl import fields, mechanisms
from dpfl.mechanisms import Mechanism, matrix_factorization
from dpfl.mechanisms import build as mechanism_build
from dpfl.mechanisms import mechanism as mechanism_lib
from dpfl.mechanisms.build import field_types
from dpfl.mechanisms.participation import WITH_EPOCHS

from . import cli

# The function that defines a flag, by the type of its field.
DEFINE: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
# Fields for which every command has its own flag.
_ROUNDS = "rounds"
# Flags that apply to every mechanism, and those of a private one.
_COMMON_FIELDS = ("cohort_size", "rounds_per_epoch", _ROUNDS)
BUDGET = ("epsilon", "delta", "accounting_method")
_NUMBERS: dict[type, Any] = {int: flags.IntegerParser, float: flags.FloatParser}


class ValueOrWord(flags.ArgumentParser):
    """A parser of a value by `parse`, or of one word that represents another value."""

    def __init__(self, parse: Callable[[Any], Any], word: str, kind: str, wanted: str):
        self._parse, self._word, self._kind = parse, word, kind
        self.syntactic_help = wanted

    def parse(self, argument: Any) -> Any:
        """Parses the value, or the word."""
        return argument if argument == self._word else self._parse(argument)

    def flag_type(self) -> str:
        """The name of the type in the help."""
        return f"{self._kind} or {self._word}"


def number_or_auto(kind: type) -> ValueOrWord:
    """The parser of a number, or of the word for an automatic choice."""
    parser = _NUMBERS[kind]()
    wanted = f"{parser.syntactic_help} or {fields.AUTO}"
    return ValueOrWord(parser.parse, fields.AUTO, parser.flag_type(), wanted)


# The fields with a flag from `define`.
_defined: set[str] = set()


def define(defaults: Mapping[str, Any], module_name: str) -> None:
    """Defines the flags under a module's help, with defaults by field or None."""
    kinds: dict[str, type] = {}
    users: dict[str, list[tuple[str, str, Any]]] = {}
    open_fields: set[str] = set()
    for name, config in mechanisms.MECHANISMS.items():
        own = {field.name: field for field in dataclasses.fields(config)}
        open_fields |= {each for each in own if fields.takes_auto(own[each])}
        for field, kind in field_types(config).items():
            kinds.setdefault(field, kind)
            text, default = fields.help_text(own[field]), own[field].default
            users.setdefault(field, []).append((name, text, default))
    del kinds[_ROUNDS]
    for field, kind in kinds.items():
        _defined.add(field)
        text = _rate_help(field) or flag_help(users[field], mechanisms.MECHANISMS)
        if field in open_fields:
            parser, default = number_or_auto(kind), defaults.get(field)
            flags.DEFINE(parser, field, default, text, module_name=module_name)
            continue
        DEFINE[kind](field, defaults.get(field), text, module_name=module_name)


def flag_help(
    users: Iterable[tuple[str, str, Any]], everyone: Collection[str] = ()
) -> str:
    """The help of a flag that is a field of several configurations.

    Differing sentences, and defaults, are given with the names of their configurations.

    Args:
      users: Each configuration's name, sentence and default; the defaults None and
        `dataclasses.MISSING` are left out.
      everyone: Names of all configurations, so that a flag of all of them says so.
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
    groups: dict[str, list[str]] = {}
    for value, name in pairs:
        groups.setdefault(value, []).append(name)
    return groups


def _rate_help(field: str) -> str:
    """The help of the two ways to give a rate, either of which a mechanism takes."""
    if field not in mechanism_build.RATE_FIELDS:
        return ""
    rate = mechanism_lib.DEFAULT_COMPRESSION_RATE
    text, default = "Factor by which fewer values are sent; at least 1.", rate
    if field == "keep_fraction":
        text, default = "1 over --compression_rate, given in its place.", 1 / rate
    return flag_help(
        (name, text, f"{default:g}")
        for name in mechanisms.MECHANISMS
        if field in mechanism_build.accepted_fields(name)
    )


def given() -> dict[str, Any]:
    """The fields set by the command line, or by a default of `define`.

    The rounds of the run are included if a stream of noise covers the run.
    """
    values = {field: flags.FLAGS[field].value for field in sorted(_defined)}
    if values["noise_stream"] == matrix_factorization.RUN:
        values[_ROUNDS] = flags.FLAGS[_ROUNDS].value
    return {field: value for field, value in values.items() if value is not None}


def without_meaning(name: str, given: Iterable[str]) -> list[str]:
    """The flags among `given` that a mechanism does not use."""
    accepted = {m: mechanism_build.accepted_fields(m) for m in mechanisms.MECHANISMS}
    others = {*itertools.chain(*accepted.values())} - accepted[name]
    others.difference_update(_COMMON_FIELDS)
    if not mechanisms.MECHANISMS[name].is_private:
        others.update(BUDGET)
    return [flag for flag in given if flag in others]


def build(name: str, values: Mapping[str, Any]) -> Mechanism:
    """Builds the configuration of a mechanism; see `dpfl.mechanisms.build.build`.

    Raises:
      ValueError: A flag is missing, or the configuration refuses a value.
    """
    missing = mechanism_build.missing_fields(name, values)
    if missing:
        raise ValueError(f"--{missing[0]} must be given for {name}")
    return mechanism_build.build(name, values)


def check_meaning(where: str, own: Collection[str]) -> None:
    """Raises ValueError if a flag was given that belongs to other mechanisms only.

    `--rounds_per_epoch` belongs to every mechanism if the participation takes it.
    """
    has_epochs = flags.FLAGS.participation in WITH_EPOCHS
    cli.refuse(
        where,
        *(
            field
            for field in given()
            if field not in own and not (has_epochs and field == "rounds_per_epoch")
        ),
    )
