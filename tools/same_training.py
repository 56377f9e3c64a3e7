# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains in both engines from equal random numbers, as a table of what they reach.

  python -m tools.same_training docs/results/same_training.csv --mnist=FOLDER

Every mechanism runs on `digits`, and some on `mnist`, whose images are in the folder.
Runs of a seed have one key in both engines, so that they begin with the same weights,
select the same clients, train on the same examples in the same order, and add the same
noise. Only masks and roundings, which a client draws from its secret, differ. JAX has
an environment of its own, `--jax=PYTHON`; by default that of `tools/interpreters.py`.
The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from collections.abc import Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any
from unittest import mock

from dpfl.arrays import philox
from dpfl.training import selection
from experiments import tables
from experiments.trainings import sweep, trainers
from tools import interpreters

ENGINES = ("tff", "jax")
_HELPERS = {"noise_source": "helpers", "bits": 16}
_RATE = {"compression_rate": 10}
_EPOCHS = {"participation": "once_per_epoch"}
_SKETCH = {**_EPOCHS, "sketch_size": 256, "server_lr": 0.01, "server_momentum": 0.0}
# A matrix for the larger model, and more steps, would take minutes a run.
_SPARSE = {**_HELPERS, "model": "tiny_cnn", "sparsity": 20, "solver_steps": 50}
# Flags of a task's runs, and those of its mechanisms.
TASKS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]] = {
    "mnist": (
        {
            **{"cohort_size": 100, "rounds": 24, "epsilon": 8.0, "delta": 1e-4},
            **{"clip_norm": 0.3, "server_lr": 2.0},
        },
        {
            "none": {"server_lr": 1.0},
            "gaussian": {},
            "l2_csgm": {**_RATE, "server_lr": 1.0},
            "distributed_discrete_gaussian": _HELPERS,
            "matrix_factorization": {**_EPOCHS, "rounds_per_epoch": 8},
        },
    ),
    "digits": (
        {"cohort_size": 20, "rounds": 24, "epsilon": 8.0, "delta": 1e-3},
        {
            "none": {},
            "gaussian": {},
            "l2_csgm": _RATE,
            "linf_csgm": {**_RATE, "server_lr": 0.1},
            "distributed_discrete_gaussian": _HELPERS,
            "distributed_skellam": _HELPERS,
            "sketched_ddg": {**_HELPERS, **_RATE},
            "project_and_perturb": _RATE,
            "sparse_recovery": _SPARSE,
            "dome": _SKETCH,
            "dome_ddg": {**_SKETCH, "bits": 16},
            "matrix_factorization": _EPOCHS,
            "sgmf": {**_EPOCHS, **_RATE},
        },
    ),
}
# Column of metrics.csv with the bits of all rounds so far.
_TOTAL = "total_uplink_bits"
# Flags that a mechanism without noise does not have.
_OF_NOISE = ("epsilon", "delta", "clip_norm")


def works(engine: str, seeds: int, mnist: Path) -> list[sweep.Training]:
    """The runs of an engine; those that share programs stand together.

    Args:
      engine: One of `ENGINES`.
      seeds: Runs of each mechanism.
      mnist: Folder of MNIST's images.
    """
    made = []
    for task, (shared, mechanisms) in TASKS.items():
        for mechanism, seed in itertools.product(mechanisms, range(1, seeds + 1)):
            labels = {"task": task, "mechanism": mechanism, "seed": seed}
            flags = {**shared, **mechanisms[mechanism], **labels, "engine": engine}
            if mechanism == "none":
                flags = {k: v for k, v in flags.items() if k not in _OF_NOISE}
            rare = dict.fromkeys(("eval_every", "checkpoint_every"), shared["rounds"])
            place = {"data_dir": mnist} if task == "mnist" else {}
            labels["engine"] = engine
            made.append(sweep.training_work(labels, {**flags, **rare, **place}))
    return made


def train(grid: Sequence[sweep.Training], python: object, folder: Path) -> None:
    """Does the runs that are missing in a folder, one after the other.

    Args:
      grid: The runs, in an order in which neighbours share programs.
      python: The interpreter.
      folder: Parent of the runs' folders.
    """
    command = [str(python), "-m", __spec__.name, "--serves"]
    with contextlib.closing(trainers.Trainer(command)) as trainer:
        for work in grid:
            own = folder / work.folder
            if not (own / "summary.json").exists():
                trainer.train(work, own)


def row(work: sweep.Training, folder: Path) -> dict[str, Any]:
    """A finished run's labels and results."""
    measured = sweep.measured(folder / work.folder)
    del measured["wall_time_seconds"]
    last = tables.read_run(folder / work.folder / "metrics.csv")[-1]
    return {**work.labels, **measured, _TOTAL: last[_TOTAL]}


def serve() -> None:
    """Trains as `trainers.main`, with random numbers that no setting changes."""
    run_key, seed_from_int = selection.run_key, philox.seed_from_int
    with (
        mock.patch.object(selection, "run_key", lambda seed, _: run_key(seed, "")),
        mock.patch.object(philox, "seed_from_int", lambda n, _="": seed_from_int(n)),
    ):
        trainers.main()


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    if argv == ["--serves"]:
        serve()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    parser.add_argument("--mnist", type=Path, required=True, help="MNIST's folder")
    parser.add_argument("--seeds", type=int, default=8, help="runs of each mechanism")
    parser.add_argument("--jax", type=Path, help="an interpreter with dpfl[jax]")
    parser.add_argument("--folder", type=Path, default=Path("runs/same_training"))
    given = parser.parse_args(argv)
    jax = given.jax or interpreters.find_environment("jax")
    pythons = {"tff": sys.executable, "jax": jax}
    folder = given.folder.absolute()
    grids = [works(each, given.seeds, given.mnist.absolute()) for each in ENGINES]
    with futures.ThreadPoolExecutor(len(ENGINES)) as pool:
        done = [
            pool.submit(train, grid, pythons[engine], folder)
            for engine, grid in zip(ENGINES, grids)
        ]
        for each in done:
            each.result()
    rows = [row(work, folder) for pair in zip(*grids) for work in pair]
    names = dict.fromkeys(name for each in rows for name in each)
    tables.write_columns(
        given.table, {name: [each[name] for each in rows] for name in names}
    )


if __name__ == "__main__":
    main(sys.argv[1:])
