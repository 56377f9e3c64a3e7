# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Groups of rows with sizes of their own, and the module that measures each.

Such a module has ROWS, from the name of a group to the function that measures it, and
FULL and QUICK, the sizes. The names stand here, so that they can be checked before
TensorFlow is imported.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from .harness import Row

GROUPS = {
    "calibration": ("calibration",),
    "aggregators": ("aggregation", "fourier", "rotations", "masks"),
    "factorization": ("factorization",),
    "noise": (
        *("noise_draws", "noise_dense", "noise_recurrences", "noise_bands"),
        "noise_aggregators",
    ),
    "sketch": ("sketch_aggregation", "sketches", "integer_noise"),
    "dome": ("dome_rounds", "dome_updates", "dome_training"),
    "long_run": ("long_run",),
    "scale": ("digits_rounds", "cohorts"),
    "scaling": ("sizes", "workers"),
    "start_up": ("start_up",),
}
# Whose clients are put into groups, as `dpfl-train` does; others have TFF's.
_OF_TRAINING = ("dome_training", "digits_rounds", "cohorts", "sizes")


def names() -> list[str]:
    """Returns the names of all groups."""
    return [name for groups in GROUPS.values() for name in groups]


def module_of(group: str) -> Any:
    """Returns the module that measures a group."""
    (name,) = (name for name, groups in GROUPS.items() if group in groups)
    return importlib.import_module(f".{name}", __package__)


def measure(group: str, repeats: int, quick: bool) -> list[Row]:
    """Measures a group, in a worker of its own.

    Args:
      group: One of `names()`.
      repeats: Turns of each compared function.
      quick: Whether everything is tiny.
    """
    import tensorflow_federated as tff

    from dpfl.training import worker as worker_lib

    module = module_of(group)
    sizes = module.QUICK if quick else module.FULL
    with worker_lib.start(groups=group in _OF_TRAINING) as worker:
        tff.framework.set_default_context(worker.context(secure_sums=True))
        return module.ROWS[group](dataclasses.replace(sizes, repeats=repeats))
