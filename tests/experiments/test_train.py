# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The train binary as its user meets it: real processes, real kills."""

import errno
import functools
import json
import os
import re
import resource
import shutil
import signal

import numpy as np
import psutil
import pytest

from dpfl import files, locks
from dpfl.tasks.configs import DigitsConfig
from dpfl.training import checkpoint, engine, report
from dpfl.training import loop as loop_lib
from dpfl.training import plan as plan_lib
from dpfl.training import run as run_lib
from tests import forks
from tests.experiments import programs
from tests.refusals import names
from tests.training.fakes import run_config
from tools.soaks.runs import events

TINY = [
    *("--task=synthetic", "--model=small_cnn", "--num_clients=12", "--cohort_size=4"),
    *("--examples_per_client=6", "--batch_size=3", "--num_test_examples=8"),
    *("--rounds=24", "--checkpoint_every=3", "--eval_every=2"),
]
# What meets an epsilon of 8, to take no time to find it.
SPARSE = [*TINY, "--compression_rate=20", "--noise_multiplier=1.1365"]
# What meets it at the last round alone, and is traced in less time.
DENSE = [*TINY, "--mechanism=gaussian", "--noise_multiplier=1.006"]


def train(output_dir, *args, code=0, base=SPARSE, first=None):
    """A training to its end, without the time that its imports take."""
    words = (*base, f"--output_dir={output_dir}", *args)
    done = forks.run("experiments.train", *words, first=first)
    assert done.returncode == code, done.stderr
    return done


def workers(output_dir):
    """Workers whose log is in a directory."""
    found = []
    for process in psutil.process_iter():
        try:
            files = os.readlink(f"/proc/{process.pid}/fd/1")
        except OSError:
            continue
        if files.startswith(str(output_dir)):
            found.append(process.pid)
    return found


def results(output_dir):
    """All that equal runs have in common."""
    store = checkpoint.CheckpointStore(output_dir / "checkpoints")
    newest = store.load_newest()
    with np.load(output_dir / "model.npz") as saved:
        model = [saved[name].tobytes() for name in saved.files]
    return {
        "model": model,
        "state": [a.tobytes() for a in newest.leaves],
        "csv": (output_dir / "metrics.csv").read_text(),
        "tensorboard": [event[1:] for event in events(output_dir)],
        "participations": newest.participations.tolist(),
    }


