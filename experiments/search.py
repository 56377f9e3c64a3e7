# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Searches learning rates, clip and momentum on a held-out part of the training data.

  dpfl-search --server_lr=0.2,0.5,1 --clip_norm=0.1,0.3 --output_dir=searches/a \
      -- --task=digits --mechanism=gaussian --epsilon=8
  dpfl-search --server_lr=0.1,2 --clip_norm=0.05,1 --draws=20 --hours=2 \
      --output_dir=searches/b -- --flagfile=tasks/mnist.flags --mechanism=l2_csgm

Flags after -- are those of dpfl-train. Each run evaluates on --validation_fraction of
the training data, or on the validation set that the task has, in place of the test set,
which is not looked at, and has a seed of --seeds, which are not those of results.
Without --draws all combinations of the values are tried; with it, so many draws between
the smallest and the largest of each, even on the scale of logarithms. Results are in
search.csv and the best settings in best.flags, to be given to dpfl-train as --flagfile.
The same command goes on where it was stopped, and one with a larger budget goes
further. A search is not counted in epsilon: it looks at the clients' data as often as
it has runs.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
from absl import flags

from dpfl import checks, files, locks, tasks
from dpfl.training import engine

from . import cli, flag_files, tables
from .trainings import parallel_runs, sweep, tuning
from .trainings.sweep import Training

