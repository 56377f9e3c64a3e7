# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 1: noise multipliers of L2-CSGM and GM, from the accountant alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np

from dpfl import accounting, mechanisms

from .plotting import Plot
from .result_rows import Row, Rows
from .sweep import Setting, Work

EPSILON, DELTA = 5.0, 1e-8
KEEP_FRACTION = 0.01
RATIO = 1e-3
# More coordinates than any Delta_2^2 / Delta_inf^2 here, so that they do not bind.
DIMENSION = 2**34


def _calibrated(make_event: Callable[[float], dp_accounting.DpEvent]) -> float:
    # As the paper does for all of them: the exact curve is the Gaussian's alone.
    return accounting.calibrate_noise_multiplier(
        make_event, EPSILON, DELTA, method="rdp"
    )


def gaussian_event(noise_multiplier: float) -> dp_accounting.DpEvent:
    """Returns one release of the Gaussian mechanism."""
    return mechanisms.Gaussian(
        cohort_size=1, clip_norm=1.0, noise_multiplier=noise_multiplier
    ).round_dp_event(dimension=1, sampling_probability=1.0)


def _point(panel: str, linf_ratio: float, keep_fraction: float) -> Work:
    def compute(folder: Path) -> Mapping[str, Any]:
        del folder
        multiplier = _calibrated(
            lambda z: accounting.SparsifiedGaussianDpEvent(
                noise_multiplier=z,
                keep_fraction=keep_fraction,
                linf_ratio=linf_ratio,
                dimension=DIMENSION,
            )
        )
        gaussian = _calibrated(gaussian_event)
        return {"noise_multiplier": multiplier, "gaussian": gaussian}

    labels = {"panel": panel, "linf_ratio": linf_ratio, "keep_fraction": keep_fraction}
    return Work(labels, {"epsilon": EPSILON, "delta": DELTA}, compute)


def grid(setting: Setting) -> list[Work]:
    """Returns the points of both panels."""
    points = 13 if setting.scale == "small" else 41
    places = [float(f"{place:.4g}") for place in np.geomspace(1e-4, 1, points)]
    left = [_point("left", ratio, KEEP_FRACTION) for ratio in places]
    return left + [_point("right", RATIO, gamma) for gamma in places]


def _places(rows: Rows) -> list[Row]:
    """Returns rows of both panels with the column that each has along its axis."""
    columns = {"left": "linf_ratio", "right": "keep_fraction"}
    return [{**row, "place": row[columns[row["panel"]]]} for row in rows]


PLOT = Plot(
    "place",
    panels=("panel",),
    y=("noise_multiplier",),
    beside="gaussian",
    log="xy",
    rows=_places,
    titles={
        "left": "over the ratio of the clips; dashes: Gaussian",
        "right": "over the kept fraction; dashes: Gaussian",
    },
)
