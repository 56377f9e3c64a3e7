# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every numbered figure and table of the papers, its reproduction, and quotations.

    print(coverage.lines("denisov2022", Path("docs/results")))
    print(coverage.words("denisov2022"))

The available text of Denisov et al. lacks captions: the contents of Figs. 2 and 5 are
taken from the references to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dpfl import files

from .. import flag_files, tables
from ..trainings.sweep import SCALES
from .index import FIGURES

PAPERS = ("chen2024", "chen2022", "denisov2022", "dome2025")


class Numbered(NamedTuple):
    """A figure or table of a paper.

    Attributes:
      number: The paper's number, with the panel if only some panels are reproduced.
      shows: Its content.
      figure: Names of dpfl's figures that reproduce it, if any.
      why: The reason if there is none.
    """

    number: str
    shows: str
    figure: str = ""
    why: str = ""


def _of_papers(name: str) -> dict[str, list[list[str]]]:
    """The lines of a file in `configs/papers`, by their first column, the paper."""
    found: dict[str, list[list[str]]] = {paper: [] for paper in PAPERS}
    for row in files.read_csv(flag_files.path(f"papers/{name}.csv")):
        paper, *cells = row.values()
        found[paper].append(cells)
    return found


NUMBERED: Mapping[str, Sequence[Numbered]] = {
    paper: [Numbered(*cells) for cells in lines]
    for paper, lines in _of_papers("numbered").items()
}
# Quotations from the papers by their place; ... marks omissions.
WORDS: Mapping[str, Mapping[str, str]] = {
    paper: {place: said for place, said in lines}
    for paper, lines in _of_papers("quotations").items()
}


def kept(names: Sequence[str], folder: Path) -> str:
    """The scales with results in a folder, and whether these are exact."""
    paths = (f / f"{n}.csv" for n in names for f in (folder, folder / "small"))
    rows = (row for path in paths if path.exists() for row in files.read_csv(path))
    scales = {row["scale"] for row in rows}
    words = [scale for scale in SCALES if scale in scales]
    is_exact = all(FIGURES[name].source.endswith("exact") for name in names)
    return ", ".join(words + ["exact"] * is_exact)


def lines(paper: str, folder: Path) -> str:
    """A Markdown table of a paper's figures, or a sentence if it numbers none."""
    if not NUMBERED[paper]:
        return "The paper has no figure and no table.\n"
    heads = ("in the paper", "what it shows", "here (`--figure`)", "scales kept")
    text = []
    for number, shows, figure, why in NUMBERED[paper]:
        names = figure.split()
        shown = ", ".join(f"`{name}`" for name in names)
        here = (shown, kept(names, folder)) if names else ("", "")
        text.append((number, shows, *here, why))
    return tables.markdown((*heads, "not reproduced because"), text)


def words(paper: str) -> str:
    """A Markdown table of quotations from a paper."""
    text = [(place, f"“{said}”") for place, said in WORDS[paper].items()]
    return tables.markdown(("in the paper", "its own words"), text)
