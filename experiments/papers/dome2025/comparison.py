# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME against others, at equal rounds, epsilon and bits up; and the tuning."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dpfl import mechanisms, tasks
from dpfl.mechanisms.integer import ROTATED_DIMENSION
from dpfl.mechanisms.mechanism import COUNT_BITS, FLOAT_BITS, SEED_BITS

from ... import flag_files
from .. import medium, off_axis, plotting
from ..result_rows import (
    Rows,
    distinct,
    mean_and_range,
    numbers,
    parameters,
    seeds,
    short,
    where,
)
from ..sweep import Drawing, Grid, Setting, Work
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


def budget_label(epsilon: str) -> str:
    """Returns a budget in words."""
    if math.isinf(float(epsilon)):
        return "no noise"
    return rf"$\varepsilon$={float(epsilon):g}"


def kind(name: str) -> str:
    """Returns whose color a mechanism of the comparison has, a key of its STYLES."""
    first = name.split("_")[0]
    return {"l2": "l2_csgm", "sketched": "sketched_ddg"}.get(first, first)


def budget_marker(epsilon: str, found: Sequence[str]) -> dict[str, Any]:
    """Returns how a budget is told: hollow without noise, else by the marker's form."""
    if math.isinf(float(epsilon)):
        return {"marker": "o", "mfc": "none"}
    return {"marker": "os^D"[found.index(epsilon)]}


def budgets(rows: Rows) -> list[str]:
    """Returns the budgets in rows, the smallest first."""
    return sorted(distinct(rows, "epsilon"), key=float)


def bits(rows: Rows) -> str:
    """Returns the bits of a parameter up and down, in words.

    Where a budget is finite they are the mean over such runs: DOME sends more
    directions down under noise.
    """
    private = [row for row in rows if math.isfinite(float(row["epsilon"]))]
    up, down = (
        mean_and_range(private or rows, f"{way}link_bits_per_parameter")[0]
        for way in ("up", "down")
    )
    return f"{short(up)} up, {short(down)} down"


def shared(rows: Rows, grid: Grid, scale: str) -> str:
    """Returns what the runs of one task share, in words.

    Args:
      rows: Of the task.
      grid: Of the figure, whose runs have as many clients a round on a task.
      scale: Of the grid.
    """
    task = rows[0]["task"]
    works = [work for work in grid(Setting(scale)) if work.labels["task"] == task]
    words = [task, f"{works[0].settings['cohort_size']} clients a round"]
    found = budgets(rows)
    # The legend has them where there are more.
    words += [budget_label(found[0])] if len(found) == 1 else []
    return f"{', '.join(words)}\n{parameters(rows)}"


def dots(
    axis: Any, rows: Rows, titles: Mapping[str, str], title: str, *, with_bits: bool
) -> None:
    """Draws a line for each mechanism, a dot with its range for each budget.

    Args:
      axis: A panel; the legend has what is labelled in it, and budgets if there are
        many.
      rows: Of one task.
      titles: What a line is called, by the mechanism's name in a row.
      title: Of the panel.
      with_bits: Whether lines say how many bits a parameter takes.
    """
    from matplotlib import ticker

    measure = tasks.task_entry(rows[0]["task"]).measure
    shown = [name for name in titles if where(rows, mechanism=name)]
    found = budgets(rows)
    for i, epsilon in enumerate(found):
        look = budget_marker(epsilon, found)
        for line, name in enumerate(shown):
            runs = where(rows, mechanism=name, epsilon=epsilon)
            if runs:
                mean, down, up = mean_and_range(runs, measure.final_column)
                axis.errorbar(
                    [mean],
                    [line + 0.18 * (i - (len(found) - 1) / 2)],
                    xerr=[[down], [up]],
                    color=plotting.STYLES[kind(name)][0],
                    ls="",
                    elinewidth=1,
                    **look,
                )
        if len(found) > 1:
            label = budget_label(epsilon)
            axis.plot([], [], color="0.3", ls="", label=label, **look)
    names = [
        f"{titles[name]}\n{bits(where(rows, mechanism=name))}"
        if with_bits
        else titles[name]
        for name in shown
    ]
    axis.set_yticks(range(len(shown)), names)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.set_xlabel(f"final {measure.label}")
    # More would touch at the width of a page.
    axis.xaxis.set_major_locator(ticker.MaxNLocator(6))
    handles, labels = axis.get_legend_handles_labels()
    axis.set_title(title, pad=26 if labels else None)
    if labels:
        # Between title and panel, where no dot is.
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
        axis.legend(handles, labels, ncol=3, frameon=False, **place)


