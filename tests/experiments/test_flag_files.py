# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib

import pytest

from dpfl import tasks
from experiments import flag_files
from tests.refusals import refuses


def test_values_of_a_flag_file():
    found = flag_files.values("chen2022/emnist.flags", "bits", "no_such")
    assert found["cohort_size"] == "100"
    assert found["adaptive_clipping"] == "true"
    assert "bits" not in found
    assert not any("#" in word for pair in found.items() for word in pair)


def test_a_flag_is_a_name_and_a_value():
    assert flag_files.pair("--rounds=3") == ("rounds", "3")
    assert flag_files.pair("-text=a=b") == ("text", "a=b")
    assert flag_files.pair("--noprogress") == ("progress", "false")
    assert flag_files.pair("--noise_source=helpers") == ("noise_source", "helpers")
    assert flag_files.pair("--progress") == ("progress", "true")


def test_every_task_has_a_flag_file():
    """Those of papers are what figures are made of."""
    for task in set(tasks.task_names()) - {"synthetic"}:
        assert flag_files.values(f"tasks/{task}.flags")["task"] == task


@pytest.mark.parametrize("name", ["tasks/digits.flags", "configs/tasks/digits.flags"])
def test_bundled_flag_file_is_found_from_any_directory(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = flag_files.resolved(f"--flagfile={name}")
    path = pathlib.Path(found.partition("=")[2])
    assert path == flag_files.path("tasks/digits.flags") and path.is_absolute()


def test_other_arguments_are_unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.flags").write_text("--rounds=1")
    for word in ("--task=digits", "--flagfile=mine.flags", "tasks/digits.flags"):
        assert flag_files.resolved(word) == word
    own = tmp_path / "tasks"
    own.mkdir()
    (own / "digits.flags").write_text("--rounds=1")
    word = "--flagfile=tasks/digits.flags"
    assert flag_files.resolved(word) == word


def test_a_flag_file_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refuses(ValueError, "chen2022/digits.flags", "mine.flags"):
        flag_files.resolved("--flagfile=mine.flags")
    with refuses(ValueError, "tasks/digits.flags", "tasks/no.flags"):
        flag_files.path("tasks/no.flags")
    for words in ([f"--flagfile={tmp_path}"], ["-flagfile", str(tmp_path)]):
        with refuses(ValueError, "--flagfile", tmp_path):
            flag_files.words(["dpfl-train", *words])


def test_arguments_that_are_no_flag_files_are_unchanged():
    for argv in (["a", "--", "--flagfile", "none"], ["a", "--flagfile"], []):
        assert flag_files.words(argv) == argv
