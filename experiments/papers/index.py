# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every figure of every paper, by its name."""

from __future__ import annotations

from .chen2022 import figures as chen2022
from .chen2024 import figures as chen2024
from .denisov2022 import figures as denisov2022
from .dome2025 import figures as dome2025
from .ours import figures as ours
from .sweep import Figure

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for paper in (chen2024, denisov2022, chen2022, dome2025, ours)
    for figure in paper.FIGURES
}
