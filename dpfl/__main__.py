# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The commands of dpfl.

    python -m dpfl train --flagfile=tasks/digits.flags --seed=1

`python -m dpfl` lists them; `python -m dpfl privacy --help` runs one, as
`dpfl-privacy --help` does; `configs` prints the folder of the flag files,
`requirements` the file that pins TensorFlow Federated, and `--version` the version.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import dpfl
from dpfl import interrupts, machine

_HERE = Path(__file__).resolve().parent
BINARIES = "dpfl.experiments"
_START = f"{BINARIES}.start"
COMMANDS = (
    *("train", "privacy", "factorize", "audit", "benchmark", "reproduce"),
    *("worker", "compare", "search"),
)
# Commands that run without TensorFlow Federated. All others fail with a message about
# it before they load anything of their own.
WITHOUT_TFF = ("privacy", "factorize", "compare")
FAULT_EXIT_CODE, USAGE_EXIT_CODE = 1, 2


def _fail(message: str, code: int = USAGE_EXIT_CODE) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def binaries_folder() -> Path:
    """The folder of the binaries, in the wheel or in the source tree."""
    spec = importlib.util.find_spec(BINARIES)
    if spec is None or spec.origin is None:
        _fail(
            "dpfl is not installed: this is a source tree; pip install -e . installs it"
        )
    return Path(spec.origin).parent


def summary(command: str) -> str:
    """The first line of a binary's documentation, without loading it."""
    source = (binaries_folder() / f"{command}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def run_command(command: str) -> None:
    """Runs one of `COMMANDS` with the arguments in `sys.argv`.

    The exit code is 2 if it must have TensorFlow Federated and there is none, 1 if it
    cannot be loaded for want of memory, and 130 if it is interrupted before.
    """
    try:
        machine.check_limit()
        module, cli = _loaded(command)
    except Exception as error:
        if machine.ran_out(error):
            _fail(f"memory ran out ({error})", FAULT_EXIT_CODE)
        raise
    cli.run(module.main)


def _loaded(command: str) -> tuple[Any, Any]:
    """The module of a command, and the one that all commands share."""
    with interrupts.at_once():
        if command not in WITHOUT_TFF and "--version" not in sys.argv[1:]:
            try:
                from dpfl import needs_tff  # noqa: F401
            except ImportError as error:
                _fail(str(error))
        binaries_folder()
        start = importlib.import_module(_START)
        with start.accounting_when_used():
            module = importlib.import_module(f"{BINARIES}.{command}")
        return module, importlib.import_module(f"{BINARIES}.cli")


# Entry points of the scripts dpfl-train, dpfl-privacy and so on.
train, privacy, factorize, audit, benchmark, reproduce, worker, compare, search = (
    functools.partial(run_command, name) for name in COMMANDS
)


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
    known: dict[str, Callable[[], Any]] = {
        "configs": lambda: print(binaries_folder().parent / "configs"),
        "requirements": lambda: print(_HERE / "requirements-tff.txt"),
        "--version": lambda: print(f"dpfl {dpfl.__version__}"),
        **dict.fromkeys(("--help", "-h", "--helpshort", "help"), list_commands),
    }
    if command not in known:
        names = ", ".join((*COMMANDS, "configs", "requirements"))
        _fail(f"the command must be one of {names}, found {command!r}")
    binaries_folder()
    with importlib.import_module(f"{BINARIES}.cli").exit_codes():
        known[command]()


if __name__ == "__main__":
    main(sys.argv[1:])
