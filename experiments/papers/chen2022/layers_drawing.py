# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 9 and 10: a map over the rate of the embedding and that of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl import tasks

from ..rows import Rows, distinct, mean_and_range, seeds, where
from .layers_grid import TOGETHER
from .panels import noise_label

_IN_ONE = "one sketch for all"


def draw(rows: Rows, scale: str) -> Any:
    """Draws final measures, and the bits of a parameter, as a map."""
    import matplotlib.pyplot as plt

    del scale
    task = rows[0]["task"]
    measure = tasks.task_entry(task).measure
    down, across = distinct(rows, "embedding"), distinct(rows, "rest")
    values = np.full((len(down), len(across)), np.nan)
    picture, axis = plt.subplots(figsize=(6.4, 4.2))
    for i, embedding in enumerate(down):
        for j, rest in enumerate(across):
            runs = where(rows, embedding=embedding, rest=rest)
            if runs:
                mean, below, above = mean_and_range(runs, measure.final_column)
                values[i, j] = mean
                bits = float(runs[0]["uplink_bits_per_parameter"])
                between = f"{mean - below:.3f} to {mean + above:.3f}\n"
                text = f"{mean:.3f}\n{between * (len(runs) > 1)}{bits:.3g} bits"
                axis.text(j, i, text, ha="center", va="center")
    # What is better is yellow, what is worse is blue: no color-blind eye takes one
    # for the other.
    colors = "cividis_r" if measure.lower_is_better else "cividis"
    axis.imshow(values, cmap=colors, alpha=0.5)
    axis.set_xticks(
        range(len(across)),
        [_IN_ONE if r == TOGETHER else f"{float(r):g}" for r in across],
    )
    axis.set_yticks(range(len(down)), [f"{float(r):g}" for r in down])
    axis.set(
        xlabel="compression rate of the rest",
        ylabel="compression rate of the embedding",
    )
    axis.set_title(
        f"{task}, {noise_label(rows)}: final {measure.label}\n{seeds(rows)}, and "
        "bits per parameter; yellow is better",
    )
    axis.grid(visible=False)
    picture.tight_layout()
    return picture
