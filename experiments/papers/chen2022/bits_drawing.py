# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The bits that the exact accountant saves: error over bits, bits over epsilon."""

from __future__ import annotations

from typing import Any

from dpfl.planning import secure_sums

from .. import plotting
from ..rows import Rows
from .bits_grid import EPSILON, EPSILONS, SIZE, SIZES, TOLERANCES, ratios_of

_STYLES = {"exact": "-", "published": "--"}


def draw(rows: Rows, scale: str) -> Any:
    """Draws error ratios on the left and the least bits on the right."""
    picture, (left, right) = plotting.panels(2, 4.4, 3.6)
    _draw_ratios(left, rows, scale)
    _draw_least_bits(right, rows)
    for axis in (left, right):
        plotting.finish(axis, legend=8)
    picture.suptitle(
        "DDG without sketch; solid: exact accountant, dashes: published bound"
    )
    picture.tight_layout()
    return picture


def _draw_ratios(axis: Any, rows: Rows, scale: str) -> None:
    for index, size in enumerate(SIZES[scale]):
        for bound, style in _STYLES.items():
            ratios = ratios_of(rows, size, EPSILON, bound)
            label = (
                f"{size[0]} clients, {size[1]} numbers" if bound == "exact" else None
            )
            axis.plot(
                list(ratios),
                list(ratios.values()),
                ls=style,
                color=plotting.shade("ddg", index, len(SIZES[scale])),
                marker=".",
                label=label,
            )
    axis.set(
        yscale="log",
        ylim=(0.9, 300),
        xlabel="bits of a coordinate",
        ylabel="squared error over the Gaussian's",
        title=rf"$\varepsilon={EPSILON:g}$",
    )


def _draw_least_bits(axis: Any, rows: Rows) -> None:
    for index, tolerance in enumerate(TOLERANCES):
        for bound, style in _STYLES.items():
            found = [
                secure_sums.least_bits(ratios_of(rows, SIZE, epsilon, bound), tolerance)
                for epsilon in EPSILONS
            ]
            label = (
                f"at most {tolerance:g} times the Gaussian's error"
                if bound == "exact"
                else None
            )
            axis.plot(
                EPSILONS,
                found,
                ls=style,
                color=plotting.shade("ddg", index, len(TOLERANCES)),
                marker=".",
                label=label,
            )
    axis.set(
        xscale="log",
        xlabel=r"$\varepsilon$",
        ylabel="least bits of a coordinate",
        title=f"{SIZE[0]} clients, {SIZE[1]} numbers",
        xticks=EPSILONS,
        xticklabels=[f"{epsilon:g}" for epsilon in EPSILONS],
    )
    axis.minorticks_off()
    # Room for the legend.
    axis.set_ylim(top=axis.get_ylim()[1] + 3)
