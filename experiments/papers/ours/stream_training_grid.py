# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Independent noise, noise by epochs and noise in one stream: training at one epsilon.

The clients are the modules of the packages that dpfl pins, 2459 with Python 3.11. All
runs have the same rounds, rates, clip and expected cohort. Those with independent noise
and those with cyclic sampling choose clients at random in secret, the others do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfl import mechanisms

from ..sweep import Setting, Work
from ..trainings import training_work

EPSILON = 8.0
SEEDS = (1, 2, 3)
COMPRESSION_RATE = 10
# Of an epoch: the clients suffice for so many cohorts.
ROUNDS_PER_EPOCH = 24
# Groups that take turns, and diagonals of C: the best at this epsilon, by
# `dpfl-privacy bands`.
GROUPS = 16
SHARED: Mapping[str, Any] = {
    "flagfile": "tasks/docs_packages.flags",
    "cohort_size": 100,
    "rounds": 128,
    "epsilon": EPSILON,
    "eval_every": 32,
    "checkpoint_every": 32,
    "max_test_examples": 4000,
}


def _one_stream(separation: int) -> dict[str, Any]:
    return {
        "noise_stream": "run",
        "min_separation": separation,
        "matrix_method": "toeplitz",
        "matrix_bands": separation,
    }


_EPOCHS = {
    "participation": mechanisms.OncePerEpoch.name,
    "rounds_per_epoch": ROUNDS_PER_EPOCH,
}
# How clients are chosen and noise is drawn.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "Poisson sampling": {"participation": "poisson"},
    "random slots": {
        "participation": "random_slot",
        "rounds_per_epoch": ROUNDS_PER_EPOCH,
    },
    "by epochs": _EPOCHS,
    "one stream": {**_EPOCHS, **_one_stream(ROUNDS_PER_EPOCH)},
    "one stream, cyclic sampling": {
        "participation": "cyclic_poisson",
        **_one_stream(GROUPS),
    },
}
# By compression rate: the name of each mechanism in the drawing, and its ways.
PANELS: Mapping[
    int, Mapping[str, tuple[type[mechanisms.Mechanism], tuple[str, ...]]]
] = {
    1: {
        "GM": (mechanisms.Gaussian, tuple(WAYS)[:2]),
        "MF": (mechanisms.MatrixFactorization, tuple(WAYS)[2:]),
    },
    COMPRESSION_RATE: {
        "CSGM": (mechanisms.L2Csgm, tuple(WAYS)[:1]),
        "SGMF": (mechanisms.Sgmf, tuple(WAYS)[2:]),
    },
}


def _work(name: str, way: str, rate: int, seed: int, setting: Setting) -> Work:
    config, _ = PANELS[rate][name]
    flags: dict[str, Any] = {"mechanism": config.name, **WAYS[way]}
    if rate != 1:
        flags["compression_rate"] = rate
    labels = {"mechanism": name, "way": way, "rate": rate, "seed": seed}
    return training_work(labels, {**SHARED, **flags, "seed": seed}, setting)


def grid(setting: Setting) -> list[Work]:
    """Returns the runs of all mechanisms and ways."""
    return [
        _work(name, way, rate, seed, setting)
        for rate, panel in PANELS.items()
        for name, (_, ways) in panel.items()
        for way in ways
        for seed in SEEDS
    ]
