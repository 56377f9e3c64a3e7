# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Drawings of the binaries privacy and factorize, as PNG files.

    drawings.draw_bits([dataclasses.asdict(each) for each in points], "bits.png")

Matplotlib is imported at the first drawing.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import factorization as mf
from dpfl import files

from .tables import Row, Rows


def save(figure: Any, path: files.PathLike, **options: Any) -> None:
    """Writes a `matplotlib.figure.Figure` atomically; the ending names the format."""
    buffer = io.BytesIO()
    kind = Path(path).suffix.lstrip(".") or "png"
    figure.savefig(buffer, format=kind, **options)
    files.write_atomically(path, buffer.getvalue())


@contextlib.contextmanager
def picture(
    path: str,
    width: float,
    height: float,
    rows: int = 1,
    columns: int = 1,
    note: str = "",
) -> Iterator[Any]:
    """The axes, as a grid, of a picture that is saved at the end of the block."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        rows, columns, figsize=(width, height), squeeze=False, layout="constrained"
    )
    yield axes
    files.public_folder(Path(path).parent)
    metadata = {"Comment": note}
    save(figure, path, dpi=120, bbox_inches="tight", metadata=metadata)
    pyplot.close(figure)


def legend_below(axes: Any, **options: Any) -> None:
    """One legend for all panels, with each label once."""
    handles, labels = axes[0, 0].get_legend_handles_labels()
    named = dict(zip(labels, handles))
    place = "outside lower center"
    axes[0, 0].figure.legend([*named.values()], [*named], loc=place, **options)


def _lines(rows: Rows, *names: str) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of each line, by the line's name in the legend.

    The name is the mechanism, with the given columns that a row has, such as r=7.
    """
    lines: dict[str, list[Row]] = {}
    for row in rows:
        rates = [f", r={row[name]:g}" for name in names if row[name] is not None]
        lines.setdefault("".join([row["mechanism"], *rates]), []).append(row)
    return lines


def draw_costs(rows: Rows, panels: Mapping[str, str], path: str) -> None:
    """Draws the costs of mechanisms against the compression rate.

    Args:
      rows: Rows of mechanisms and rates.
      panels: Titles of the panels by their columns.
      path: Path of the picture.
    """
    with picture(path, 4 * len(panels), 3.4, 1, len(panels)) as axes:
        for axis, (panel, title) in zip(axes[0], panels.items()):
            for name, own in _lines(rows).items():
                x = [row["compression_rate"] for row in own]
                y = [math.nan if row[panel] is None else row[panel] for row in own]
                axis.plot(x, y, marker="o", label=name)
            axis.set(xscale="log", xlabel="compression rate", title=title)
            if panel != "noise_multiplier":
                axis.set_yscale("log")
        legend_below(axes, ncol=6)


def draw_bits(rows: Rows, path: str) -> None:
    """Draws the error against the bits per parameter, for points of `comparison`."""
    # Mechanisms without a number of bits have one point a rate: a curve over rates.
    shown = [
        {**row, "line": row["rate"] if row["bits"] is not None else None}
        for row in rows
        if row["error_over_gaussian"] is not None
    ]
    with picture(path, 6, 4.2) as [[axis]]:
        for label, own in _lines(shown, "line").items():
            own.sort(key=lambda row: row["bits_per_parameter"])
            points = [(r["bits_per_parameter"], r["error_over_gaussian"]) for r in own]
            axis.plot(*zip(*points), marker="o", markersize=3, label=label)
            for row, place in zip(own, points):
                if row["bits"] is not None:
                    axis.annotate(str(row["bits"]), place, fontsize=6)
        axis.set(xscale="log", yscale="log", xlabel="bits a parameter, up")
        axis.set_ylabel("squared error over the Gaussian's")
        axis.legend(fontsize="small")


def draw_bands(rows: Rows, path: str) -> None:
    """Draws the error of iterates against the bands, for rows of `privacy_curves`."""
    with picture(path, 6, 4.2) as [[axis]]:
        for name, own in _lines(rows, "compression_rate").items():
            points = [(row["separation"], row["root_mean_error"]) for row in own]
            (line,) = axis.plot(*zip(*points), marker="o", markersize=3, label=name)
            best = next(point for point, row in zip(points, own) if row["least"])
            axis.plot(*best, marker="*", markersize=11, color=line.get_color())
        axis.set(xscale="log", yscale="log")
        axis.set_xlabel("bands of C, rounds between a client's")
        axis.set_ylabel("noise std of the iterates, over the clip")
        axis.legend(fontsize="small")


def draw_steps(
    factorizations: Sequence[mf.Factorization], plan: mf.ParticipationSchema, path: str
) -> None:
    """Draws the root squared error of each step, a line for each method.

    Args:
      factorizations: A factorization for each method.
      plan: Participation of a client.
      path: Path of the picture.
    """
    with picture(path, 7, 4.5) as [[axis]]:
        for factorization in factorizations:
            axis.plot(
                np.sqrt(factorization.step_errors(plan)),
                label=factorization.method,
                linewidth=1,
            )
        axis.set(xlabel="round", ylabel="noise std of the iterate", yscale="log")
        axis.set_title(str(factorizations[0].workload))
        axis.legend(fontsize="small")
