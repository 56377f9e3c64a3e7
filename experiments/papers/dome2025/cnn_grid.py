# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME with the papers' network: against a sketch of as many bits, at equal epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import medium
from ..sweep import Setting, Work
from .comparison import mechanism_flags, work

EPSILON = 8.0
# Trainable parameters of the network with the ten classes of MNIST.
DIMENSION = 1_011_466
# Of each mechanism its clip and the server's rate, the best of a few trials
# (docs/results/medium_validation.csv). DOME's clips are that of the others times the
# share sqrt(k/d) of an update's norm that k random directions see.
CHOSEN: Mapping[str, tuple[float, float]] = {
    "dome": (0.0048, 0.003),
    "dome_ddg_rank1": (0.0095, 0.01),
    "sketched_ddg_few_bits": (0.3, 0.2),
    "sketched_ddg_adam": (0.3, 0.01),
    "gaussian_sgd": (0.3, 0.2),
    "gaussian_adam": (0.3, 0.01),
}
# Half the writers of the other figures, since the work of DOME's clients comes on top
# of their training; an epoch has 16 rounds.
_MODEL: Mapping[str, Any] = {
    "model": "cnn",
    "cohort_size": 50,
    "eval_every": medium.FLAGS[medium.MNIST]["eval_every"],
}


def grid(setting: Setting) -> list[Work]:
    """Returns the runs of all mechanisms at one budget."""
    return [
        work(
            medium.MNIST,
            name,
            {
                **mechanism_flags(medium.MNIST, name, clip, rate, DIMENSION),
                **_MODEL,
            },
            EPSILON,
            seed,
            setting,
        )
        for name, (clip, rate) in CHOSEN.items()
        for seed in medium.SEEDS
    ]
