# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


import pytest

from experiments import flag_files
from experiments.trainings import sweep, trainers
from tests.refusals import refuses


def test_failed_training_names_its_command(tmp_path):
    work = sweep.training_work({"task": "digits"}, {"rounds": -1})
    with refuses(trainers.WorkFailedError, "--rounds=-1", "exit code 2", "rounds", -1):
        trainers.Trainer().train(work, tmp_path / "run")


def test_folder_as_log_is_refused(tmp_path):
    (tmp_path / "train.log").mkdir()
    work = sweep.training_work({"task": "digits"}, {"rounds": -1})
    trainer = trainers.Trainer()
    with pytest.raises(trainers.WorkFailedError) as caught:
        trainer.train(work, tmp_path)
    trainer.close()
    assert caught.value.exit_code == 2 and "train.log" in caught.value.said


def test_key_includes_flag_file_settings_but_no_path(tmp_path):
    given = {"data_dir": str(tmp_path), "round_deadline": 3.0}
    more = {**given, "download": True}
    flags = {"flagfile": "tasks/emnist.flags", "seed": 1}
    work = sweep.training_work({"task": "emnist"}, flags, more)
    assert "3.0" not in work.key and str(tmp_path) not in work.key
    assert work.key == sweep.training_work({"task": "emnist"}, flags).key
    for line in flag_files.lines("tasks/emnist.flags"):
        assert line in work.settings["flagfile"]
    words = work.arguments(tmp_path, concurrency=3)
    assert {f"--data_dir={tmp_path}", "--round_deadline=3.0", "--concurrency=3"} <= {
        *words
    }
    assert "--download=True" in words


def test_partial_data_changes_the_key_of_file_based_tasks():
    more = {"allow_partial_data": True, "data_dir": "/a"}
    flags = {"flagfile": "tasks/emnist.flags"}
    partial = sweep.training_work({}, flags, more)
    assert partial.key != sweep.training_work({}, flags).key
    digits = {"flagfile": "tasks/digits.flags"}
    work = sweep.training_work({}, digits, more)
    assert (
        work.flags == digits
        and work.rounds == 60
        and work.all_flags["cohort_size"] == "50"
    )
