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
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dpfl import mechanisms, tasks

from .. import medium, off_axis, plotting
from ..result_rows import Row, Rows, distinct, mean_and_range, numbers, where
from ..sweep import Drawing, Grid, Setting, Work
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


_ARROW = off_axis.arrow(is_above=True)
# Bits within this ratio count as equal, and how many times the next one's place is.
_EQUAL = 1.01
_NEXT = 1.05


def _points(rows: Rows, column: str) -> list[plotting.Point]:
    """Returns bits, mean and range of each point of a curve, from few bits to many."""
    groups: dict[str, list[Row]] = {}
    for name in distinct(rows, "point"):
        groups[name] = where(rows, point=name)
    found = []
    for runs in groups.values():
        bits = numbers(runs, "uplink_bits_per_parameter")
        found.append((sum(bits) / len(bits), *mean_and_range(runs, column)))
    return sorted(found)


def _beside(
    lines: Mapping[str, list[plotting.Point]],
) -> dict[str, list[plotting.Point]]:
    """Returns points of several lines, those of equal bits side by side."""
    places = sorted(point[0] for points in lines.values() for point in points)
    found: dict[str, list[plotting.Point]] = {name: [] for name in lines}
    while places:
        near = [place for place in places if place < places[0] * _EQUAL]
        places = places[len(near) :]
        group = [
            (name, point)
            for name, points in lines.items()
            for point in points
            if point[0] in near
        ]
        for number, (name, (place, *reach)) in enumerate(group):
            away = _NEXT ** (number - (len(group) - 1) / 2)
            found[name].append((place * away, *reach))
    return {name: sorted(points) for name, points in found.items()}


def draw(name: str) -> Drawing:
    """Returns the drawing of one of the figures in `PROBLEMS`."""
    return functools.partial(_draw, PROBLEMS[name])


def _draw(problem: Problem, rows: Rows, scale: str) -> Any:
    """Draws a line for each mechanism, the range over seeds at each point."""
    import matplotlib.pyplot as plt

    del scale
    measure = tasks.task_entry(problem.task).measure
    less = "less" if measure.lower_is_better else "more"
    picture, axis = plt.subplots(figsize=(9.4, 5.6), layout="constrained")
    lines = {
        name: _points(where(rows, mechanism=name), measure.final_column)
        for name in problem.curves
        if where(rows, mechanism=name)
    }
    found: list[plotting.Drawn] = []
    for name, points in _beside(lines).items():
        title = _curve_title(problem, name, points)
        # The star is not to be hidden.
        front = 3 if name == "gaussian" else 2
        plotting.ranges(axis, points, title, zorder=front, **plotting.look(name))
        found += [(point, plotting.STYLES[name][0]) for point in points]
    axis.set(
        xscale="log",
        xlabel="bits up a parameter, client and round, helpers' included; "
        "equal ones side by side",
        ylabel=f"final {measure.label}, {less} is better",
    )
    if problem.most_shown is not None:
        axis.set_ylim(top=problem.most_shown)
        off_axis.name_beyond(axis, found, is_above=True)
    is_cut = any(_is_beyond(problem, points) for points in lines.values())
    arrow = f"; {_ARROW}: beyond the axis" if is_cut else ""
    axis.set_title(_title(rows, problem) + arrow)
    # So that the axis has two numbers and more.
    axis.set_xlim(left=min(axis.get_xlim()[0], 0.095))
    plotting.plain_numbers(axis)
    picture.legend(
        loc="outside lower center", ncol=3, title="mechanism, how clients are chosen"
    )
    return picture


def _is_beyond(problem: Problem, points: Sequence[plotting.Point]) -> bool:
    """Returns whether a mean is beyond what the axis shows."""
    most = problem.most_shown
    return most is not None and any(mean > most for _, mean, _, _ in points)


def _curve_title(problem: Problem, name: str, points: Sequence[plotting.Point]) -> str:
    """Returns what the legend calls a curve, and that the arrow is its own."""
    title = problem.curves[name].title
    return f"{title} {_ARROW}" if _is_beyond(problem, points) else title


def _title(rows: Rows, problem: Problem) -> str:
    """Returns what all curves share, and over how many seeds each point speaks."""
    counts = {
        len(where(rows, mechanism=row["mechanism"], point=row["point"])) for row in rows
    }
    least, most = min(counts), max(counts)
    count = f"{most}" if least == most else f"{least} to {most}"
    word = "seed" if count == "1" else "seeds"
    budget = rf"$\varepsilon$={EPSILON:g}"
    return f"{problem.title}, {budget}; mean and range of {count} {word}"
