# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Reproduces a figure: does the work its grid lacks, then draws it.

  dpfl-reproduce --figure=csgm_fig1
  dpfl-reproduce --figure=csgm_fig2 --scale=small
  dpfl-reproduce --figure=list

Results go to OUTPUT_DIR/FIGURE-SCALE/: results.csv with one row a run, the picture as
PNG and a folder a run. The same command goes on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tqdm
from absl import flags

from experiments import cli, figures, figures_csgm, figures_mean, figures_mf

FIGURES: dict[str, figures.Figure] = {
    figure.name: figure
    for module in (figures_csgm, figures_mean, figures_mf)
    for figure in module.FIGURES
}

_FIGURE = flags.DEFINE_enum(
    "figure", "list", ["list", *FIGURES], "The figure to make; 'list' names them all."
)
_SCALE = flags.DEFINE_enum(
    "scale",
    "small",
    figures.SCALES,
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


def do_work(
    grid: Sequence[figures.Work], table: figures.ResultsTable, folder: Path
) -> None:
    """Does the work that the table lacks, a row at a time."""
    missing = [work for work in grid if work not in table]
    with tqdm.tqdm(missing, unit="run", disable=not missing) as progress:
        for work in progress:
            progress.set_postfix_str(work.folder[-60:])
            table.add(work, work.compute(folder / work.folder))


def draw(
    figure: figures.Figure,
    rows: Sequence[dict[str, str]],
    folder: Path,
    scale: str,
) -> Path:
    """Draws rows as FOLDER/FIGURE.png and returns its path."""
    import matplotlib

    matplotlib.use("Agg")
    picture = figure.draw(
        [{**row, "folder": str(folder / row["folder"])} for row in rows], scale
    )
    path = folder / f"{figure.name}.png"
    picture.savefig(path, dpi=150, bbox_inches="tight")
    return path


def list_figures() -> None:
    """Prints each figure's name and source."""
    width = max(map(len, FIGURES))
    for figure in FIGURES.values():
        print(f"{figure.name:{width}}  {figure.source}")


def print_table(rows: Sequence[dict[str, str]]) -> None:
    """Prints the rows without key and folder, aligned."""
    hidden = (figures.KEY, "folder")
    columns = [name for name in rows[0] if name not in hidden]
    cells = [columns, *([_short(row.get(c, "")) for c in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for line in cells:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths)))


def _short(text: str) -> str:
    try:
        return f"{float(text):.5g}"
    except ValueError:
        return text


def main(argv: Sequence[str]) -> None:
    """Makes the figure that --figure names."""
    if len(argv) > 1:
        raise ValueError(f"there are no positional arguments, found {argv[1]!r}")
    if _FIGURE.value == "list":
        list_figures()
        return
    figure, scale = FIGURES[_FIGURE.value], _SCALE.value
    folder = Path(_OUTPUT_DIR.value).resolve() / f"{figure.name}-{scale}"
    grid = figure.grid(figures.Setting(scale, _DATA_DIR.value))
    folder.mkdir(parents=True, exist_ok=True)
    table = figures.ResultsTable(folder / "results.csv")
    if not _PLOT_ONLY.value:
        do_work(grid, table, folder)
    rows = [table.row(work) for work in grid if work in table]
    if not rows:
        raise ValueError(
            f"--plot_only needs results, found none in {folder / 'results.csv'}"
        )
    print_table(rows)
    missing = len(grid) - len(rows)
    note = f" ({missing} of {len(grid)} rows are still missing)" if missing else ""
    print(f"figure: {draw(figure, rows, folder, scale)}{note}")


def run() -> None:
    """Entry point."""
    cli.run(main)


if __name__ == "__main__":
    run()
