# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 4: how far the loss is above the dual bound, over the seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import plotting
from ..rows import Rows, read_columns
from .methods import workload_title
from .solvers_grid import SOLVERS

# All of them find the optimal matrix, and have shades of its color.
_MARKERS = {"accelerated": "o", "plain": "^", "lbfgs": "s"}


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel for each problem, a line for each solver."""
    from matplotlib import ticker

    del scale
    picture, axes = plotting.panels(len(rows), 4.5, 3.5, sharey=True)
    for axis, row in zip(axes, rows):
        for name, title in SOLVERS.items():
            curve = read_columns(Path(row["folder"]) / f"{name}.csv")
            # Rounding may put the excess of a converged loss below zero.
            excess = np.maximum(curve["excess"], 1e-12)
            step = list(_MARKERS).index(name)
            color = plotting.shade("optimal", step, len(_MARKERS), (-0.6, 0.5))
            look = {"color": color, "marker": _MARKERS[name], "ms": 3}
            axis.plot(curve["seconds"], excess, label=title, **look)
        title = workload_title(float(row["momentum"]))
        axis.set_title(f"{title}, T={row['rounds']}")
        axis.set(xscale="log", yscale="log", xlabel="seconds", ylim=(1e-10, None))
        # Few powers of ten are shown, and all between them would not have room.
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 3.0)))
        axis.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes[0].set_ylabel("loss / dual bound - 1")
    # Above the panels, where no curve is.
    picture.legend(*axes[0].get_legend_handles_labels(), loc="upper center", ncol=3)
    picture.tight_layout(rect=(0, 0, 1, 0.92))
    return picture
