# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The figures of this paper."""

from __future__ import annotations

import functools

from ..sweep import SCALES, Figure
from ..trainings import EVALUATED
from . import accuracy, mean, noise, sensitivity, sgmf, streams

_PAPER = "Chen et al. 2024"
_CSGM_SWEEP = "csgm_sweep"
_ACCURACY = {
    "csgm_fig2": "Fig. 2: accuracy of GM and L2-CSGM on both tasks",
    "csgm_fig4": "Fig. 4: F-EMNIST with large cohorts",
    "csgm_fig5": "Fig. 5: F-EMNIST with small cohorts",
    "csgm_fig6": "Fig. 6: Stack Overflow over budgets",
}
_SGMF = {
    "sgmf_fig3": "Fig. 3: accuracy of MF and SGMF",
    "sgmf_fig7": "Fig. 7: MF and SGMF, clip 1.0 and server rate 0.1",
    "sgmf_fig8": "Fig. 8: MF and SGMF, clip 0.03 and server rate 0.5",
}
# The others have the default of each mechanism.
_ONE_ACCOUNTANT = "both accounted by privacy loss distributions; "

FIGURES = [
    Figure(
        "csgm_fig1",
        f"{_PAPER}, Fig. 1: noise multipliers of L2-CSGM and GM, exact",
        noise.grid,
        noise.draw,
    ),
    *(
        Figure(
            name,
            f"{_PAPER}, {what}",
            accuracy.grid(name),
            accuracy.draw,
            _CSGM_SWEEP,
            SCALES,
            EVALUATED,
        )
        for name, what in _ACCURACY.items()
    ),
    Figure(
        "csgm_tight",
        "Accuracy of GM and L2-CSGM, both by privacy loss distributions",
        accuracy.grid("csgm_tight"),
        functools.partial(accuracy.draw, said=_ONE_ACCOUNTANT),
        scales=("medium",),
        curves=EVALUATED,
    ),
    Figure(
        "mean_estimation",
        "Squared error of the mean against compression: GM, L2-CSGM, L-inf-CSGM",
        mean.grid,
        mean.draw,
    ),
    *(
        Figure(
            name,
            f"{_PAPER}, {what}",
            sgmf.grid(name),
            sgmf.draw(name),
            scales=SCALES,
            curves=EVALUATED,
        )
        for name, what in _SGMF.items()
    ),
    Figure(
        "sgmf_sensitivity",
        "Accuracy of GM and MF over clips and server rates",
        sensitivity.grid,
        sensitivity.draw,
        scales=("medium",),
    ),
    Figure(
        "sgmf_streams",
        "Error of sums at equal epsilon: by epochs, streams over a run, slots; exact",
        streams.grid,
        streams.draw,
        words=("encoder",),
    ),
]
