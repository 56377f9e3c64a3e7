# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Paths of the flag files, in the source tree and in an installed package.

    flags = flag_files.values("tasks/digits.flags", "epsilon")    # all but epsilon
    words = flag_files.words(["dpfl-train", "--flagfile=tasks/digits.flags"])

In the tree they are the package `configs` beside `experiments`; installed, both are in
`dpfl`. A file's name is its path in there, such as `chen2022/emnist.flags`.
"""

from __future__ import annotations

import importlib.resources
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from dpfl import checks, files

_AROUND = __package__.rpartition(".")[0]
_CONFIGS = f"{_AROUND}.configs" if _AROUND else "configs"
_NAMED = re.compile(r"--?flagfile=(.+)", re.DOTALL)


def path(name: str) -> Path:
    """The path of a flag file, by its name such as "tasks/digits.flags".

    Raises:
      ValueError: If there is no such file.
    """
    file = Path(str(importlib.resources.files(_CONFIGS).joinpath(name)))
    if not file.is_file():
        wanted = f"one of {', '.join(names())}"
        raise ValueError(checks.message("the flag file", wanted, name))
    return file


def names() -> list[str]:
    """The names of all flag files."""
    folder = Path(str(importlib.resources.files(_CONFIGS)))
    paths = sorted(folder.glob("*/*.flags"))
    return [file.relative_to(folder).as_posix() for file in paths]


def lines(name: str) -> list[str]:
    """The flags in a flag file of dpfl."""
    return lines_in(path(name))


def lines_in(file: Path) -> list[str]:
    """The flags in a flag file, one a line, without comments."""
    text = files.read_text(file, name="--flagfile")
    return [line for line in map(str.strip, text.splitlines()) if line.startswith("-")]


def pair(word: str) -> tuple[str, str]:
    """Splits a flag into name and value: "true", or "false" of --noNAME, by default."""
    name, equals, value = word.lstrip("-").partition("=")
    if equals:
        return name, value
    return (name[2:], "false") if name.startswith("no") else (name, "true")


def values(name: str, *without: str) -> dict[str, str]:
    """The values in a flag file by flag, except some flags; see `path` and `pair`."""
    pairs = map(pair, lines(name))
    return {flag: value for flag, value in pairs if flag not in without}


def resolved(argument: str) -> str:
    """A word of a command line, with the path of dpfl's flag file if it names one.

    `--flagfile=configs/tasks/digits.flags` and `--flagfile=tasks/digits.flags` work
    from every folder; a file of that name in the working folder goes first.

    Raises:
      ValueError: If a flag file is named that cannot be read.
    """
    match = _NAMED.fullmatch(argument)
    if match is None:
        return argument
    name = match.group(1)
    own = os.path.expanduser(name.strip())
    if os.path.lexists(own):
        files.input_path("--flagfile", own)
        return argument
    inside = name[len("configs/") :] if name.startswith("configs/") else name
    if inside in names():
        return argument[: match.start(1)] + str(path(inside))
    wanted = f"a readable file, or one of {', '.join(names())}"
    raise ValueError(checks.message("--flagfile", wanted, name))


def words(argv: Sequence[str]) -> list[str]:
    """A command line with its flag files resolved, each as one word."""
    result: list[str] = []
    rest = iter(argv)
    for word in rest:
        if word == "--":
            return [*result, word, *rest]
        if word in ("--flagfile", "-flagfile"):
            word = "=".join([word, *itertools.islice(rest, 1)])
        result.append(resolved(word))
    return result
