# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import json

import pytest

from experiments.papers import parallel_runs, sweep
from experiments.papers.chen2024 import figures, sensitivity, sgmf, streams
from experiments.papers.trainings import Problem
from tests.experiments.papers import invented

FIGURES = {figure.name: figure for figure in figures.FIGURES}
SGMF = ("sgmf_fig3", "sgmf_fig7", "sgmf_fig8")
ACCURACY = ("csgm_fig2", "csgm_fig4", "csgm_fig5", "csgm_fig6")


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
@pytest.mark.parametrize("name", SGMF + ACCURACY)
def test_runs_of_a_panel_differ_in_the_mechanism_alone(name, scale):
    """The mechanisms are compared at one budget and with the same training."""
    shared = {}
    for work in FIGURES[name].grid(sweep.Setting(scale)):
        flags, labels = dict(work.settings), work.labels
        assert float(flags["epsilon"]) == labels["epsilon"]
        if name in SGMF:
            assert flags["participation"] == "once_per_epoch"
        what = labels["problem"] if name in SGMF else labels["task"]
        panel = what, labels["epsilon"], labels["seed"]
        rest = {
            k: v for k, v in flags.items() if k not in ("mechanism", "compression_rate")
        }
        assert shared.setdefault(panel, rest) == rest


@pytest.mark.parametrize("name", ["sgmf_fig3", "sgmf_fig7", "sgmf_fig8"])
def test_uncompressed_runs_are_those_of_matrix_factorization(name):
    for work in FIGURES[name].grid(sweep.Setting("small")):
        if work.labels["compression_rate"] == 1:
            assert work.settings["mechanism"] == "matrix_factorization"
            assert "compression_rate" not in work.settings
        else:
            assert work.settings["mechanism"] == "sgmf"


SENSITIVITY = FIGURES["sgmf_sensitivity"]
_OF_A_MECHANISM = {"mechanism", "participation", "accountant"}
_TRIED = ("clip_norm", "server_lr")


def sensitivity_runs():
    """Of each mechanism: budget, clip, rate and seed of its runs."""
    found = {}
    for work in SENSITIVITY.grid(sweep.Setting("medium")):
        flags = work.settings
        what = ("epsilon", *_TRIED, "seed")
        tried = tuple(float(flags[name]) for name in what)
        assert tried == tuple(work.labels[name] for name in what)
        found.setdefault(work.labels["mechanism"], []).append((tried, flags))
    return found


def test_sensitivity_has_both_mechanisms_at_the_same_settings():
    found = sensitivity_runs()
    own = {*_OF_A_MECHANISM, *_TRIED, "epsilon", "seed"}
    rest, tried = [], {}
    for name, runs in found.items():
        tried[name] = [one for one, _ in runs]
        assert len(set(tried[name])) == len(runs)
        rest += [{k: v for k, v in f.items() if k not in own} for _, f in runs]
    assert all(one == rest[0] for one in rest)
    assert tried["GM"] == tried["MF"] and len(tried["GM"]) == 21
    for name, kind, participation, accountant in (
        ("GM", "gaussian", "poisson", None),
        ("MF", "matrix_factorization", "once_per_epoch", None),
        ("MF by RDP", "matrix_factorization", "once_per_epoch", "rdp"),
    ):
        for _, flags in found[name]:
            assert flags["mechanism"] == kind
            assert flags["participation"] == participation
            assert flags.get("accountant") == accountant


def test_sensitivity_has_the_runs_of_the_other_figures_too():
    own = {work.all_but_seed for work in SENSITIVITY.grid(sweep.Setting("medium"))}
    shared = [
        work
        for name in SGMF
        for work in FIGURES[name].grid(sweep.Setting("medium"))
        if work.labels["compression_rate"] == 1 and work.labels["epsilon"] in (2, 8)
    ]
    shared += [
        work
        for work in FIGURES["csgm_fig2"].grid(sweep.Setting("medium"))
        if work.labels["compression_rate"] == 1 and work.labels["task"] == "mnist"
    ]
    assert len(shared) == 5 * 3 + 2 * 3
    assert {work.all_but_seed for work in shared} <= own


def test_noise_of_sgmf_is_run_where_it_falls_behind():
    runs = sensitivity_runs()["MF by RDP"]
    assert {one[:3] for one, _ in runs} == {(2.0, 1.0, 0.1)}


