# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 1: noise multipliers over the ratio of the norms and over gamma."""

from __future__ import annotations

from typing import Any

from .. import plotting
from ..rows import Rows, numbers, where
from .noise_grid import EPSILON


def draw(rows: Rows, scale: str) -> Any:
    """Draws L2-CSGM and GM; both panels."""
    del scale
    picture, axes = plotting.panels(2, 4.5, 3.4)
    panels = (
        (
            "left",
            "linf_ratio",
            r"ratio of the clips $\Delta_\infty/\Delta_2$, at $\gamma=0.01$",
        ),
        (
            "right",
            "keep_fraction",
            r"kept fraction $\gamma$, at $\Delta_2/\Delta_\infty=1000$",
        ),
    )
    for axis, (panel, column, label) in zip(axes, panels):
        chosen = where(rows, panel=panel)
        x = numbers(chosen, column)
        multipliers = numbers(chosen, "noise_multiplier")
        axis.plot(x, multipliers, label="L2-CSGM", **plotting.look("l2_csgm"))
        whole = plotting.look("gaussian", 1, marked=False)
        axis.plot(x, numbers(chosen, "gaussian"), label="Gaussian", **whole)
        axis.set_ylabel(r"noise multiplier $\sigma/(\gamma\Delta_2)$")
        plotting.finish(axis, xscale="log", xlabel=label)
    # From 1.2 to 60.
    axes[0].set_yscale("log")
    picture.suptitle(rf"$\varepsilon={EPSILON:g}$, $\delta=10^{{-8}}$")
    picture.tight_layout()
    return picture
