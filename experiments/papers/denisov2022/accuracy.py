# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 3 and 6: runs with momentum and schedules, at equal epsilon.

A stream of noise is an epoch, in which each client takes part once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import mechanisms, tasks

from .. import medium, off_axis, plotting
from ..result_rows import Rows, distinct, mean_and_range, seeds, where
from ..sweep import Setting, Work
from ..trainings import Problem, without_budget
from .errors import MOMENTUM, TITLES

# Of the medium scale: the clients are dealt into 49 rounds.
_ONE_PASS = {
    "rounds": 49,
    "rounds_per_epoch": 49,
    "eval_every": 7,
    "checkpoint_every": 49,
}
# One pass over the clients; the paper's 2048 rounds of 100 clients are part of one.
PROBLEMS: Mapping[str, tuple[Problem, ...]] = {
    "small": (
        Problem(
            "digits",
            {
                "task": "digits",
                "num_clients": 400,
                "cohort_size": 10,
                "rounds": 40,
                "delta": 1e-3,
            },
        ),
    ),
    # The paper's task is the prediction of words. On MNIST a round has 17 writers, so
    # that a pass is long enough for streams to differ.
    "medium": (
        Problem(
            medium.MNIST,
            {**medium.FLAGS[medium.MNIST], **_ONE_PASS, "cohort_size": 17},
        ),
        Problem(
            medium.DOCS,
            {
                **medium.FLAGS[medium.DOCS],
                **_ONE_PASS,
                "cohort_size": 50,
                "server_lr": 2.0,
            },
        ),
    ),
    "paper": (
        Problem(
            "stackoverflow",
            {
                "flagfile": "tasks/stackoverflow.flags",
                "cohort_size": 100,
                "rounds": 2048,
                "rounds_per_epoch": 2048,
                "client_lr": 1.0,
                "server_lr": 0.5,
                "clip_norm": 1.0,
                "eval_every": 32,
            },
        ),
    ),
}

# Of the medium scale the server's rate by budget and method: the best of those that
# were tried on the validation set (docs/results/medium_validation.csv). At one rate for
# all, factorizations with more noise lose more than they have to. Schedules have the
# rate of the constant one.
_METHODS = ("honaker-online", "honaker-full", "optimal-prefix-sum", "optimal")
NO_NOISE = "no-noise"
_SERVER_RATES: Mapping[str, Mapping[float, Mapping[str, float]]] = {
    medium.MNIST: {
        4.0: dict(zip(_METHODS, (0.2, 0.1, 0.2, 0.2))),
        8.0: dict(zip(_METHODS, (0.2, 0.2, 0.5, 1.0))),
        16.0: dict(zip(_METHODS, (0.5, 0.5, 1.0, 1.0))),
        math.inf: {NO_NOISE: 4.0},
    },
    medium.DOCS: {
        2.0: dict.fromkeys(_METHODS, 1.0),
        4.0: dict(zip(_METHODS, (1.0, 2.0, 2.0, 2.0))),
        8.0: dict.fromkeys(_METHODS, 2.0),
        16.0: dict.fromkeys(_METHODS, 2.0),
        math.inf: {NO_NOISE: 2.0},
    },
}


def _own_rate(
    problem: Problem, method: str, epsilon: float, setting: Setting
) -> Mapping[str, float]:
    """Returns the flag of a stream that has a server's rate of its own."""
    if setting.scale != "medium":
        return {}
    return {"server_lr": _SERVER_RATES[problem.name][epsilon][method]}


_IN_MATRIX = {"matrix_momentum": MOMENTUM, "server_momentum": 0.0}
_ON_SERVER = {"matrix_momentum": 0.0, "server_momentum": MOMENTUM}
# A prefix sum with momentum after it, or momentum in the matrix; by mechanism and
# schedule.
STREAMS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("honaker-online", "constant"): {"matrix_method": "honaker-online", **_ON_SERVER},
    ("honaker-full", "constant"): {"matrix_method": "honaker-full", **_ON_SERVER},
    ("optimal-prefix-sum", "constant"): {"matrix_method": "optimal", **_ON_SERVER},
    **{
        ("optimal", schedule): {
            "matrix_method": "optimal",
            "matrix_schedule": schedule,
            **_IN_MATRIX,
        }
        for schedule in ("constant", "drop", "cooldown")
    },
}