def test_sensitivity_is_drawn(tmp_path):
    grid = SENSITIVITY.grid(sweep.Setting("medium"))
    rows = list(invented.rows(grid, tmp_path, {}, {"round": [1]}))
    assert invented.draw(SENSITIVITY, rows[:1], tmp_path / "one.png", "medium")
    drawn = SENSITIVITY.draw(rows, "medium")
    first, second = drawn.axes
    settings = sensitivity.SETTINGS
    for axis, tried in zip(drawn.axes, settings.values()):
        ticks = [label.get_text().split("\n") for label in axis.get_xticklabels()]
        assert [words[0] for words in ticks] == [
            f"clip {s.clip_norm:g}," for s in tried
        ]
        assert [words[1] for words in ticks] == [f"rate {s.server_lr:g}" for s in tried]
    # Of seeds 1, 2 and 3 of the first setting: 0.500, 0.501 and 0.502.
    assert [text.get_text() for text in first.texts][0] == "0.501"
    assert len(first.texts) == 7 and len(second.texts) == 8
    [legend] = drawn.legends
    assert [text.get_text() for text in legend.texts] == [
        "Gaussian",
        "matrix factorization",
        "matrix factorization, noise of 10-fold SGMF",
    ]


def test_paper_settings_of_sgmf():
    for name, clip, rate in (("sgmf_fig7", 1.0, 0.1), ("sgmf_fig8", 0.03, 0.5)):
        for work in FIGURES[name].grid(sweep.Setting("paper")):
            settings = work.settings
            assert float(settings["clip_norm"]) == clip
            assert float(settings["server_lr"]) == rate
            assert float(settings["delta"]) == 1e-5
            assert int(settings["cohort_size"]) == 100
            # The paper's 16 epochs of 32 rounds.
            assert int(settings["rounds_per_epoch"]) == 32
            assert int(settings["rounds"]) == 16 * 32


def test_small_passes_fit_a_standard_library_with_few_modules():
    for name in SGMF:
        for work in FIGURES[name].grid(sweep.Setting("small")):
            if work.settings.get("task") == "docs":
                cohort_size = int(work.settings["cohort_size"])
                assert cohort_size * int(work.settings["rounds_per_epoch"]) <= 250


@pytest.mark.parametrize("done", ["all", "first"])
@pytest.mark.parametrize("name", SGMF + ACCURACY)
def test_drawing_of_complete_and_of_unfinished_tables(name, done, tmp_path):
    grid = FIGURES[name].grid(sweep.Setting("small"))
    metrics = {
        "round": [1, 2, 3],
        "eval_accuracy": [0.1, "", 0.2],
        "eval_loss": [3, "", 2],
    }
    rows = list(invented.rows(grid, tmp_path, {}, metrics))
    shown = rows if done == "all" else rows[:1]
    drawn = invented.draw(FIGURES[name], shown, tmp_path / "figure.png")
    assert drawn >= (3 if done == "all" else 1)


def test_one_run_of_sgmf_end_to_end(tmp_path):
    problem = Problem(
        "digits",
        {
            "task": "digits",
            "cohort_size": 4,
            "client_epochs": 1,
            "rounds": 2,
            "delta": 1e-3,
            "progress": False,
        },
    )
    panel = sgmf.Panel(problem, 8.0)
    work = sgmf.work(panel, 10, 1, sweep.Setting("small"))
    measured = parallel_runs.run_alone(work, tmp_path / work.folder)
    assert 7.9 < measured["epsilon"] <= 8
    assert measured["uplink_bits_per_parameter"] < 0.2 * 32
    summary = json.loads((tmp_path / work.folder / "summary.json").read_text())
    assert summary["exact"]["max_participations"] == 1


STREAMS = FIGURES["sgmf_streams"]


@pytest.mark.parametrize("done", ["all", "first"])
def test_drawing_of_streams(done, tmp_path):
    grid = STREAMS.grid(sweep.Setting("small"))
    rows = [
        {
            **{k: str(v) for k, v in work.labels.items()},
            "error": str(1 + i % 7),
            "folder": str(tmp_path),
        }
        for i, work in enumerate(grid)
    ]
    shown = rows if done == "all" else rows[:1]
    drawn = invented.draw(STREAMS, shown, tmp_path / "figure.png")
    assert drawn == (18 if done == "all" else 0)


def test_streams_of_least_error():
    rows = [
        {"method": "stream", "rounds": rounds, "bands": bands, "error": error}
        for rounds, bands, error in [("8", "1", "10"), ("8", "2", "9"), ("4", "1", "8")]
    ]
    found = streams.least(rows)
    assert [(row["rounds"], row["bands"]) for row in found] == [("8", "2"), ("4", "1")]
