# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The figures that no paper has."""

from __future__ import annotations

from ..sweep import Figure
from . import equal_bits, stream_training

_EQUAL_BITS = {
    "equal_bits": "accuracy on MNIST against bits up",
    "equal_bits_docs": "loss on docstrings against bits up",
}

FIGURES = [
    *(
        Figure(
            name,
            f"Ours: all mechanisms at equal epsilon, {what}",
            equal_bits.grid(name),
            equal_bits.draw(name),
            scales=("medium",),
        )
        for name, what in _EQUAL_BITS.items()
    ),
    Figure(
        "stream_training",
        "Ours: training with independent noise, noise by epochs, and one stream",
        stream_training.grid,
        stream_training.draw,
        scales=("medium",),
    ),
]
