# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains a model with privacy and compression, to a target epsilon.

  dpfl-train
  dpfl-train --task=docs --mechanism=gaussian --epsilon=4
  dpfl-train --flagfile=configs/tasks/emnist.flags --compression_rate=100 --seed=1

Without flags: `digits` with L2-CSGM at 100-fold compression, epsilon 8 and delta 1e-3.
Results go to --output_dir, and the same command goes on where it was stopped.
--rounds, --cohort_size and --delta are the task's own if they are not given, and the
noise is set by --epsilon or is --noise_multiplier. Whoever knows the seed can take the
noise away again: leave --seed out where privacy counts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import sys
import typing
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpfl import fields, files, mechanisms
from dpfl.tasks import registry
from dpfl.training import config as config_lib
from dpfl.training import deadlines, engine, loop, report
from dpfl.training import run as training
from dpfl.training.engine import EngineLostError
from dpfl.training.plan import check_fit, make_plan

from . import cli, exits, mechanism_flags, start
from .trainings.sweep import NONE

# Headings of the help; for the settings, the first field of each.
_TASKS, _MECHANISMS, _OUTPUT = "Task", "Mechanism", "Output and machines"
_HEADS = {
    **{"participation": "Clients", "client_lr": "Training", "epsilon": "Privacy"},
    "checkpoint_every": _OUTPUT,
}
with cli.headed(_TASKS):
    _TASK = flags.DEFINE_enum("task", "digits", registry.task_names(), "Task to learn.")
with cli.headed(_MECHANISMS):
    _MECHANISM = flags.DEFINE_enum(
        "mechanism", "l2_csgm", sorted(mechanisms.MECHANISMS), "The mechanism."
    )

# absl's name of the module of the flags above.
_MODULE = cli.help_module(__name__)
# Mechanism fields that the run fills in.
_RUN_FIELDS = ("cohort_size", "noise_multiplier", "rounds_per_epoch", "rounds")

with cli.headed(_MECHANISMS):
    mechanism_flags.define({}, _MODULE)


_GOES_ON = "the same command resumes from the newest checkpoint, or begins again"


def _define_task_flags() -> None:
    """Defines a flag for each option of any task; tasks share flags of one name."""
    hints: dict[str, Any] = {}
    users: dict[str, list[tuple[str, str, Any]]] = {}
    for task in registry.task_names():
        hints.update(typing.get_type_hints(registry.task_entry(task).config_class))
        for option in registry.task_options(task):
            use = (task, fields.help_text(option), option.default)
            users.setdefault(option.name, []).append(use)
    for name, uses in users.items():
        text = mechanism_flags.flag_help(uses, registry.task_names())
        # Optional[int] has the arguments int and NoneType, and int has none.
        kind, *none = typing.get_args(hints[name]) or [hints[name]]
        if none:
            wanted = {int: "an integer", float: "a number"}.get(kind, "a text")
            parser = mechanism_flags.ValueOrWord(
                *(kind, NONE, kind.__name__, f"{wanted}, or '{NONE}'")
            )
            flags.DEFINE(parser, name, None, text, module_name=_MODULE)
        else:
            mechanism_flags.DEFINE[kind](name, None, text)


def _define_run_flags() -> list[str]:
    """Defines a flag for each field of the settings with a help sentence."""
    hints = typing.get_type_hints(config_lib.RunConfig)
    names, heading = [], ""
    for field in dataclasses.fields(config_lib.RunConfig):
        text = field.metadata.get("help")
        if text is None:
            continue
        names.append(field.name)
        heading = _HEADS.get(field.name, heading)
        with cli.headed(heading):
            _define_run_flag(field, hints[field.name], text)
    return names


def _define_run_flag(field: dataclasses.Field, hint: Any, text: str) -> None:
    choices = field.metadata["bounds"].get("choices")
    if choices is not None:
        flags.DEFINE_enum(field.name, field.default, list(choices), text)
        return
    kinds = [k for k in typing.get_args(hint) if k is not type(None)]
    mechanism_flags.DEFINE[kinds[0] if kinds else hint](field.name, field.default, text)


with cli.headed(_TASKS):
    _define_task_flags()
_RUN_FLAGS = _define_run_flags()
with cli.headed(_OUTPUT):
    _OUTPUT_DIR = flags.DEFINE_string(
        "output_dir", None, "Folder of the results; default: ./runs/NAME-OF-THE-FLAGS."
    )


def task_config() -> Any:
    """The task's options from the flags.

    Raises:
      ValueError: If a flag is not the task's, or out of range.
    """
    own = {option.name for option in registry.task_options(_TASK.value)}
    every = {o.name for t in registry.task_names() for o in registry.task_options(t)}
    given = {name: flags.FLAGS[name].value for name in every}
    for name in sorted(every - own):
        if given[name] is not None:
            raise ValueError(f"--{name} has no meaning for the task {_TASK.value}")
    chosen = {
        name: None if value == NONE else value
        for name, value in given.items()
        if value is not None
    }
    return registry.make_config(_TASK.value, **chosen)