def read_rows(output_dir):
    return files.read_csv(output_dir / "metrics.csv")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A run with --seed=5 that nobody touched, and what it printed."""
    directory = tmp_path_factory.mktemp("reference") / "run"
    return directory, train(directory, "--seed=5")


def test_output_files_of_a_run(reference):
    directory, done = reference
    rows = read_rows(directory)
    assert [int(row["round"]) for row in rows] == list(range(1, 25))
    # Poisson sampling with q = 1/3.
    assert len({row["exact_clients"] for row in rows}) > 2
    assert [bool(row["eval_accuracy"]) for row in rows] == [False, True] * 12
    epsilons = [float(row["epsilon"]) for row in rows]
    assert epsilons == sorted(epsilons) and 7.9 < epsilons[-1] <= 8
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["epsilon"] == pytest.approx(epsilons[-1])
    assert summary["rounds"] == 24 and summary["stopped_early"] is None
    assert summary["delta"] == 1e-3
    assert summary["final_accuracy"] == float(rows[-1]["eval_accuracy"])
    clients = sum(int(row["exact_clients"]) for row in rows)
    sent = sum(int(r["exact_clients"]) * float(r["exact_uplink_bits"]) for r in rows)
    exact = summary["exact"]
    assert exact["uplink_bits_per_client"] == pytest.approx(sent / clients)
    assert exact["uplink_bits_per_parameter"] == pytest.approx(
        sent / clients / summary["dimension"]
    )
    assert exact["downlink_bits_per_client"] >= 32 * summary["dimension"]
    with np.load(directory / "model.npz") as saved:
        assert saved.files[::3] == ["0_convolution/kernel", "3_dense/bias"]
    found = results(directory)
    assert set(found["model"]) <= set(found["state"])
    assert workers(directory) == []


def test_epsilon_is_printed_before_and_after(reference):
    _, done = reference
    before, after = done.stdout.split("output:")
    said = re.compile(r"epsilon 7\.9\d+ at delta 0\.001")
    assert said.search(before)[0] + " over 24 rounds" in before
    assert said.search(after)
    assert "over 24 released rounds" in after
    assert "exact: a client took part in at most" in after


def test_auto_bits_and_compression_rate_are_printed_and_used(tmp_path):
    """On digits: what is chosen is said and used."""
    plan = plan_lib.make_plan(
        run_config(
            **{"task": "digits", "task_config": DigitsConfig(), "cohort_size": 20},
            **{"mechanism": "sketched_ddg", "rounds": 1, "epsilon": 2.0},
            mechanism_options={
                **{"bits": "auto", "compression_rate": "auto"},
                "noise_source": "helpers",
            },
        )
    )
    said = report.describe(plan)
    rate = float(re.search(r"^chosen: compression_rate (\S+): ", said, re.M)[1])
    bits = int(re.search(r"^chosen: bits (\d+): ", said, re.M)[1])
    used = plan.mechanism
    assert (used.bits, used.compression_rate) == (bits, rate)
    assert rate > 1 and 6 <= bits <= 10
    length = float(re.search(r"a sketch of (\d+) numbers", said)[1])
    # The helpers' messages are as many again.
    assert used.uplink_bits(plan.dimension) == 2 * bits * length
    assert 1.99 < plan.cost.planned.epsilon <= 2


def test_killed_dome_run_resumes_with_equal_bits(tmp_path):
    """DOME: sketch, moments and strengths are all in the checkpoint."""
    run = survives_a_kill(
        tmp_path,
        DigitsConfig(model="tiny_cnn", num_clients=40, client_epochs=1),
        mechanism="dome",
        mechanism_options={"sketch_size": 16},
        participation="once_per_epoch",
        cohort_size=10,
        server_momentum=0.0,
    )
    ranks = [value for *_, name, value in events(run) if name.endswith("retained_rank")]
    assert max(ranks) > 1


def test_killed_run_long_stream_resumes_with_equal_bits(tmp_path):
    """Its rows are computed again from the seed: they are in no checkpoint."""
    stream = {"noise_stream": "run", "matrix_method": "banded", "matrix_bands": 3}
    survives_a_kill(
        tmp_path,
        DigitsConfig(model="tiny_cnn", num_clients=24),
        mechanism="sgmf",
        mechanism_options={**stream, "compression_rate": 4.0},
        participation="cyclic_poisson",
        min_separation=3,
        cohort_size=4,
    )


def survives_a_kill(tmp_path, task_config, **settings):
    """Compares a run with one that goes on from what a kill in it would leave."""
    last, said, whole, killed = engine.LastProcess(), [], "whole", "killed"

    def copy(done, of):
        if done == 5:
            shutil.copytree(tmp_path / whole, tmp_path / killed)

    for name, on_round in ((whole, copy), (killed, lambda done, of: None)):
        config = run_config(
            task="digits",
            task_config=task_config,
            **{"rounds": 8, "checkpoint_every": 2, "eval_every": 4, "seed": 5},
            noise_multiplier=1.0,
            output_dir=tmp_path / name,
            **settings,
        )
        plan = plan_lib.make_plan(config)
        with run_lib.Run(plan, said.append, on_round=on_round, last=last) as run:
            run.train()
    assert any(names(sentence, "round 4") for sentence in said)
    expected = results(tmp_path / whole)
    assert results(tmp_path / killed) == expected
    # The same once more does nothing more.
    with run_lib.Run(plan, said.append, last=last) as run:
        run.train()
    assert any(names(sentence, "round 8") for sentence in said)
    assert results(tmp_path / killed) == expected
    return tmp_path / killed


def disturbed(tmp_path, disturb):
    """The folder of the first run that had not ended when it was to be disturbed.

    It has if this process was stopped while it waited for the moment.
    """
    runs = [tmp_path / f"run-{number}" for number in range(3)]
    return next(run for run in runs if disturb(run))


def test_damage_changed_flags_and_lock(reference, tmp_path):
    """One resumed run for all that is said about its directory."""
    directory, _ = reference
    expected = results(directory)
    run = tmp_path / "run"
    shutil.copytree(directory, run)
    for name in ("summary.json", "model.npz"):
        (run / name).unlink()

    done = train(run, "--seed=6", code=2)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert names(done.stderr, "--seed", "--output_dir")
    done = train(run, "--seed=5", "--client_lr=0.5", "--examples_per_client=7", code=2)
    for name in ("--client_lr", "--examples_per_client", "task fingerprint"):
        assert name in done.stderr
    with locks.locked(run):
        done = train(run, "--seed=5", code=2)
        assert names(done.stderr, os.getpid())

    newest = run / "checkpoints" / "checkpoint-00000024"
    newest.write_bytes(newest.read_bytes()[:-10])
    done = train(run, "--seed=5", "--checkpoint_every=2")
    assert names(done.stderr, "checkpoint-00000024", "round 21")
    assert results(run) == expected


def test_ctrl_c_resume_repeats_noise_until_budget_is_spent(tmp_path):
    """130, one sentence, no worker; afterwards the same noise for the same rounds."""
    err, base = tmp_path / "err", [*DENSE, "--epsilon=7"]

    def interrupted(run):
        words = (*base, f"--output_dir={run}")
        process = forks.start("experiments.train", *words, err=err, first=os.setsid)
        metrics = run / "metrics.csv"
        # The rows are there from the checkpoint after round 6 on.
        forks.until(lambda: metrics.exists() and len(read_rows(run)) >= 6)
        os.killpg(process.pid, signal.SIGINT)
        process.join(forks.SECONDS)
        assert process.exitcode in (0, 130), err.read_text()
        return process.exitcode == 130

    run = disturbed(tmp_path, interrupted)
    said = err.read_text()
    assert names(said, "same command") and "Traceback" not in said
    assert workers(run) == []
    rows = read_rows(run)
    assert 6 <= len(rows) < 24
    done = train(run, base=base)
    assert names(done.stderr, "epsilon", "budget", 7)
    found, summary = read_rows(run), files.read_json(run / "summary.json")
    assert found[: len(rows)] == rows
    assert len(found) == summary["rounds"] < 24
    assert 6 < float(found[-1]["epsilon"]) <= 7
    assert names(summary["stopped_early"], "epsilon", 7)
    assert "seed" not in summary["settings"]


def test_full_disk_gives_no_traceback(tmp_path):
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (20480,) * 2)
    done = train(tmp_path / "full", base=DENSE, code=1, first=limit)
    assert "Traceback" not in done.stderr and workers(tmp_path) == []
    assert names(done.stderr, os.strerror(errno.EFBIG))


def test_help_lists_main_flags():
    done = programs.run("train", "--help")
    assert done.returncode == 0
    heads = re.findall(r"^[A-Z][\w ]+(?=:$)", done.stdout, re.M)
    assert heads == [
        *("Task", "Mechanism", "Clients", "Training", "Privacy"),
        "Output and machines",
    ]
    # A folder is no number.
    of_folder = done.stdout.split("--data_dir:")[1].split("\n  --")[0]
    assert "(a text, or 'none')" in of_folder


def test_short_help_lists_flags_of_a_first_run():
    done = forks.run("experiments.train", "--helpshort")
    assert done.returncode == 0
    shown = re.findall(r"^  --(?:\[no\])?(\w+):", done.stdout, re.M)
    assert len(shown) == 10 and {"task", "mechanism", "epsilon", "seed"} <= set(shown)
    [count] = re.findall(r"^--help shows all (\d+) flags\.$", done.stdout, re.M)
    assert int(count) > 90


def diverges():
    """Has every run of this process end as one that diverges."""

    def train(run):
        raise loop_lib.DivergedError("round 1 left no number")

    run_lib.Run.train = train


def test_diverged_run_is_a_one_line_error(tmp_path):
    """Which one, `tests/training/test_loop.py` has."""
    done = train(tmp_path / "run", base=DENSE, code=1, first=diverges)
    assert done.stderr == "error: round 1 left no number\n"


def test_every_flag_file_parses_with_and_without_mechanism():
    paths = sorted((programs.ROOT / "configs").rglob("*.flags"))
    given = [[f"--flagfile={path}"] for path in paths]
    found, said = programs.configs([*given, *([*x, "--mechanism=none"] for x in given)])
    for path, own, none in zip(paths, found, found[len(paths) :]):
        task, *budget = own[:3]
        assert path.stem.startswith(task) and budget != [None, None]
        assert none[:3] == [task, None, None]
        assert not {"epsilon", "bits"} & {*none[3]} and own[4] and none[4]
    left_out = "--bits", "--compression_rate", "--noise_multiplier", "--noise_source"
    assert names(said, *left_out)
