# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME with one choice changed at a time, and what its sketch sees round by round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ..sweep import Setting, Work
from .compared_flags import NO_NOISE, dome_flags, mechanism_flags, work
from .comparison_grid import COMPARISONS


@dataclasses.dataclass(frozen=True)
class Ablation:
    """DOME with one thing other than in the flag file.

    Attributes:
      title: What drawings call it.
      flags: What is other.
    """

    title: str
    flags: Mapping[str, Any]


def _sketch_ablation(task: str, size: int) -> Ablation:
    """Returns another k; a sketch of k random rows sees k/d of a squared norm."""
    given = dome_flags(task)
    ratio = math.sqrt(size / int(given["sketch_size"]))
    clip = float(f"{float(given['clip_norm']) * ratio:.4g}")
    return Ablation(f"k={size}", {"sketch_size": size, "clip_norm": clip})


NO_PROBES = "dome_no_probes"
ABLATED = {"small": "digits", "paper": "emnist"}
ABLATED_SIZES = {"small": (16, 64, 1024), "paper": (16, 64, 1024)}


def ablations(scale: str) -> dict[str, Ablation]:
    """Returns ablations by the mechanism's name in a row; DOME itself is the first."""
    task = ABLATED[scale]
    size = int(dome_flags(task)["sketch_size"])
    found = {"dome": Ablation(f"DOME, k={size}", {})}
    for other in ABLATED_SIZES[scale]:
        found[f"dome_k{other}"] = _sketch_ablation(task, other)
    found[NO_PROBES] = Ablation("no probes", {"probes": False})
    changes: list[tuple[str, str, Mapping[str, Any]]] = [
        ("q0.9", "q=0.9", {"energy_fraction": 0.9}),
        ("q0.99999", "q=0.99999", {"energy_fraction": 0.99999}),
        ("max_rank", "r at most k", {"max_rank": size}),
        ("max_rank1", "r at most 1", {"max_rank": 1}),
        ("no_mean", "no mean removal", {"mean_removal": False}),
        (
            "no_mean_max_rank1",
            "no mean removal, r at most 1",
            {"mean_removal": False, "max_rank": 1},
        ),
        ("beta0.5", r"$\beta_1$=0.5", {"beta_1": 0.5}),
        ("beta0", r"$\beta_1$=0", {"beta_1": 0.0}),
        ("biased", "no debiasing", {"debiasing": False}),
        ("qr", "rule qr", {"sketch_rule": "qr"}),
        ("no_decay", "no decay", {"sketch_decay": 1.0}),
        ("gradient", "target gradient", {"sketch_target": "gradient"}),
    ]
    for name, title, flags in changes:
        found[f"dome_{name}"] = Ablation(title, flags)
    return found


def _dome_work(
    task: str,
    mechanism: str,
    flags: Mapping[str, Any],
    epsilon: float,
    seed: int,
    setting: Setting,
) -> Work:
    """Returns DOME with other flags; without any it is a run of the comparison."""
    chosen = COMPARISONS[setting.scale][task].chosen["dome"]
    given = {**mechanism_flags(task, "dome", *chosen), **flags}
    return work(task, mechanism, given, epsilon, seed, setting)


def grid(setting: Setting) -> list[Work]:
    """Returns every ablation at one budget and without noise."""
    task = ABLATED[setting.scale]
    compared = COMPARISONS[setting.scale][task]
    return [
        _dome_work(task, name, ablation.flags, epsilon, seed, setting)
        for seed in compared.seeds
        for epsilon in (compared.epsilons[0], NO_NOISE)
        for name, ablation in ablations(setting.scale).items()
    ]


# Whose sketches are looked at, with its flags beside those of DOME.
SEEN: Mapping[str, Mapping[str, Any]] = {
    "dome": {},
    NO_PROBES: {"probes": False},
    "dome_whole": {},
}


def energy_grid(setting: Setting) -> list[Work]:
    """Returns runs whose sketches are looked at, some of them in other grids too."""
    found = []
    for task, compared in COMPARISONS[setting.scale].items():
        for epsilon in (compared.epsilons[0], NO_NOISE):
            for name, flags in SEEN.items():
                base = name if name in compared.chosen else "dome"
                own = mechanism_flags(task, base, *compared.chosen[base])
                given, seed = {**own, **flags}, compared.seeds[0]
                found.append(work(task, name, given, epsilon, seed, setting))
    return found
