# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures that no paper has: all mechanisms at equal bits, and streams in training.

Every mechanism has one epsilon, with few and with many bits up, on MNIST by writer and
on the docstrings of packages. All train for the same rounds with the same expected
number of clients, and each chooses its clients in the way that suits it:
`dpfl.mechanisms` refuses DOME with Poisson sampling, and SGMF's stream of noise wants a
client's rounds apart. All epsilons hold if a client's contributions are replaced by
zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import medium
from .plotting import Plot
from .sweep import Figure, Grid, Setting
from .trainings import Cell, axis, cross, runs

EPSILON = 8.0
# Name of a point, its flags, clip and server's rate.
Point = tuple[str, Mapping[str, Any], float, float]


def _whole(clip: float, server_lr: float) -> Point:
    return "b32", {}, clip, server_lr


def _rate(rate: float, clip: float, server_lr: float) -> Point:
    return f"r{rate:g}", {"compression_rate": rate}, clip, server_lr


def _bits(bits: int, clip: float, server_lr: float) -> Point:
    return f"b{bits}", {"bits": bits}, clip, server_lr


def _sketched(rate: float, bits: int, clip: float, server_lr: float) -> Point:
    flags = {"compression_rate": rate, "bits": bits}
    return f"r{rate:g}_b{bits}", flags, clip, server_lr


def _dome(size: int, clip: float, server_lr: float) -> Point:
    return f"k{size}", {"sketch_size": size}, clip, server_lr


def _flags(
    rounds_per_epoch: int, groups: int, matrix_method: str
) -> dict[str, Mapping[str, Any]]:
    """Returns the flags of each mechanism of a problem, by the name in a row.

    Args:
      rounds_per_epoch: Those of DOME, whose clients must not be sampled afresh.
      groups: Groups that take turns where noise is correlated, and diagonals of C.
      matrix_method: How C is found.
    """
    poisson = {"participation": "poisson"}
    helpers = {**poisson, "noise_source": "helpers"}
    cyclic = {
        **{"participation": "cyclic_poisson", "min_separation": groups},
        **{"noise_stream": "run", "matrix_method": matrix_method},
        "matrix_bands": groups,
    }
    epochs = {"participation": "once_per_epoch", "rounds_per_epoch": rounds_per_epoch}
    once = {**epochs, "server_momentum": 0.0}
    sketched = {"mechanism": "sketched_ddg", **helpers}
    return {
        "gaussian": {"mechanism": "gaussian", **poisson},
        "ddg": {"mechanism": "distributed_discrete_gaussian", **helpers},
        "skellam": {"mechanism": "distributed_skellam", **helpers},
        "l2_csgm": {"mechanism": "l2_csgm", **poisson},
        "sketched_ddg": sketched,
        # Where clients are chosen as DOME's are.
        "sketched_ddg_once": {**sketched, **epochs},
        "project_and_perturb": {"mechanism": "project_and_perturb", **poisson},
        "linf_csgm": {"mechanism": "linf_csgm", **poisson},
        "mf": {"mechanism": "matrix_factorization", **cyclic},
        "sgmf": {"mechanism": "sgmf", **cyclic},
        "dome": {"mechanism": "dome", **once},
        "dome_whole": {"mechanism": "dome", **once, "mean_removal": False},
        # The best that the ablations of DOME found.
        "dome_few_bits": {
            **{"mechanism": "dome_ddg", **once, "mean_removal": False},
            **{"bits": 8, "max_rank": 1},
        },
    }


