# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Pictures of a run: accuracy against round, epsilon and bits."""

from __future__ import annotations

import functools
import importlib
import math
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

from dpfl import covered, files

# File name, column, label, logarithmic axis.
_PICTURES = (
    ("accuracy_by_round", "round", "round", False),
    ("accuracy_by_epsilon", "epsilon", "epsilon so far", False),
    ("accuracy_by_bits", "total_uplink_bits", "bits sent by all clients so far", True),
)


# Left, bottom, width and height of the axes; matplotlib takes longer to find a place
# for them than to draw.
_PLACE = (0.13, 0.15, 0.84, 0.76)


@functools.cache
def prepare() -> None:
    """Begins to import what `draw` needs, while Python waits for a worker's rounds."""
    name = "matplotlib.backends.backend_agg"
    threading.Thread(target=importlib.import_module, args=(name,), daemon=True).start()


def draw(
    rows: Sequence[dict[str, Any]], directory: pathlib.Path, title: str
) -> list[pathlib.Path]:
    """Draws test accuracy as PNG files; the name of an exact one says so.

    Args:
      rows: Rows of metrics.csv; those without a test accuracy are left out.
      directory: Where the files go.
      title: Above each picture.

    Returns:
      The files: one each against round, epsilon (if finite) and bits (if written).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = [row for row in rows if covered.value(row, "eval_accuracy") is not None]
    paths = []
    for name, column, label, is_logarithmic in _PICTURES:
        seen = [
            (x, covered.value(row, "eval_accuracy"))
            for row in points
            if (x := covered.value(row, column)) is not None and math.isfinite(x)
        ]
        if not seen:
            continue
        figure = Figure(figsize=(5, 3.4))
        FigureCanvasAgg(figure)
        axes = figure.add_axes(_PLACE)
        axes.plot(*zip(*seen), marker="." if len(seen) < 50 else None)
        if is_logarithmic and min(seen)[0] > 0:
            axes.set_xscale("log")
        axes.set(xlabel=label, ylabel="test accuracy", title=title)
        axes.grid(alpha=0.3)
        drawn = [covered.column(rows[0], each) for each in (column, "eval_accuracy")]
        is_exact = any(str(each).startswith(covered.MARK) for each in drawn)
        path = directory / f"{covered.MARK if is_exact else ''}{name}.png"
        files.save_figure(figure, path, dpi=120)
        paths.append(path)
    return paths