SEARCHED = ("client_lr", "server_lr", "clip_norm", "server_momentum")
_VALUES = {
    name: flags.DEFINE_list(name, None, f"Values of --{name} to try.")
    for name in SEARCHED
}
_DRAWS = flags.DEFINE_integer(
    "draws", None, "Random settings between the values; default: all combinations."
)
_RUNS = flags.DEFINE_integer("runs", 100, "Maximum number of runs, over all calls.")
_HOURS = flags.DEFINE_float("hours", None, "Hours after which no run begins.")
_SEEDS = flags.DEFINE_string(
    "seeds", "1001", "Seeds of the runs of each setting, such as 1001-1003."
)
_FRACTION = flags.DEFINE_float(
    "validation_fraction", 0.1, "Share of the training data to evaluate on."
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder of the results.")
# Limit of combinations, beyond which they would never be done.
cli.check_flag("draws", checks.integer, at_most=cli.MOST_RUNS)
cli.check_flag("runs", checks.integer, at_most=10**6)
cli.check_flag("hours", checks.positive)
cli.check_flag("validation_fraction", checks.real, above=0.0, below=1.0)

# Seed of the draws, which must be the same in each call.
_DRAWS_SEED = 20
_OWN = (*SEARCHED, "seed", "output_dir", "validation_fraction")

Setting = Mapping[str, float]


def _numbers(name: str) -> list[float]:
    """The values of a searched flag; raises ValueError if one is no number."""
    values = []
    for word in _VALUES[name].value:
        number = tables.number(word)
        is_good = math.isfinite(number) and number >= 0
        checks.require(is_good, f"--{name}", "numbers from 0 on with commas", word)
        values.append(number)
    is_distinct, text = len({*values}) == len(values), ",".join(_VALUES[name].value)
    checks.require(is_distinct, f"--{name}", "distinct values", text)
    return sorted(values)


def settings_of(
    values: Mapping[str, Sequence[float]], draws: Optional[int]
) -> list[Setting]:
    """The settings to try, in order: random draws, or all combinations.

    The values must be in rising order.

    Raises:
      ValueError: If there is nothing to draw from.
    """
    if draws is None:
        every = itertools.product(*values.values())
        return [dict(zip(values, chosen)) for chosen in every]
    for name, numbers in values.items():
        is_good = numbers[0] > 0 or numbers[-1] <= numbers[0]
        wanted = "above 0 with --draws, whose scale is logarithmic"
        checks.require(is_good, f"--{name}", wanted, numbers[0])
    rng = np.random.default_rng(_DRAWS_SEED)
    return [
        {name: _drawn(numbers, rng) for name, numbers in values.items()}
        for _ in range(draws)
    ]


def _drawn(values: Sequence[float], rng: np.random.Generator) -> float:
    """Draws a number between the first and the last of values, to three digits."""
    part = rng.uniform()
    if values[0] == values[-1]:
        return values[0]
    number = math.exp((1 - part) * math.log(values[0]) + part * math.log(values[-1]))
    return float(f"{number:.3g}")


def given_flags(words: Sequence[str]) -> dict[str, str]:
    """The flags of dpfl-train after --, by name, including those of flag files.

    Raises:
      ValueError: If a word is no flag, or is the search's own flag.
    """
    given: dict[str, str] = {}
    for word in words:
        name, value = _flag(word)
        if name == "flagfile":
            path = flag_files.resolved(f"--flagfile={value}").partition("=")[2]
            lines = flag_files.lines_in(Path(os.path.expanduser(path)))
            given.update(map(_flag, lines))
            continue
        if name in _OWN:
            raise ValueError(f"--{name} must stand before --, found {word} after it")
        given[name] = value
    # Searched flags override those of a flag file.
    return {name: value for name, value in given.items() if name not in _OWN}


def _flag(word: str) -> tuple[str, str]:
    """Splits a word of a command line into a flag's name and value."""
    pair = flag_files.pair(word)
    is_flag = word.startswith("-") and pair[0]
    wanted = "--FLAG=VALUE of dpfl-train"
    checks.require(is_flag, "every word after --", wanted, word)
    return pair


def _work(given: Mapping[str, str], setting: Setting, seed: int) -> Training:
    labels: dict[str, Any] = {**setting, "seed": seed}
    share = tuning.validation(given["task"], str(_FRACTION.value))
    return sweep.training_work(labels, sweep.completed({**share, **given, **labels}))


def _do_runs(
    grid: Sequence[Training], table: sweep.ResultsTable, folder: Path
) -> list[Training]:
    """Trains runs one after the other within the budget; returns those in the table.

    The metric of a diverged run is NaN in the table.
    """
    done, missing = (
        [x for x in grid if (x in table) == is_in] for is_in in (True, False)
    )
    left = missing[: max(0, _RUNS.value - len(done))]
    checked = tuning.ends(missing) if left else []
    options = {"jobs": 1, "keep_diverged": True, "hours": _HOURS.value}
    parallel_runs.do([*done, *left], table, folder, checked, **options)
    return [one for one in grid if one in table]


def main(argv: Sequence[str]) -> None:
    """Searches within the budget of runs."""
    if not _OUTPUT_DIR.value:
        raise ValueError("--output_dir must be given, found none")
    values = {name: _numbers(name) for name in SEARCHED if _VALUES[name].value}
    if not values:
        names = " or ".join(f"--{name}" for name in SEARCHED)
        raise ValueError(f"{names} must be given, found none")
    given = given_flags(argv[1:])
    task = given.get("task", "digits")
    tuning.validation(task, "")
    seeds = cli.seeds("seeds")
    metric = tasks.task_entry(task).metric
    number = _DRAWS.value or math.prod(map(len, values.values()))
    if number * len(seeds) > cli.MOST_RUNS:
        told = f"{number} settings with {len(seeds)} seeds"
        names = ", ".join(f"--{name}" for name in values)
        wanted = f"for at most {cli.MOST_RUNS} runs"
        raise ValueError(f"{names} and --seeds must be {wanted}, found {told}")
    settings = settings_of(values, _DRAWS.value)
    whole = {"task": task, **given}
    grid = [_work(whole, one, seed) for seed in seeds for one in settings]
    # Path.resolve is not used: it has no clear error for cyclic links.
    folder = Path(os.path.realpath(_OUTPUT_DIR.value))
    files.output_folder("--output_dir", folder)
    best_flags = files.output_path("the best settings", folder / "best.flags")
    with locks.locked(folder):
        results = folder / "search.csv"
        is_own = results.exists() or not best_flags.exists()
        wanted = "a folder of a search, or one without best.flags"
        checks.require(is_own, "--output_dir", wanted, str(folder))
        table = sweep.ResultsTable(results)
        done = _do_runs(grid, table, folder)
    rows = [table.row(one) for one in done]
    column, lower = metric.final_column, metric.lower_is_better
    ranked = [
        one._replace(setting={name: float(v) for name, v in one.setting.items()})
        for one in tuning.ranked(rows, SEARCHED, column, lower)
    ]
    name = f"validation {metric.name}"
    shown = [{**one.setting, "seeds": one.seeds, name: one.mean} for one in ranked]
    if shown:
        print(tables.text(shown, {column: column for column in shown[0]}))
    if len(done) < len(grid):
        print(f"{len(grid) - len(done)} of {len(grid)} runs exceed the budget")
    if ranked and not math.isnan(ranked[0].mean):
        best = {**given, **{n: f"{v:g}" for n, v in ranked[0].setting.items()}}
        lines = [f"--{name}={value}" for name, value in best.items()]
        files.write_atomically(best_flags, "\n".join(lines) + "\n")
        chosen = ranked[0].setting.items()
        own = [one.folder for one in done if chosen <= one.labels.items()]
        models = (str(folder / each / engine.MODEL) for each in own)
        print(f"best: {best_flags}\nmodels: {', '.join(models)}")


if __name__ == "__main__":
    cli.run(main)
