# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mean estimation: dots for what was measured, dashes for the theory."""

from __future__ import annotations

from typing import Any

from .. import plotting
from ..rows import Rows, numbers, where
from .mean_grid import EPSILON, SIZES, TITLES


def draw(rows: Rows, scale: str) -> Any:
    """Draws the squared error of the mean against the compression rate."""
    n, dimension, repeats = SIZES[scale]
    picture, (axis,) = plotting.panels(1, 6, 4)
    for name, title in TITLES.items():
        chosen = where(rows, mechanism=name)
        if not chosen:
            continue
        rates, theory = numbers(chosen, "compression_rate"), numbers(chosen, "theory")
        color, marker = plotting.STYLES[name]
        if len(rates) == 1:
            axis.axhline(theory[0], color=color, ls="--", lw=1)
        else:
            axis.plot(rates, theory, color=color, ls="--", lw=1)
        # The star is not to be hidden, and hides nothing.
        look = {"ms": 11, "mfc": "none", "zorder": 3} if marker == "*" else {}
        plotting.measured(
            axis, rates, chosen, color=color, fmt=marker, label=title, **look
        )
    axis.set_title(
        rf"$\varepsilon={EPSILON:g}$, $\delta=10^{{-5}}$, n={n}, d={dimension}"
        f"\ndashes: theory, points: {plotting.measured_label(repeats)}",
    )
    plotting.finish(
        axis,
        xscale="log",
        yscale="log",
        xlabel=r"compression rate $1/\gamma$",
        ylabel="squared error of the mean",
    )
    return picture
