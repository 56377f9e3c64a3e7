# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 2 to 7: final measures against rate, bits, bytes and cohort size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfl import tasks

from .. import plotting
from ..rows import Rows, distinct, mean_and_range, seeds, where
from .panels import epsilon_label, noise_label, panels
from .slack import bar, said
from .training_grid import MODELS

# Runs at rate 1 send whole vectors.
_PLAIN = "r=1: no sketch (DDG)"


def _line(
    axis: Any, rows: Rows, x: str, task: str, look: Mapping[str, Any], label: str
) -> None:
    """Draws means with ranges over seeds against a column."""
    column = tasks.task_entry(task).measure.final_column
    points = _points(rows, x, column)
    plain: list[plotting.Point] = []
    # They are on the line of the sketch, and are none.
    if look["color"] != plotting.STYLES["ddg"][0]:
        plain = _points(where(rows, compression_rate=1), x, column)
    if points:
        marked = [i for i, point in enumerate(points) if point not in plain]
        plotting.ranges(axis, points, label, markevery=marked, **look)
    if plain:
        own = {**plotting.look("ddg"), "ls": "", "zorder": 3}
        is_named = _PLAIN in axis.get_legend_handles_labels()[1]
        plotting.ranges(axis, plain, "_" if is_named else _PLAIN, **own)


def _points(rows: Rows, x: str, column: str) -> list[plotting.Point]:
    """Returns the means of a column with ranges over seeds, by another column."""
    groups = {float(v): where(rows, **{x: v}) for v in distinct(rows, x)}
    return plotting.range_points(dict(sorted(groups.items())), column)


# Hollow, where lines of the sketch have its marker.
_FILLS: Mapping[bool, Mapping[str, Any]] = {False: {}, True: {"mfc": "white"}}


def _shaded(step: int, count: int) -> dict[str, Any]:
    """Returns how one of a few lines of the sketch looks."""
    # From nearly black, so that two of them differ, to no lighter than the color.
    color = plotting.shade("sketched_ddg", step, count, (-0.75, 0.0))
    return {**plotting.look("sketched_ddg", step), "color": color}


def _finish(axis: Any, task: str, x_label: str, below: int = 0) -> None:
    label = f"final {tasks.task_entry(task).measure.label}"
    labels: dict[str, Any]
    labels = {"xscale": "log", "xlabel": x_label, "ylabel": label}
    plotting.finish(axis, below=below, last=_PLAIN, **labels)


def _slack(axis: Any, plain: Rows, task: str, color: str) -> None:
    """Draws how bad a run may be, from uncompressed ones if they are done."""
    if plain:
        axis.axhline(bar(plain, task), color=color, ls=":", lw=1.6)


