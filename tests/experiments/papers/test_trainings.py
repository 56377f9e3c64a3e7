# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import json

import pytest

from experiments import flag_files
from experiments.papers import result_rows, sweep, trainers

SMALL = sweep.Setting("small")


def test_training_work_runs_and_reports(tmp_path):
    work = sweep.training_work(
        {"task": "digits"},
        {
            "task": "digits",
            "mechanism": "l2_csgm",
            "rounds": 2,
            "cohort_size": 4,
            "client_epochs": 1,
            "noise_multiplier": 1.0,
            "seed": 1,
            "progress": False,
        },
        SMALL,
    )
    folder = tmp_path / work.folder
    trainers.Trainer().train(work, folder)
    measured = work.measured(folder)
    summary = json.loads((folder / "summary.json").read_text())
    assert measured["epsilon"] == summary["epsilon"] > 0
    assert 0 <= measured["final_accuracy"] <= 1
    assert len(result_rows.read_csv(folder / "metrics.csv")) == 2


def test_failing_training_says_which_command(tmp_path):
    work = sweep.training_work({"task": "digits"}, {"rounds": -1}, SMALL)
    with pytest.raises(trainers.WorkFailedError, match="rounds=-1.*exit code 2: --r"):
        trainers.Trainer().train(work, tmp_path / "run")


def test_the_key_has_the_flag_file_s_flags_and_no_path(tmp_path):
    given = {"data_dir": str(tmp_path), "workers": "a:1", "round_deadline": 3.0}
    setting = sweep.Setting("paper", {**given, "download": True})
    flags = {"flagfile": "tasks/emnist.flags", "seed": 1}
    work = sweep.training_work({"task": "emnist"}, flags, setting)
    assert "a:1" not in work.key and str(tmp_path) not in work.key
    assert work.key == sweep.training_work({"task": "emnist"}, flags, SMALL).key
    for line in flag_files.lines("tasks/emnist.flags"):
        assert line in work.settings["flagfile"]
    words = work.arguments(tmp_path, concurrency=3)
    assert {f"--data_dir={tmp_path}", "--workers=a:1", "--concurrency=3"} <= {*words}
    assert "--download=True" in words


def test_rows_of_partial_data_are_others_and_only_files_are_partial():
    setting = sweep.Setting("paper", {"allow_partial_data": True, "data_dir": "/a"})
    flags = {"flagfile": "tasks/emnist.flags"}
    partial = sweep.training_work({}, flags, setting)
    assert partial.key != sweep.training_work({}, flags, SMALL).key
    digits = {"flagfile": "tasks/digits.flags"}
    work = sweep.training_work({}, digits, setting)
    assert work.flags == digits and work.rounds == 60 and work.cohort_size == 50
