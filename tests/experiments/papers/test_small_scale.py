# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What figures gave at the small scale, and took, is in docs/results/small."""

from pathlib import Path

import pytest

from experiments.papers import result_rows, sweep
from experiments.papers.index import FIGURES
from tests.experiments import programs
from tests.experiments.papers import test_gallery, test_medium
from tools import run_costs, small_scale

FOLDER = programs.ROOT / "docs/results/small"
COSTS = result_rows.read_csv(FOLDER / small_scale.COSTS)
MADE = [row["figure"] for row in COSTS]


def test_the_tool_makes_every_figure_of_the_small_scale():
    wanted = {name for name, figure in FIGURES.items() if "small" in figure.scales}
    exact = {path.stem for path in FOLDER.parent.glob("*.csv")} & wanted
    exact -= {*test_medium.NAMES}
    assert {*small_scale.NAMES} == wanted - exact
    assert {*MADE} == {*small_scale.NAMES} and len(MADE) == len({*MADE})
    tables = {path.stem.removesuffix("_curves") for path in FOLDER.glob("*.csv")}
    assert tables == {*MADE, "costs"}


@pytest.mark.parametrize("row", COSTS, ids=MADE)
def test_a_table_has_what_the_present_grid_has(row):
    name = row["figure"]
    table = result_rows.read_csv(FOLDER / f"{name}.csv")
    works = FIGURES[name].grid(sweep.Setting("small"))
    assert {(row["figure"], row["scale"]) for row in table} == {(name, "small")}
    labels = [{k: str(v) for k, v in work.labels.items()} for work in works]
    assert [{k: row[k] for k in label} for row, label in zip(table, labels)] == labels
    assert len(table) == len(works) == int(row["table_rows"])


@pytest.mark.parametrize("row", COSTS, ids=MADE)
def test_the_gallery_says_what_a_figure_takes(row):
    # Of two processors.
    minutes = round(float(row["processor_seconds"]) / 2 / 60)
    said = {0: "seconds", 1: "a minute"}.get(minutes, f"{minutes} minutes")
    assert f"Small scale: {said}." in test_gallery.SECTIONS[row["figure"]]


@pytest.fixture
def made(monkeypatch):
    """The names of figures that were made, which take no time."""
    found = []

    def measure(command, log):
        flags = dict(word[2:].split("=", 1) for word in command if "=" in word)
        found.append(flags["figure"])
        result_rows.write_columns(Path(flags["table"]), {"seed": [1, 2]})
        return 12.34, 5.0

    monkeypatch.setattr(run_costs, "adopt_orphans", lambda: None)
    monkeypatch.setattr(run_costs, "measure", measure)
    return found


def test_a_table_is_made_once(made, tmp_path):
    small_scale.main([str(tmp_path), "--figures=csgm_fig5"])
    small_scale.main([str(tmp_path), "--figures=csgm_fig5,mf_fig3"])
    assert made == ["csgm_fig5", "mf_fig3"]
    costs = result_rows.read_csv(tmp_path / small_scale.COSTS)
    assert [tuple(row.values()) for row in costs] == [
        ("csgm_fig5", "2", "12.3", "5.0"),
        ("mf_fig3", "2", "12.3", "5.0"),
    ]


def test_an_unknown_figure_is_refused(made, tmp_path, capsys):
    with pytest.raises(SystemExit) as refused:
        small_scale.main([str(tmp_path), "--figures=fig0"])
    assert refused.value.code == 2 and "found ['fig0']" in capsys.readouterr().err
    assert not made and not list(tmp_path.iterdir())
