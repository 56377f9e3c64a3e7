# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The experiments on DOME; most are views of one sweep."""

from __future__ import annotations

from ..sweep import SCALES, Curves, Figure
from . import ablation, cnn_grid, comparison

_SOURCE = "DOME (Nicolas et al. 2025)"
SWEEP = "dome_sweep"

FIGURES = [
    Figure(
        "dome_compare",
        f"{_SOURCE}: against others at equal epsilon and equal bits up; ours",
        comparison.grid,
        comparison.draw(comparison.grid),
        SWEEP,
        SCALES,
    ),
    Figure(
        "dome_cnn",
        f"{_SOURCE}: the same with the papers' network; ours",
        cnn_grid.grid,
        comparison.draw(cnn_grid.grid),
        scales=("medium",),
    ),
    Figure(
        "dome_ablations",
        f"{_SOURCE}: one choice at a time; ours",
        ablation.grid,
        ablation.draw,
        SWEEP,
        SCALES,
    ),
    Figure(
        "dome_energy",
        f"{_SOURCE}: what the sketch sees, round by round; ours",
        ablation.energy_grid,
        ablation.draw_energy,
        SWEEP,
        SCALES,
        Curves(tuple(ablation.SEEN_COLUMNS)),
    ),
    Figure(
        "dome_tuning",
        f"{_SOURCE}: server rates tried before the comparison; ours",
        comparison.tuning_grid,
        comparison.draw_tuning,
    ),
]
