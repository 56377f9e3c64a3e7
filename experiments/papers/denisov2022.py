# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Denisov et al. 2022: optimal factorizations, exact and in training.

    dpfl-reproduce --figure=mf_table2 --scale=small

A stream of noise covers an epoch, in which each client takes part once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import factorization as mf
from dpfl import files

from .. import factorizations
from ..tables import Row, Rows, where, write_columns
from . import medium, sweep
from .plotting import Plot
from .sweep import SCALES, Cell, Curves, Figure, Work, axis, cross

_PAPER = "Denisov et al. 2022"

MOMENTUM = 0.9
TITLES = {
    "honaker-online": "Honaker online",
    "honaker-full": "Honaker full",
    "optimal-prefix-sum": "optimal prefix sum",
    "optimal": "optimal",
}
STEP_ROUNDS = {"small": 256, "paper": 2048}
STEPS = Curves(("squared_error",), "steps.csv")
# Label of each curve.
_POINTS = 256


def _steps_work(method: str, momentum: float, rounds: int) -> Work:
    def compute(folder: Path) -> Mapping[str, Any]:
        factorization = mf.compute(mf.Workload(rounds, momentum), method)
        steps = factorization.step_errors()
        drawn = np.linspace(1, rounds, min(rounds, _POINTS)).round().astype(int)
        columns = {STEPS.place: drawn, STEPS.columns[0]: steps[drawn - 1]}
        write_columns(
            folder / STEPS.file, {name: list(c) for name, c in columns.items()}
        )
        return dataclasses.asdict(factorization.errors())

    return Work({"momentum": momentum, "method": method}, {"rounds": rounds}, compute)


def _steps(scale: str) -> Iterator[Work]:
    """Fig. 1: the error of each step, without momentum and with it."""
    for momentum, method in itertools.product((0.0, MOMENTUM), TITLES):
        # Without momentum it is the optimal factorization.
        if momentum or method != "optimal-prefix-sum":
            yield _steps_work(method, momentum, STEP_ROUNDS[scale])


TABLE_ROUNDS = {
    "small": (8, 16, 32, 64, 128, 256),
    "paper": (64, 128, 256, 512, 1024, 2048),
}
TABLE_METHODS = {
    "optimal": "optimal",
    "band-low-rank": "band + low rank",
    "banded": "banded C, T/2 diagonals",
    "toeplitz": "Toeplitz C",
    "blt": "buffered Toeplitz C, 3 buffers",
    "honaker-full": "Honaker full",
    "honaker-online": "Honaker online",
}


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
    best = {r["rounds"]: float(r["loss"]) for r in rows if r["method"] == "optimal"}
    return [
        {**row, "loss_over_the_optimal": str(float(row["loss"]) / best[row["rounds"]])}
        for row in rows
        if row["rounds"] in best
    ]


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
# Columns of the seconds that each solver took, or words if it did not finish.
SECONDS = tuple(f"{name}_seconds" for name in SOLVERS)
# The excess loss up to which the table times.
REACHED = 1e-6


def _solvers_work(rounds: int, momentum: float, max_seconds: float) -> Work:
    """All solvers one after the other, so that their times are of one machine."""

    def compute(folder: Path) -> Mapping[str, Any]:
        workload = mf.Workload(rounds, momentum)
        curves, bounds = {}, []
        for name in ("accelerated", "plain"):
            curves[name], bound = factorizations.fixed_point_curve(
                workload, accelerated=name == "accelerated", rtol=RTOL
            )
            bounds.append(bound)
        bound = max(bounds)
        target = bound * (1 + REACHED)
        curves["lbfgs"] = factorizations.lbfgs_curve(workload, max_seconds, target)
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


