# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains the same in several frameworks, loops or engines, as a table of their results.

  python -m tools.comparisons docs/results/frameworks.csv --seeds=24
  python -m tools.comparisons docs/results/other_loops.csv
  python -m tools.comparisons docs/results/same_training.csv --mnist=FOLDER

The file's name says what is compared: the runs are those of `comparisons.csv`. A row
that the file has is not made again, so that the same command goes on where it was
stopped. Environments are those that `tools/interpreters.py` makes, that of pfl with
scikit-learn.

Runs of a seed have one key in all frameworks and engines (`frameworks.one_key`). In
other loops a notebook runs as it is, with another seed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfl import files
from experiments import tables
from experiments.trainings import sweep, trainers
from tools import frameworks, interpreters

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("tff", "jax")
_SERVES = ("tools.comparisons", "--serves")
# Column of metrics.csv with the bits of all rounds so far.
_TOTAL = "total_uplink_bits"
_RESULT = re.compile(r"round 60: accuracy (\S+), epsilon (\S+)")
# Function from an interpreter and runs to the results of each.
Way = Callable[[str, Sequence[sweep.Training]], Iterator[dict[str, Any]]]


def in_engine(
    python: str, grid: Sequence[sweep.Training], program: Sequence[str] = _SERVES
) -> Iterator[dict[str, Any]]:
    """Yields the results of runs of `dpfl-train`, whose folders are in runs/.

    The mean length of messages is among them, as in loops.

    Args:
      python: The interpreter.
      grid: The runs, in an order in which neighbours share programs.
      program: A module that calls `trainers.main`, and its arguments.
    """
    with contextlib.closing(trainers.Trainer([python, "-m", *program])) as trainer:
        for work in grid:
            folder = ROOT / "runs/comparisons" / work.folder
            trainer.train(work, folder)
            rows = tables.read_run(folder / "metrics.csv")
            total = float(rows[-1][_TOTAL])
            message = total / sum(tables.numbers(rows, "clients"))
            measured = sweep.measured(folder)
            yield {**measured, _TOTAL: rows[-1][_TOTAL], frameworks.MESSAGE: message}


def in_loop(python: str, grid: Sequence[sweep.Training]) -> Iterator[dict[str, Any]]:
    """Yields the results of runs of `tools.frameworks`."""
    for work in grid:
        given = work.labels["framework"], str(work.labels["seed"])
        said = _said([python, "-m", frameworks.__name__, *given], ROOT)
        # Flower's own lines come before.
        yield json.loads(said.splitlines()[-1])


def in_notebook(
    name: str, python: str, grid: Sequence[sweep.Training]
) -> Iterator[dict[str, Any]]:
    """Yields the results of a notebook's code with the seeds of runs.

    Args:
      name: Name of the notebook in examples/.
      python: The interpreter.
      grid: The runs.
    """
    text = (ROOT / f"examples/{name}.ipynb").read_text(encoding="utf-8")
    cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    code = "\n".join("".join(cell["source"]) for cell in cells)
    # Nothing is left to do after the checkpoint.
    code = code.replace("STOPPED = 60, 52", "STOPPED = 60, 60")
    for work in grid:
        with tempfile.TemporaryDirectory() as folder:
            own = code.replace("SEED = 1\n", f"SEED = {work.labels['seed']}\n")
            Path(folder, "loop.py").write_text(own, encoding="utf-8")
            said = _said([python, "loop.py"], Path(folder))
        accuracy, epsilon = map(float, _RESULT.findall(said)[-1])
        yield {"final_accuracy": accuracy, "epsilon": epsilon}


