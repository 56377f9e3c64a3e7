# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib
import re

import pytest

from dpfl import files
from experiments.papers import index, result_tables
from experiments.trainings import sweep
from tests.experiments.papers import invented
from tests.refusals import refuses

COLUMNS = {
    "delta": "1e-4",
    "noise_multiplier": "0.8",
    "uplink_bits_per_client": "3200",
    "uplink_bits_per_parameter": "3.2",
    "downlink_bits_per_parameter": "32",
    "wall_time_seconds": "100",
    "key": "[...]",
}
MEDIUM = {n: each for n, each in index.FIGURES.items() if "medium" in each.scales}
# One of each kind of table: with curves and without, of runs' folders and not.
KINDS = {(str(f.curves), f.needs_folders): name for name, f in MEDIUM.items()}


def rows_of(name, folder, seeds=()):
    """Works of a figure and rows as they would leave them."""
    works = index.FIGURES[name].grid("medium", {}, seeds)
    found = list(invented.rows(works, folder, COLUMNS))
    # As the noise of a run without any is told.
    for work, row in zip(works, found):
        own = {"epsilon": "7.9999", **{n: str(v) for n, v in work.labels.items()}}
        row.update(own)
    return works, found


@pytest.mark.parametrize("name", KINDS.values())
def test_figure_is_drawn_only_from_its_table(name, tmp_path):
    figure = index.FIGURES[name]
    works, table = rows_of(name, tmp_path / "runs")
    result_tables.write(tmp_path / "table.csv", figure, "medium", works, table)
    lines = invented.draw(figure, table, tmp_path / "a.png")
    for work in works:
        (tmp_path / "runs" / work.folder / "metrics.csv").unlink()
    again = result_tables.read(tmp_path / "table.csv", figure, "medium", works)
    assert invented.draw(figure, again, tmp_path / "b.png") == lines
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "table.csv").stat().st_size < 24_000


def test_tables_hold_labels_and_metrics_but_no_machine_data(tmp_path):
    works, table = rows_of("csgm_fig2", tmp_path / "runs")
    result_tables.write(
        tmp_path / "t.csv", index.FIGURES["csgm_fig2"], "medium", works, table
    )
    head, *lines = (tmp_path / "t.csv").read_text().splitlines()
    labels = "figure,scale,task,cohort_size,epsilon,compression_rate,seed"
    assert head.startswith(f"{labels},final_accuracy,final_loss,delta,noise_multiplier")
    assert not {"key", "folder", "wall_time_seconds"} & set(head.split(","))
    # How many points its curves have.
    assert head.endswith(",points") and all(line.endswith(",2") for line in lines)
    assert len(lines) == len(works)
    head, *lines = (tmp_path / "t_curves.csv").read_text().splitlines()
    assert head == f"{labels},round,eval_accuracy,eval_loss"
    # The first round was not evaluated.
    own = "csgm_fig2,medium,mnist,100,2.0,1,1"
    assert lines[:2] == [f"{own},2,0.2,2", f"{own},3,0.3,1.5"]
    assert len(lines) == 2 * len(works)


def test_curves_belong_to_their_own_run(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("mechanism,seed,round,eval_loss\na,1,4,0.5\na,2,4,0.25\na,2,8,\n")
    row = {"mechanism": "a", "seed": "2", "final_loss": "7", "curves": str(path)}
    found = sweep.points_of([row], sweep.Curves(("eval_loss",)))
    assert found == [{**row, "round": "4", "eval_loss": "0.25"}]


def test_rows_of_jax_and_of_any_seeds_are_kept(tmp_path):
    name = "stream_training"
    figure, path = index.FIGURES[name], tmp_path / "t.csv"
    works, [one, other, *_] = rows_of(name, tmp_path / "runs", [21, 22])
    rows = [one, {**other, sweep.DEVICE: "H200"}]
    result_tables.write(path, figure, "medium", works, rows)
    found = result_tables.read(path, figure, "medium", figure.grid("medium"))
    assert [row["seed"] for row in found] == ["21", "22"]
    assert [row[sweep.DEVICE] for row in found] == ["", "H200"]
    # Without curves there is one file.
    assert not result_tables.curves_path(path).exists()
    assert all(sweep.CURVES not in row for row in found)


@pytest.fixture
def table(tmp_path):
    """A table of csgm_fig2, with curves beside it."""
    works, found = rows_of("csgm_fig2", tmp_path / "runs")
    path = tmp_path / "t.csv"
    result_tables.write(path, index.FIGURES["csgm_fig2"], "medium", works, found)
    return path


def check_refused(path, *parts, name="csgm_fig2", scale="medium"):
    figure = index.FIGURES[name]
    with refuses(ValueError, "--from_table", *parts):
        result_tables.read(path, figure, scale, figure.grid(scale))


@pytest.mark.parametrize(
    ("name", "scale"), [("csgm_fig6", "medium"), ("csgm_fig2", "small")]
)
def test_table_of_other_figure_or_scale_is_refused(table, name, scale):
    check_refused(table, table, name, scale, name=name, scale=scale)


# What is left of a table's text, or of its curves'.
DAMAGES = {
    "nothing": lambda text: "",
    "another file": lambda text: "a,b\n1,2\n",
    "a part of a row": lambda text: text[:-60],
    "a strange row": lambda text: text.replace(
        "mnist,100,2.0,1,1,", "mnist,100,2.0,7,1,"
    ),
    "a shorter curve": lambda text: text[: text[:-1].rindex("\n") + 1],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_table_is_refused(table, damage):
    path = table.with_name("t_curves.csv" if "curve" in damage else "t.csv")
    path.write_text(DAMAGES[damage](path.read_text()))
    figure = index.FIGURES["csgm_fig2"]
    with pytest.raises(ValueError):
        result_tables.read(table, figure, "medium", figure.grid("medium"))


def test_a_table_without_its_curves_is_refused(table):
    curves = result_tables.curves_path(table)
    curves.unlink()
    check_refused(table, curves)


RESULTS = pathlib.Path(__file__).resolve().parents[3] / "docs/results"
KEPT = {
    path.stem: path
    for folder in ("small/", "")
    for path in RESULTS.glob(f"{folder}*.csv")
}


def test_every_drawing_has_a_table_in_docs():
    plots = {str(figure.plot) for figure in index.FIGURES.values()}
    assert plots == {str(index.FIGURES[n].plot) for n in KEPT if n in index.FIGURES}


@pytest.mark.parametrize("name", [name for name in index.FIGURES if name in KEPT])
def test_a_figure_is_drawn_from_its_table_in_docs(name, tmp_path):
    """And a part of it, as of a table that is not finished."""
    figure, path = index.FIGURES[name], KEPT[name]
    scale = files.read_csv(path)[0]["scale"]
    works = figure.grid(scale)
    found = result_tables.read(path, figure, scale, works)
    assert len(found) == len(works)
    if not figure.needs_folders:
        every, first = (
            invented.draw(figure, rows, tmp_path / "a.png")
            for rows in (found, found[:1])
        )
        assert every >= first and every > 0


def test_every_figure_is_listed():
    page = (RESULTS.parent / "evidence/reproduce.md").read_text(encoding="utf-8")
    listed = page.partition("## Figures")[2].partition("## ")[0]
    names = re.findall(r"^\| \[`(\w+)`\]", listed, re.M)
    assert sorted(names) == sorted(index.FIGURES)
