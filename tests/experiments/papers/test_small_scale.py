# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What figures gave at the small scale, and took, is in docs/results/small."""

import math
import subprocess
import sys

import pytest

from experiments.papers import rows, sweep
from experiments.papers.index import FIGURES
from tests.experiments import programs
from tests.experiments.papers import test_gallery
from tools import small_scale

FOLDER = programs.ROOT / "docs/results/small"
# It measures time, and is at docs/results itself.
ELSEWHERE = {"mf_fig4"}


def test_each_figure_of_the_small_scale_was_made():
    wanted = [name for name, figure in FIGURES.items() if "small" in figure.scales]
    assert set(wanted) == {*small_scale.NAMES} | ELSEWHERE
    made = {path.stem for path in FOLDER.glob("*.csv")}
    assert {name for name in made if not name.endswith("_curves")} == {
        *small_scale.NAMES,
        "costs",
    }


@pytest.mark.parametrize("name", small_scale.NAMES)
def test_a_table_has_what_the_present_grid_has(name):
    table = rows.read_csv(FOLDER / f"{name}.csv")
    works = FIGURES[name].grid(sweep.Setting("small"))
    assert {(row["figure"], row["scale"]) for row in table} == {(name, "small")}
    labels = [{k: str(v) for k, v in work.labels.items()} for work in works]
    assert [{k: row[k] for k in label} for row, label in zip(table, labels)] == labels
    assert len(table) == len(works)


def test_costs_have_every_table_and_its_rows():
    costs = rows.read_csv(FOLDER / small_scale.COSTS)
    assert sorted(row["figure"] for row in costs) == sorted(small_scale.NAMES)
    for row in costs:
        table = rows.read_csv(FOLDER / f"{row['figure']}.csv")
        assert int(row["table_rows"]) == len(table)


def said(name):
    """How long the gallery says that a figure takes."""
    costs = rows.read_csv(FOLDER / small_scale.COSTS)
    [row] = rows.where(costs, figure=name)
    # Of two processors.
    seconds = float(row["processor_seconds"]) / 2
    if seconds < 60:
        return "seconds"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} minutes"


@pytest.mark.parametrize("name", small_scale.NAMES)
def test_the_gallery_says_what_a_figure_takes(name):
    assert f"Small scale: {said(name)}." in test_gallery.SECTIONS[name]


def run(folder, *flags):
    return subprocess.run(
        [sys.executable, "-m", "tools.small_scale", str(folder), *flags],
        env=programs.environment(),
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_table_is_made_once_and_is_what_is_kept(tmp_path):
    flags = ["--figures=mf_table2"]
    first, again = run(tmp_path, *flags), run(tmp_path, *flags)
    assert first.stdout.startswith("mf_table2 ") and not again.stdout, first.stderr
    found, kept = (rows.read_csv(f / "mf_table2.csv") for f in (tmp_path, FOLDER))
    assert [row.keys() for row in found] == [row.keys() for row in kept]
    losses = [rows.numbers(table, "loss") for table in (found, kept)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_an_unknown_figure_is_refused(tmp_path):
    done = run(tmp_path, "--figures=fig0")
    assert done.returncode == 2 and "found ['fig0']" in done.stderr
    assert not list(tmp_path.iterdir())
