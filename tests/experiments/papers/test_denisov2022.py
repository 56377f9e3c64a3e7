# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import csv
import re

import pytest

from dpfl import tasks
from experiments.papers import result_rows as tables
from experiments.papers import result_tables, sweep
from experiments.papers.denisov2022 import accuracy, errors, figures, solvers
from tests.experiments import programs
from tests.experiments.papers import invented

FIGURES = {figure.name: figure for figure in figures.FIGURES}
TRAINED = ("mf_fig3", "mf_fig6")
# Losses known from elsewhere: closed forms and long runs at a gap below 1e-9.
LOSSES = {
    (8, "optimal"): 17.866177,
    (16, "optimal"): 45.665357,
    (32, "optimal"): 114.559703,
    (8, "honaker-full"): 21.942857,
    (32, "honaker-full"): 158.653149,
}


def make(name, tmp_path, scale="small"):
    """Does a figure's work and draws it; returns the rows."""
    figure = FIGURES[name]
    table = sweep.ResultsTable(tmp_path / "results.csv")
    grid = figure.grid(sweep.Setting(scale))
    for work in grid:
        table.add(work, work.compute(tmp_path / work.folder))
    rows = [{**table.row(work), "folder": str(tmp_path / work.folder)} for work in grid]
    assert invented.draw(figure, rows, tmp_path / "figure.png", scale)
    assert (tmp_path / "figure.png").stat().st_size > 5000
    return rows


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
@pytest.mark.parametrize("name", TRAINED)
def test_runs_of_a_panel_differ_in_the_mechanism_alone(name, scale):
    """The mechanisms are compared at one budget and with the same training.

    At the medium scale each has a rate of its own.
    """
    own = {"mechanism", "matrix_method", "matrix_momentum"}
    own |= {"matrix_schedule", "server_momentum"}
    own |= {"server_lr"} if scale == "medium" else set()
    shared = {}
    for work in FIGURES[name].grid(sweep.Setting(scale)):
        flags = dict(work.settings)
        given = re.findall(r"--(\w+)=(\S+)", flags.pop("flagfile", ""))
        flags = {**dict(given), **flags}
        assert flags["participation"] == "once_per_epoch"
        labels = work.labels
        if labels["mechanism"] == accuracy.NO_NOISE:
            assert flags.pop("noise_multiplier") == "0.0" and "epsilon" not in flags
        else:
            assert float(flags.pop("epsilon")) == labels["epsilon"]
        panel = labels["problem"], labels["seed"]
        rest = {k: v for k, v in flags.items() if k not in own}
        assert shared.setdefault(panel, rest) == rest


def test_rates_are_the_best_that_were_tried():
    trials = tables.read_csv(programs.ROOT / "docs/results/medium_validation.csv")
    for work in FIGURES["mf_fig3"].grid(sweep.Setting("medium")):
        labels, rate = work.labels, float(work.settings["server_lr"])
        is_noisy = labels["mechanism"] != accuracy.NO_NOISE
        tried = tables.where(
            trials,
            task=labels["problem"],
            mechanism="matrix_factorization" if is_noisy else "gaussian",
            matrix_method=labels["mechanism"] if is_noisy else "",
            stands_for_cohort=work.settings["cohort_size"],
            stands_for_epsilon=f"{labels['epsilon']:g}",
        )
        measure = tasks.task_entry(labels["problem"]).measure
        column = measure.final_column.replace("final", "validation")
        values = {float(row["server_lr"]): float(row[column]) for row in tried}
        assert len(values) >= 2, labels
        best = min(values.values()) if measure.lower_is_better else max(values.values())
        assert values[rate] == best, labels


@pytest.mark.parametrize("name", ["mf_fig3", "mf_fig6"])
def test_momentum_is_applied_once(name):
    for work in FIGURES[name].grid(sweep.Setting("small")):
        momenta = [
            work.settings.get(k, 0) for k in ("matrix_momentum", "server_momentum")
        ]
        assert sorted(float(value) for value in momenta) == [0, 0.9]


def test_fig1_steps_add_up_to_the_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "STEP_ROUNDS", {"small": 32})
    rows = make("mf_fig1", tmp_path)
    assert len(rows) == 7
    found = {(row["momentum"], row["method"]): row for row in rows}
    assert float(found["0.9", "optimal"]["total"]) == pytest.approx(2564.239220)
    assert float(found["0.0", "honaker-full"]["total"]) == pytest.approx(158.653149)
    for row in rows:
        with (tmp_path / row["folder"] / "steps.csv").open(newline="") as file:
            steps = [float(step["squared_error"]) for step in csv.DictReader(file)]
        assert len(steps) == 32
        assert sum(steps) == pytest.approx(float(row["total"]), rel=1e-9)
    # From the table alone.
    figure, path = FIGURES["mf_fig1"], tmp_path / "kept.csv"
    works = figure.grid(sweep.Setting("small"))
    result_tables.write(path, figure, "small", works, rows)
    before = (tmp_path / "figure.png").read_bytes()
    for steps in tmp_path.rglob("steps.csv"):
        steps.unlink()
    found = result_tables.read(path, figure, "small", works)
    invented.draw(figure, found, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes() == before


def test_table2_has_the_known_losses(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "TABLE_ROUNDS", {"small": (8, 16, 32)})
    rows = make("mf_table2", tmp_path)
    losses = {(int(r["rounds"]), r["method"]): float(r["loss"]) for r in rows}
    for key, loss in LOSSES.items():
        assert losses[key] == pytest.approx(loss, rel=1e-6)
    for rounds in (8, 16, 32):
        least = losses[rounds, "optimal"]
        for method in errors.TABLE_METHODS:
            assert losses[rounds, method] >= least * (1 - 1e-9)
        # What the paper's Table 2 is about.
        assert losses[rounds, "band-low-rank"] < 1.005 * least


def test_fig4_solvers_reach_the_same_loss(tmp_path, monkeypatch):
    problems = {"small": ([(8, 0.0), (32, 0.9)], 20.0)}
    monkeypatch.setattr(solvers, "PROBLEMS", problems)
    for row, optimum in zip(make("mf_fig4", tmp_path), (17.866177, 2564.239220)):
        assert float(row["dual_bound"]) == pytest.approx(optimum, rel=1e-7)
        for name in solvers.SOLVERS:
            assert -1e-9 < float(row[f"{name}_excess"]) <= 1e-6
            assert float(row[f"{name}_seconds"]) > 0


@pytest.mark.parametrize("done", ["all", "first"])
@pytest.mark.parametrize("name", TRAINED)
def test_drawing_of_complete_and_of_unfinished_tables(name, done, tmp_path):
    grid = FIGURES[name].grid(sweep.Setting("small"))
    metrics = {"round": [1, 2, 3], "eval_accuracy": [0.1, "", 0.2]}
    rows = list(invented.rows(grid, tmp_path, {}, metrics))
    shown = rows if done == "all" else rows[:1]
    drawn = invented.draw(FIGURES[name], shown, tmp_path / "figure.png")
    assert drawn >= (3 if done == "all" else 1)