TITLES = {
    "gaussian": "Gaussian, Poisson",
    "ddg": "DDG, Poisson",
    "skellam": "Skellam, Poisson",
    "l2_csgm": "L2-CSGM, Poisson",
    "sketched_ddg": "sketched DDG, Poisson",
    "sketched_ddg_once": "sketched DDG, once an epoch",
    "project_and_perturb": "project and perturb, Poisson",
    "linf_csgm": "L∞-CSGM, Poisson",
    "mf": "matrix factorization, cyclic",
    "sgmf": "SGMF, cyclic",
    "dome": "DOME, once an epoch",
    "dome_whole": "DOME, no mean removal, once an epoch",
    "dome_few_bits": "DOME, no mean removal, 8-bit numbers, one kept direction",
}
# Flags of each problem, those of its mechanisms, and their points, with more and more
# bits or fewer and fewer. On docstrings clips and rates are the task's own, smaller
# where those of MNIST are.
PROBLEMS: Mapping[str, tuple[Any, Any, Mapping[str, tuple[Point, ...]]]] = {
    "equal_bits": (
        {
            **{"task": medium.MNIST, "model": "small_cnn", "cohort_size": 100},
            **{"rounds": 48, "client_lr": 0.1, "server_momentum": 0.9},
            **{"delta": 1e-4, "eval_every": 8, "checkpoint_every": 48},
        },
        _flags(8, 8, "banded"),
        {
            "gaussian": (_whole(0.3, 1.0),),
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
            "mf": (_whole(0.3, 1.0),),
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
    "equal_bits_docs": (
        medium.FLAGS[medium.DOCS],
        _flags(24, 16, "toeplitz"),
        {
            "gaussian": (_whole(0.5, 1.0),),
            "ddg": (_bits(8, 0.5, 1.0),),
            "l2_csgm": (_rate(10, 0.5, 1.0), _rate(100, 0.5, 0.3)),
            "sketched_ddg": (
                _sketched(10, 7, 0.5, 0.5),
                _sketched(100, 10, 0.5, 0.5),
            ),
            "sketched_ddg_once": (_sketched(100, 10, 0.5, 0.3),),
            "mf": (_whole(0.5, 1.0),),
            "sgmf": (_rate(10, 0.5, 1.0), _rate(100, 0.5, 0.3)),
            "dome": (_dome(256, 0.04, 0.01),),
            "dome_whole": (_dome(256, 0.04, 0.03), _dome(1024, 0.08, 0.03)),
            "dome_few_bits": (_dome(1024, 0.08, 0.03),),
        },
    ),
}


def _equal_bits(name: str) -> Grid:
    """Returns the grid of a figure in `PROBLEMS`: all points of all mechanisms."""
    shared, flags, points = PROBLEMS[name]

    def grid(setting: Setting) -> list[Any]:
        cells: list[Cell] = []
        for mechanism, tried in points.items():
            for point, own, clip, rate in tried:
                given = {**shared, **flags[mechanism], **own, "clip_norm": clip}
                given |= {"server_lr": rate, "epsilon": EPSILON}
                labels = {"mechanism": mechanism, "point": point}
                cells += cross([(labels, given)], axis("seed", medium.SEEDS))
        return runs(cells, setting)

    return grid


# Of an epoch: the clients suffice for so many cohorts. Groups that take turns, and
# diagonals of C, are the best at this epsilon, by `dpfl-privacy bands`.
ROUNDS_PER_EPOCH, GROUPS = 24, 16
# The clients are the modules of the packages that dpfl pins, 2459 with Python 3.11.
SHARED: Mapping[str, Any] = {
    **{"flagfile": "tasks/docs_packages.flags", "cohort_size": 100, "rounds": 128},
    **{"epsilon": EPSILON, "eval_every": 32, "checkpoint_every": 32},
    "max_test_examples": 4000,
}


def _one_stream(separation: int) -> dict[str, Any]:
    return {
        **{"noise_stream": "run", "min_separation": separation},
        **{"matrix_method": "toeplitz", "matrix_bands": separation},
    }


_EPOCHS = {"participation": "once_per_epoch", "rounds_per_epoch": ROUNDS_PER_EPOCH}
# How clients are chosen and noise is drawn.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "Poisson sampling": {"participation": "poisson"},
    "random slots": {**_EPOCHS, "participation": "random_slot"},
    "by epochs": _EPOCHS,
    "one stream": {**_EPOCHS, **_one_stream(ROUNDS_PER_EPOCH)},
    "one stream, cyclic sampling": {
        "participation": "cyclic_poisson",
        **_one_stream(GROUPS),
    },
}
# Mechanism by its name in a row, compression and ways.
STREAMS: tuple[tuple[str, str, int, tuple[str, ...]], ...] = (
    ("GM", "gaussian", 1, tuple(WAYS)[:2]),
    ("MF", "matrix_factorization", 1, tuple(WAYS)[2:]),
    ("CSGM", "l2_csgm", 10, tuple(WAYS)[:1]),
    ("SGMF", "sgmf", 10, tuple(WAYS)[2:]),
)


def streams_grid(setting: Setting) -> list[Any]:
    """Returns independent noise, noise by epochs and noise in one stream."""
    cells: list[Cell] = []
    for name, mechanism, rate, ways in STREAMS:
        for way in ways:
            given = {**SHARED, "mechanism": mechanism, **WAYS[way]}
            given |= {} if rate == 1 else {"compression_rate": rate}
            labels = {"mechanism": name, "way": way, "rate": rate}
            cells += cross([(labels, given)], axis("seed", medium.SEEDS))
    return runs(cells, setting)


def _with_task(task: str, **names: str) -> Any:
    """Returns what gives rows a task, and columns made of others."""

    def rows(found: Any) -> list[Any]:
        return [
            {**row, "task": task, **{n: of.format(**row) for n, of in names.items()}}
            for row in found
        ]

    return rows


FIGURES = [
    *(
        Figure(
            name,
            f"Ours: all mechanisms at equal epsilon, {what} against bits up",
            _equal_bits(name),
            Plot(
                *("uplink_bits_per_parameter", ("mechanism",)),
                by=("point",),
                rows=_with_task(task),
                log="x",
                titles=TITLES,
            ),
            scales=("medium",),
        )
        for name, task, what in (
            ("equal_bits", medium.MNIST, "accuracy on MNIST"),
            ("equal_bits_docs", medium.DOCS, "loss on docstrings"),
        )
    ),
    Figure(
        "stream_training",
        "Ours: training with independent noise, noise by epochs, and one stream",
        streams_grid,
        Plot(
            *("name", ("mechanism",), ("rate",)),
            rows=_with_task(medium.DOCS, name="{mechanism}, {way}"),
        ),
        scales=("medium",),
    ),
]
