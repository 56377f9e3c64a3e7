# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 9 and 10: embedding and rest sketched separately, and together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

from dpfl import tasks

from ... import flag_files
from .. import medium
from ..result_rows import Rows, distinct, mean_and_range, seeds, where
from ..sweep import Grid, Setting, Work
from ..trainings import training_work, without_budget
from .training import noise_label

TOGETHER = "together"


@dataclasses.dataclass(frozen=True)
class Layers:
    """What is trained.

    Attributes:
      task: Name of the task.
      embedding: Parameters of the embedding, which come first.
      rates: Compression rates of either part.
      noises: Noise multipliers of Figs. 9 and 10.
      flags: What all runs share.
      seeds: Those of the runs.
    """

    task: str
    embedding: int
    rates: tuple[float, ...]
    noises: tuple[float, float]
    flags: Mapping[str, Any]
    seeds: tuple[int, ...] = (1,)


def _published(task: str) -> Mapping[str, Any]:
    return flag_files.values(f"chen2022/{task}.flags", "compression_rate")


# Noise is given, and not a budget.
_MEDIUM: Mapping[str, Any] = {
    **without_budget(medium.FLAGS[medium.DOCS]),
    **medium.CAREFUL_DOCS,
    "mechanism": "sketched_ddg",
    "noise_source": "helpers",
    "bits": 16,
}
LAYERS: Mapping[str, Layers] = {
    "small": Layers("docs", 64_128, (10, 300), (0.5, 0.0), _published("docs")),
    "medium": Layers(medium.DOCS, 16_064, (10, 100), (0.6, 0.0), _MEDIUM, medium.SEEDS),
    "paper": Layers(
        *("stackoverflow", 960_384, (2, 5, 10, 20), (0.05, 0.0)),
        _published("stackoverflow"),
    ),
}


def _work(
    z: float, embedding: float, rest: Optional[float], seed: int, setting: Setting
) -> Work:
    layers = LAYERS[setting.scale]
    flags: dict[str, Any] = {**layers.flags, "noise_multiplier": z, "seed": seed}
    if rest is None:
        flags["compression_rate"] = embedding
    else:
        flags["layers"] = layers.embedding
        flags["layer_rates"] = f"{embedding:g},{rest:g}"
    labels = {
        "task": layers.task,
        "noise_multiplier": z,
        "embedding": embedding,
        "rest": TOGETHER if rest is None else rest,
        "seed": seed,
    }
    return training_work(labels, flags, setting)


def grid(panel: int) -> Grid:
    """Returns the grid of Fig. 9 (panel 0) or Fig. 10 (panel 1)."""

    def runs(setting: Setting) -> list[Work]:
        layers = LAYERS[setting.scale]
        return [
            _work(layers.noises[panel], embedding, rest, seed, setting)
            for embedding in layers.rates
            for rest in (*layers.rates, None)
            for seed in layers.seeds
        ]

    return runs


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