# Rounds of the medium scale: the clients are dealt into 49 rounds.
_ONE_PASS = {
    **{"rounds": 49, "rounds_per_epoch": 49},
    **{"eval_every": 7, "checkpoint_every": 49},
}
_DIGITS = {"task": "digits", "num_clients": 400, "cohort_size": 10, "rounds": 40}
_FASHION = {
    **medium.FLAGS[medium.FASHION],
    **{"cohort_size": 20, "rounds_per_epoch": 100, "eval_every": 10},
}
# Three fifths of the clients, as the paper's 100 of 167 clients a round.
FEWER = "fashion, 12 clients"
# One pass over the clients; the paper's 2048 rounds of 100 clients are part of one. On
# MNIST a round has 17 writers, so that a pass is long enough for streams to differ.
PROBLEMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "small": {"digits": {**_DIGITS, "delta": 1e-3}},
    "medium": {
        "mnist": {**medium.FLAGS[medium.MNIST], **_ONE_PASS, "cohort_size": 17},
        "fashion": _FASHION,
        FEWER: {**_FASHION, "cohort_size": 12},
    },
    "paper": {
        "stackoverflow": {
            **{"flagfile": "tasks/stackoverflow.flags", "cohort_size": 100},
            **{"rounds": 2048, "rounds_per_epoch": 2048, "eval_every": 32},
            **{"client_lr": 1.0, "server_lr": 0.5, "clip_norm": 1.0},
        },
    },
}

# The server's rate at the medium scale by budget and method: the best of the tried ones
# on the validation set (docs/results/medium_validation.csv for MNIST, and
# mf_search.csv). At one rate for all, factorizations with more noise lose more than
# they have to. On MNIST schedules have the rate of the constant one. Combinations
# without a rate are not run.
NO_NOISE = "no-noise"
_TUNED = (*TITLES, "optimal drop", "optimal cooldown")
_TUNED_OF_FEWER = ("honaker-online", *_TUNED[3:])
_SERVER_RATES: Mapping[str, Mapping[float, Mapping[str, float]]] = {
    medium.MNIST: {
        4.0: dict(zip(TITLES, (0.2, 0.1, 0.2, 0.2))),
        8.0: dict(zip(TITLES, (0.2, 0.2, 0.5, 1.0))),
        16.0: dict(zip(TITLES, (0.5, 0.5, 1.0, 1.0))),
        math.inf: {NO_NOISE: 4.0},
    },
    medium.FASHION: {
        2.0: dict(zip(_TUNED, (0.1, 0.2, 0.2, 0.2, 0.5, 0.5))),
        8.0: dict(zip(_TUNED, (0.5, 0.5, 1.0, 1.0, 1.0, 1.0))),
        math.inf: {NO_NOISE: 1.0, f"{NO_NOISE} cooldown": 2.0},
    },
    FEWER: {
        2.0: dict(zip(_TUNED_OF_FEWER, (0.1, 0.2, 0.2, 0.5))),
        8.0: dict(zip(_TUNED_OF_FEWER, (0.2, 0.5, 1.0, 1.0))),
    },
}
_ON_SERVER = {"matrix_momentum": 0.0, "server_momentum": MOMENTUM}
_IN_MATRIX = {"matrix_momentum": MOMENTUM, "server_momentum": 0.0}
_OPTIMAL = {"matrix_method": "optimal", **_IN_MATRIX}
# Streams: a prefix sum with momentum after it, or momentum in the matrix; by mechanism
# and schedule.
STREAMS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("honaker-online", "constant"): {"matrix_method": "honaker-online", **_ON_SERVER},
    ("honaker-full", "constant"): {"matrix_method": "honaker-full", **_ON_SERVER},
    ("optimal-prefix-sum", "constant"): {"matrix_method": "optimal", **_ON_SERVER},
    ("optimal", "constant"): {"matrix_schedule": "constant", **_OPTIMAL},
    ("optimal", "drop"): {"matrix_schedule": "drop", **_OPTIMAL},
    ("optimal", "cooldown"): {"matrix_schedule": "cooldown", **_OPTIMAL},
}
# Flags by schedule. A falling rate is the matrix's, also without noise.
_WITHOUT_NOISE: Mapping[str, Mapping[str, Any]] = {
    "constant": {"mechanism": "gaussian", "server_momentum": MOMENTUM},
    "cooldown": {"mechanism": "matrix_factorization", **STREAMS["optimal", "cooldown"]},
}
# Budgets by problem; each budget of Denisov et al., Table 4, at paper scale. On MNIST
# with 17 clients a round nothing was learned at epsilon 2 with a rate of 0.5, and no
# other was tried.
BUDGETS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "small": {"digits": (1.0, 2.0, 4.0)},
    "medium": {
        medium.MNIST: (4.0, 8.0, 16.0),
        **dict.fromkeys((medium.FASHION, FEWER), (2.0, 8.0)),
    },
    "paper": {"stackoverflow": (0.8, 1.7, 3.7, 8.2, 18.9)},
}
# Seeds by problem; on Fashion-MNIST a run takes seconds.
SEEDS = {
    # Two of the paper's three, with which Fig. 3 is a day of one card.
    **{"digits": (1, 2), "stackoverflow": (1, 2), medium.MNIST: medium.SEEDS},
    **dict.fromkeys((medium.FASHION, FEWER), tuple(range(1, 11))),
}


