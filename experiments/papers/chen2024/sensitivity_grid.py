# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Independent noise and correlated noise over clips and server rates, one epsilon.

The paper says that with its matrix mechanism performance is "more sensitive to server
learning rates and L2 clip norms" than with DP-FedAvg (section 6 and the appendix). Its
figures have no DP-FedAvg at the settings of Figs. 3, 7 and 8; here both have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dpfl import mechanisms
from dpfl.mechanisms import OncePerEpoch

from .. import medium
from ..sweep import Setting, Work
from ..trainings import training_work

EPSILON = 8.0
COHORT_SIZE = 100


class Tried(NamedTuple):
    """A setting.

    Attributes:
      clip_norm: The L2 bound of a client's update.
      server_lr: The server's rate.
      whose: Where it comes from, for a drawing.
    """

    clip_norm: float
    server_lr: float
    whose: str


SETTINGS = (
    Tried(0.3, 0.5, "dpfl's"),
    Tried(1.0, 0.1, "of Figs. 3, 7"),
    Tried(0.03, 0.5, "of Fig. 8"),
    Tried(0.3, 1.0, "rate doubled"),
)
# By the name in drawings: the flags of a mechanism, without compression.
MECHANISMS: Mapping[str, Mapping[str, Any]] = {
    "GM": {"mechanism": mechanisms.Gaussian.name},
    "MF": {
        "mechanism": mechanisms.MatrixFactorization.name,
        "participation": OncePerEpoch.name,
    },
}


def _work(name: str, tried: Tried, seed: int, setting: Setting) -> Work:
    own = {"clip_norm": tried.clip_norm, "server_lr": tried.server_lr}
    flags = {
        **medium.FLAGS[medium.MNIST],
        "cohort_size": COHORT_SIZE,
        "epsilon": EPSILON,
        **MECHANISMS[name],
        **own,
        "seed": seed,
    }
    which = {"task": medium.MNIST, "mechanism": name, "epsilon": EPSILON}
    labels = {**which, **own, "seed": seed}
    return training_work(labels, flags, setting)


def grid(setting: Setting) -> list[Work]:
    """Returns the runs of both mechanisms at each setting."""
    return [
        _work(name, tried, seed, setting)
        for tried in SETTINGS
        for name in MECHANISMS
        for seed in medium.SEEDS
    ]
