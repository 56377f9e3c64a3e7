# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Denisov et al. 2022: optimal factorizations, exact and in training.

    python -m experiments.reproduce --figure=mf_table2 --scale=small

A stream of noise covers an epoch, in which each client takes part once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import factorization as mf
from dpfl import files

from .. import factorizations, tables
from ..benchmarks import solvers
from ..tables import Row, Rows, where, write_columns
from ..trainings.sweep import Work

MOMENTUM = 0.9
STEP_METHODS = ("honaker-online", "honaker-full", "optimal-prefix-sum", "optimal")
STEP_ROUNDS = {"small": 256, "paper": 2048}
# Number of points of each curve.
_POINTS = 256


def _steps_work(method: str, momentum: float, rounds: int) -> Work:
    def compute(folder: Path) -> Mapping[str, Any]:
        factorization = mf.compute(mf.Workload(rounds, momentum), method)
        steps = factorization.step_errors()
        drawn = np.linspace(1, rounds, min(rounds, _POINTS)).round().astype(int)
        columns = {"round": list(drawn), "squared_error": list(steps[drawn - 1])}
        write_columns(folder / "steps.csv", columns)
        return dataclasses.asdict(factorization.errors())

    return Work({"momentum": momentum, "method": method}, {"rounds": rounds}, compute)


def _steps(scale: str) -> Iterator[Work]:
    """Fig. 1: the error of each step, without momentum and with it."""
    for momentum, method in itertools.product((0.0, MOMENTUM), STEP_METHODS):
        # Without momentum it is the optimal factorization.
        if momentum or method != "optimal-prefix-sum":
            yield _steps_work(method, momentum, STEP_ROUNDS[scale])


TABLE_ROUNDS = {
    "small": (8, 16, 32, 64, 128, 256),
    "paper": (64, 128, 256, 512, 1024, 2048),
}
TABLE_METHODS = (
    *("optimal", "band-low-rank", "banded", "toeplitz", "blt"),
    *("honaker-full", "honaker-online"),
)


def _table_work(rounds: int, method: str) -> Work:
    band, rank = factorizations.band_and_rank(rounds)
    parameters = {
        "band-low-rank": {"band": band, "rank": rank},
        "banded": {"bands": rounds // 2},
        "blt": {"buffers": 3},
    }.get(method, {})

    def compute(_: Path) -> Mapping[str, Any]:
        factorization = mf.compute(mf.prefix_sum(rounds), method, **parameters)
        errors = factorization.errors()
        return {
            "loss": factorization.loss,
            "root_mean": errors.root_mean,
            "max": errors.max,
        }

    return Work({"rounds": rounds, "method": method}, parameters, compute)


def _table(scale: str) -> list[Work]:
    """Table 2: losses of prefix sums over the number of rounds."""
    both = itertools.product(TABLE_ROUNDS[scale], TABLE_METHODS)
    return [_table_work(rounds, method) for rounds, method in both]


def _over_optimal(rows: Rows) -> list[Row]:
    """Rows with their loss over the optimal one of as many rounds."""
    name = "loss_over_the_optimal"
    return tables.over(rows, "loss", "rounds", name, method="optimal")


# (rounds, momentum), and the time limit of the general-purpose solver in seconds.
SOLVED: Mapping[str, tuple[list[tuple[int, float]], float]] = {
    "small": ([(256, 0.0), (256, MOMENTUM)], 30.0),
    "paper": ([(512, 0.0), (512, MOMENTUM), (2048, 0.0), (2048, MOMENTUM)], 4800.0),
}
RTOL = 1e-8
SOLVERS = {
    "accelerated": "fixed point, accelerated",
    "plain": "fixed point, plain",
    "lbfgs": "L-BFGS",
}
# The excess loss up to which the table times.
REACHED = 1e-6


def _solvers_work(rounds: int, momentum: float, max_seconds: float) -> Work:
    """All solvers one after the other, so that their times are of one machine."""

    def compute(folder: Path) -> Mapping[str, Any]:
        workload = mf.Workload(rounds, momentum)
        curves, bounds = {}, []
        for name in ("accelerated", "plain"):
            curves[name], bound = solvers.fixed_point_curve(
                workload, accelerated=name == "accelerated", rtol=RTOL
            )
            bounds.append(bound)
        bound = max(bounds)
        target = bound * (1 + REACHED)
        curves["lbfgs"] = solvers.lbfgs_curve(workload, max_seconds, target)
        measured: dict[str, Any] = {"dual_bound": bound}
        for name, curve in curves.items():
            seconds, losses = (np.array(column) for column in zip(*curve))
            excess = losses / bound - 1
            columns = {"seconds": list(seconds), "excess": list(excess)}
            write_columns(folder / f"{name}.csv", columns)
            reached = seconds[excess <= REACHED]
            measured[f"{name}_evaluations"] = len(curve)
            measured[f"{name}_seconds"] = reached[0] if len(reached) else "not reached"
            measured[f"{name}_excess"] = excess[-1]
        return measured

    labels = {"rounds": rounds, "momentum": momentum}
    settings = {"rtol": RTOL, "reached": REACHED, "max_seconds": max_seconds}
    return Work(labels, settings, compute)


def _solvers(scale: str) -> list[Work]:
    """The work of Fig. 4, one piece for each problem."""
    problems, max_seconds = SOLVED[scale]
    return [_solvers_work(*problem, max_seconds) for problem in problems]


def _evaluations(rows: Rows) -> list[Row]:
    """A row for each evaluation of each solver."""
    return [
        # Rounding may put the excess of a converged loss below zero.
        {
            **{**row, "solver": title, "seconds": point["seconds"]},
            "excess_loss": str(max(float(point["excess"]), 1e-12)),
        }
        for row in rows
        for name, title in SOLVERS.items()
        for point in files.read_csv(Path(row["folder"]) / f"{name}.csv")
    ]


def _constant(rows: Rows) -> list[Row]:
    """Rows with noise, a constant rate, and the default cohort."""
    fewer = "fashion, 12 clients"
    noised = [r for r in where(rows, schedule="constant") if r["problem"] != fewer]
    return [row for row in noised if row["mechanism"] != "no-noise"]


ROWS = {"mf_fig3": _constant, "mf_table2": _over_optimal, "mf_fig4": _evaluations}
WORK = {"mf_fig1": _steps, "mf_table2": _table, "mf_fig4": _solvers}
