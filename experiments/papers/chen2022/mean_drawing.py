# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mean estimation: squared errors against rate, bits and sparsity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpfl import mechanisms

from .. import plotting
from ..rows import Row, Rows, numbers, where
from .mean_grid import (
    EPSILON,
    SIZES,
    SPARSE_BITS,
    SPARSE_EPSILON,
    SPARSE_NAMES,
    SPARSE_SIZES,
)

# Mechanism of a series by its first word, with how often it comes before.
_MECHANISMS = {
    "Gaussian": "gaussian",
    "DDG": "ddg",
    "shifts": "sketched_ddg",
    "hashes": "sketched_ddg",
    "project": "project_and_perturb",
}


def _colors(names: Sequence[str]) -> dict[str, str]:
    """Returns a color for each series: shades for those of one mechanism."""
    kinds = {name: _MECHANISMS[name.split(",")[0].split()[0]] for name in names}
    found = {}
    for name, kind in kinds.items():
        akin = [other for other in names if kinds[other] == kind]
        found[name] = plotting.STYLES[kind][0]
        if len(akin) > 1:
            found[name] = plotting.shade(kind, akin.index(name), len(akin))
    return found


def _series(row: Row) -> str:
    own = "" if row["vectors"] == "similar" else ", independent vectors"
    return row["series"] + own


def _title(name: str) -> str:
    """Returns what the legend calls a series: shifts and hashes are sketches."""
    is_sketch = _MECHANISMS[name.split(",")[0].split()[0]] == "sketched_ddg"
    return f"sketch by {name}" if is_sketch else name


def _marker(name: str, count: int) -> dict[str, Any]:
    """Returns how points of a series look: hollow if there is one, else by its kind."""
    if count == 1:
        return {"fmt": "s", "ms": 6, "mfc": "none"}
    if name.endswith("independent vectors"):
        return {"fmt": "v", "ms": 6}
    return {"fmt": "^", "ms": 6} if name.startswith("hashes") else {"fmt": "o", "ms": 4}


def draw(rows: Rows, scale: str) -> Any:
    """Draws dense vectors: the error over the rate, and over the bits."""
    n, dimension, repeats = SIZES[scale]
    picture, axes = plotting.panels(2, 4.4, 4.2, sharey=True, layout="constrained")
    for name, color in _colors(list(dict.fromkeys(map(_series, rows)))).items():
        chosen = [row for row in rows if _series(row) == name]
        for axis, column in zip(axes, ("compression_rate", "bits_per_parameter")):
            x = numbers(chosen, column)
            # Two rates far apart make no curve.
            style: dict[str, Any]
            style = {"ls": "--"} if len(x) > 2 else {"ls": "", "marker": "_", "ms": 14}
            axis.plot(x, numbers(chosen, "theory"), color=color, lw=1, **style)
            plotting.measured(
                axis,
                x,
                chosen,
                color=color,
                label=_title(name),
                **_marker(name, len(x)),
            )
    axes[0].set(xlabel="compression rate r = d/m", ylabel="squared error of the mean")
    axes[1].set(xlabel="bits per parameter and client")
    for axis in axes:
        axis.set(xscale="log")
        plotting.plain_numbers(axis)
    picture.legend(
        *axes[1].get_legend_handles_labels(),
        loc="outside lower center",
        ncol=3,
    )
    picture.suptitle(
        rf"$\varepsilon={EPSILON:g}$, $\delta=10^{{-5}}$, n={n}, d={dimension}; "
        f"dashes: theory, points: {plotting.measured_label(repeats)}",
    )
    return picture


def draw_sparse(rows: Rows, scale: str) -> Any:
    """Draws sparse vectors: the error and the bits over the sparsity."""
    n, dimension, repeats, _ = SPARSE_SIZES[scale]
    picture, axes = plotting.panels(2, 4.4, 3.6)
    for name, title in SPARSE_NAMES.items():
        chosen = where(rows, mechanism=name)
        x = numbers(chosen, "sparsity")
        # Of the bits, two of the lines are one.
        is_dashed = name == mechanisms.SparseRecovery.name
        common = plotting.look(name, 1 if is_dashed else 0)
        plotting.measured(axes[0], x, chosen, label=title, **common)
        axes[1].plot(x, numbers(chosen, "bits_per_parameter"), **common)
    axes[0].axhline(1, color="k", ls=":", lw=1, label="squared norm of an update")
    axes[0].set(ylabel="squared error of the mean")
    axes[1].set(ylabel="bits per parameter and client")
    for axis in axes:
        axis.set(xscale="log", yscale="log", xlabel="coordinates that are not zero")
        plotting.plain_numbers(axis)
    axes[0].legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.16))
    picture.suptitle(
        rf"$\varepsilon={SPARSE_EPSILON:g}$, $\delta=10^{{-5}}$, n={n}, "
        f"d={dimension}, {SPARSE_BITS} bits; {plotting.measured_label(repeats)}",
    )
    picture.tight_layout()
    return picture