def mechanism_options() -> dict[str, Any]:
    """The mechanism's fields from the flags, without those of the run.

    Raises:
      ValueError: If a flag is not the mechanism's.
    """
    cli.refuse(_MECHANISM.value, *_without_meaning())
    given = mechanism_flags.given()
    return {name: given[name] for name in given if name not in _RUN_FIELDS}


def _without_meaning() -> list[str]:
    """The given flags that the mechanism does not use."""
    budget = [f for f in mechanism_flags.BUDGET if flags.FLAGS[f].present]
    given = [*budget, *mechanism_flags.given()]
    return mechanism_flags.without_meaning(_MECHANISM.value, given)


def forget_other_mechanisms() -> None:
    """Resets flags that flag files set for a mechanism other than the command line's.

    For instance, a budget in a flag file does not apply to --mechanism=none.
    """
    if cli.is_by_hand("mechanism"):
        forgotten = cli.forget_from_files(_without_meaning())
        if forgotten:
            names = ", ".join(f"--{name}" for name in forgotten)
            deadlines.say(
                f"flag file: {names} ignored, which {_MECHANISM.value} does not have"
            )


def every_flag() -> dict[str, flags.Flag]:
    """The flags of this binary, by name."""
    own = flags.FLAGS.flags_by_module_dict()[_MODULE]
    return {flag.name: flag for flag in own}


def given_flags() -> dict[str, Any]:
    """The flags set by the command line and its flag files."""
    own = every_flag().items()
    given = {name: flag.value for name, flag in own if flag.present}
    return dict(sorted(given.items()))


def default_output_dir() -> pathlib.Path:
    """The path ./runs/TASK-MECHANISM-HASH, with a hash of the relevant flags.

    An engine's run never goes on in that of another, whichever is the default.
    """
    given = given_flags()
    if engine.of(flags.FLAGS["engine"].value) == "jax":
        given = {**given, "engine": "jax"}
    flag_list = [pair for pair in given.items() if pair[0] not in config_lib.HARMLESS]
    digest = hashlib.sha256(json.dumps(flag_list).encode()).hexdigest()[:8]
    return pathlib.Path("runs") / f"{_TASK.value}-{_MECHANISM.value}-{digest}"


def run_config() -> config_lib.RunConfig:
    """The run's settings from the flags.

    Raises:
      TypeError: If a flag has a wrong type.
      ValueError: If a flag has no meaning here or is out of range.
    """
    output_dir = _OUTPUT_DIR.value
    return config_lib.RunConfig(
        task=_TASK.value,
        task_config=task_config(),
        mechanism=_MECHANISM.value,
        mechanism_options=mechanism_options(),
        output_dir=default_output_dir() if output_dir is None else output_dir,
        flags=given_flags(),
        **{name: flags.FLAGS[name].value for name in (*_RUN_FIELDS, *_RUN_FLAGS)},
    )


def check(argv: Sequence[str]) -> None:
    """Checks the flags and the data, without training."""
    config = _checked_config(argv)
    engine.check_settings(config, engine.of(config.engine))
    check_fit(config, registry.load_config(config.task, config.task_config))


def _checked_config(argv: Sequence[str]) -> config_lib.RunConfig:
    """Imports the engine's library, and returns the checked settings."""
    cli.no_arguments(argv)
    forget_other_mechanisms()
    config = run_config()
    files.check_folder("output_dir", config.output_dir)
    start.import_engine(engine.of(config.engine))
    return config


def main(argv: Sequence[str], **shared: Any) -> None:
    """Trains, or resumes training; the keywords are those of `training.Run`."""
    config = _checked_config(argv)
    try:
        with engine.joined(config):
            if config.process_id:
                training.follow(make_plan(config), deadlines.say)
            else:
                _train(config, **shared)
    except EngineLostError as error:
        deadlines.say(f"error: {error}; {_GOES_ON}")
        sys.exit(1)


def _train(config: config_lib.RunConfig, **shared: Any) -> None:
    plan = make_plan(config)
    with training.Run(plan, deadlines.say, **shared) as run:
        print(report.describe(plan), flush=True)
        if plan.config.engine == "tff":
            start.import_federated()
        else:
            start.keep_programs()
        cli.work_begins()
        try:
            summary = run.train()
        except KeyboardInterrupt:
            deadlines.say(f"stopped; {_GOES_ON}")
            raise
        except training.INPUT_ERRORS as error:
            exits.fail(str(error))
        except loop.DivergedError as error:
            deadlines.say(f"error: {error}")
            sys.exit(1)
        except OSError as error:
            deadlines.say(f"error: {error}; {_GOES_ON}")
            sys.exit(1)
    print(report.final_lines(summary))
    print(f"results: {config.output_dir}, the model in {engine.MODEL}")


if __name__ == "__main__":
    cli.run(main)
