# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every figure of every paper, by its name.

    works = index.FIGURES["csgm_fig2"].grid("medium")

`experiments/reproduce.py` takes the names as its `--figure`. Figures of training are
sections of `configs/papers/PAPER.ini`: `source`, `folder` and `curves` as in
`sweep.Figure`, the fields of `plotting.Plot`, and lines of runs for each scale, or the
section that has them as `runs`. A line is a grid, as in `dpfl-sweep`:

    task=mnist careful cohort_size=50,100 epsilon=8.0 --bits=16 seed=1-6

`NAME=VALUE,VALUE` are labels, `--NAME=VALUE` flags, and other words are flag files or
names in `sets`. A label is a flag, unless `sets` has `NAME VALUE` or `NAME *` with the
flags it stands for; these may name labels in braces. `-NAME` takes a flag away.
"""

from __future__ import annotations

import configparser
import contextlib
import functools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Optional

from .. import cli, flag_files
from ..plotting import Plot
from ..trainings.sweep import SCALES, Cell, Curves, Figure, cross
from . import chen2022, chen2024, denisov2022, ours

# Words by name, and lines by scale.
Sets = Mapping[str, str]
Lines = Mapping[str, Sequence[str]]
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
        else:
            flags |= _flags(sets[word], sets)
    return flags


def _label(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


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
        axis.append(({name: _label(text)}, flags))
    return axis


def _cells(lines: Lines, sets: Sets, scale: str) -> Iterator[Cell]:
    for line in lines[scale]:
        axes = [_axis(word, sets) for word in shlex.split(line)]
        for labels, flags in cross(*axes):
            # Some words stand for the value of a label.
            own = {n: v.format(**labels) for n, v in flags.items() if v is not None}
            yield labels, own


def _trained(paper: str, module: Optional[ModuleType]) -> Iterator[Figure]:
    """The figures of a paper's file; `ROWS` of a module has functions of rows."""
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
        source, folder = own.pop("source"), own.pop("folder", None)
        curves = tuple(own.pop("curves", "").split())
        named = own.pop("titles", "").strip().splitlines()
        own["titles"] = {**titles, **dict(line.split(": ", 1) for line in named)}
        own["shown"] = own.pop("shown", "").split()
        plot = Plot(**own, rows=functions.get(name, list))
        cells = functools.partial(_cells, lines, sets)
        shown = Curves(curves) if curves else None
        yield Figure(name, source, cells, plot, folder, tuple(lines), shown)


_PAPERS: Mapping[str, Optional[ModuleType]] = {
    "chen2024": chen2024,
    "denisov2022": denisov2022,
    "chen2022": chen2022,
    "dome2025": None,
    "ours": ours,
}
FIGURES: dict[str, Figure] = {
    figure.name: figure
    for paper, module in _PAPERS.items()
    for figure in (*_trained(paper, module), *getattr(module, "FIGURES", ()))
}
