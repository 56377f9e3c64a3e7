# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import pytest

from experiments import search
from experiments.trainings import parallel_runs, trainers
from tests.experiments.fake_trainers import FakeTrainer
from tests.refusals import names, refuses

GIVEN = ["--task=digits", "--mechanism=gaussian"]


@pytest.fixture(autouse=True)
def parsed():
    search.flags.FLAGS(["dpfl-search"])
    yield
    search.flags.FLAGS.unparse_flags()


class Trainer(FakeTrainer):
    """The best are server_lr 1 and clip 0.1; each run takes 3000 seconds."""

    seconds = 0
    # The kind of JAX's device, none in TFF.
    device = ""

    def check(self, work, folder):
        super().check(work, folder)
        if work.flags["clip_norm"] == 0:
            raise trainers.WorkFailedError("failed", 2, "clip_norm must be")
        return self.device

    def begin(self, work, folder):
        self.calls[-1] = work.arguments(folder)
        Trainer.seconds += 3000
        rate = work.flags["server_lr"]
        if rate in (3, 4):
            raise trainers.WorkFailedError("killed", int(rate) - 2)
        if rate > 5:
            said = f"a loss that is not finite, {trainers.DIVERGED}; no"
            raise trainers.WorkFailedError("failed", 1, said)

    def measured(self, work):
        rate, clip = (work.flags[name] for name in ("server_lr", "clip_norm"))
        return {"final_accuracy": 1 - abs(math.log10(rate)) / 10 - abs(clip - 0.1)}


def searched(monkeypatch, capsys, tmp_path, *flags, given=GIVEN):
    """Searches; returns the flags of each run and what was printed."""
    calls = []
    monkeypatch.setattr(Trainer, "calls", calls)
    monkeypatch.setattr(parallel_runs, "Trainer", Trainer)
    own = [f"--output_dir={tmp_path / 'out'}", *flags]
    search.main(search.flags.FLAGS(["dpfl-search", *own, "--", *given]))
    done = [call for call in calls if call != "checked"]
    # The ends are checked first.
    assert calls[len(calls) - len(done) :] == done and ("checked" in calls) == bool(
        done
    )
    return done, capsys.readouterr().out


GRID = ("--server_lr=0.1,1,10", "--clip_norm=0.1,0.4", "--seeds=7,8")


def test_the_best_of_a_grid_on_the_validation_set(monkeypatch, capsys, tmp_path):
    calls, said = searched(monkeypatch, capsys, tmp_path, *GRID)
    assert len(calls) == 12
    for words in calls:
        assert set(GIVEN) <= set(words)
        # Never on the test set, and on seeds of its own.
        assert "--validation_fraction=0.1" in words
        assert ("--seed=7" in words) + ("--seed=8" in words) == 1
    best = (tmp_path / "out/best.flags").read_text().splitlines()
    assert best == [*GIVEN, "--server_lr=1", "--clip_norm=0.1"]
    lines = said.splitlines()
    assert lines[1].split() == ["1", "0.1", "2", "1"]
    assert lines[6].split()[-1] == "nan"
    # A model of each seed.
    assert names(lines[-1], "model.npz") and lines[-1].count("=1.0_clip_norm=0.1_") == 2
    # The same command does no run again.
    again, _ = searched(monkeypatch, capsys, tmp_path, *GRID)
    assert again == []


def test_tasks_with_a_validation_set_use_it(monkeypatch, capsys, tmp_path):
    given = ["--task=femnist", "--mechanism=gaussian", "--rounds=1", "--cohort_size=2"]
    one = ("--server_lr=1", "--clip_norm=0.1")
    [words], _ = searched(monkeypatch, capsys, tmp_path, *one, given=given)
    assert "--evaluate_on=validation" in words
    assert not any("validation_fraction" in word for word in words)


def test_search_stops_at_its_budget_and_resumes_with_more(
    monkeypatch, capsys, tmp_path
):
    first, said = searched(monkeypatch, capsys, tmp_path, *GRID, "--runs=5")
    assert len(first) == 5 and names(said, "7 of 12 runs")
    more, _ = searched(monkeypatch, capsys, tmp_path, *GRID, "--runs=8")
    assert len(more) == 3 and more[0] not in first


def test_failed_run_is_a_one_line_error(monkeypatch, capsys, tmp_path):
    # Refused at an end of what is searched, before the first run.
    with refuses(ValueError, "clip_norm"):
        searched(monkeypatch, capsys, tmp_path, "--server_lr=1", "--clip_norm=0,0.1")
    # The same command helps, but for a refusal.
    for rate, code, lines in ((3, 1, 2), (4, 2, 1)):
        own = f"--server_lr=1,{rate}", "--clip_norm=0.1"
        with pytest.raises(SystemExit) as ended:
            searched(monkeypatch, capsys, tmp_path, *own)
        said = capsys.readouterr().err
        assert ended.value.code == code
        said = said[said.index("error: ") :]
        assert said.startswith("error: killed\n") and said.count("\n") == lines
    # What was done is kept.
    assert len((tmp_path / "out/search.csv").read_text().splitlines()) == 2


def test_a_search_is_of_one_device(monkeypatch, capsys, tmp_path):
    searched(monkeypatch, capsys, tmp_path, *GRID, "--runs=1")
    monkeypatch.setattr(Trainer, "device", "H200")
    with refuses(ValueError, "device", "H200", "search.csv"):
        searched(monkeypatch, capsys, tmp_path, *GRID, "--runs=2")


def test_hours_end_a_search(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(Trainer, "seconds", 0)
    monkeypatch.setattr(parallel_runs.time, "monotonic", lambda: Trainer.seconds)
    calls, said = searched(monkeypatch, capsys, tmp_path, *GRID, "--hours=2")
    # At 3000 and 6000 seconds a run begins, at 9000 none.
    assert len(calls) == 3 and names(said, "9 of 12 runs")


def test_draws_are_between_the_ends_and_the_same_each_time():
    values = {"server_lr": [0.01, 100.0], "clip_norm": [0.3]}
    found = search.settings_of(values, 200)
    assert found == search.settings_of(values, 200)
    assert found[:50] == search.settings_of(values, 50)
    logs = [math.log10(one["server_lr"]) for one in found]
    assert all(-2 <= each <= 2 for each in logs)
    # Even on the scale of logarithms: each of four decades has a quarter, sd 6.
    for decade in range(-2, 2):
        assert 25 < sum(decade <= each < decade + 1 for each in logs) < 75
    assert {one["clip_norm"] for one in found} == {0.3}


def test_command_line_overrides_flag_file_settings(tmp_path):
    own = tmp_path / "own.flags"
    own.write_text("# said\n--task=mnist\n--server_lr=3\n--rounds=5\n")
    found = search.given_flags([f"--flagfile={own}", "--nomean_removal"])
    assert found == {"task": "mnist", "rounds": "5", "mean_removal": "false"}


MINE = {"best.flags": "--mine=1\n", "search.csv": "key,mine\na,1\na,2\n"}


@pytest.mark.parametrize("name", MINE)
def test_foreign_files_are_refused_and_kept(monkeypatch, capsys, tmp_path, name):
    """One was replaced, and of the other rows were lost."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text(MINE[name])
    with refuses(ValueError, name):
        searched(monkeypatch, capsys, tmp_path, *GRID)
    assert (tmp_path / "out" / name).read_text() == MINE[name]
