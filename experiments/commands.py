# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The commands of dpfl, and their start before anything slow is imported.

commands.main(["privacy", "--help"])    # as `python -m dpfl privacy --help`
commands.privacy()                      # the script dpfl-privacy
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpfl

from . import exits

COMMANDS = (
    *("train", "privacy", "factorize", "audit"),
    *("compare", "search", "sweep", "new-task", "prepare"),
)
# Modules beside these that no wheel has.
IN_THE_CLONE = ("benchmark", "reproduce")
# Commands that run without TensorFlow Federated; and those that run with JAX in its
# place. All others fail with a message about it before they load anything of their own.
WITHOUT_TFF = ("privacy", "factorize", "compare", "prepare", "new-task")
WITH_JAX = ("train", "search", "sweep", "audit")
# The package of the commands' modules: installed, or in the source tree.
PACKAGE = __package__
_HERE = Path(__file__).parent


def _module(command: str) -> str:
    return command.replace("-", "_")


def summary(command: str) -> str:
    """The first line of a binary's documentation, without loading it."""
    source = (_HERE / f"{_module(command)}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def run_command(command: str) -> None:
    """Runs one of `COMMANDS` with the arguments in `sys.argv`.

    The exit code is 2 if it must have TensorFlow Federated and there is none, and 130
    if it is interrupted.
    """
    with exits.exit_codes():
        has_engine = command in WITH_JAX and importlib.util.find_spec("jax")
        runs = command in WITHOUT_TFF or has_engine
        if not runs and "--version" not in sys.argv[1:]:
            try:
                from dpfl import needs_tff  # noqa: F401
            except ImportError as error:
                exits.fail(str(error))
        from . import cli, start

        with start.accounting_when_used():
            module = importlib.import_module(f"{PACKAGE}.{_module(command)}")
        cli.run(module.main)


# Entry points of the scripts dpfl-train, dpfl-privacy and so on.
_ENTRIES = [functools.partial(run_command, name) for name in COMMANDS]
train, privacy, factorize, audit = _ENTRIES[:4]
compare, search, sweep, new_task, prepare = _ENTRIES[4:]


def list_commands() -> None:
    """Prints the commands with their descriptions."""
    lines = {name: summary(name) for name in COMMANDS}
    lines["configs"] = "Prints the folder of the flag files of papers and tasks."
    lines["requirements"] = "Prints the file that pins TensorFlow Federated for pip."
    print(f"dpfl {dpfl.__version__}\n\npython -m dpfl COMMAND [--help]\n")
    for name, text in lines.items():
        print(f"  {name:14}{text}")


def main(arguments: list[str]) -> None:
    """Lists the commands, or runs the one that the first argument names."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if command in COMMANDS:
        sys.argv = [f"dpfl-{command}", *rest]
        run_command(command)
        return
    if command in IN_THE_CLONE:
        exits.fail(
            f"{command} must be run in a clone of dpfl's repository, as python -m "
            f"experiments.{command}; it is no part of the installed package"
        )
    known: dict[str, Callable[[], Any]] = {
        "configs": lambda: print(_HERE.parent / "configs"),
        "requirements": lambda: print(Path(dpfl.__path__[0]) / "requirements-tff.txt"),
        "--version": lambda: print(f"dpfl {dpfl.__version__}"),
        **dict.fromkeys(("--help", "-h", "--helpshort", "help"), list_commands),
    }
    if command not in known:
        names = ", ".join((*COMMANDS, "configs", "requirements"))
        exits.fail(f"the command must be one of {names}, found {command!r}")
    with exits.exit_codes():
        known[command]()
