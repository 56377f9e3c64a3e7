# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What of the papers' figures and tables is here: none is missing or made up."""

import re
from pathlib import Path

import pytest

from experiments.papers import claims, coverage
from experiments.papers.index import FIGURES

RESULTS = Path(__file__).resolve().parents[3] / "docs/results"
PAPERS = {"chen2022": "Chen et al. 2022", "chen2024": "Chen et al. 2024"}
PAPERS["denisov2022"] = "Denisov et al. 2022"
# As many as the papers have.
COUNTS = {
    **{("chen2024", "Fig."): 8, ("chen2022", "Fig."): 14, ("chen2022", "Table"): 1},
    **{("denisov2022", "Fig."): 6, ("denisov2022", "Table"): 4},
}


def numbers(words):
    """Kind and number of each that words name, such as Figs. 3, 5 and 6."""
    found = re.match(r"(Fig\.|Table|Figs\.) ([\d, and]+)", words)
    kind = found[1].replace("Figs", "Fig")
    return {(kind, int(number)) for number in re.findall(r"\d+", found[2])}


def test_every_numbered_item_is_listed_once():
    for paper, rows in coverage.NUMBERED.items():
        assert len({row.number for row in rows}) == len(rows)
        found = set().union(*(numbers(row.number) for row in rows))
        counts = {kind: n for (name, kind), n in COUNTS.items() if name == paper}
        assert found == {(k, i + 1) for k, n in counts.items() for i in range(n)}


@pytest.mark.parametrize("paper", PAPERS)
def test_figures_are_the_papers_that_their_sources_name(paper):
    named = {}
    for figure in FIGURES.values():
        _, _, words = figure.source.partition(f"{PAPERS[paper]}, ")
        if words:
            named[figure.name] = numbers(words)
    found = {}
    for row in coverage.NUMBERED[paper]:
        for name in row.figure.split():
            found.setdefault(name, set()).update(numbers(row.number))
    assert found.keys() == named.keys() != set()
    for name in named:
        assert named[name] <= found[name], name


def test_each_claim_quotes_the_paper():
    for paper, found in coverage.WORDS.items():
        places = {one.where for one in claims.of_paper(paper)}
        wanted = {place if place in found else place.split(", ")[0] for place in places}
        assert wanted - {""} <= found.keys(), paper
        assert all(f"| {place} | “" in coverage.words(paper) for place in found)


def test_each_item_has_a_figure_or_a_reason():
    for row in [row for rows in coverage.NUMBERED.values() for row in rows]:
        assert bool(row.figure) != bool(row.why), row


def test_scales_come_from_the_tables(tmp_path):
    (tmp_path / "small").mkdir()
    assert coverage.kept(["secagg_fig2"], tmp_path) == ""
    (tmp_path / "secagg_fig2.csv").write_text("scale,seed\npaper,1\nmedium,1\n")
    (tmp_path / "small/secagg_fig2.csv").write_text("scale,seed\nsmall,1\n")
    assert coverage.kept(["secagg_fig2"], tmp_path) == "small, medium, paper"
    (tmp_path / "mf_fig1.csv").write_text("scale\nsmall\n")
    assert coverage.kept(["mf_fig1"], tmp_path) == "small, exact"


@pytest.mark.parametrize("paper", coverage.NUMBERED)
def test_table_cells_are_short(paper):
    text = coverage.lines(paper, RESULTS)
    rows = coverage.NUMBERED[paper]
    assert text.count("\n") == (len(rows) + 2 if rows else 1)
    assert all(len(cell.split()) <= 9 for cell in text.split("|")), text
