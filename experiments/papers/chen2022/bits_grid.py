# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The bits that the exact accountant saves, without training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfl.accounting.integer import noise_events
from dpfl.planning import secure_sums

from ..rows import Rows, where
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
