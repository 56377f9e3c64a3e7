# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Flags of DOME and of what it is compared with, at equal bits up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Optional

from dpfl import mechanisms, tasks
from dpfl.mechanisms.integer import ROTATED_DIMENSION
from dpfl.mechanisms.mechanism import COUNT_BITS, FLOAT_BITS, SEED_BITS

from ... import flag_files
from ..sweep import Setting, Work
from ..trainings import training_work

# Flags of the flag files that are DOME's; the others belong to the problem.
DOME_FLAGS = (
    "mechanism",
    "sketch_size",
    "clip_norm",
    "server_lr",
    "server_momentum",
    "measures_energy",
    "measure",
)
# Of a number of the count sketch. With 8 it is twice as long, but on so coarse a grid
# that epsilon takes a fifth more noise; with 12 it is about as good as with 16.
SKETCH_BITS = 16
# Where updates are larger beside the noise 8 are as good, and leave room for twice as
# many numbers.
FEW_BITS = 8
SKETCH_ROWS = 16
SKETCHED = {
    "sketched_ddg": SKETCH_BITS,
    "sketched_ddg_few_bits": FEW_BITS,
    "sketched_ddg_adam": FEW_BITS,
}
NO_NOISE = math.inf

PUBLISHED = "dome_published"

_FEW_BITS_EACH: Mapping[str, Any] = {
    "mechanism": mechanisms.DomeDdg.name,
    "mean_removal": False,
    "bits": FEW_BITS,
}
# What each has beside the flags of DOME.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "dome": {},
    # As many directions may be kept as the sketch has.
    PUBLISHED: {
        "sketch_rule": "qr",
        "sketch_decay": 1.0,
        "sketch_target": "gradient",
    },
    "dome_whole": {"mean_removal": False},
    "dome_ddg": _FEW_BITS_EACH,
    "dome_ddg_rank1": {**_FEW_BITS_EACH, "max_rank": 1},
    "dome_sgd": {
        "mean_removal": False,
        "direction": "gradient",
        "server_momentum": 0.9,
    },
}


def _file(task: str) -> str:
    return f"dome2025/{tasks.task_entry(task).flag_file}"


def problem_flags(task: str) -> dict[str, str]:
    """Returns the flags that all mechanisms share."""
    return flag_files.values(_file(task), *DOME_FLAGS, "epsilon")


def dome_flags(task: str) -> dict[str, str]:
    """Returns DOME's own flags."""
    given = flag_files.values(_file(task))
    return {name: given[name] for name in DOME_FLAGS}


def _message_bits(task: str) -> int:
    """Returns the bits of DOME's k numbers, which all that compress are given."""
    return FLOAT_BITS * int(dome_flags(task)["sketch_size"])


def mechanism_flags(
    task: str,
    mechanism: str,
    clip_norm: float,
    server_lr: float,
    dimension: Optional[int] = None,
) -> dict[str, Any]:
    """Returns the flags of one mechanism of the comparison.

    Args:
      task: Name of the task.
      mechanism: A key of `comparison_grid.TITLES`.
      clip_norm: Of the mechanism.
      server_lr: Of the server.
      dimension: d of the model; None is that of the task's own.
    """
    tuned = {"clip_norm": clip_norm, "server_lr": server_lr}
    if mechanism in VARIANTS:
        flags = {**dome_flags(task), **VARIANTS[mechanism], **tuned}
        if mechanism == PUBLISHED:
            flags["max_rank"] = flags["sketch_size"]
        if "bits" in flags:
            flags["sketch_size"] = _message_bits(task) // int(flags["bits"])
        return flags
    sgd = {**tuned, "server_momentum": 0.9}
    dimension = dimension or tasks.task_entry(task).dimension
    if mechanism == "l2_csgm":
        config = mechanisms.L2Csgm
        rotated = ROTATED_DIMENSION["hadamard"](dimension)
        # Beside its values a message has their number, and a seed.
        values = _message_bits(task) - COUNT_BITS - SEED_BITS
        kept = values / (FLOAT_BITS * rotated)
        return {**sgd, "mechanism": config.name, "keep_fraction": kept}
    if mechanism in SKETCHED:
        bits = SKETCHED[mechanism]
        adam = {"server_optimizer": "adam"} if mechanism.endswith("_adam") else {}
        return {
            **sgd,
            **adam,
            "mechanism": mechanisms.SketchedDdg.name,
            "bits": bits,
            "sketch_length": SKETCH_ROWS,
            "compression_rate": dimension / (_message_bits(task) // bits),
        }
    optimizer = mechanism[len("gaussian_") :]
    name = mechanisms.Gaussian.name
    return {**sgd, "mechanism": name, "server_optimizer": optimizer}


def work(
    task: str,
    mechanism: str,
    flags: Mapping[str, Any],
    epsilon: float,
    seed: int,
    setting: Setting,
    tuned: Optional[Mapping[str, Any]] = None,
) -> Work:
    """Returns one run.

    Args:
      task: Name of the task.
      mechanism: What the run is called in a row.
      flags: The mechanism's flags.
      epsilon: The budget, or `NO_NOISE`.
      seed: Of the run.
      setting: Scale, and where the data are.
      tuned: Further labels.
    """
    labels = {"task": task, "mechanism": mechanism, "epsilon": epsilon, "seed": seed}
    given: dict[str, Any] = {**problem_flags(task), **flags, "seed": seed}
    if epsilon == NO_NOISE:
        given["noise_multiplier"] = 0.0
    else:
        given["epsilon"] = epsilon
    return training_work({**labels, **(tuned or {})}, given, setting)
