# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs of a grid: shared graphs, kills and refusals."""

import time

import psutil
import pytest

from dpfl import files
from experiments.trainings import parallel_runs, sweep, trainers
from tests import forks
from tests.experiments import programs
from tests.experiments.fake_trainers import FakeTrainer
from tests.refusals import refuses

TINY = {
    **dict(task="synthetic", model="small_cnn", num_clients=12, cohort_size=4),
    **dict(examples_per_client=6, batch_size=3, num_test_examples=8, rounds=16),
    **dict(checkpoint_every=2, eval_every=8, mechanism="gaussian", noise_multiplier=1),
}
GRID = """
import sys
from pathlib import Path
from tests.experiments.papers import test_parallel_runs as grid
from experiments.trainings import parallel_runs, sweep
folder = Path(sys.argv[1])
table = sweep.ResultsTable(folder / "results.csv")
parallel_runs.ParallelRuns(folder, jobs=1).do(grid.works(), table)
"""


def work(**flags):
    return sweep.training_work({"seed": flags["seed"]}, {**TINY, **flags})


def works():
    return [work(seed=seed) for seed in (1, 2)]


def do(grid, folder, **options):
    """Does the runs of a grid; the table has those that were done."""
    table = sweep.ResultsTable(folder / "results.csv")
    parallel_runs.ParallelRuns(folder, **options).do(grid, table)


def seeds_done(folder):
    path = folder / "results.csv"
    rows = files.read_csv(path) if path.exists() else []
    return [int(row["seed"]) for row in rows]


def killed_grid(folder, run):
    """The table of a grid that was killed after two rounds of a run."""
    folder.mkdir()
    (folder / "grid.py").write_text(GRID)
    killed = forks.start(folder / "grid.py", folder, err=folder / "said")
    forks.until(lambda: not killed.is_alive() or sweep.rounds_done(run) >= 2)
    assert killed.is_alive(), (folder / "said").read_text()
    children = psutil.Process(killed.pid).children(recursive=True)
    killed.kill()
    killed.join()
    psutil.wait_procs(children)
    return sweep.ResultsTable(folder / "results.csv")


def test_killed_grid_resumes_and_shared_graphs_change_nothing(tmp_path):
    first, second = works()
    # By itself, and in one go.
    words = second.arguments(tmp_path / "alone")
    alone = forks.start("experiments.train", *words, err=tmp_path / "said")
    # Again where this process was stopped, and did not see the moment.
    for number in range(3):
        folder = tmp_path / f"grid-{number}"
        table = killed_grid(folder, folder / second.folder)
        if second not in table:
            break
    before, begun = table.row(first), folder / second.folder / "metrics.csv"
    assert begun.exists()
    # The trainer of the first was a process by itself.
    done = forks.run(folder / "grid.py", folder, first=programs.fork_trainers)
    assert done.returncode == 0, done.stderr
    after = sweep.ResultsTable(folder / "results.csv")
    assert after.row(first) == before
    row, summary = after.row(second), files.read_json(begun.parent / "summary.json")
    assert float(row["epsilon"]) == summary["epsilon"] > 0
    assert 0 <= float(row["final_accuracy"]) <= 1 and len(files.read_csv(begun)) == 16
    assert "resuming after round" in (begun.parent / "train.log").read_text()
    alone.join(forks.SECONDS)
    assert alone.exitcode == 0, (tmp_path / "said").read_text()
    assert begun.read_bytes() == (tmp_path / "alone/metrics.csv").read_bytes()


class Failing(FakeTrainer):
    """Fails by the exit codes of `fails`, of runs by their seed."""

    fails: dict = {}

    def check(self, work, folder):
        if work.flags["seed"] in self.fails:
            said = "data_dir must be there, found none"
            raise trainers.WorkFailedError("no", 2, said)

    def begin(self, work, folder):
        if code := self.fails.get(work.flags["seed"]):
            raise trainers.WorkFailedError(f"ended with {code}", code)


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(Failing, "made", [])
    monkeypatch.setattr(Failing, "fails", {})
    monkeypatch.setattr(parallel_runs, "Trainer", Failing)
    monkeypatch.setattr(parallel_runs.machine, "processors", lambda: 4)
    monkeypatch.setattr(parallel_runs.machine, "free_memory", lambda: 10 * 10**9)
    return Failing