def _cells(problem: str, scale: str, streams: Any, epsilon: float) -> list[Cell]:
    """The runs of streams at a budget; infinity means no noise."""
    cells: list[Cell] = []
    for method, schedule in streams:
        flags: dict[str, Any] = dict(PROBLEMS[scale][problem])
        if method == NO_NOISE:
            flags = {**sweep.without_budget(flags), "noise_multiplier": 0.0}
            flags |= _WITHOUT_NOISE[schedule]
        else:
            flags |= {"mechanism": "matrix_factorization", "epsilon": epsilon}
            flags |= STREAMS[method, schedule]
        if scale == "medium":
            rates = _SERVER_RATES[problem].get(epsilon, {})
            rate = rates.get(f"{method} {schedule}", rates.get(method))
            if rate is None:
                continue
            flags["server_lr"] = rate
        flags["participation"] = "once_per_epoch"
        labels = {"problem": problem, "mechanism": method, "schedule": schedule}
        cells.append(({**labels, "epsilon": epsilon}, flags))
    return cross(cells, axis("seed", SEEDS[problem]))


def _budgets(scale: str) -> Iterator[Cell]:
    """The runs of Fig. 3: every stream at every budget, and without noise."""
    for problem, epsilons in BUDGETS[scale].items():
        for epsilon in epsilons:
            yield from _cells(problem, scale, STREAMS, epsilon)
    for problem in PROBLEMS[scale]:
        # Rates are each schedule's own on Fashion-MNIST alone.
        schedules = list(_WITHOUT_NOISE)[: None if problem == medium.FASHION else 1]
        streams = [(NO_NOISE, schedule) for schedule in schedules]
        yield from _cells(problem, scale, streams, math.inf)


FINAL_EPSILON = {"small": 4.0, "medium": 8.0, "paper": 8.2}


def _final(scale: str) -> Iterator[Cell]:
    """The runs of Fig. 6: the optimal streams at one budget."""
    streams = [stream for stream in STREAMS if stream[0].startswith("optimal")]
    for problem in PROBLEMS[scale]:
        if problem != FEWER:
            yield from _cells(problem, scale, streams, FINAL_EPSILON[scale])


def _constant(rows: Rows) -> list[Row]:
    """Rows with noise, a constant rate, and the default cohort."""
    noised = [r for r in where(rows, schedule="constant") if r["problem"] != FEWER]
    return [row for row in noised if row["mechanism"] != NO_NOISE]


FIGURES = [
    Figure(
        "mf_fig1",
        f"{_PAPER}, Fig. 1: squared error of each step, four mechanisms, exact",
        _steps,
        Plot("round", "method", "momentum", STEPS.columns[0], titles=TITLES),
        curves=STEPS,
    ),
    Figure(
        "mf_table2",
        f"{_PAPER}, Table 2: losses of prefix sums over the number of rounds, exact",
        _table,
        Plot(
            *("rounds", "method", "", "loss_over_the_optimal"),
            rows=_over_optimal,
            log="x",
            titles=TABLE_METHODS,
        ),
    ),
    Figure(
        "mf_fig3",
        f"Over budgets optimal matrices beat trees: {_PAPER}, Figs. 2 and 3",
        _budgets,
        Plot(
            *("epsilon", "mechanism", "problem"),
            rows=_constant,
            log="x",
            titles=TITLES,
            baseline="honaker-online",
        ),
        *("mf_sweep", SCALES),
    ),
    Figure(
        "mf_fig4",
        f"{_PAPER}, Fig. 4: loss against time of the fixed point and of L-BFGS",
        _solvers,
        Plot(
            *("seconds", "solver", "momentum rounds", "excess_loss"),
            rows=_evaluations,
            log="xy",
        ),
        words=SECONDS,
        needs_folders="it shows each evaluation of each solver",
    ),
    Figure(
        "mf_fig6",
        f"{_PAPER}, Fig. 6: accuracy over the final part of training",
        _final,
        Plot("round", "mechanism schedule", "problem"),
        *("mf_sweep", SCALES, sweep.EVALUATED),
    ),
]
