# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every figure that trains, at the small scale: its table, and what it takes.

  python -m tools.small_scale docs/results/small

Runs `dpfl-reproduce` for each figure by itself, one after another, each into a folder
of its own so that none has the runs of another, and keeps its small table in the
folder that is given. What each takes goes to `costs.csv` there: how many rows its table
has, processor seconds of the program and of all that it started, and seconds on the
clock. A figure whose table is there already is left as it is. All take an hour or two
of two processors. Tables of figures that train nothing are in `docs/results` itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.papers import result_rows, sweep, trainings
from experiments.papers.index import FIGURES
from tools import run_costs

SCALE = "small"
NAMES = tuple(
    name
    for name, figure in FIGURES.items()
    if SCALE in figure.scales
    and isinstance(figure.grid(sweep.Setting(SCALE))[0], trainings.Training)
)
COSTS = "costs.csv"


class Cost(NamedTuple):
    """What one figure took, a row of the table."""

    figure: str
    table_rows: int
    processor_seconds: float
    wall_seconds: float


def _make(name: str, table: Path) -> Cost:
    """Makes a figure and its table, and returns what that took."""
    program = [sys.executable, "-m", "experiments.reproduce"]
    with tempfile.TemporaryDirectory() as folder:
        flags = {
            "figure": name,
            "scale": SCALE,
            "output_dir": f"{folder}/runs",
            "table": table,
        }
        words = run_costs.arguments(flags)
        taken = run_costs.measure([*program, *words], Path(folder) / "log")
    return Cost(
        name, len(result_rows.read_csv(table)), *(round(part, 1) for part in taken)
    )


def _kept(path: Path) -> list[Cost]:
    return [
        Cost(
            row["figure"],
            int(row["table_rows"]),
            float(row["processor_seconds"]),
            float(row["wall_seconds"]),
        )
        for row in result_rows.read_csv(path)
    ]


def write(names: Sequence[str], folder: Path) -> None:
    """Writes the tables of figures that have none in the folder, and their costs.

    Args:
      names: Of `NAMES`.
      folder: For the tables.

    Raises:
      RuntimeError: A figure's command did not succeed.
    """
    run_costs.adopt_orphans()
    path = folder / COSTS
    found = _kept(path) if path.exists() else []
    done = {cost.figure for cost in found}
    for name in names:
        if name not in done:
            found.append(_make(name, folder / f"{name}.csv"))
            run_costs.write(path, found)


def main(argv: Sequence[str]) -> None:
    """Writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the tables go")
    parser.add_argument("--figures", default=",".join(NAMES), help="some of them")
    options = parser.parse_args(argv)
    names = options.figures.split(",")
    if unknown := sorted(set(names) - set(NAMES)):
        parser.error(f"--figures must be some of {', '.join(NAMES)}, found {unknown}")
    write(names, options.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
