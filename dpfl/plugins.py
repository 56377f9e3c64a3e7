# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms and tasks of other packages, found by their entry points.

    plugins.load(plugins.TASKS, registry.TASKS)

An entry point of the group `dpfl.mechanisms` or `dpfl.tasks` names a module, which
calls `dpfl.register` or `dpfl.register_task` when it is imported. Both refuse a
configuration of which a command could not make flags, so that a faulty package fails
alone.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import re
import traceback
import typing
import warnings
from typing import Any

from absl import flags

from dpfl import checks, fields

MECHANISMS, TASKS = "dpfl.mechanisms", "dpfl.tasks"
# The types of fields that can be parsed from text.
_SIMPLE = (bool, int, float, str)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

# Names of flags that a package's fields may not have: absl's and the commands' own,
# and, for mechanisms, those of dpfl's tasks. Those of mechanisms are in `_types`.
TAKEN: dict[str, frozenset[str]] = {
    "": frozenset(
        """
        ? alsologtostderr flagfile h help helpfull helpshort helpxml log_dir
        logger_levels logtostderr only_check_args pdb pdb_post_mortem profile_file
        run_with_pdb run_with_profiling showprefixforinfo stderrthreshold undefok
        use_cprofile_for_profiling v verbosity version

        accounting_method bands canaries checkpoint_every client_lr clients_at_once
        compression_rates concurrency coordinator_address delta dimension engine epsilon
        equal eval_every json keep_checkpoints mean_squared_error measure mechanism
        mechanisms min_separation num_processes output output_dir participation plot
        population precision process_id profile progress round_deadline seed server_lr
        server_momentum server_optimizer task weighted widths worker_isolation
        """.split()
    ),
    TASKS: frozenset(
        """
        allow_partial_data batch_size client_epochs data_dir dirichlet_alpha
        download embedding_size evaluate_on examples_per_client hidden_units
        lstm_size max_examples_per_client max_test_examples min_sentences model
        num_clients num_test_examples partition_seed sequence_length
        shuffle_seed test_fraction validation_fraction vocab_size
        """.split()
    ),
}
# Types of fields, of dpfl and of packages, by group, configuration and field.
_types: dict[str, dict[str, dict[str, type]]] = {MECHANISMS: {}, TASKS: {}}


def load(group: str, *tables: dict[Any, Any]) -> None:
    """Imports the modules that installed packages name for a group of entry points.

    A module that fails, or exits the process, is skipped with a warning: a user of
    another mechanism may not be able to repair it. Flags that it defines give way to
    those of commands, and none of them is required.

    Args:
      group: `MECHANISMS` or `TASKS`.
      *tables: The tables that modules register in, restored after a failure.
    """
    for entry in _entries(group):
        kept = [(table, dict(table)) for table in (*tables, _types[group])]
        defined = set(flags.FLAGS)
        try:
            importlib.import_module(entry.value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            for table, before in kept:
                table.clear()
                table.update(before)
            source = f"{entry.name} of the entry points {group}"
            _warn(source, f"{entry.value} cannot be imported", error)
        for name in set(flags.FLAGS) - defined:
            flags.FLAGS[name].allow_override = True
            flags.FLAGS[name].validators.clear()


def _warn(source: str, reason: str, error: BaseException) -> None:
    # SystemExit has an empty str(), and str() of a package's error may fail.
    error_text = traceback.format_exception_only(type(error), error)[-1].strip()
    warnings.warn(f"{source} is ignored: {reason} ({error_text})", stacklevel=3)


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


def check(group: str, name: str, config: type) -> None:
    """Refuses a configuration of whose fields commands could not make flags.

    Args:
      group: `MECHANISMS` or `TASKS`.
      name: The name that the configuration is registered under.
      config: The class of the configuration.

    Raises:
      TypeError: If it is not a dataclass itself, or a field's type is unknown, differs
        from that of the same field elsewhere, or has no check (see `dpfl.option`).
      ValueError: If a field has no sentence, or the name of a flag with another
        meaning.
    """
    if "__dataclass_params__" not in vars(config):
        raise TypeError(checks.message("config", "a frozen dataclass itself", config))
    try:
        own_types = field_types(config)
    except (NameError, TypeError) as error:
        message = checks.message(
            "config", "a class with annotations that can be resolved", config
        )
        raise TypeError(f"{message} ({error})") from error
    texts = {each.name: fields.help_text(each) for each in dataclasses.fields(config)}
    other = TASKS if group == MECHANISMS else MECHANISMS
    taken = TAKEN[""].union(TAKEN.get(other, ()), *_types[other].values())
    known: dict[str, type] = {}
    for own, types in _types[group].items():
        known.update(types if own != name else {})
    for field, kind in own_types.items():
        wanted = "different from the commands' own flags"
        checks.require(field not in taken, "a field of config", wanted, field)
        wanted = "made by dpfl.option or dpfl.required with a help text"
        has_text = isinstance(texts[field], str) and texts[field]
        checks.require(has_text, "a field of config", wanted, field)
        if known.get(field, kind) is not kind:
            wanted = f"of type {known[field].__name__} in every configuration"
            raise TypeError(checks.message(field, wanted, kind))
    defaults = {each.name: each.default for each in dataclasses.fields(config)}
    for field, accept in fields.checks_of(config).items():
        if defaults[field] is not dataclasses.MISSING:
            accept(field, defaults[field])
    _types[group][name] = own_types


def resolve(target: Any) -> Any:
    """An object, or the one that a string "module:name" names, imported now."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _entries(group: str) -> list[importlib.metadata.EntryPoint]:
    """The entry points of a group, each once if its package is on the path twice."""
    entries: dict[tuple[str, str], importlib.metadata.EntryPoint] = {}
    for package in importlib.metadata.distributions():
        try:
            own = [each for each in package.entry_points if each.group == group]
        except Exception as error:
            source = f"a package in {package.locate_file('')}"
            _warn(source, "its entry points cannot be read", error)
            continue
        entries.update({(each.name, each.value): each for each in own})
    return list(entries.values())
