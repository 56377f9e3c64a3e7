# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME against others, at equal rounds, epsilon and bits up; and the tuning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from .. import medium
from ..sweep import Setting, Work
from .compared_flags import NO_NOISE, mechanism_flags, work

TITLES = {
    "dome": "DOME",
    "dome_published": "DOME, the paper's sketch",
    "dome_whole": "DOME, no mean removal",
    "dome_ddg": "DOME, no mean removal, 8-bit numbers",
    "dome_ddg_rank1": "DOME, no mean removal, 8-bit numbers, one kept direction",
    "dome_sgd": "DOME, no mean removal, SGD",
    "sketched_ddg": "sketched DDG, SGD",
    "sketched_ddg_few_bits": "sketched DDG, 8-bit numbers, SGD",
    "sketched_ddg_adam": "sketched DDG, 8-bit numbers, Adam",
    "l2_csgm": "L2-CSGM, SGD",
    "gaussian_sgd": "Gaussian, SGD",
    "gaussian_adam": "Gaussian, Adam",
    "gaussian_adam_uncorrected": "Gaussian, Adam uncorrected",
    "gaussian_adam_debiased": "Gaussian, Adam debiased",
}
COMPRESSED = (
    "dome",
    "dome_published",
    "dome_whole",
    "dome_ddg",
    "dome_ddg_rank1",
    "dome_sgd",
    "sketched_ddg",
    "sketched_ddg_few_bits",
    "sketched_ddg_adam",
    "l2_csgm",
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Who is compared on a task.

    Attributes:
      epsilons: Budgets; `NO_NOISE` shows what compression alone costs.
      seeds: Seeds of the runs.
      chosen: Of each mechanism its clip and the server's rate.
    """

    epsilons: tuple[float, ...]
    seeds: tuple[int, ...]
    chosen: Mapping[str, tuple[float, float]]


COMPARISONS: Mapping[str, Mapping[str, Comparison]] = {
    "small": {
        "digits": Comparison(
            (8.0, 16.0, NO_NOISE),
            (1, 2),
            {
                "dome": (0.1, 0.01),
                "dome_published": (0.1, 0.01),
                "dome_whole": (0.02, 0.03),
                "dome_sgd": (0.0125, 31.0),
                "sketched_ddg": (0.1, 0.5),
                "l2_csgm": (0.1, 0.2),
                "gaussian_sgd": (0.1, 0.5),
                "gaussian_adam": (0.1, 0.03),
                "gaussian_adam_uncorrected": (0.1, 0.01),
                "gaussian_adam_debiased": (0.1, 0.03),
            },
        ),
        "docs": Comparison(
            (8.0, NO_NOISE),
            (1, 2),
            {
                "dome": (0.012, 0.003),
                "dome_whole": (0.012, 0.03),
                "dome_sgd": (0.012, 300.0),
                "sketched_ddg": (0.3, 0.2),
                "l2_csgm": (0.3, 0.03),
                "gaussian_sgd": (0.3, 0.2),
                "gaussian_adam": (0.3, 0.03),
                "gaussian_adam_debiased": (0.3, 0.03),
            },
        ),
    },
    # Clips and rates of the figure equal_bits, or those that follow from them.
    "medium": {
        "mnist": Comparison(
            (8.0, NO_NOISE),
            medium.SEEDS,
            {
                "dome": (0.04, 0.01),
                "dome_published": (0.04, 0.01),
                "dome_whole": (0.04, 0.03),
                "dome_ddg": (0.08, 0.03),
                "dome_ddg_rank1": (0.08, 0.03),
                "dome_sgd": (0.04, 20.0),
                "sketched_ddg": (0.3, 0.3),
                "sketched_ddg_few_bits": (0.3, 0.5),
                "sketched_ddg_adam": (0.3, 0.03),
                "l2_csgm": (0.3, 0.3),
                "gaussian_sgd": (0.3, 1.0),
                "gaussian_adam": (0.3, 0.03),
                "gaussian_adam_uncorrected": (0.3, 0.01),
                "gaussian_adam_debiased": (0.3, 0.03),
            },
        ),
    },
    # Not tuned: clips of the sketches are the task's times sqrt(k/d), server rates the
    # task's, times d/k where a sketch is not scaled up (or the largest that there is),
    # and usual ones for Adam.
    "paper": {
        "emnist": Comparison(
            (10.0, NO_NOISE),
            (1, 2, 3),
            {
                "dome": (0.0016, 0.003),
                "dome_published": (0.0016, 0.003),
                "dome_whole": (0.0016, 0.003),
                "dome_sgd": (0.0016, 4000.0),
                "sketched_ddg": (0.1, 1.0),
                "l2_csgm": (0.1, 1.0),
                "gaussian_sgd": (0.1, 1.0),
                "gaussian_adam": (0.1, 0.01),
                "gaussian_adam_uncorrected": (0.1, 0.003),
                "gaussian_adam_debiased": (0.1, 0.01),
            },
        ),
        "stackoverflow": Comparison(
            (10.0, NO_NOISE),
            (1, 2, 3),
            {
                "dome": (0.0008, 0.003),
                "dome_published": (0.0008, 0.003),
                "dome_whole": (0.0008, 0.003),
                "dome_sgd": (0.0008, 10_000.0),
                "sketched_ddg": (0.1, 1.78),
                "l2_csgm": (0.1, 1.78),
                "gaussian_sgd": (0.1, 1.78),
                "gaussian_adam": (0.1, 0.01),
                "gaussian_adam_uncorrected": (0.1, 0.003),
                "gaussian_adam_debiased": (0.1, 0.01),
            },
        ),
    },
}
# Budget and seed at which clips and rates were tried, and those.
TUNED_AT = (8.0, 11)
TRIED: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]] = {
    "digits": {
        "dome": ((0.02, 0.1), (0.003, 0.01, 0.03)),
        "dome_published": ((0.1,), (0.003, 0.01, 0.03)),
        "dome_whole": ((0.02, 0.1), (0.01, 0.03, 0.1)),
        "dome_sgd": ((0.0125,), (12.0, 31.0, 62.0)),
        "sketched_ddg": ((0.1,), (0.2, 0.5, 1.0)),
        "l2_csgm": ((0.1,), (0.1, 0.2, 0.5)),
        "gaussian_sgd": ((0.1,), (0.2, 0.5, 1.0)),
        "gaussian_adam": ((0.1,), (0.01, 0.03, 0.1)),
        "gaussian_adam_uncorrected": ((0.1,), (0.003, 0.01, 0.03)),
        "gaussian_adam_debiased": ((0.1,), (0.01, 0.03, 0.1)),
    },
    "docs": {
        "dome": ((0.012,), (0.001, 0.003, 0.01, 0.03)),
        "dome_whole": ((0.012,), (0.01, 0.03, 0.1)),
        "dome_sgd": ((0.012,), (100.0, 300.0, 1000.0)),
        "sketched_ddg": ((0.3,), (0.1, 0.2, 0.5)),
        "l2_csgm": ((0.3,), (0.003, 0.01, 0.03, 0.1)),
        "gaussian_sgd": ((0.3,), (0.2, 0.5, 1.0)),
        "gaussian_adam": ((0.3,), (0.01, 0.03, 0.1)),
        "gaussian_adam_debiased": ((0.3,), (0.01, 0.03, 0.1)),
    },
}


def tuning_grid(setting: Setting) -> list[Work]:
    """Returns every clip and rate that was tried; of the small tasks alone."""
    return [
        work(
            task,
            mechanism,
            mechanism_flags(task, mechanism, clip, rate),
            *TUNED_AT,
            setting,
            {"clip_norm": clip, "server_lr": rate},
        )
        for task, tried in TRIED.items()
        for mechanism, (clips, rates) in tried.items()
        for clip in clips
        for rate in rates
    ]


def grid(setting: Setting) -> list[Work]:
    """Returns the comparison, with the clips and rates that were chosen."""
    return [
        work(
            task,
            mechanism,
            mechanism_flags(task, mechanism, *compared.chosen[mechanism]),
            epsilon,
            seed,
            setting,
        )
        for task, compared in COMPARISONS[setting.scale].items()
        for epsilon in compared.epsilons
        for mechanism in compared.chosen
        for seed in compared.seeds
        # Without noise there is nothing to be rid of.
        if epsilon != NO_NOISE or mechanism != "gaussian_adam_debiased"
    ]
