# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Chen et al. 2024: sparsified Gaussian mechanisms, L2-CSGM and SGMF.

    python -m experiments.reproduce --figure=csgm_fig1

Server momentum, rates and clips are those of the tasks' flag files, or of `medium`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np

from dpfl import accounting, mechanisms

from ..tables import Row, Rows
from ..trainings.sweep import Work
from . import mean_estimation, stream_errors

# Dimension of Fig. 1, above any Delta_2^2 / Delta_inf^2 there, so that it does not
# bind.
EPSILON, DELTA, DIMENSION = 5.0, 1e-8, 2**34
KEEP_FRACTION, RATIO = 0.01, 1e-3


def _calibrated(make_event: Callable[[float], dp_accounting.DpEvent]) -> float:
    return accounting.calibrate_noise_multiplier(make_event, EPSILON, DELTA)


def gaussian_event(noise_multiplier: float) -> dp_accounting.DpEvent:
    """The event of one release of the Gaussian mechanism."""
    gaussian = mechanisms.Gaussian(1, 1.0, noise_multiplier)
    return gaussian.round_dp_event(dimension=1, sampling_probability=1.0)


def _noise(panel: str, linf_ratio: float, keep_fraction: float) -> Work:
    labels = {"panel": panel, "linf_ratio": linf_ratio, "keep_fraction": keep_fraction}

    def event(noise_multiplier: float) -> dp_accounting.DpEvent:
        return accounting.SparsifiedGaussianDpEvent(
            noise_multiplier=noise_multiplier,
            keep_fraction=keep_fraction,
            linf_ratio=linf_ratio,
            dimension=DIMENSION,
        )

    def compute(_: Path) -> Mapping[str, Any]:
        both = _calibrated(event), _calibrated(gaussian_event)
        return dict(zip(("noise_multiplier", "gaussian"), both))

    return Work(labels, {"epsilon": EPSILON, "delta": DELTA}, compute)


def _noises(scale: str) -> list[Work]:
    points = 13 if scale == "small" else 41
    places = [float(f"{place:.4g}") for place in np.geomspace(1e-4, 1, points)]
    left = [_noise("left", ratio, KEEP_FRACTION) for ratio in places]
    return left + [_noise("right", RATIO, gamma) for gamma in places]


def _places(rows: Rows) -> list[Row]:
    """Rows of both panels, each with its place along the axis."""
    columns = {
        "left": ("linf_ratio", "ratio of the clips"),
        "right": ("keep_fraction", "kept fraction"),
    }
    return [
        {**row, "place": row[column], "axis": words}
        for row in rows
        for column, words in [columns[row["panel"]]]
    ]


def _setting(rows: Rows) -> list[Row]:
    return [
        {**row, "setting": f"clip {row['clip_norm']}, rate {row['server_lr']}"}
        for row in rows
    ]


# Number of clients, dimension and repeats. A power of two, so that nothing is padded.
MEAN_SIZES = {"small": (100, 2**14, 20), "paper": (1000, 2**20, 10)}
_MEAN_RATES = (1, 3, 10, 30, 100, 300, 1000)


def _means(scale: str) -> Iterator[Work]:
    """Measurements of GM, and of both sparsified mechanisms at every rate."""
    n, dimension, repeats = MEAN_SIZES[scale]
    for name in ("gaussian", "l2_csgm", "linf_csgm"):
        for rate in (1,) if name == "gaussian" else _MEAN_RATES:
            make: Any = mechanisms.MECHANISMS[name]
            keep = {} if name == "gaussian" else {"keep_fraction": 1 / rate}
            yield mean_estimation.work(
                {"mechanism": name, "compression_rate": rate},
                make(cohort_size=n, clip_norm=1.0, noise_multiplier=1.0, **keep),
                dimension=dimension,
                repeats=repeats,
                epsilon=4.0,
                theory=lambda noised: noised.mean_squared_error(dimension),
            )


ROWS = {"csgm_fig1": _places, "sgmf_sensitivity": _setting}
ROWS["sgmf_streams"] = stream_errors.ways
WORK = {
    "csgm_fig1": _noises,
    "mean_estimation": _means,
    "sgmf_streams": stream_errors.grid,
}
