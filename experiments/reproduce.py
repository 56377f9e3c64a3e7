# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Reproduces a figure: does the work its grid lacks, then draws it.

  python -m experiments.reproduce --figure=csgm_fig1
  python -m experiments.reproduce --figure=csgm_fig2 --scale=small --seeds=1-3
  python -m experiments.reproduce --figure=list

Results go to OUTPUT_DIR/FIGURE-SCALE/, those of JAX's engine to FIGURE-SCALE-jax/:
results.csv with one row a run, the picture as PNG and a folder a run; figures of one
sweep share a folder. The same command goes on where it was stopped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from dpfl import checks, files, locks
from dpfl.training import engine

from . import cli, exits, plotting, tables
from .papers import result_tables
from .tables import Rows
from .trainings import parallel_runs, sweep

try:
    from .papers.index import FIGURES
except ValueError as _error:
    exits.fail(str(_error))

_FIGURE = flags.DEFINE_enum(
    "figure", "list", ["list", *FIGURES], "The figure to make; 'list' names them all."
)
_SCALE = flags.DEFINE_enum(
    "scale",
    "small",
    sweep.SCALES,
    "'small' uses the data sets that come with dpfl and takes minutes; 'medium' uses "
    "MNIST by its writers and takes hours; 'paper' uses the paper's data and models, "
    "and takes days on a workstation.",
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", "figures", "Folder for all figures.")
_ENGINE = flags.DEFINE_enum(
    "engine",
    "auto",
    ("auto", *engine.ENGINES),
    "Engine of the runs; JAX's have a folder of their own. 'auto' is TFF's where it is "
    "installed, else JAX's.",
)
_SEEDS = flags.DEFINE_string(
    "seeds", None, "Seeds of each setting, such as 1-5 or 1,4; default: the figure's."
)
_PLOT_ONLY = flags.DEFINE_bool(
    "plot_only", False, "Draw the existing results without any run."
)
_TABLE = flags.DEFINE_string(
    "table",
    None,
    "CSV file to write, with labels and measurements; the points of curves go to "
    "FILE_curves.csv beside it.",
)
_FROM_TABLE = flags.DEFINE_string(
    "from_table", None, "Draw this file of --table without any run."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of the data sets, for --scale=medium and paper."
)
_JOBS = flags.DEFINE_integer(
    "jobs",
    None,
    "Concurrent training runs; default: as many as processors and memory allow, or one "
    "in JAX.",
)
_ALLOW_PARTIAL_DATA = flags.DEFINE_bool(
    "allow_partial_data",
    False,
    "For each run: accept a data file with other counts than the published ones.",
)
_DOWNLOAD = flags.DEFINE_bool(
    "download", False, "Download missing data files, once, before any run begins."
)
# Flags of the runs, meaningless if no work is done.
_OF_TRAINING = ("engine", "seeds")
_OF_DATA = ("data_dir", "allow_partial_data", "download")
cli.check_flag("jobs", checks.integer, at_most=1000)


def _print_table(rows: Rows) -> None:
    """Prints the rows without key and folder, aligned."""
    hidden = (sweep.KEY, "folder", sweep.CURVES)
    columns = {name: name for name in rows[0] if name not in hidden}

    def cell(text: str) -> object:
        with contextlib.suppress(ValueError):
            return float(text)
        return text

    shown = [{name: cell(row.get(name, "")) for name in columns} for row in rows]
    print(tables.text(shown, columns))


def _check_flags(figure: sweep.Figure, scale: str) -> None:
    """Raises ValueError for a flag without meaning, or a folder that does not exist."""
    checks.choice(f"--scale of {figure.name}", scale, figure.scales)
    if _FROM_TABLE.value is not None:
        if figure.needs_folders:
            raise ValueError(
                f"--from_table must be left out for {figure.name}, since "
                f"{figure.needs_folders}, which no table keeps"
            )
        both = (*_OF_TRAINING, "jobs", *_OF_DATA)
        cli.refuse("--from_table", "table", "plot_only", *both)
    if _PLOT_ONLY.value:
        cli.refuse("--plot_only", "jobs", *_OF_DATA)
    if scale == "small":
        cli.refuse("--scale=small", *_OF_DATA)
    if not _OUTPUT_DIR.value:
        raise ValueError("--output_dir must be a folder's path, found ''")
    if _DATA_DIR.value is not None and not os.path.isdir(_DATA_DIR.value):
        raise ValueError(
            f"--data_dir must be a folder with data files, found {_DATA_DIR.value!r}"
        )


def _engine(figure: sweep.Figure, scale: str) -> str:
    """The engine that trains the figure's runs; "" if none does."""
    if _FROM_TABLE.value is not None:
        return ""
    if not any(isinstance(one, sweep.Training) for one in figure.grid(scale)):
        cli.refuse(f"{figure.name}, which trains nothing", *_OF_TRAINING)
        return ""
    name = _ENGINE.value
    if name == "auto" or not _PLOT_ONLY.value:
        name = engine.of(name)
    return name


def _flags_of_runs(engine_name: str, scale: str) -> dict[str, Any]:
    """The flags for the runs from the command line."""
    # Rows of TFF's runs do not name it.
    is_jax = engine_name == "jax"
    given = {
        "engine": "jax" if is_jax else None,
        "precision": "tf32" if is_jax and scale == "paper" else None,
        "data_dir": _DATA_DIR.value and os.path.realpath(_DATA_DIR.value),
        "allow_partial_data": _ALLOW_PARTIAL_DATA.value or None,
        "download": _DOWNLOAD.value or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _do_work(
    grid: Sequence[sweep.Work], table: sweep.ResultsTable, folder: Path
) -> None:
    """Does the missing work; raises ValueError before any if data are missing."""
    runs = [
        work for work in grid if isinstance(work, sweep.Training) and work not in table
    ]
    checked = {work.all_but_seed: work for work in runs}
    is_alone = not all(work.has_groups for work in runs)
    parallel_runs.do(
        *(grid, table, folder, checked.values()),
        jobs=_JOBS.value or (1 if is_alone else None),
    )


def main(argv: Sequence[str]) -> None:
    """Makes the figure named by --figure."""
    cli.no_arguments(argv)
    if _FIGURE.value == "list":
        width = max(map(len, FIGURES))
        for each in FIGURES.values():
            print(f"{each.name:{width}}  {each.source}")
        return
    figure, scale = FIGURES[_FIGURE.value], _SCALE.value
    _check_flags(figure, scale)
    engine_name = _engine(figure, scale)
    own = "-jax" if engine_name == "jax" else ""
    seeds = [] if _SEEDS.value is None else cli.seeds("seeds")
    grid = figure.grid(scale, _flags_of_runs(engine_name, scale), seeds)
    # Path.resolve is not used: it has no clear error for cyclic links.
    folder = Path(os.path.realpath(_OUTPUT_DIR.value), f"{figure.folder}-{scale}{own}")
    _reproduce(figure, grid, folder)


def _reproduce(figure: sweep.Figure, grid: Sequence[sweep.Work], folder: Path) -> None:
    files.output_folder("--output_dir", folder)
    files.output_path("the picture", folder / f"{figure.name}.png")
    if _TABLE.value is not None:
        table = files.output_path("--table", _TABLE.value, [".csv"])
        own = os.path.realpath(folder / "results.csv")
        curves = [result_tables.curves_path(table)] if figure.curves else []
        for path in (table, *curves):
            if os.path.realpath(files.output_path("--table", path)) == own:
                wanted = "another file than the results that go into it"
                raise ValueError(checks.message("--table", wanted, _TABLE.value))
    if _FROM_TABLE.value is not None:
        rows, path = _drawn_table(figure, grid, folder)
    else:
        rows = _results(figure, grid, folder)
        _print_table(rows)
        try:
            plotting.print_remark(rows)
            path = plotting.save(figure, rows, folder)
        except KeyError as error:
            raise ValueError(
                f"{folder / 'results.csv'} must have the columns of {figure.name}, "
                f"found none named {error.args[0]}"
            ) from error
    missing = max(0, len(grid) - len(rows))
    note = f" ({missing} of {len(grid)} rows are still missing)" if missing else ""
    print(f"figure: {path}{note}")


def _drawn_table(
    figure: sweep.Figure, grid: Sequence[sweep.Work], folder: Path
) -> tuple[Rows, Path]:
    """The rows of a table written by --table, and their picture."""
    table = Path(_FROM_TABLE.value)
    rows = result_tables.read(table, figure, _SCALE.value, grid)
    try:
        return rows, plotting.save(figure, rows, folder)
    except (KeyError, ValueError) as error:
        fault = f"{table}, which cannot be drawn ({error})"
        raise result_tables.refused(figure, _SCALE.value, fault) from error


def _results(figure: sweep.Figure, grid: Sequence[sweep.Work], folder: Path) -> Rows:
    """The rows of a figure, after doing the missing work if allowed."""
    path = folder / "results.csv"
    if _PLOT_ONLY.value:
        table = sweep.ResultsTable(path)
    else:
        with locks.locked(folder):
            table = sweep.ResultsTable(path)
            try:
                _do_work(grid, table, folder)
            except ModuleNotFoundError as missing:
                wanted = f"one that needs no {missing.name}, which is not installed"
                message = checks.message("--figure", wanted, figure.name)
                raise ValueError(message) from missing
    done = [work for work in grid if work in table]
    if not done:
        raise ValueError(f"--plot_only needs results, and {path} has none")
    rows = [{**table.row(work), "folder": str(folder / work.folder)} for work in done]
    if _TABLE.value is not None:
        result_tables.write(Path(_TABLE.value), figure, _SCALE.value, done, rows)
    return rows


if __name__ == "__main__":
    cli.run(main)
