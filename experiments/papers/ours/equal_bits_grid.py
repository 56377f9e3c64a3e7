# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every mechanism at one epsilon, with few and with many bits up.

On MNIST by writer, and on the docstrings of packages.

All train for the same rounds with the same expected number of clients, and each chooses
its clients in the way that suits it: `dpfl.mechanisms` refuses DOME with Poisson
sampling, and SGMF's stream of noise wants a client's rounds apart. All epsilons hold if
a client's contributions are replaced by zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

from dpfl import mechanisms

from .. import medium
from ..sweep import Grid, Setting, Work
from ..trainings import training_work

EPSILON = 8.0


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
      task: Name of the task.
      title: What the drawing says of task, clients, rounds and delta.
      flags: What all mechanisms share.
      curves: By the name that a row has.
      most_shown: The largest loss on the axis; what is above has an arrow there.
    """

    task: str
    title: str
    flags: Mapping[str, Any]
    curves: Mapping[str, Curve]
    most_shown: Optional[float] = None


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


def _curves(
    rounds_per_epoch: int,
    groups: int,
    matrix_method: str,
    points: Mapping[str, tuple[Point, ...]],
) -> dict[str, Curve]:
    """Returns the curves of a problem.

    Args:
      rounds_per_epoch: Of DOME, whose clients must not be sampled afresh.
      groups: Of clients that take turns where noise is correlated, and diagonals of C.
      matrix_method: How C is found.
      points: By the name that a row has.
    """
    cyclic = {
        "participation": "cyclic_poisson",
        "min_separation": groups,
        "noise_stream": "run",
        "matrix_method": matrix_method,
        "matrix_bands": groups,
    }
    epochs = {"participation": "once_per_epoch", "rounds_per_epoch": rounds_per_epoch}
    once = {**epochs, "server_momentum": 0.0}
    flags: dict[str, tuple[str, type[mechanisms.Mechanism], Mapping[str, Any]]] = {
        "gaussian": ("Gaussian, Poisson", mechanisms.Gaussian, _POISSON),
        "ddg": ("DDG, Poisson", mechanisms.DistributedDiscreteGaussian, _HELPERS),
        "skellam": ("Skellam, Poisson", mechanisms.DistributedSkellam, _HELPERS),
        "l2_csgm": ("L2-CSGM, Poisson", mechanisms.L2Csgm, _POISSON),
        "sketched_ddg": ("sketched DDG, Poisson", mechanisms.SketchedDdg, _HELPERS),
        # Where clients are chosen as DOME's are.
        "sketched_ddg_once": (
            "sketched DDG, once an epoch",
            mechanisms.SketchedDdg,
            {**_HELPERS, **epochs},
        ),
        "project_and_perturb": (
            "project and perturb, Poisson",
            mechanisms.ProjectAndPerturb,
            _POISSON,
        ),
        "linf_csgm": ("L∞-CSGM, Poisson", mechanisms.LinfCsgm, _POISSON),
        "mf": (
            "matrix factorization, cyclic",
            mechanisms.MatrixFactorization,
            cyclic,
        ),
        "sgmf": ("SGMF, cyclic", mechanisms.Sgmf, cyclic),
        "dome": ("DOME, once an epoch", mechanisms.Dome, once),
        "dome_whole": (
            "DOME, no mean removal, once an epoch",
            mechanisms.Dome,
            {**once, "mean_removal": False},
        ),
        # The best that the ablations of DOME found.
        "dome_few_bits": (
            "DOME, no mean removal, 8-bit numbers, one kept direction, once an epoch",
            mechanisms.DomeDdg,
            {**once, "mean_removal": False, "bits": 8, "max_rank": 1},
        ),
    }
    return {
        name: Curve(title, {"mechanism": config.name, **own}, points[name])
        for name, (title, config, own) in flags.items()
        if name in points
    }


PROBLEMS: Mapping[str, Problem] = {
    "equal_bits": Problem(
        medium.MNIST,
        r"MNIST, 836 writers, 100 a round, 48 rounds, $d$=15,994, $\delta$=0.0001",
        {
            "task": medium.MNIST,
            "model": "small_cnn",
            "cohort_size": 100,
            "rounds": 48,
            "client_lr": 0.1,
            "server_momentum": 0.9,
            "delta": 1e-4,
            "eval_every": 8,
            "checkpoint_every": 48,
        },
        _curves(
            8,
            8,
            "banded",
            {
                "gaussian": (Point("b32", {}, 0.3, 1.0),),
                "ddg": (
                    _bits(16, 0.3, 1.0),
                    _bits(8, 0.3, 1.0),
                    _bits(7, 0.3, 1.0),
                    _bits(6, 0.3, 1.0),
                ),
                "skellam": (_bits(16, 0.3, 1.0), _bits(8, 0.3, 1.0)),
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
                # At the rates of the sketch whose noise is the clients'.
                "project_and_perturb": (_rate(10, 0.3, 0.5), _rate(100, 0.3, 0.3)),
                "linf_csgm": (_rate(10, 0.3, 0.1), _rate(100, 0.3, 0.1)),
                "mf": (Point("b32", {}, 0.3, 1.0),),
                "sgmf": (_rate(10, 0.3, 1.0), _rate(100, 0.3, 0.2)),
                "dome": (_dome(256, 0.04, 0.01),),
                "dome_whole": (
                    _dome(64, 0.02, 0.03),
                    _dome(256, 0.04, 0.03),
                    _dome(1024, 0.08, 0.03),
                ),
                "dome_few_bits": (_dome(1024, 0.08, 0.03),),
            },
        ),
    ),
    # Clips and rates are the task's own, smaller where those of MNIST are.
    "equal_bits_docs": Problem(
        medium.DOCS,
        r"docstrings, 2459 modules, 100 a round, 128 rounds, $d$=39,932, "
        r"$\delta=N^{-1.1}$",
        medium.FLAGS[medium.DOCS],
        _curves(
            24,
            16,
            "toeplitz",
            {
                "gaussian": (Point("b32", {}, 0.5, 1.0),),
                "ddg": (_bits(8, 0.5, 1.0),),
                "l2_csgm": (_rate(10, 0.5, 1.0), _rate(100, 0.5, 0.3)),
                "sketched_ddg": (
                    _sketched(10, 7, 0.5, 0.5),
                    _sketched(100, 10, 0.5, 0.5),
                ),
                "sketched_ddg_once": (_sketched(100, 10, 0.5, 0.3),),
                "mf": (Point("b32", {}, 0.5, 1.0),),
                "sgmf": (_rate(10, 0.5, 1.0), _rate(100, 0.5, 0.3)),
                "dome": (_dome(256, 0.04, 0.01),),
                "dome_whole": (_dome(256, 0.04, 0.03), _dome(1024, 0.08, 0.03)),
                "dome_few_bits": (_dome(1024, 0.08, 0.03),),
            },
        ),
        # Guessing words by their frequency has 4.78.
        most_shown=4.75,
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


def grid(name: str) -> Grid:
    """Returns the grid of a figure in `PROBLEMS`: all points of all curves."""
    problem = PROBLEMS[name]

    def runs(setting: Setting) -> list[Work]:
        return [
            _work(problem, mechanism, point, seed, setting)
            for mechanism, curve in problem.curves.items()
            for point in curve.points
            for seed in medium.SEEDS
        ]

    return runs
