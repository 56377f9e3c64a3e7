# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The figures that no paper has."""

from __future__ import annotations

from ..sweep import Figure
from . import (
    equal_bits_drawing,
    equal_bits_grid,
    stream_training_drawing,
    stream_training_grid,
)

FIGURES = [
    Figure(
        "equal_bits",
        "Ours: all mechanisms at equal epsilon, accuracy against bits up",
        equal_bits_grid.grid,
        equal_bits_drawing.draw,
        scales=tuple(equal_bits_grid.PROBLEMS),
    ),
    Figure(
        "stream_training",
        "Ours: training with independent noise, noise by epochs, and one stream",
        stream_training_grid.grid,
        stream_training_drawing.draw,
        scales=("medium",),
    ),
]