def _work(
    problem: Problem,
    stream: tuple[str, str],
    epsilon: float,
    seed: int,
    setting: Setting,
) -> Work:
    method, schedule = stream
    labels = {
        "mechanism": method,
        "schedule": schedule,
        "epsilon": epsilon,
        "seed": seed,
    }
    flags = {
        "mechanism": mechanisms.MatrixFactorization.name,
        **STREAMS[stream],
        "epsilon": epsilon,
        "seed": seed,
        **_own_rate(problem, method, epsilon, setting),
    }
    return problem.work(labels, flags, setting)


def _without_noise(problem: Problem, seed: int, setting: Setting) -> Work:
    """Returns a run of the prefix sum, with momentum after it, without noise."""
    labels = {
        "mechanism": NO_NOISE,
        "schedule": "constant",
        "epsilon": math.inf,
        "seed": seed,
    }
    flags = {
        "mechanism": mechanisms.Gaussian.name,
        "noise_multiplier": 0.0,
        "server_momentum": MOMENTUM,
        "seed": seed,
        **_own_rate(problem, NO_NOISE, math.inf, setting),
    }
    plain = Problem(problem.name, without_budget(problem.flags))
    return plain.work(labels, flags, setting)


# By problem; each budget of Denisov et al., Table 4, at paper scale. On MNIST with 17
# clients a round nothing was learned at epsilon 2 with a rate of 0.5, and no other was
# tried.
BUDGETS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "small": {"digits": (1.0, 2.0, 4.0)},
    "medium": {
        medium.MNIST: (4.0, 8.0, 16.0),
        medium.DOCS: (2.0, 4.0, 8.0, 16.0),
    },
    "paper": {"stackoverflow": (0.8, 1.7, 3.7, 8.2, 18.9)},
}
SEEDS = {"small": (1, 2), "medium": medium.SEEDS, "paper": (1, 2, 3)}


def budgets_grid(setting: Setting) -> list[Work]:
    """Returns Fig. 3: every stream at every budget, and none."""
    streams = [
        _work(problem, stream, epsilon, seed, setting)
        for problem in PROBLEMS[setting.scale]
        for epsilon in BUDGETS[setting.scale][problem.name]
        for stream in STREAMS
        for seed in SEEDS[setting.scale]
    ]
    plain = [
        _without_noise(problem, seed, setting)
        for problem in PROBLEMS[setting.scale]
        for seed in SEEDS[setting.scale]
    ]
    return streams + plain


FINAL_EPSILON = {"small": 4.0, "medium": 8.0, "paper": 8.2}
FINAL_STREAMS = [stream for stream in STREAMS if stream[0].startswith("optimal")]


def final_grid(setting: Setting) -> list[Work]:
    """Returns Fig. 6: the optimal streams at one budget."""
    return [
        _work(problem, stream, FINAL_EPSILON[setting.scale], seed, setting)
        for problem in PROBLEMS[setting.scale]
        for stream in FINAL_STREAMS
        for seed in SEEDS[setting.scale]
    ]


_STREAM_TITLES = {
    **{(method, "constant"): title for method, title in TITLES.items()},
    ("optimal", "constant"): "optimal, momentum in the matrix",
    ("optimal", "drop"): "optimal, momentum, rate drops",
    ("optimal", "cooldown"): "optimal, momentum, cooldown",
}
# Schedules of one matrix have its color; what tells them from a constant rate.
_SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "constant": {},
    "drop": {"marker": "s", "mfc": "white"},
    "cooldown": {"marker": "^", "mfc": "white"},
}
_LOOKS = {
    (method, schedule): {
        **plotting.look(method, list(_SCHEDULES).index(schedule)),
        **_SCHEDULES[schedule],
    }
    for method, schedule in STREAMS
}
_PANELS = {
    "rate constant over rounds": [s for s in STREAMS if s[1] == "constant"],
    "rate schedules in the matrix": [s for s in STREAMS if s[0] == "optimal"],
}
# Share of the training that Fig. 6 shows; the schedules change the last quarter.
_FINAL_PART = 0.5
# Inches below the panels in which the legend stands.
_LEGEND = 0.6


def _legend(picture: Any, axes: Sequence[Any]) -> None:
    """Draws one legend for all panels below them, where it hides no data."""
    found: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles))
    share = _LEGEND / picture.get_figheight()
    picture.tight_layout(rect=(0, share, 1, 1))
    if found:
        picture.legend(found.values(), found, loc="lower center", ncol=3)


def _rates(scale: str) -> str:
    """Returns what a title says of the server's rates."""
    return "each with its own server rate; " if scale == "medium" else ""


