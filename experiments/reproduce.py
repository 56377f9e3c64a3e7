# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Reproduces a figure: does the work its grid lacks, then draws it.

  dpfl-reproduce --figure=csgm_fig1
  dpfl-reproduce --figure=csgm_fig2 --scale=small
  dpfl-reproduce --figure=list

Results go to OUTPUT_DIR/FIGURE-SCALE/: results.csv with one row a run, the picture as
PNG and a folder a run; figures of one sweep share a folder. The same command goes on
where it was stopped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from dpfl import accounting, checks, files
from dpfl.mechanisms import remarks

from . import cli, tables
from .papers import sweep
from .papers.index import FIGURES
from .papers.rows import Rows

_FIGURE = flags.DEFINE_enum(
    "figure", "list", ["list", *FIGURES], "The figure to make; 'list' names them all."
)
_SCALE = flags.DEFINE_enum(
    "scale",
    "small",
    sweep.SCALES,
    "'small' uses the data sets that come with dpfl and takes minutes; 'paper' uses "
    "the paper's data and models, and takes days on a workstation.",
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", "figures", "Folder for all figures.")
_PLOT_ONLY = flags.DEFINE_bool(
    "plot_only", False, "Draw what the results table holds; do no work."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of the paper's data sets, for --scale=paper."
)
_JOBS = flags.DEFINE_integer(
    "jobs",
    None,
    "Training runs at a time, each in a process of its own; the processors if not "
    "given. Of F-EMNIST and Stack Overflow each takes a few GB.",
)
cli.check_flag("jobs", lambda name, value: checks.integer(name, value, 1, 1000))


def draw(figure: sweep.Figure, rows: Rows, folder: Path, scale: str) -> Path:
    """Draws rows as FOLDER/FIGURE.png and returns its path."""
    import matplotlib

    matplotlib.use("Agg")
    picture = figure.draw(
        [{**row, "folder": str(folder / row["folder"])} for row in rows], scale
    )
    path = folder / f"{figure.name}.png"
    files.save_figure(picture, path, dpi=150, bbox_inches="tight")
    return path


def list_figures() -> None:
    """Prints each figure's name and source."""
    width = max(map(len, FIGURES))
    for figure in FIGURES.values():
        print(f"{figure.name:{width}}  {figure.source}")


def print_table(rows: Rows) -> None:
    """Prints the rows without key and folder, aligned."""
    hidden = (sweep.KEY, "folder")
    columns = {name: name for name in rows[0] if name not in hidden}
    numbers = [{name: _number(row.get(name, "")) for name in columns} for row in rows]
    print(tables.text(numbers, columns))


def print_remark(rows: Rows) -> None:
    """Says how many rows have an epsilon that protects nobody, if any have."""
    spent = [row.get("measured_epsilon") or row.get("epsilon") or "0" for row in rows]
    large = [text for text in spent if float(text) > accounting.LARGE_EPSILON]
    if large:
        print(
            f"note that an epsilon above {accounting.LARGE_EPSILON:g} protects nobody, "
            f"found in {len(large)} of {len(rows)} rows; the train.log of a run names "
            f"the noise_multiplier that brings it to {remarks.USUAL_EPSILON:g}"
        )


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _check_flags(scale: str) -> None:
    """Raises ValueError for a flag without a meaning, or a folder that is not there."""
    if _PLOT_ONLY.value:
        cli.refuse("--plot_only", "jobs", "data_dir")
    if scale == "small":
        cli.refuse("--scale=small", "data_dir")
    if not _OUTPUT_DIR.value:
        raise ValueError("--output_dir must be a folder's path, found ''")
    if _DATA_DIR.value is not None and not os.path.isdir(_DATA_DIR.value):
        raise ValueError(
            f"--data_dir must be a folder with data files, found {_DATA_DIR.value!r}"
        )


def main(argv: Sequence[str]) -> None:
    """Makes the figure that --figure names."""
    if len(argv) > 1:
        raise ValueError(f"there are no positional arguments, found {argv[1]!r}")
    if _FIGURE.value == "list":
        list_figures()
        return
    figure, scale = FIGURES[_FIGURE.value], _SCALE.value
    _check_flags(scale)
    # Not Path.resolve, which has no sentence for links in a circle.
    folder = Path(os.path.realpath(_OUTPUT_DIR.value), f"{figure.folder}-{scale}")
    grid = figure.grid(sweep.Setting(scale, _DATA_DIR.value))
    files.output_folder("--output_dir", folder)
    files.output_path("the picture", folder / f"{figure.name}.png")
    if _PLOT_ONLY.value:
        table = sweep.ResultsTable(folder / "results.csv")
    else:
        with files.locked(folder):
            table = sweep.ResultsTable(folder / "results.csv")
            sweep.do_work(grid, table, folder, _JOBS.value or os.cpu_count() or 1)
    rows = [table.row(work) for work in grid if work in table]
    if not rows:
        raise ValueError(
            f"--plot_only needs results, found none in {folder / 'results.csv'}"
        )
    print_table(rows)
    print_remark(rows)
    missing = len(grid) - len(rows)
    note = f" ({missing} of {len(grid)} rows are still missing)" if missing else ""
    print(f"figure: {draw(figure, rows, folder, scale)}{note}")


def run() -> None:
    """Runs the binary."""
    cli.run(main)


if __name__ == "__main__":
    run()
