# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The figures of this paper."""

from __future__ import annotations

from ..sweep import SCALES, Figure
from ..trainings import EVALUATED
from . import accuracy, errors, solvers

_PAPER = "Denisov et al. 2022"
_SWEEP = "mf_sweep"

FIGURES = [
    Figure(
        "mf_fig1",
        f"{_PAPER}, Fig. 1: squared error of each step, four mechanisms, exact",
        errors.steps_grid,
        errors.draw_steps,
        curves=errors.STEPS,
    ),
    Figure(
        "mf_table2",
        f"{_PAPER}, Table 2: losses of prefix sums over the number of rounds, exact",
        errors.table_grid,
        errors.draw_table,
    ),
    Figure(
        "mf_fig3",
        f"{_PAPER}, Fig. 3: accuracy over budgets, four mechanisms and schedules",
        accuracy.budgets_grid,
        accuracy.draw_budgets,
        _SWEEP,
        SCALES,
    ),
    Figure(
        "mf_fig4",
        f"{_PAPER}, Fig. 4: loss against time of the fixed point and of L-BFGS",
        solvers.grid,
        solvers.draw,
        words=solvers.SECONDS,
        needs_folders="it shows each evaluation of each solver",
    ),
    Figure(
        "mf_fig6",
        f"{_PAPER}, Fig. 6: accuracy over the final part of training",
        accuracy.final_grid,
        accuracy.draw_final,
        _SWEEP,
        SCALES,
        EVALUATED,
    ),
]
