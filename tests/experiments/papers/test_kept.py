# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from experiments.papers import index, kept, rows, sweep, trainings
from experiments.papers.ours import stream_training_grid
from tests.experiments.papers import invented

COLUMNS = {
    "delta": "1e-4",
    "noise_multiplier": "0.8",
    "uplink_bits_per_parameter": "3.2",
    "downlink_bits_per_parameter": "32",
    "wall_time_seconds": "100",
    "key": "[...]",
}
METRICS = {
    "round": [1, 2, 3],
    "train_loss": [3, 2, 1],
    "eval_accuracy": ["", 0.2, 0.3],
    "eval_loss": ["", 2, 1.5],
    "aggregator_explained_energy": [0.1, 0.2, 0.3],
    "aggregator_subspace_overlap": [0.9, 0.8, 0.9],
    "aggregator_retained_rank": [1, 2, 3],
}
MEDIUM = {n: each for n, each in index.FIGURES.items() if "medium" in each.scales}
# One of each drawing.
DRAWN = list({figure.draw: name for name, figure in MEDIUM.items()}.values())


def rows_of(name, folder):
    """Works of a figure and rows as they would leave them."""
    works = index.FIGURES[name].grid(sweep.Setting("medium"))
    found = list(invented.rows(works, folder, COLUMNS, METRICS))
    # As the noise of a run without any is told.
    for work, row in zip(works, found):
        own = {"epsilon": "7.9999", **{n: str(v) for n, v in work.labels.items()}}
        row.update(own)
    return works, found


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_drawn_from_its_table_alone(name, tmp_path):
    figure = index.FIGURES[name]
    works, table = rows_of(name, tmp_path / "runs")
    kept.write(tmp_path / "table.csv", figure, works, table)
    lines = invented.draw(figure, table, tmp_path / "a.png", "medium")
    for work in works:
        (tmp_path / "runs" / work.folder / "metrics.csv").unlink()
    again = kept.read(tmp_path / "table.csv")
    assert invented.draw(figure, again, tmp_path / "b.png", "medium") == lines
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "table.csv").stat().st_size < 20_000


def test_a_table_has_labels_and_measures_and_no_machine(tmp_path):
    works, table = rows_of("csgm_fig4", tmp_path / "runs")
    kept.write(tmp_path / "t.csv", index.FIGURES["csgm_fig4"], works, table)
    head, *lines = (tmp_path / "t.csv").read_text().splitlines()
    labels = "task,cohort_size,epsilon,compression_rate,seed"
    assert head.startswith(f"{labels},final_accuracy,final_loss,delta,noise_multiplier")
    assert not {"key", "folder", "wall_time_seconds"} & set(head.split(","))
    assert len(lines) == len(works)
    head, *lines = (tmp_path / "t_curves.csv").read_text().splitlines()
    assert head == f"{labels},round,eval_accuracy,eval_loss"
    # The first round was not evaluated.
    assert lines[:2] == ["mnist,400,8.0,1,1,2,0.2,2", "mnist,400,8.0,1,1,3,0.3,1.5"]
    assert len(lines) == 2 * len(works)


def test_curves_are_those_of_the_row_s_own_run(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("mechanism,seed,round,eval_loss\na,1,4,0.5\na,2,4,0.25\na,2,8,\n")
    row = {"mechanism": "a", "seed": "2", "final_loss": "7", "curves": str(path)}
    assert trainings.curve(row, "eval_loss") == [(4, 0.25)]


def test_without_curves_there_is_one_file(tmp_path):
    name = "stream_training"
    works, table = rows_of(name, tmp_path / "runs")
    kept.write(tmp_path / "t.csv", index.FIGURES[name], works, table)
    assert not kept.curves_path(tmp_path / "t.csv").exists()
    found = kept.read(tmp_path / "t.csv")
    assert rows.distinct(found, "way") == list(stream_training_grid.WAYS)
    assert all(trainings.CURVES not in row for row in found)
