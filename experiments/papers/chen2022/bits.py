# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The bits that the exact accountant saves, without training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfl.accounting.integer import noise_events

from .. import plotting, secure_sums
from ..result_rows import Rows, where
from ..sweep import Setting, Work

DELTA = 1e-5
# Clients and length of a message.
SIZES = {
    "small": ((100, 100), (1000, 1000), (1000, 10_000)),
    "paper": ((100, 100), (1000, 1000), (1000, 10_000), (1000, 100_000)),
}
RANGE = {"small": range(6, 19), "paper": range(6, 21)}
# The left panel's epsilon is in the right panel's list.
EPSILON = 8.0
EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)
# The right panel's clients and length, and the errors it allows over the Gaussian's.
SIZE = (1000, 1000)
TOLERANCES = (1.1, 2.0, 10.0)


def _work(n: int, length: int, epsilon: float, bits: int, bound: str) -> Work:
    def compute(folder: Path) -> Mapping[str, Any]:
        del folder
        ratio = secure_sums.error_ratio(n, length, epsilon, DELTA, bits, bound)
        return {"error_ratio": ratio}

    labels = {
        "clients": n,
        "length": length,
        "epsilon": epsilon,
        "bits": bits,
        "bound": bound,
    }
    return Work(labels, {"delta": DELTA}, compute)


def grid(setting: Setting) -> list[Work]:
    """Returns both panels: sizes at one epsilon, and epsilons at one size."""
    curves = [(*size, EPSILON) for size in SIZES[setting.scale]]
    curves += [(*SIZE, epsilon) for epsilon in EPSILONS if epsilon != EPSILON]
    return [
        _work(*curve, bits, bound)
        for curve in curves
        for bound in noise_events.BOUNDS
        for bits in RANGE[setting.scale]
    ]


def ratios_of(
    rows: Rows, size: tuple[int, int], epsilon: float, bound: str
) -> dict[int, float]:
    """Returns the error ratio for each number of bits, of one curve."""
    curve = where(rows, clients=size[0], length=size[1], epsilon=epsilon, bound=bound)
    return {int(row["bits"]): float(row["error_ratio"]) for row in curve}


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
