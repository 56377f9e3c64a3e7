# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every figure and table that a paper numbers, and what is here of it.

The text of Denisov et al. that was at hand lacks captions: what their Figs. 2 and 5
show is taken from what refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dpfl import files

from .. import tables
from .index import FIGURES
from .sweep import SCALES


class Numbered(NamedTuple):
    """A figure or table of a paper.

    Attributes:
      number: As in the paper, with the panel if panels differ in what is here.
      shows: What it shows.
      figure: Names of the figures here that stand for it, if any do.
      why: Why none does.
    """

    number: str
    shows: str
    figure: str = ""
    why: str = ""


_DIAGRAM = {"why": "a diagram, no result"}
_SETTINGS = {"why": "settings of the paper's runs"}
NUMBERED: Mapping[str, tuple[Numbered, ...]] = {
    "chen2024": (
        Numbered("Fig. 1", "noise of L2-CSGM and GM", "csgm_fig1"),
        Numbered("Fig. 2", "accuracy of GM and L2-CSGM", "csgm_fig2 csgm_cohorts"),
        Numbered("Fig. 3", "accuracy of MF and SGMF", "sgmf_fig3"),
        Numbered("Fig. 4", "L2-CSGM, 1000 clients", "csgm_fig4 csgm_cohorts"),
        Numbered("Fig. 5", "L2-CSGM, 100 clients", "csgm_fig5 csgm_cohorts"),
        Numbered("Fig. 6", "L2-CSGM, Stack Overflow, over budgets", "csgm_fig6"),
        Numbered("Fig. 7", "MF and SGMF, clip 1.0", "sgmf_fig7"),
        Numbered("Fig. 8", "MF and SGMF, clip 0.03", "sgmf_fig8"),
    ),
    "chen2022": (
        Numbered("Fig. 1", "mean estimation by secure aggregation", **_DIAGRAM),
        Numbered("Fig. 2", "compression rates over noise, both tasks", "secagg_fig2"),
        Numbered("Fig. 3", "bits and compression rates, z=0.5", "secagg_fig3"),
        Numbered("Fig. 4a", "large model compressed against small one", "secagg_fig4"),
        Numbered("Fig. 4b", "compression over model sizes", "secagg_fig4b"),
        Numbered("Fig. 5", "bits and rates, z=0.1 and 0.3", "secagg_fig3"),
        Numbered("Fig. 6", "all bits and compression rates", "secagg_fig3"),
        Numbered("Fig. 7", "compression rates over cohort sizes", "secagg_fig7"),
        Numbered("Fig. 8", "larger cohorts at equal time", "secagg_fig8"),
        Numbered("Fig. 9", "layers sketched apart, with noise", "secagg_fig9"),
        Numbered("Fig. 10", "layers sketched apart, without noise", "secagg_fig10"),
        Numbered("Fig. 11", "large model", why="an architecture: `--model=cnn`"),
        Numbered("Fig. 12", "small model", why="an architecture: `--model=2nn`"),
        Numbered("Fig. 13", "LSTM", why="an architecture: `--task=stackoverflow`"),
        Numbered("Fig. 14", "sparse private aggregation", **_DIAGRAM),
        Numbered("Table 1", "fewest bits by compression rate", "secagg_table1"),
    ),
    "denisov2022": (
        Numbered("Fig. 1", "squared error of each step", "mf_fig1"),
        Numbered("Fig. 2", "accuracy over budgets, constant rates", "mf_fig3"),
        Numbered("Fig. 3", "accuracy over budgets, schedules", "mf_fig3"),
        Numbered("Fig. 4", "loss over time of solvers", "mf_fig4"),
        Numbered("Fig. 5", "optimal matrices", why="a picture of matrices, no result"),
        Numbered("Fig. 6", "accuracy late in training", "mf_fig6"),
        Numbered("Table 1", "four mechanisms", why="definitions, no result"),
        Numbered("Table 2", "losses of structured matrices", "mf_table2"),
        Numbered("Table 3", "grid of rates and noise", **_SETTINGS),
        Numbered("Table 4", "rates of each mechanism and budget", **_SETTINGS),
    ),
    "dome2025": (),
}


def kept(names: Sequence[str], folder: Path) -> str:
    """At which scales a folder of results has figures, and whether they are exact."""
    paths = (f / f"{n}.csv" for n in names for f in (folder, folder / "small"))
    rows = (row for path in paths if path.exists() for row in files.read_csv(path))
    scales = {row["scale"] for row in rows}
    words = [scale for scale in SCALES if scale in scales]
    is_exact = all(FIGURES[name].source.endswith("exact") for name in names)
    return ", ".join(words + ["exact"] * is_exact)


def lines(paper: str, folder: Path) -> str:
    """A table in Markdown, or a sentence where the paper numbers none."""
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