def _arrows(is_cut: bool) -> str:
    """Returns what a title says of arrows, if there are any."""
    return "; arrows: beyond the axis" if is_cut else ""


def draw_budgets(rows: Rows, scale: str) -> Any:
    """Draws constant rates on the left and schedules on the right.

    Each problem has a line of panels, whose axis leaves out what is far below the
    others, or above them where less is better, and writes it at its end.
    """
    import matplotlib.pyplot as plt

    problems = distinct(rows, "problem")
    picture, axes = plt.subplots(
        len(problems),
        len(_PANELS),
        figsize=(9.5, 3.3 * len(problems) + _LEGEND),
        sharey="row",
        squeeze=False,
    )
    is_cut = [
        _budgets(line, where(rows, problem=problem), problem)
        for line, problem in zip(axes, problems)
    ]
    beside = r"side by side at each $\varepsilon$"
    shown = f"{seeds(rows)}, {beside}{_arrows(any(is_cut))}"
    picture.suptitle(f"one pass; {_rates(scale)}{shown}")
    _legend(picture, axes.flat)
    return picture


def _budgets(line: Sequence[Any], rows: Rows, problem: str) -> bool:
    """Draws the panels of one problem; returns whether points are beyond their axis."""
    plain = where(rows, mechanism=NO_NOISE)
    budgets = [e for e in distinct(rows, "epsilon") if math.isfinite(float(e))]
    places = [float(e) for e in budgets]
    # How many times the budget before the next one is.
    step = min((b / a for a, b in zip(places, places[1:])), default=1.0)
    measure = tasks.task_entry(problem).measure
    found: list[plotting.Drawn] = []
    for axis, (title, streams) in zip(line, _PANELS.items()):
        for number, stream in enumerate(streams):
            runs = where(rows, mechanism=stream[0], schedule=stream[1])
            groups = {float(e): where(runs, epsilon=e) for e in budgets}
            points = plotting.range_points(groups, measure.final_column)
            look = _LOOKS[stream]
            if points:
                # Budgets are on a logarithmic axis.
                away = step ** plotting.aside(number, len(streams))
                shown = [(place * away, *reach) for place, *reach in points]
                plotting.ranges(axis, shown, _STREAM_TITLES[stream], **look)
                found += [(point, look["color"]) for point in points]
        if plain:
            best, below, above = mean_and_range(plain, measure.final_column)
            axis.axhline(
                best, color="k", ls=":", lw=1.2, label="no noise: mean and range"
            )
            axis.axhspan(best - below, best + above, color="k", alpha=0.06, lw=0)
            # A point of it keeps the line within the axis.
            found.append(((max(places), best, 0.0, 0.0), "k"))
        axis.set_title(f"{problem}, {title}")
        axis.set(xscale="log", xlabel=r"$\varepsilon$")
        axis.set_xticks(places, [f"{place:g}" for place in places], minor=False)
        axis.minorticks_off()
        # Room for what is written beside the least and the largest budget.
        axis.margins(x=0.08)
    less = measure.lower_is_better
    line[0].set_ylabel(f"final {measure.label}")
    return off_axis.leave_out_far(line[0], found, lower_is_better=less)


def draw_final(rows: Rows, scale: str) -> Any:
    """Draws the final part of the training, a panel a problem, a line a stream."""
    problems = distinct(rows, "problem")
    picture, axes = plotting.panels(len(problems), 6, 4)
    is_cut = False
    for axis, problem in zip(axes, problems):
        measure = tasks.task_entry(problem).measure
        streams = {
            stream: where(
                rows, problem=problem, mechanism=stream[0], schedule=stream[1]
            )
            for stream in FINAL_STREAMS
        }
        lines = [
            plotting.Line(runs, _STREAM_TITLES[stream], _LOOKS[stream])
            for stream, runs in streams.items()
            if runs
        ]
        found = plotting.last_rounds(axis, lines, measure.column, _FINAL_PART)
        less = measure.lower_is_better
        is_cut |= off_axis.leave_out_far(axis, found, lower_is_better=less)
        epsilon = rf"$\varepsilon$={FINAL_EPSILON[scale]:g}"
        axis.set_title(f"{problem}, one pass, {epsilon}")
        axis.set(xlabel="round", ylabel=measure.label)
    shown = f"{seeds(rows)}{_arrows(is_cut)}"
    picture.suptitle(f"second half of the rounds; {_rates(scale)}{shown}")
    _legend(picture, axes)
    return picture
