# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mean estimation: squared error of GM, L2-CSGM and L-inf-CSGM beside its theory."""

from __future__ import annotations

from typing import Any

from dpfl import mechanisms

from .. import mean_estimation, plotting
from ..result_rows import Rows, numbers, where
from ..sweep import Setting, Work

EPSILON = 4.0
COMPRESSION_RATES = (1, 3, 10, 30, 100, 300, 1000)
# Number of clients, dimension and repeats. A power of two, so that nothing is padded.
SIZES = {"small": (100, 2**14, 20), "paper": (1000, 2**20, 10)}
TITLES = {"gaussian": "Gaussian", "l2_csgm": "L2-CSGM", "linf_csgm": "L∞-CSGM"}


def _work(name: str, rate: int, scale: str) -> Work:
    n, dimension, repeats = SIZES[scale]
    keep = {} if name == mechanisms.Gaussian.name else {"keep_fraction": 1 / rate}
    config_class: Any = mechanisms.MECHANISMS[name]
    config = config_class(cohort_size=n, clip_norm=1.0, noise_multiplier=1.0, **keep)
    return mean_estimation.work(
        {"mechanism": name, "compression_rate": rate},
        config,
        dimension=dimension,
        repeats=repeats,
        epsilon=EPSILON,
        theory=lambda noised: noised.mean_squared_error(dimension),
    )


def grid(setting: Setting) -> list[Work]:
    """Returns GM, and both sparsified mechanisms at every rate."""
    gaussian, *sparsified = TITLES
    return [
        _work(gaussian, 1, setting.scale),
        *(
            _work(name, rate, setting.scale)
            for name in sparsified
            for rate in COMPRESSION_RATES
        ),
    ]


def draw(rows: Rows, scale: str) -> Any:
    """Draws the squared error of the mean against the compression rate."""
    n, dimension, repeats = SIZES[scale]
    picture, (axis,) = plotting.panels(1, 6, 4)
    for name, title in TITLES.items():
        chosen = where(rows, mechanism=name)
        if not chosen:
            continue
        rates, theory = numbers(chosen, "compression_rate"), numbers(chosen, "theory")
        color, marker = plotting.STYLES[name]
        if len(rates) == 1:
            axis.axhline(theory[0], color=color, ls="--", lw=1)
        else:
            axis.plot(rates, theory, color=color, ls="--", lw=1)
        # The star is not to be hidden, and hides nothing.
        look = {"ms": 11, "mfc": "none", "zorder": 3} if marker == "*" else {}
        plotting.measured(
            axis, rates, chosen, color=color, fmt=marker, label=title, **look
        )
    axis.set_title(
        rf"$\varepsilon={EPSILON:g}$, $\delta=10^{{-5}}$, n={n}, d={dimension}"
        f"\ndashes: theory, points: {plotting.measured_label(repeats)}",
    )
    plotting.finish(
        axis,
        xscale="log",
        yscale="log",
        xlabel=r"compression rate $1/\gamma$",
        ylabel="squared error of the mean",
    )
    return picture
