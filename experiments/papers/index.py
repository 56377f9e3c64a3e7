# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every figure of every paper, by its name.

    works = index.FIGURES["csgm_fig2"].grid("medium")

`experiments/reproduce.py` takes the names as its `--figure`. Figures are sections of
`configs/papers/PAPER.ini`: fields of `sweep.Figure` and of `panels.Plot`, and, for
training, lines of runs for each scale, or the section that has them as `runs`. A line
is a grid, as in `dpfl-sweep`:

    task=mnist careful cohort_size=50,100 epsilon=8.0 --bits=16 seed=1-6

`NAME=VALUE,VALUE` are labels, `--NAME=VALUE` flags, and other words are flag files or
names in `sets`. A label is a flag, unless `sets` has `NAME VALUE` or `NAME *` with the
flags it stands for; these may name labels in braces. `-NAME` takes a flag away.
"""

from __future__ import annotations

import configparser
import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from dpfl import checks

from .. import cli, flag_files, tables
from ..panels import Plot
from ..trainings.sweep import SCALES, Cell, Curves, Figure, cross
from . import chen2022, chen2024, denisov2022, ours

# Words by name, and lines by scale.
Sets = Mapping[str, str]
Lines = Mapping[str, Sequence[str]]
# Keys of a section that are fields of its `Figure`.
_OF_FIGURES = ("source", "sweep", "needs_folders")
# Between values, of which some are words with a comma.
_COMMA = re.compile(r",(?! )")


def _flags(words: str, sets: Sets) -> dict[str, Optional[str]]:
    flags: dict[str, Optional[str]] = {}
    for word in words.split():
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-"):
            flags[name] = value if equals else None
        elif word.endswith(".flags"):
            flags |= flag_files.values(word)
        elif word in sets:
            flags |= _flags(sets[word], sets)
        else:
            raise ValueError(f"a word of runs must be one of sets, found {word}")
    return flags


def _axis(word: str, sets: Sets) -> list[Cell]:
    """The choices of a word of a line; one without labels if it is none of labels."""
    name, equals, values = word.partition("=")
    if word.startswith("-") or not equals:
        return [({}, _flags(word, sets))]
    if name == "seed":
        texts = [str(seed) for seed in cli.seeds_in("seed", values)]
    else:
        texts = _COMMA.split(values)
    axis: list[Cell] = []
    for text in texts:
        words = sets.get(f"{name} *", f"--{name}={text}")
        flags = _flags(sets.get(f"{name} {text}", words), sets)
        axis.append(({name: tables.value(text)}, flags))
    return axis


def _cells(lines: Lines, sets: Sets, scale: str) -> Iterator[Cell]:
    for line in lines[scale]:
        axes = [_axis(word, sets) for word in shlex.split(line)]
        for labels, flags in cross(*axes):
            # Some words stand for the value of a label.
            own = {n: v.format(**labels) for n, v in flags.items() if v is not None}
            yield labels, own


def _figures(paper: str, module: Any) -> Iterator[Figure]:
    """The figures of a paper's file.

    `ROWS` of its module has functions of rows, and `WORK` those from a scale to the
    work of figures without training.
    """
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment]
    for name in ("medium", paper):
        parser.read(flag_files.path(f"papers/{name}.ini"), encoding="utf-8")
    content = {name: dict(parser[name]) for name in parser.sections()}
    sets, titles = content.pop("sets"), content.pop("titles", {})
    functions = getattr(module, "ROWS", {})
    for name, given in content.items():
        runs = content[given.pop("runs", name)]
        lines = {s: runs[s].strip().splitlines() for s in SCALES if s in runs}
        own: dict[str, Any] = {n: v for n, v in given.items() if n not in SCALES}
        figure: dict[str, Any] = {n: own.pop(n) for n in _OF_FIGURES if n in own}
        figure["words"] = tuple(own.pop("words", "").split())
        if curves := tuple(own.pop("curves", "").split()):
            file = own.pop("curves_file", Curves.file)
            figure["curves"] = Curves(curves, file)
        if lines:
            figure["cells"] = functools.partial(_cells, lines, sets)
            figure["scales"] = tuple(lines)
        else:
            figure["cells"] = module.WORK[name]
            figure["scales"] = tuple(own.pop("scales", "small paper").split())
        named = own.pop("titles", "").strip().splitlines()
        shared = titles if lines else {}
        own["titles"] = {**shared, **dict(line.split(": ", 1) for line in named)}
        own["shown"] = own.pop("shown", "").split()
        plot = Plot(**own, rows=functions.get(name, list))
        yield Figure(name, plot=plot, **figure)


_PAPERS: Mapping[str, Any] = {
    "chen2024": chen2024,
    "denisov2022": denisov2022,
    "chen2022": chen2022,
    "dome2025": None,
    "ours": ours,
}
FIGURES: dict[str, Figure] = {}
for _paper, _module in _PAPERS.items():
    try:
        FIGURES |= {figure.name: figure for figure in _figures(_paper, _module)}
    except (configparser.Error, KeyError, TypeError, ValueError) as _error:
        _wanted = "files of sections with the fields of a figure and its plot"
        _found = f"{_error!r} in {_paper}.ini"
        raise ValueError(checks.message("configs/papers", _wanted, _found)) from _error