def draw_rates(rows: Rows, scale: str) -> Any:
    """Draws Fig. 2: a panel for each task, a line for each noise multiplier."""
    del scale
    shown = distinct(rows, "task")
    picture, axes = plotting.panels(len(shown), 4.8, 3.8)
    for axis, task in zip(axes, shown):
        runs = where(rows, task=task)
        amounts = panels(runs)
        for i, (_, chosen) in enumerate(amounts):
            look = _shaded(i, len(amounts))
            _line(axis, chosen, "compression_rate", task, look, noise_label(chosen))
            _slack(axis, where(chosen, compression_rate=1), task, look["color"])
        axis.set_title(
            f"{task}, {runs[0]['cohort_size']} clients a round, "
            f"{runs[0]['bits']} bits a number\ndotted: {said(task)} r=1",
        )
        _finish(axis, task, "compression rate r", below=max(1, 3 - len(shown) // 2))
    picture.suptitle(seeds(rows))
    picture.tight_layout()
    return picture


def draw_bits(rows: Rows, scale: str) -> Any:
    """Draws Figs. 3, 5, 6: a line for each rate, a point for each number of bits."""
    del scale
    shown = panels(rows)
    picture, axes = plotting.panels(len(shown), 4.6, 3.8)
    for axis, (task, runs) in zip(axes, shown):
        for i, rate in enumerate(distinct(runs, "compression_rate")):
            chosen = where(runs, compression_rate=rate)
            label, look = "no sketch (DDG)", plotting.look("ddg")
            if float(rate) != 1:
                label, look = (
                    f"sketch, r={float(rate):g}",
                    {**plotting.look("sketched_ddg", i - 1), **_FILLS[i > 1]},
                )
            _line(axis, chosen, "uplink_bits_per_parameter", task, look, label)
            _name_points(axis, chosen, task)
        best = [r for r in runs if float(r["compression_rate"]) == 1]
        widest = max((int(r["bits"]) for r in best), default=0)
        _slack(axis, where(best, bits=widest), task, "k")
        dotted = f"dotted: {said(task)} {widest} bits, no sketch"
        axis.set_title(f"{task}, {noise_label(runs)}; {dotted}")
        _finish(axis, task, "bits per parameter, helpers' included")
    picture.suptitle(f"at points: bits of a number; {seeds(rows)}")
    picture.tight_layout()
    return picture


def _name_points(axis: Any, rows: Rows, task: str) -> None:
    column = tasks.task_entry(task).measure.final_column
    for bits in distinct(rows, "bits"):
        runs = where(rows, bits=bits)
        mean, _, _ = mean_and_range(runs, column)
        place = float(runs[0]["uplink_bits_per_parameter"]), mean
        axis.annotate(
            bits, place, textcoords="offset points", xytext=(3, 3), fontsize=8
        )


def _parameters(rows: Rows) -> str:
    """Returns how many parameters the model of rows has, in words."""
    (client, parameter) = (
        float(rows[0][f"uplink_bits_per_{of}"]) for of in ("client", "parameter")
    )
    return f"{client / parameter:,.0f}"


def draw_models(rows: Rows, scale: str) -> Any:
    """Draws Fig. 4: both models over the bytes that a client sends."""
    shown = panels(rows)
    picture, axes = plotting.panels(len(shown), 4.4, 3.6)
    for axis, (task, group) in zip(axes, shown):
        runs = [
            {**r, "kilobytes": str(float(r["uplink_bits_per_client"]) / 8000)}
            for r in group
        ]
        names = {"default": "large model", MODELS[scale][task].small: "small model"}
        for i, (model, name) in enumerate(names.items()):
            look = {**plotting.look("sketched_ddg", i), **_FILLS[i > 0]}
            own = where(runs, model=model)
            label = f"{name}, {_parameters(own)} parameters" if own else name
            _line(axis, own, "kilobytes", task, look, label)
        axis.set_title(f"{task}, {noise_label(runs)}")
        _finish(axis, task, "kB up, a client and round")
    picture.suptitle(seeds(rows))
    picture.tight_layout()
    return picture


def draw_cohorts(rows: Rows, scale: str) -> Any:
    """Draws Fig. 7: a panel for each noise multiplier, a line for each cohort."""
    del scale
    shown = panels(rows)
    picture, axes = plotting.panels(len(shown), 4.4, 3.6)
    for axis, (task, runs) in zip(axes, shown):
        cohorts = distinct(runs, "cohort_size")
        for i, cohort in enumerate(cohorts):
            chosen, look = where(runs, cohort_size=cohort), _shaded(i, len(cohorts))
            label = f"{cohort} clients{epsilon_label(chosen)}"
            _line(axis, chosen, "compression_rate", task, look, label)
            _slack(axis, where(chosen, compression_rate=1), task, look["color"])
        z = float(runs[0]["noise_multiplier"])
        axis.set_title(f"{task}, noise multiplier {z:g}; dotted: {said(task)} r=1")
        _finish(axis, task, "compression rate r", below=max(1, 3 - len(shown) // 2))
    picture.suptitle(seeds(rows))
    picture.tight_layout()
    return picture
