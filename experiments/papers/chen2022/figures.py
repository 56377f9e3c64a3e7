# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The figures of this paper, and ours on its mechanisms."""

from __future__ import annotations

from ..sweep import SCALES, Drawing, Figure, Grid
from . import bits, layers, mean, tables, training

_PAPER = "Chen et al. 2022"
SWEEP = "secagg_sweep"
_LAYERS_SWEEP = "secagg_layers"


def _of_sweep(name: str, what: str, grid: Grid, draw: Drawing) -> Figure:
    return Figure(name, f"{_PAPER}, {what}", grid, draw, SWEEP, SCALES)


FIGURES = [
    _of_sweep(
        "secagg_fig2",
        "Fig. 2: compression rates at several noise multipliers",
        training.rates_grid,
        training.draw_rates,
    ),
    _of_sweep(
        "secagg_fig3",
        "Figs. 3, 5 and 6: bits and compression rate, at equal epsilon",
        training.bits_grid,
        training.draw_bits,
    ),
    _of_sweep(
        "secagg_table1",
        "Table 1: fewest bits within a slack, at equal epsilon",
        training.bits_grid,
        tables.draw_fewest_bits,
    ),
    _of_sweep(
        "secagg_fig4",
        "Fig. 4: a large model compressed against a small one",
        training.models_grid,
        training.draw_models,
    ),
    _of_sweep(
        "secagg_fig7",
        "Fig. 7: compression over cohort sizes",
        training.cohorts_grid,
        training.draw_cohorts,
    ),
    _of_sweep(
        "secagg_fig8",
        "Fig. 8: larger cohorts at the time of secure aggregation of smaller",
        training.timed_cohorts_grid,
        tables.draw_equal_times,
    ),
    Figure(
        "secagg_fig9",
        f"{_PAPER}, Fig. 9: embedding and rest sketched separately, with noise",
        layers.grid(0),
        layers.draw,
        _LAYERS_SWEEP,
        SCALES,
    ),
    Figure(
        "secagg_fig10",
        f"{_PAPER}, Fig. 10: embedding and rest sketched separately, without noise",
        layers.grid(1),
        layers.draw,
        _LAYERS_SWEEP,
        SCALES,
    ),
    Figure(
        "secagg_mean",
        "Squared error of the mean under secure aggregation against rate and bits",
        mean.grid,
        mean.draw,
    ),
    Figure(
        "secagg_sparse",
        "Squared error of sparse means against sparsity: LASSO, sketch, no sketch",
        mean.sparse_grid,
        mean.draw_sparse,
    ),
    Figure(
        "secagg_bits",
        "Bits of a coordinate at equal epsilon: exact accountant, published bound",
        bits.grid,
        bits.draw,
    ),
]
