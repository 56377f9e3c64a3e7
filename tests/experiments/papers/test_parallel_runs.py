# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs of a grid: shared graphs, kills, refusals, and what is said before they start."""

import re
import threading
import time

import psutil
import pytest

from dpfl import files
from experiments import tables
from experiments.trainings import parallel_runs, remaining_work, sweep, trainers
from tests import forks
from tests.experiments import programs
from tests.experiments.fake_trainers import FakeTrainer
from tests.refusals import names, refuses

TINY = {
    **dict(task="synthetic", model="small_cnn", num_clients=12, cohort_size=4),
    **dict(examples_per_client=6, batch_size=3, num_test_examples=8, rounds=16),
    **dict(checkpoint_every=2, eval_every=8, compression_rate=20, noise_multiplier=1),
}
PROBLEM = "synthetic with small_cnn"
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
    # What is left of it, of two runs of 16 rounds, is said by what was measured.
    said = r"1 of 2 runs .*?(\d+) of 32 rounds"
    left = re.search(said, done.stderr)
    assert 0 < int(left[1]) <= 14
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
    machine = remaining_work.Machine(processors=4, memory=4 * 10**9)
    monkeypatch.setattr(remaining_work, "this_machine", lambda: machine)
    return Failing


def test_memory_limits_the_number_of_parallel_runs(fake, tmp_path, capsys):
    grid = [work(seed=s, noise_multiplier=z) for s in range(4) for z in range(1, 4)]
    grid = [
        sweep.Training({"seed": i}, {"i": i}, None, w.flags) for i, w in enumerate(grid)
    ]
    do(grid, tmp_path)
    assert sorted(seeds_done(tmp_path)) == list(range(12))
    # Of 4 GB runs fill 3.2, and three share four processors.
    assert 1 <= len(fake.made) <= 3
    said = capsys.readouterr().err
    assert names(said, "measured", "synthetic", "small_cnn", "3.0 GB", "3 at a time")
    # The run that is measured has its share of what can be guessed, as have the others.
    assert {groups for t in fake.made for _, groups in t.seeds} <= {1, 4}
    assert remaining_work.load(
        tmp_path / "rates.json", remaining_work.this_machine()
    ).keys() == {PROBLEM}


def test_runs_sharing_a_graph_are_sequential(fake, tmp_path):
    grid = [work(seed=s, noise_multiplier=z) for s in (1, 2) for z in (1, 2, 3, 4)]
    chains = parallel_runs._chains(grid, at_a_time=2)
    assert [[w.flags["noise_multiplier"] for w in chain] for chain in chains] == [
        [z, z] for z in (1, 2, 3, 4)
    ]
    assert parallel_runs._chains(grid, at_a_time=3) == [[w] for w in grid]


@pytest.mark.parametrize(
    ("growth", "runs"), [(0, [16, 4]), (10**8, [7, 7, 6]), (10**9, [*([3] * 6), 2])]
)
def test_process_grown_in_memory_is_replaced(fake, tmp_path, monkeypatch, growth, runs):
    monkeypatch.setattr(
        fake, "memory", lambda self: 10**9 + growth * len(self.seeds), raising=True
    )
    grid = [work(seed=s) for s in range(20)]
    do(grid, tmp_path, jobs=1)
    assert [len(trainer.seeds) for trainer in fake.made] == runs


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


def test_failed_single_run_of_a_task_does_not_block(fake, tmp_path, capsys):
    fake.fails = {1: 1}
    flags = {"task": "digits", "cohort_size": 4, "rounds": 16}
    others = [{**flags, "seed": seed} for seed in (2, 3)]
    grid = [
        work(seed=1),
        *(sweep.training_work({"seed": f["seed"]}, f) for f in others),
    ]
    with pytest.raises(trainers.WorkFailedError):
        do(grid, tmp_path)
    assert sorted(seeds_done(tmp_path)) == [2, 3]
    assert "runs and" in capsys.readouterr().err


