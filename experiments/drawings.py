# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Drawings of the binaries privacy, factorize and compare, as PNG files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import factorization as mf
from dpfl import files

Rows = Sequence[Mapping[str, Any]]


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> Any:
    """A figure, and its axes in two dimensions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(
        rows, columns, figsize=(width, height), squeeze=False, layout="constrained"
    )


def _save(figure: Any, path: str) -> None:
    from matplotlib import pyplot

    files.public_folder(Path(path).parent)
    files.save_figure(figure, path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def _groups(rows: Rows, name: Callable[[Mapping[str, Any]], str]) -> dict[str, list]:
    """The rows of each line by what stands for it in the legend."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return found


def draw_costs(rows: Rows, panels: Mapping[str, str], path: str) -> None:
    """Draws what mechanisms cost, panels with titles, against the compression rate."""
    figure, axes = _figure(4 * len(panels), 3.4, 1, len(panels))
    for axis, (panel, title) in zip(axes[0], panels.items()):
        for name, own in _groups(rows, lambda row: row["mechanism"]).items():
            x = [row["compression_rate"] for row in own]
            y = [math.nan if row[panel] is None else row[panel] for row in own]
            axis.plot(x, y, marker="o", label=name)
        axis.set(xscale="log", xlabel="compression rate", title=title)
        if panel != "noise_multiplier":
            axis.set_yscale("log")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=6, loc="outside lower center")
    _save(figure, path)


def draw_bits(rows: Rows, path: str) -> None:
    """Draws the error of points of `comparison` against the bits of a parameter."""

    def name(row: Mapping[str, Any]) -> str:
        # Those without a number of bits have one point a rate: a curve over rates.
        is_one_rate = row["bits"] is not None and row["rate"] is not None
        return row["mechanism"] + (f", r={row['rate']:g}" if is_one_rate else "")

    figure, axes = _figure(6, 4.2)
    axis = axes[0, 0]
    shown = [row for row in rows if row["error_over_gaussian"] is not None]
    for label, own in _groups(shown, name).items():
        own.sort(key=lambda row: row["bits_per_parameter"])
        points = [
            (row["bits_per_parameter"], row["error_over_gaussian"]) for row in own
        ]
        axis.plot(*zip(*points), marker="o", markersize=3, label=label)
        for row, place in zip(own, points):
            if row["bits"] is not None:
                axis.annotate(str(row["bits"]), place, fontsize=6)
    axis.set(xscale="log", yscale="log", xlabel="bits a parameter, up")
    axis.set_ylabel("squared error over the Gaussian's")
    axis.legend(fontsize="small")
    _save(figure, path)


def draw_bands(rows: Rows, path: str) -> None:
    """Draws the error of iterates, rows of `privacy_curves`, against the bands."""
    figure, axes = _figure(6, 4.2)
    axis = axes[0, 0]
    curves = _groups(rows, lambda r: f"{r['mechanism']}, r={r['compression_rate']:g}")
    for name, own in curves.items():
        points = [(row["separation"], row["root_mean_error"]) for row in own]
        (line,) = axis.plot(*zip(*points), marker="o", markersize=3, label=name)
        best = next(point for point, row in zip(points, own) if row["least"])
        axis.plot(*best, marker="*", markersize=11, color=line.get_color())
    axis.set(xscale="log", yscale="log", xlabel="bands of C, rounds between a client's")
    axis.set_ylabel("noise std of the iterates, over the clip")
    axis.legend(fontsize="small")
    _save(figure, path)


def draw_runs(
    curves: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    axes: Mapping[str, tuple[str, bool]],
    label: str,
    path: str,
) -> None:
    """Draws what runs reached, a panel an axis and a line a run.

    Args:
      curves: Points by axis and by run.
      axes: By axis, its label, and whether it is logarithmic.
      label: What is drawn.
      path: PNG file.
    """
    figure, panels = _figure(4 * len(axes), 3.6, 1, len(axes))
    for axis, (name, (words, is_logarithmic)) in zip(panels[0], axes.items()):
        for run, points in curves[name].items():
            x, y = zip(*points) if points else ((), ())
            axis.plot(x, y, marker="." if len(points) < 50 else None, label=run)
        axis.set(xlabel=words, ylabel=label)
        if is_logarithmic:
            axis.set_xscale("log")
        axis.grid(alpha=0.3)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=4, fontsize=8, loc="outside lower center")
    _save(figure, path)


def draw_steps(found: Sequence[mf.Factorization], plan: mf.Plan, path: str) -> None:
    """Draws the root squared error of each step, one line a method."""
    figure, axes = _figure(7, 4.5)
    axis = axes[0, 0]
    for one in found:
        axis.plot(np.sqrt(one.step_errors(plan)), label=one.method, linewidth=1)
    axis.set(xlabel="round", ylabel="noise std of the iterate", yscale="log")
    axis.set_title(str(found[0].workload))
    axis.legend(fontsize="small")
    _save(figure, path)


def draw_heat_maps(found: Sequence[mf.Factorization], path: str) -> None:
    """Draws log10 |entry| of B and C, one column a method."""
    figure, axes = _figure(2.4 * len(found), 5, 2, len(found))
    for column, one in zip(axes.T, found):
        for axis, name, matrix in zip(column, "BC", one.materialize()):
            size = np.abs(matrix)
            with np.errstate(divide="ignore"):
                image = np.log10(np.where(size > 0, size, np.nan))
            axis.imshow(image, aspect="auto", vmin=-4, vmax=1, interpolation="nearest")
            axis.set_title(f"{name}, {one.method}", fontsize=8)
            axis.tick_params(labelsize=6)
    _save(figure, path)


def draw_gaps(curves: Mapping[str, Sequence[tuple[float, float]]], path: str) -> None:
    """Draws the relative duality gap over wall-clock time, one line a curve."""
    figure, axes = _figure(7, 4.5)
    axis = axes[0, 0]
    for label, history in curves.items():
        axis.plot(*zip(*history), marker=".", label=label, linewidth=1)
    axis.set(
        xlabel="seconds", ylabel="relative duality gap", xscale="log", yscale="log"
    )
    axis.legend(fontsize="small")
    _save(figure, path)
