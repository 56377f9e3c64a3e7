# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains a grid of settings over seeds, each tuned, and draws means with intervals.

  dpfl-sweep --mechanism=gaussian,dome --tune=server_lr:0.2,0.5,1 --output_dir=fig
  dpfl-sweep --flagfile=mine.flags --seeds=1-5 --jobs=2 --output_dir=fig

Every flag of dpfl-train may have several values with commas, and is left out for
mechanisms and tasks that do not have it. Flags of --tune are set in each cell of the
grid by the mean measure on --validation_fraction of the training data (0.1), over seeds
of their own; test data are not looked at. The same command goes on where it was
stopped, also on other machines that share --output_dir. It leaves sweep.csv, with the
mean of each cell and its 95% interval over seeds, sweep.png, and a row a run in
results.csv and tuning.csv. Tuning is not counted in epsilon.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from dpfl import checks, files
from dpfl.training import config, engine

from . import cli, grids, train
from .trainings import sweep, tuning

_SEEDS = flags.DEFINE_string("seeds", "1-3", "Seeds of each cell, such as 1-5 or 1,4.")
_TUNE = flags.DEFINE_multi_string(
    "tune", [], "A flag and the values to try, as server_lr:0.2,0.5,1; for each flag."
)
_TUNE_SEEDS = flags.DEFINE_string("tune_seeds", "1001", "Seeds of each tried setting.")
_JOBS = flags.DEFINE_integer(
    "jobs",
    None,
    "Concurrent runs; default: as many as processors and memory allow, or one in JAX.",
)
cli.check_flag("jobs", checks.integer, at_most=1000)
# Flags of dpfl-train with one value.
_WHOLE = (*config.HARMLESS, *sweep.HARMLESS)


class Values(flags.ArgumentParser):
    """A parser of values with commas, each by the parser `one`, kept as texts."""

    def __init__(self, one: flags.ArgumentParser):
        self.one, self.syntactic_help = one, one.syntactic_help
        # The value that was parsed last, which a refusal names.
        self.found = ""

    def parse(self, argument: Any) -> list[str]:
        """The values: numbers in rising order, words as they are given."""
        texts = [text.strip() for text in str(argument).split(",")]
        for self.found in texts:
            self.one.parse(self.found)
        return tuning.in_order(texts) if _are_distinct(texts) else texts

    def flag_type(self) -> str:
        """The name of the type in the help."""
        return f"{self.one.flag_type()} with commas"


def _are_distinct(texts: Sequence[str]) -> bool:
    return len(tuning.in_order(texts)) == len(texts)


def _check_distinct(name: str, value: Any) -> None:
    if isinstance(value, list):
        text = ",".join(value)
        checks.require(_are_distinct(value), name, "distinct values", text)


_FLAGS = train.every_flag()
for _name in {*_FLAGS}.difference(_WHOLE):
    _FLAGS[_name].parser = Values(_FLAGS[_name].parser)
    cli.check_flag(_name, _check_distinct)


def _tuned(given: Sequence[str]) -> dict[str, list[str]]:
    """The values to try by flag; ValueError for a bad or a given flag."""
    tuned: dict[str, list[str]] = {}
    for text in _TUNE.value:
        name, colon, values = text.partition(":")
        fixed = (*_WHOLE, "seed", "task", "mechanism", tuning.FRACTION)
        for is_good, wanted in (
            (colon, "NAME:VALUE,VALUE"),
            (name in _FLAGS, "of a flag of dpfl-train"),
            (name not in fixed, "of a flag that can be tuned"),
            (name not in given, f"of a flag that is not set by --{name} too"),
            (name not in tuned, "given once for each flag"),
        ):
            checks.require(is_good, "--tune", wanted, text)
        parser = _FLAGS[name].parser
        try:
            tuned[name] = parser.parse(values)
        except (TypeError, ValueError):
            wanted = f"of values of --{name}, {cli.wanted(parser)}"
            raise ValueError(checks.message("--tune", wanted, parser.found)) from None
        is_distinct = _are_distinct(tuned[name])
        checks.require(is_distinct, "--tune", "of distinct values", text)
    return tuned


def main(argv: Sequence[str]) -> None:
    """Does the grid, and draws it."""
    cli.no_arguments(argv)
    given = {
        name: value if isinstance(value, list) else [str(value)]
        for name, value in train.given_flags().items()
    }
    folder = "".join(given.pop("output_dir", []))
    if not folder:
        raise ValueError("--output_dir must be given, found none")
    seed = ",".join(given.get("seed", []))
    checks.require(not seed, "--seed", "given as --seeds in a sweep", seed)
    tuned = _tuned(list(given))
    seeds, own = (list(map(str, cli.seeds(n))) for n in ("seeds", "tune_seeds"))
    defaults = {name: [_FLAGS[name].default] for name in ("task", "mechanism")}
    share = given.pop(tuning.FRACTION, ["0.1"])[0] if tuned else ""
    cells = grids.cells({**defaults, **given})
    for cell in cells if tuned else ():
        tuning.validation(cell["task"], share)
    cells = [sweep.completed(cell) for cell in cells]
    grid = grids.Grid(cells, seeds, tuned, own, share)
    count = sum(len(grid.trials(cell)) + len(seeds) for cell in cells)
    wanted = f"for at most {cli.MOST_RUNS} runs"
    checks.require(count <= cli.MOST_RUNS, "values and --seeds", wanted, count)
    engines = {engine.of(cell.get("engine", "auto")) for cell in cells}
    # Path.resolve is not used: it has no clear error for cyclic links.
    path = Path(os.path.realpath(folder))
    files.output_folder("--output_dir", path)
    for name in ("sweep.csv", "sweep.png"):
        files.output_path("a result", path / name)
    is_other = (path / "sweep.csv").exists() and not (path / "results.csv").exists()
    wanted = "a folder of a sweep, or one without sweep.csv"
    checks.require(not is_other, "--output_dir", wanted, str(path))
    grid.do(path, jobs=_JOBS.value or (1 if "jax" in engines else None))


if __name__ == "__main__":
    cli.run(main)