@pytest.mark.parametrize(("gigabytes", "together"), [(4, 1), (10, 2)])
def test_unmeasured_tasks_start_together_only_if_memory_allows(
    fake, tmp_path, monkeypatch, gigabytes, together
):
    """Runs fill 0.8 of the memory, and one that was not measured is taken for 2.5 GB."""
    active, most = [], []
    begun = threading.Barrier(together)

    def begin(self, work, folder):
        active.append(work.problem)
        begun.wait(forks.SECONDS)
        time.sleep(0.1)
        most.append(len(active))
        active.pop()

    monkeypatch.setattr(fake, "begin", begin)
    machine = remaining_work.Machine(processors=4, memory=gigabytes * 10**9)
    monkeypatch.setattr(remaining_work, "this_machine", lambda: machine)
    options = dict(cohort_size=4, rounds=24, noise_multiplier=1)
    grid = [
        sweep.training_work({"seed": t}, {"task": t, "seed": 1, **options})
        for t in ("digits", "synthetic")
    ]
    do(grid, tmp_path)
    assert max(most) == together


def test_missing_data_dir_is_refused_before_any_work(fake, tmp_path):
    fake.fails = {1: 2}
    with refuses(ValueError, "data_dir", "none"):
        parallel_runs.ParallelRuns(tmp_path).check(works())
    assert fake.made[0].seeds == []


def rate(**changes):
    values = dict(
        seconds=2.0, cohort_size=10, concurrency=1, memory=10**9, checkpoint=10**8
    )
    return remaining_work.Rate(**{**values, **changes})


def test_remaining_work_and_its_estimated_time(tmp_path, monkeypatch):
    grid = [
        work(seed=1, cohort_size=10, rounds=1800),
        work(seed=2, cohort_size=20, rounds=1800),
    ]
    tables.write_columns(
        tmp_path / grid[0].folder / "times.csv",
        {"round": [1, 2], "seconds": [3.0, 2.0]},
    )
    said = remaining_work.sentence(grid, grid, tmp_path, {PROBLEM: rate()}, 2, 1)
    # 1798 rounds of 2 seconds beside 1800 of 4: the longer run takes two hours.
    assert names(said, "2 of 2 runs", "3598 of 3600 rounds", "2.0 h")
    assert names(said, "2.0 GB", "0.6 GB", "2 at a time")
    said = remaining_work.sentence(grid, grid, tmp_path, {PROBLEM: rate()}, 1, 2)
    # One after the other, on twice the processors each.
    assert names(said, "1.5 h", "1.0 GB")
    # JAX has no groups, and all processors in any case.
    monkeypatch.setattr(sweep.engine, "of", lambda name: "jax")
    said = remaining_work.sentence(grid, grid, tmp_path, {PROBLEM: rate()}, 1, 2)
    assert names(said, "3.0 h") and "group" not in said


@pytest.mark.parametrize(
    ("processors", "gigabytes", "runs", "memory", "jobs"),
    [
        (32, 1000, 24, 1, 24),
        (32, 1000, 240, 1, 32),
        (32, 10, 24, 1, 8),
        (2, 1, 5, 3, 1),
    ],
)
def test_parallelism_is_bounded_by_processors_and_memory(
    processors, gigabytes, runs, memory, jobs
):
    machine = remaining_work.Machine(processors, gigabytes * 10**9)
    rates = {"a": rate(memory=memory * 10**9), "b": rate(memory=1)}
    assert remaining_work.jobs(machine, runs, rates) == jobs
    assert remaining_work.concurrency(machine, jobs) == max(1, processors // jobs)


@pytest.mark.parametrize(
    "tasks", [None, [], 3, {"a": 3}, {"a": {"seconds": 1}}, "many", "nan"]
)
def test_rates_of_another_machine_or_kind_are_measured_again(tmp_path, tasks):
    path, machine = tmp_path / "rates.json", remaining_work.Machine(8, 1)
    remaining_work.save(path, machine, {"a": rate()})
    assert remaining_work.load(path, remaining_work.Machine(8, 2)) == {"a": rate()}
    assert remaining_work.load(path, remaining_work.Machine(4, 1)) == {}
    content = files.read_json(path)
    if isinstance(tasks, str):
        tasks = {"a": {**content["tasks"]["a"], "seconds": tasks}}
    files.write_json(path, {**content, "tasks": tasks})
    assert remaining_work.load(path, machine) == {}
    path.write_text("{")
    assert remaining_work.load(path, machine) == {}