def _said(command: Sequence[str], folder: Path) -> str:
    """Text that a command prints in a folder."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout


_with_own_key = functools.partial(in_engine, program=(trainers.__name__,))
# By the name of a table: the column that names a way, and by that name an environment,
# "" for this one, and the way.
COMPARISONS: Mapping[str, tuple[str, Mapping[str, tuple[str, Way]]]] = {
    "frameworks": (
        "framework",
        {
            "numpy": ("", in_loop),
            "flower": ("flower", in_loop),
            "pfl": ("pfl", in_loop),
            "jax": ("jax", in_engine),
            "tff": ("", in_engine),
        },
    ),
    "other_loops": (
        "loop",
        {
            "dpfl-train": ("", _with_own_key),
            "TensorFlow Privacy": ("", functools.partial(in_notebook, "tff_query")),
            "PyTorch": ("torch", functools.partial(in_notebook, "pytorch_loop")),
            "JAX": ("", functools.partial(in_notebook, "jax_loop")),
        },
    ),
    "same_training": (
        "engine",
        {"tff": ("", in_engine), "jax": ("jax", in_engine)},
    ),
}


def cases(name: str) -> list[dict[str, str]]:
    """The task, the mechanism and the flags of the trainings of a table."""
    rows = files.read_csv(Path(__file__).with_suffix(".csv"))
    return tables.where(rows, table=name)


def grid(
    name: str, way: str, seeds: int, more: Mapping[str, Any]
) -> list[sweep.Training]:
    """The runs of a table in one way; those that share programs stand together.

    Args:
      name: Name of the table.
      way: The name of the way.
      seeds: Runs of each training.
      more: Flags of the tasks that have them.
    """
    made = []
    for case, seed in itertools.product(cases(name), range(1, seeds + 1)):
        flags = dict(word[2:].split("=") for word in case["flags"].split())
        labels = {"task": case["task"], "mechanism": case["mechanism"], "seed": seed}
        own = {"engine": way} if way in ENGINES else {}
        named = {**labels, COMPARISONS[name][0]: way}
        made.append(sweep.training_work(named, {**flags, **labels, **own}, more))
    return made


def main(argv: Sequence[str]) -> None:
    """Adds the rows that are missing to a table."""
    if argv == ["--serves"]:
        # As the trainers, with random numbers that no setting changes.
        with frameworks.one_key():
            return trainers.main()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="a CSV file, named as in docs/results")
    parser.add_argument("--seeds", type=int, default=8, help="runs of each training")
    parser.add_argument("--mnist", type=Path, help="MNIST's folder")
    given = parser.parse_args(argv)
    name = given.table.stem
    if name not in COMPARISONS:
        parser.error(f"table must be one of {', '.join(COMPARISONS)}, found {name!r}")
    if given.mnist is None and any(c["task"] == "mnist" for c in cases(name)):
        parser.error("--mnist must be the folder of MNIST's images, found none")
    more = {"data_dir": given.mnist.absolute()} if given.mnist else {}
    column, ways = COMPARISONS[name]
    grids = {way: grid(name, way, given.seeds, more) for way in ways}
    columns = list(files.read_csv(ROOT / f"docs/results/{name}.csv")[0])

    def key(row: tables.Row) -> tuple[str, ...]:
        own = ("task", "mechanism", "seed", column)
        return tuple(str(row[label]) for label in own if label in columns)

    before = files.read_csv(given.table) if given.table.exists() else []
    rows: dict[tuple[str, ...], tables.Row] = {key(row): row for row in before}
    order = [key(work.labels) for runs in zip(*grids.values()) for work in runs]
    for way, (environment, in_way) in ways.items():
        python = interpreters.find_environment(environment) if environment else None
        if environment and python is None:
            parser.error(f"{environment} must be made by tools/interpreters.py")
        left = [work for work in grids[way] if key(work.labels) not in rows]
        for work, result in zip(left, in_way(str(python or sys.executable), left)):
            rows[key(work.labels)] = {**result, **work.labels}
            every = [rows[k] for k in dict.fromkeys([*order, *rows]) if k in rows]
            shown = {name: [row[name] for row in every] for name in columns}
            tables.write_columns(given.table, shown)


if __name__ == "__main__":
    main(sys.argv[1:])
