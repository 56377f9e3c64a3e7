# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 1 and Table 2: exact errors of factorizations, without training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import factorization as mf

from ... import factorizations
from .. import plotting
from ..result_rows import Rows, distinct, where, write_columns
from ..sweep import Curves, Setting, Work
from ..trainings import curve

MOMENTUM = 0.9
TITLES = {
    "honaker-online": "Honaker online (DP-FTRL)",
    "honaker-full": "Honaker full",
    "optimal-prefix-sum": "optimal prefix sum",
    "optimal": "optimal",
}


def workload_title(momentum: float) -> str:
    """Returns what a panel of one momentum is called."""
    return rf"momentum $\beta={momentum:g}$" if momentum else "prefix sum"


STEP_ROUNDS = {"small": 256, "paper": 2048}
STEPS = Curves(("squared_error",), "steps.csv")


def _steps_work(method: str, momentum: float, rounds: int) -> Work:
    def compute(folder: Path) -> Mapping[str, Any]:
        found = mf.compute(mf.momentum(rounds, momentum), method)
        steps = found.step_errors()
        write_columns(folder / STEPS.file, {STEPS.columns[0]: list(steps)})
        return dataclasses.asdict(found.errors())

    return Work({"momentum": momentum, "method": method}, {"rounds": rounds}, compute)


def steps_grid(setting: Setting) -> list[Work]:
    """Returns Fig. 1: the error of each step, without momentum and with it."""
    return [
        _steps_work(method, momentum, STEP_ROUNDS[setting.scale])
        for momentum in (0.0, MOMENTUM)
        for method in TITLES
        # For the prefix sum itself the two are one.
        if momentum or method != "optimal-prefix-sum"
    ]


TABLE_ROUNDS = {
    "small": (8, 16, 32, 64, 128, 256),
    "paper": (64, 128, 256, 512, 1024, 2048),
}
TABLE_METHODS = {
    "optimal": "optimal",
    "band-low-rank": "band + low rank",
    "banded": "banded C, T/2 diagonals",
    "toeplitz": "Toeplitz C",
    "blt": "buffered Toeplitz C, 3 buffers",
    "honaker-full": "Honaker full",
    "honaker-online": "Honaker online",
}


def _parameters(method: str, rounds: int) -> dict[str, int]:
    band, rank = factorizations.band_and_rank(rounds)
    parameters = {
        "band-low-rank": {"band": band, "rank": rank},
        "banded": {"bands": rounds // 2},
        "blt": {"buffers": 3},
    }
    return parameters.get(method, {})


def _table_work(method: str, rounds: int) -> Work:
    parameters = _parameters(method, rounds)

    def compute(folder: Path) -> Mapping[str, Any]:
        del folder
        found = mf.compute(mf.prefix_sum(rounds), method, **parameters)
        errors = found.errors()
        return {"loss": found.loss, "root_mean": errors.root_mean, "max": errors.max}

    return Work({"rounds": rounds, "method": method}, parameters, compute)


def table_grid(setting: Setting) -> list[Work]:
    """Returns Table 2: losses of prefix sums over the number of rounds."""
    return [
        _table_work(method, rounds)
        for rounds in TABLE_ROUNDS[setting.scale]
        for method in TABLE_METHODS
    ]


# Of those that are not trained: they come near the optimal one, as their color does.
_NEAR_OPTIMAL = ("band-low-rank", "banded", "toeplitz", "blt")
_COLORS = {
    **{method: color for method, (color, _) in plotting.STYLES.items()},
    **{
        method: plotting.shade("optimal", step, len(_NEAR_OPTIMAL), (0.25, 0.8))
        for step, method in enumerate(_NEAR_OPTIMAL)
    },
}
# How bright red, green and blue seem.
_LUMINANCE = (0.21, 0.72, 0.07)


def draw_steps(rows: Rows, scale: str) -> Any:
    """Draws the squared error of each step, a panel for each momentum."""
    values = distinct(rows, "momentum")
    picture, axes = plotting.panels(len(values), 4.7, 3.5)
    for axis, momentum in zip(axes, values):
        highest = 0.0
        for row in where(rows, momentum=momentum):
            places, steps = zip(*curve(row, STEPS.columns[0], STEPS))
            highest = max(highest, *steps)
            look = plotting.look(row["method"], marked=False)
            label = TITLES[row["method"]]
            axis.plot(places, steps, label=label, **look)
        axis.set_title(workload_title(float(momentum)))
        axis.set(xlabel="round", ylabel="squared error of the iterate")
        # Room for the legend above the lines.
        axis.set_ylim(0, 1.3 * highest)
        axis.legend(fontsize=8, ncol=2, loc="upper left")
    picture.suptitle(
        f"T={STEP_ROUNDS[scale]}; per coordinate, at noise multiplier 1 and clip 1",
    )
    picture.tight_layout()
    return picture


def draw_table(rows: Rows, scale: str) -> Any:
    """Draws losses over the optimal one as bars, and the losses as a table."""
    from matplotlib.colors import to_rgb

    del scale
    losses = {(r["rounds"], r["method"]): float(r["loss"]) for r in rows}
    sizes = distinct(rows, "rounds")
    picture, (axis,) = plotting.panels(1, 8.5, 3.6)
    width = 0.8 / len(TABLE_METHODS)
    colors = [_COLORS[method] for method in TABLE_METHODS]
    for i, method in enumerate(TABLE_METHODS):
        shown = [
            (j + width * (i + 0.5) - 0.4, losses[n, method] / losses[n, "optimal"])
            for j, n in enumerate(sizes)
            if (n, method) in losses and (n, "optimal") in losses
        ]
        if shown:
            axis.bar(*zip(*shown), width=width, color=colors[i], edgecolor="w", lw=0.5)
    # The table below names them.
    axis.set_xticks([])
    axis.set(xlim=(-0.5, len(sizes) - 0.5), ylabel="loss / optimal loss")
    axis.axhline(1, color="k", lw=0.5)
    axis.grid(visible=False, axis="x")
    table = axis.table(
        [
            [f"{losses[n, m]:.1f}" if (n, m) in losses else "-" for n in sizes]
            for m in TABLE_METHODS
        ],
        rowLabels=list(TABLE_METHODS.values()),
        rowColours=colors,
        colLabels=[f"T={n}" for n in sizes],
        loc="bottom",
        cellLoc="center",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for i, color in enumerate(colors, 1):
        # Black cannot be read on what is dark.
        is_dark = np.dot(to_rgb(color), _LUMINANCE) < 0.5
        table[i, -1].get_text().set_color("w" if is_dark else "k")
    axis.set_title("prefix sum: loss over the optimal one (bars) and loss (table)")
    return picture
