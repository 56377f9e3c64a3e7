# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Drawings of the binaries privacy, factorize and compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import factorization as mf
from dpfl import files


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> Any:
    """Returns a figure and its axes in two dimensions."""
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


def draw_costs(
    rows: Sequence[Mapping[str, Any]], panels: Mapping[str, str], path: str
) -> None:
    """Draws what mechanisms cost against the compression rate.

    Args:
      rows: Fields of `dpfl.planning.comparison.Cost`.
      panels: Titles by the fields that are drawn.
      path: PNG file.
    """
    figure, axes = _figure(4 * len(panels), 3.4, 1, len(panels))
    for axis, (panel, title) in zip(axes[0], panels.items()):
        for name in dict.fromkeys(row["mechanism"] for row in rows):
            own = [row for row in rows if row["mechanism"] == name]
            x = [row["compression_rate"] for row in own]
            y = [math.nan if row[panel] is None else row[panel] for row in own]
            axis.plot(x, y, marker="o", label=name)
        axis.set(xscale="log", xlabel="compression rate", title=title)
        if panel != "noise_multiplier":
            axis.set_yscale("log")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=6, loc="outside lower center")
    _save(figure, path)


def draw_bits(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Draws the error over the Gaussian's against the bits that a parameter takes.

    Args:
      rows: Fields of `dpfl.planning.comparison.Point`.
      path: PNG file.
    """
    figure, axes = _figure(6, 4.2)
    axis = axes[0, 0]
    shown = [row for row in rows if row["error_over_gaussian"] is not None]
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for row in shown:
        # Those without a number of bits have one point a rate: a curve over rates.
        name = row["mechanism"]
        if row["bits"] is not None and row["rate"] is not None:
            name += f", r={row['rate']:g}"
        curves.setdefault(name, []).append(row)
    for name, own in curves.items():
        own = sorted(own, key=lambda row: row["bits_per_parameter"])
        x = [row["bits_per_parameter"] for row in own]
        y = [row["error_over_gaussian"] for row in own]
        axis.plot(x, y, marker="o", markersize=3, label=name)
        for row in own:
            if row["bits"] is not None:
                place = row["bits_per_parameter"], row["error_over_gaussian"]
                axis.annotate(str(row["bits"]), place, fontsize=6)
    axis.set(xscale="log", yscale="log", xlabel="bits a parameter, up")
    axis.set_ylabel("squared error over the Gaussian's")
    axis.legend(fontsize="small")
    _save(figure, path)


def draw_bands(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Draws the error of the iterates against the bands of the stream of noise.

    Args:
      rows: Fields of `privacy_curves.BandsRow`.
      path: PNG file.
    """
    figure, axes = _figure(6, 4.2)
    axis = axes[0, 0]
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        name = f"{row['mechanism']}, r={row['compression_rate']:g}"
        curves.setdefault(name, []).append(row)
    for name, own in curves.items():
        x = [row["separation"] for row in own]
        y = [row["root_mean_error"] for row in own]
        (line,) = axis.plot(x, y, marker="o", markersize=3, label=name)
        best = next(row for row in own if row["least"])
        place = best["separation"], best["root_mean_error"]
        axis.plot(*place, marker="*", markersize=11, color=line.get_color())
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
      axes: Of each axis its label, and whether it is logarithmic.
      label: Of what is drawn.
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
    for one in found:
        axes[0, 0].plot(np.sqrt(one.step_errors(plan)), label=one.method, linewidth=1)
    axes[0, 0].set(
        xlabel="round", ylabel="noise std of the iterate", title=str(found[0].workload)
    )
    axes[0, 0].set_yscale("log")
    axes[0, 0].legend(fontsize="small")
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
    for label, history in curves.items():
        seconds, gaps = zip(*history)
        axes[0, 0].plot(seconds, gaps, marker=".", label=label, linewidth=1)
    axes[0, 0].set(xlabel="seconds", ylabel="relative duality gap")
    axes[0, 0].set_xscale("log")
    axes[0, 0].set_yscale("log")
    axes[0, 0].legend(fontsize="small")
    _save(figure, path)