def draw(grid: Grid) -> Drawing:
    """Returns the drawing of a comparison, whose runs are those of a grid."""
    return functools.partial(_draw, grid)


def _draw(grid: Grid, rows: Rows, scale: str) -> Any:
    """Draws the comparison, a panel for each task, one above the other."""
    import matplotlib.pyplot as plt

    shown = distinct(rows, "task")
    heights = [
        1.5 + 0.4 * len(distinct(where(rows, task=task), "mechanism")) for task in shown
    ]
    # Side by side the names would leave no room for the dots.
    picture, axes = plt.subplots(
        len(shown),
        1,
        figsize=(7.0, 0.3 + sum(heights)),
        height_ratios=heights,
        squeeze=False,
    )
    for axis, task in zip(axes.flat, shown):
        own = where(rows, task=task)
        dots(axis, own, TITLES, shared(own, grid, scale), with_bits=True)
    picture.suptitle(f"bits of a parameter, client and round; {seeds(rows)}")
    picture.tight_layout()
    return picture


def _tuning_looks(rows: Rows) -> dict[str, dict[str, Any]]:
    """Returns how the lines of each mechanism of one task look."""
    shown = [name for name in TITLES if where(rows, mechanism=name)]
    looks = {}
    for name in shown:
        akin = [other for other in shown if kind(other) == kind(name)]
        looks[name] = plotting.look(kind(name), akin.index(name))
        if len(akin) > 1:
            shade = plotting.shade(kind(name), akin.index(name), len(akin))
            looks[name]["color"] = shade
    return looks


def _tried(
    axis: Any, rows: Rows, name: str, look: Mapping[str, Any], column: str
) -> list[plotting.Point]:
    """Draws a line for each clip of a mechanism, and returns its points."""
    found: list[plotting.Point] = []
    for clip, marker in zip(distinct(rows, "clip_norm"), "os"):
        line = where(rows, clip_norm=clip)
        places, values = numbers(line, "server_lr"), numbers(line, column)
        label = f"{TITLES[name]}, clip {float(clip):g}"
        axis.plot(places, values, label=label, **{**look, "marker": marker, "ms": 4})
        found += [(x, y, 0.0, 0.0) for x, y in zip(places, values)]
    return found


def _ring(
    axis: Any, rows: Rows, choice: tuple[float, float], color: str, column: str
) -> None:
    """Draws a ring around the run of one clip and server rate, if it was made."""
    for row in rows:
        if (float(row["clip_norm"]), float(row["server_lr"])) == choice:
            place = float(row["server_lr"]), float(row[column])
            axis.plot(*place, "o", color=color, mfc="none", ms=11, mew=1.6)


def _end_axis(axis: Any, points: Sequence[plotting.Point]) -> str:
    """Ends the axis of a loss where runs are far from the best; says so in words."""
    shown = [mean for _, mean, _, _ in off_axis.near(points, lower_is_better=True)]
    if len(shown) == len(points):
        return ""
    low, high = min(shown), max(shown)
    axis.set_ylim(top=high + 0.05 * (high - low))
    return f"; losses up to {max(mean for _, mean, _, _ in points):.1f} are beyond"


def draw_tuning(rows: Rows, scale: str) -> Any:
    """Draws the final measure over the server's rate, a line for each clip.

    A ring is around what was chosen, by runs at an earlier commit.
    """
    shown = distinct(rows, "task")
    picture, axes = plotting.panels(len(shown), 5.0, 6.4)
    for axis, task in zip(axes, shown):
        measure = tasks.task_entry(task).measure
        column = measure.final_column
        chosen = COMPARISONS[scale][task].chosen
        points: list[plotting.Point] = []
        for name, look in _tuning_looks(where(rows, task=task)).items():
            runs = where(rows, task=task, mechanism=name)
            points += _tried(axis, runs, name, look, column)
            if name in chosen:
                _ring(axis, runs, chosen[name], look["color"], column)
        cut = _end_axis(axis, points) if measure.lower_is_better else ""
        axis.set_title(task + cut)
        plotting.finish(
            axis,
            below=1,
            xscale="log",
            xlabel="server rate",
            ylabel=f"final {measure.label}",
        )
        axis.legend_.set(loc="upper left", bbox_to_anchor=(0, -0.2))
    budget = budget_label(str(TUNED_AT[0]))
    picture.suptitle(f"{budget}, one seed; rings: what was chosen at an earlier commit")
    picture.tight_layout()
    return picture
