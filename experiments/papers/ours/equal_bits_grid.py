# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every mechanism at one epsilon, with few and with many bits up, on MNIST by writer.

All train for the same rounds with the same expected number of clients, and each chooses
its clients in the way that suits it: `dpfl.mechanisms` refuses DOME with Poisson
sampling, and SGMF's stream of noise wants a client's rounds apart. All epsilons hold if
a client's contributions are replaced by zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpfl import mechanisms

from ..sweep import Setting, Work
from ..trainings import training_work

TASK = "mnist"
EPSILON = 8.0
SEEDS = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class Point:
    """One mechanism with one number of bits.

    Attributes:
      name: What a row calls it, beside its mechanism.
      flags: Rate or bits.
      clip_norm: Of the mechanism.
      server_lr: Of the server.
    """

    name: str
    flags: Mapping[str, Any]
    clip_norm: float
    server_lr: float


@dataclasses.dataclass(frozen=True)
class Curve:
    """One mechanism.

    Attributes:
      title: What the drawing calls it.
      flags: What its points share.
      points: With more and more bits, or fewer and fewer.
    """

    title: str
    flags: Mapping[str, Any]
    points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is trained.

    Attributes:
      flags: What all mechanisms share.
      rounds_per_epoch: Of the mechanisms whose clients must not be sampled afresh.
      curves: By the name that a row has.
    """

    flags: Mapping[str, Any]
    rounds_per_epoch: int
    curves: Mapping[str, Curve]


_POISSON = {"participation": "poisson"}
_HELPERS = {**_POISSON, "noise_source": "helpers"}


def _rate(rate: float, clip_norm: float, server_lr: float) -> Point:
    return Point(f"r{rate:g}", {"compression_rate": rate}, clip_norm, server_lr)


def _bits(bits: int, clip_norm: float, server_lr: float) -> Point:
    return Point(f"b{bits}", {"bits": bits}, clip_norm, server_lr)


def _sketched(rate: float, bits: int, clip_norm: float, server_lr: float) -> Point:
    flags = {"compression_rate": rate, "bits": bits}
    return Point(f"r{rate:g}_b{bits}", flags, clip_norm, server_lr)


def _dome(size: int, clip_norm: float, server_lr: float) -> Point:
    return Point(f"k{size}", {"sketch_size": size}, clip_norm, server_lr)


def _curves(rounds_per_epoch: int, points: Mapping[str, tuple[Point, ...]]) -> Any:
    """Returns the curves of a problem.

    Args:
      rounds_per_epoch: See `Problem`.
      points: By the name that a row has.
    """
    cyclic = {
        "participation": "cyclic_poisson",
        "min_separation": rounds_per_epoch,
        "noise_stream": "run",
        "matrix_method": "banded",
        "matrix_bands": rounds_per_epoch,
    }
    once = {
        "participation": "once_per_epoch",
        "rounds_per_epoch": rounds_per_epoch,
        "server_momentum": 0.0,
    }
    flags: dict[str, tuple[str, type[mechanisms.Mechanism], Mapping[str, Any]]] = {
        "gaussian": ("Gaussian", mechanisms.Gaussian, _POISSON),
        "ddg": ("DDG", mechanisms.DistributedDiscreteGaussian, _HELPERS),
        "l2_csgm": ("L2-CSGM", mechanisms.L2Csgm, _POISSON),
        "sketched_ddg": ("sketched DDG", mechanisms.SketchedDdg, _HELPERS),
        "linf_csgm": ("L∞-CSGM", mechanisms.LinfCsgm, _POISSON),
        "mf": (
            "matrix factorization, cyclic",
            mechanisms.MatrixFactorization,
            cyclic,
        ),
        "sgmf": ("SGMF, cyclic", mechanisms.Sgmf, cyclic),
        "dome": ("DOME, once an epoch", mechanisms.Dome, once),
        "dome_whole": (
            "DOME without mean removal, once an epoch",
            mechanisms.Dome,
            {**once, "mean_removal": False},
        ),
    }
    return {
        name: Curve(title, {"mechanism": config.name, **own}, points[name])
        for name, (title, config, own) in flags.items()
        if name in points
    }


PROBLEMS: Mapping[str, Problem] = {
    "medium": Problem(
        {
            "task": TASK,
            "model": "small_cnn",
            "cohort_size": 100,
            "rounds": 48,
            "client_lr": 0.1,
            "server_momentum": 0.9,
            "delta": 1e-4,
            "eval_every": 8,
            "checkpoint_every": 48,
        },
        8,
        _curves(
            8,
            {
                "gaussian": (Point("b32", {}, 0.3, 1.0),),
                "ddg": (
                    _bits(16, 0.3, 1.0),
                    _bits(8, 0.3, 1.0),
                    _bits(7, 0.3, 1.0),
                    _bits(6, 0.3, 1.0),
                ),
                "l2_csgm": (
                    _rate(10, 0.3, 1.0),
                    _rate(30, 0.3, 0.5),
                    _rate(100, 0.3, 0.2),
                ),
                "sketched_ddg": (
                    _sketched(10, 16, 0.3, 0.5),
                    _sketched(10, 7, 0.3, 0.5),
                    _sketched(30, 9, 0.3, 0.3),
                    _sketched(100, 10, 0.3, 0.3),
                ),
                "linf_csgm": (_rate(10, 0.3, 0.1), _rate(100, 0.3, 0.1)),
                "mf": (Point("b32", {}, 0.3, 1.0),),
                "sgmf": (_rate(10, 0.3, 1.0), _rate(100, 0.3, 0.2)),
                "dome": (_dome(256, 0.04, 0.01),),
                "dome_whole": (
                    _dome(64, 0.02, 0.03),
                    _dome(256, 0.04, 0.03),
                    _dome(1024, 0.08, 0.03),
                ),
            },
        ),
    ),
}


def _work(
    problem: Problem, name: str, point: Point, seed: int, setting: Setting
) -> Work:
    labels = {"mechanism": name, "point": point.name, "seed": seed}
    flags = {
        **problem.flags,
        **problem.curves[name].flags,
        **point.flags,
        "clip_norm": point.clip_norm,
        "server_lr": point.server_lr,
        "epsilon": EPSILON,
        "seed": seed,
    }
    return training_work(labels, flags, setting)


def grid(setting: Setting) -> list[Work]:
    """Returns all points of all curves."""
    problem = PROBLEMS[setting.scale]
    return [
        _work(problem, name, point, seed, setting)
        for name, curve in problem.curves.items()
        for point in curve.points
        for seed in SEEDS
    ]
