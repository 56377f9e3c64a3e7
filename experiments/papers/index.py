# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every figure of every paper, by its name.

    works = index.FIGURES["csgm_fig2"].grid("medium")

`experiments/reproduce.py` takes the names as its `--figure`.
"""

from . import chen2022, chen2024, denisov2022, dome2025, ours
from .sweep import Figure

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for paper in (chen2024, denisov2022, chen2022, dome2025, ours)
    for figure in paper.FIGURES
}