@pytest.mark.parametrize(
    ("gigabytes", "jobs", "expected"),
    [(10, None, 3), (1, None, 1), (None, None, None), (100, None, 4), (100, 2, 2)],
)
def test_processors_and_memory_bound_concurrent_runs(
    fake, tmp_path, monkeypatch, gigabytes, jobs, expected
):
    """Of the memory runs fill 0.8, and each is taken for 2.5 GB."""
    free = gigabytes and gigabytes * 10**9
    monkeypatch.setattr(parallel_runs.machine, "free_memory", lambda: free)
    grid = [work(seed=s, noise_multiplier=z) for s in range(4) for z in range(1, 4)]
    grid = [
        sweep.Training({"seed": i}, {"i": i}, None, w.flags) for i, w in enumerate(grid)
    ]
    do(grid, tmp_path, jobs=jobs)
    assert sorted(seeds_done(tmp_path)) == list(range(12))
    assert 1 <= len(fake.made) <= (expected or 4)
    groups = {groups for trainer in fake.made for _, groups in trainer.seeds}
    assert expected is None or groups == {4 // expected}


def test_runs_sharing_a_graph_are_sequential(fake, tmp_path):
    grid = [work(seed=s, noise_multiplier=z) for s in (1, 2) for z in (1, 2, 3, 4)]
    chains = parallel_runs._chains(grid, at_a_time=2)
    assert [[w.flags["noise_multiplier"] for w in chain] for chain in chains] == [
        [z, z] for z in (1, 2, 3, 4)
    ]
    assert parallel_runs._chains(grid, at_a_time=3) == [[w] for w in grid]


def test_process_is_replaced_after_some_runs(fake, tmp_path):
    do([work(seed=s) for s in range(20)], tmp_path, jobs=1)
    assert [len(trainer.seeds) for trainer in fake.made] == [16, 4]


@pytest.mark.parametrize(
    ("fails", "code", "done"),
    [
        # The others are done all the same, but not where nothing seems to work.
        ({2: 1}, 1, [1, 3, 4, 5, 6]),
        ({2: -9, 3: -9}, -9, [1, 4, 5, 6]),
        ({2: 1, 3: 1, 5: 1}, 1, [1, 4]),
        ({2: 2}, 2, [1]),
        # A refusal is told before other failures.
        ({2: 1, 4: 2}, 2, [1, 3]),
        (dict.fromkeys(range(1, 7), 1), 1, []),
    ],
)
def test_runs_that_fail(fake, tmp_path, capsys, fails, code, done):
    fake.fails = fails
    grid = [work(seed=seed) for seed in range(1, 7)]
    with refuses(trainers.WorkFailedError, "ended with", code):
        do(grid, tmp_path, jobs=1)
    assert seeds_done(tmp_path) == done
    notes = capsys.readouterr().err.count("note: ended with 1")
    assert notes == min(3, [*fails.values()].count(1))


def test_no_run_starts_after_close(fake, tmp_path):
    """Three threads, whose runs fail one after another."""
    fake.fails = dict.fromkeys(range(1, 40), 1)
    grid = [work(seed=seed, noise_multiplier=seed) for seed in range(1, 40)]
    runs = parallel_runs.ParallelRuns(tmp_path, jobs=3)
    with pytest.raises(trainers.WorkFailedError):
        runs.do(grid, sweep.ResultsTable(tmp_path / "results.csv"))
    made = len(fake.made)
    time.sleep(0.2)
    assert len(fake.made) == made <= 3 + 2 * 3
    with refuses(RuntimeError, "closed"):
        runs._new_trainer()


def test_missing_data_dir_is_refused_before_any_work(fake, tmp_path):
    fake.fails = {1: 2}
    with refuses(ValueError, "data_dir", "none"):
        parallel_runs.ParallelRuns(tmp_path).check(works())
    assert fake.made[0].seeds == []
