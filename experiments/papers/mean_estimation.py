# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Measurement of the squared error of a mean of vectors.

    sizes = {"dimension": 2**14, "repeats": 20, "epsilon": 8.0}
    work = mean_estimation.work({"mechanism": "gaussian"}, config, **sizes)
    row = work.compute(folder)

The mechanism's noise is calibrated to the epsilon at `DELTA`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

from dpfl import mechanisms, planning

from ..trainings.sweep import Work

SEED = 8
DELTA = 1e-5


def work(
    labels: Mapping[str, Any],
    config: mechanisms.Mechanism,
    *,
    dimension: int,
    repeats: int,
    epsilon: float,
    vectors: str = "similar",
    sparsity: int = 0,
    theory: Optional[Callable[[Any], float]] = None,
    **settings: Any,
) -> Work:
    """Work that measures the error of one release of all clients' mean.

    Args:
      labels: Labels of the row.
      config: The mechanism, whose noise is calibrated to epsilon at `DELTA`.
      dimension: d.
      repeats: Number of draws of mask or sketch, and noise.
      epsilon: The budget.
      vectors: The clients' vectors, a key of `measured_means.VECTORS`.
      sparsity: Number of nonzero coordinates of a vector; 0 for dense vectors.
      theory: Function from the mechanism with its noise to the expected error; None for
        no such column.
      **settings: Further settings of the work.
    """

    def compute(_: Path) -> Mapping[str, Any]:
        from . import measured_means

        make = measured_means.VECTORS[vectors]
        if sparsity:
            make = measured_means.sparse_vectors(sparsity)
        noised = planning.calibrate(
            config, None, dimension, epsilon, DELTA, accounting_method="rdp"
        )
        errors = measured_means.measured_errors(noised, dimension, repeats, make, SEED)
        measured = {
            "noise_multiplier": float(getattr(noised, "noise_multiplier", 0.0)),
            "squared_error": float(errors.mean()),
            "standard_error": float(errors.std(ddof=1) / math.sqrt(repeats)),
            "bits_per_parameter": noised.uplink_bits(dimension) / dimension,
        }
        return measured if theory is None else {**measured, "theory": theory(noised)}

    every = {
        **{"clients": config.cohort_size, "dimension": dimension, "repeats": repeats},
        **{"epsilon": epsilon, "delta": DELTA, "seed": SEED, **settings},
    }
    return Work(labels, every, compute)
