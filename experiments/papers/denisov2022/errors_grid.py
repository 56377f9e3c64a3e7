# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 1 and Table 2: exact errors of factorizations, without training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfl import factorization as mf
from dpfl.factorization import comparison

from ..rows import write_columns
from ..sweep import Curves, Setting, Work
from .methods import MOMENTUM, TITLES

STEP_ROUNDS = {"small": 256, "paper": 2048}
STEPS = Curves(("squared_error",), "steps.csv")


def _steps_work(method: str, momentum: float, rounds: int) -> Work:
    def compute(folder: Path) -> Mapping[str, Any]:
        found = mf.compute(mf.momentum(rounds, momentum), method)
        steps = found.step_errors()
        write_columns(folder / STEPS.file, {STEPS.columns[0]: list(steps)})
        return dataclasses.asdict(found.errors())

    return Work({"momentum": momentum, "method": method}, {"rounds": rounds}, compute)


def steps_grid(setting: Setting) -> list[Work]:
    """Returns Fig. 1: the error of each step, without momentum and with it."""
    return [
        _steps_work(method, momentum, STEP_ROUNDS[setting.scale])
        for momentum in (0.0, MOMENTUM)
        for method in TITLES
        # For the prefix sum itself the two are one.
        if momentum or method != "optimal-prefix-sum"
    ]


TABLE_ROUNDS = {
    "small": (8, 16, 32, 64, 128, 256),
    "paper": (64, 128, 256, 512, 1024, 2048),
}
TABLE_METHODS = {
    "optimal": "optimal",
    "band-low-rank": "band + low rank",
    "banded": "banded C, T/2 diagonals",
    "toeplitz": "Toeplitz C",
    "blt": "buffered Toeplitz C, 3 buffers",
    "honaker-full": "Honaker full",
    "honaker-online": "Honaker online",
}


def _parameters(method: str, rounds: int) -> dict[str, int]:
    band, rank = comparison.band_and_rank(rounds)
    parameters = {
        "band-low-rank": {"band": band, "rank": rank},
        "banded": {"bands": rounds // 2},
        "blt": {"buffers": 3},
    }
    return parameters.get(method, {})


def _table_work(method: str, rounds: int) -> Work:
    parameters = _parameters(method, rounds)

    def compute(folder: Path) -> Mapping[str, Any]:
        del folder
        found = mf.compute(mf.prefix_sum(rounds), method, **parameters)
        errors = found.errors()
        return {"loss": found.loss, "root_mean": errors.root_mean, "max": errors.max}

    return Work({"rounds": rounds, "method": method}, parameters, compute)


def table_grid(setting: Setting) -> list[Work]:
    """Returns Table 2: losses of prefix sums over the number of rounds."""
    return [
        _table_work(method, rounds)
        for rounds in TABLE_ROUNDS[setting.scale]
        for method in TABLE_METHODS
    ]
