# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 2 to 7: final measures against rate, bits, bytes and cohort size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from dpfl import tasks

from .. import plotting
from ..rows import Rows, distinct, mean_and_range, parameters, seeds, where
from ..sweep import Setting
from .panels import amount_label, epsilon_label, noise_label, panels
from .slack import bar, said
from .training_grid import MODELS, rates_grid

Look = Mapping[str, Any]
# Runs at rate 1 send whole vectors.
_PLAIN = "r=1: no sketch (DDG)"


def _line(
    axis: Any,
    rows: Rows,
    x: str,
    task: str,
    look: Look,
    label: str,
    plain_look: Optional[Look] = None,
) -> None:
    """Draws means with ranges over seeds against a column.

    Args:
      axis: A panel.
      rows: Runs of the line.
      x: Column of the place.
      task: Whose measure is drawn.
      look: Of the line.
      label: For the legend.
      plain_look: Of the points at rate 1, which are on the line of a sketch and are
        none; None where the line has one rate.
    """
    column = tasks.task_entry(task).measure.final_column
    points = _points(rows, x, column)
    plain: list[plotting.Point] = []
    if plain_look:
        plain = _points(where(rows, compression_rate=1), x, column)
    if points:
        marked = [i for i, point in enumerate(points) if point not in plain]
        plotting.ranges(axis, points, label, markevery=marked, **look)
    if plain and plain_look:
        own = {**plain_look, "ls": "", "zorder": 3}
        is_named = _PLAIN in axis.get_legend_handles_labels()[1]
        plotting.ranges(axis, plain, "_" if is_named else _PLAIN, **own)


def _points(rows: Rows, x: str, column: str) -> list[plotting.Point]:
    """Returns the means of a column with ranges over seeds, by another column."""
    groups = {float(v): where(rows, **{x: v}) for v in distinct(rows, x)}
    return plotting.range_points(dict(sorted(groups.items())), column)


# Hollow, where lines of the sketch have its marker.
_FILLS: Mapping[bool, Mapping[str, Any]] = {False: {}, True: {"mfc": "white"}}


def _shaded(step: int, count: int) -> tuple[Look, Look]:
    """Returns how one of a few lines of the sketch looks, and its points at rate 1.

    Both have the same shade, each of its own color, so that a point is seen to belong
    to its line.
    """
    # From nearly black, so that two of them differ, to no lighter than the color.
    line, plain = (
        {
            **plotting.look(name, step),
            "color": plotting.shade(name, step, count, (-0.75, 0.0)),
        }
        for name in ("sketched_ddg", "ddg")
    )
    return line, plain


def _finish(axis: Any, task: str, x_label: str, below: int = 0) -> None:
    label = f"final {tasks.task_entry(task).measure.label}"
    labels: dict[str, Any]
    labels = {"xscale": "log", "xlabel": x_label, "ylabel": label}
    plotting.finish(axis, below=below, last=_PLAIN, **labels)


def _slack(axis: Any, plain: Rows, task: str, color: str) -> None:
    """Draws how bad a run may be, from uncompressed ones if they are done."""
    if plain:
        axis.axhline(bar(plain, task), color=color, ls=":", lw=1.6)


def _server_rate(task: str, scale: str) -> str:
    """Returns the server's rate in words, if all runs of Fig. 2 on a task share it.

    The best rate of a sketch need not be that of whole vectors.
    """
    works = [w for w in rates_grid(Setting(scale)) if w.labels["task"] == task]
    rates = {work.settings.get("server_lr") for work in works}
    rate = rates.pop()
    return "" if rates or rate is None else f"server rate {float(rate):g} for all; "


def draw_rates(rows: Rows, scale: str) -> Any:
    """Draws Fig. 2: a panel for each task, a line for each noise multiplier."""
    shown = distinct(rows, "task")
    picture, axes = plotting.panels(len(shown), 4.8, 3.8)
    for axis, task in zip(axes, shown):
        runs = where(rows, task=task)
        amounts = panels(runs)
        for i, (_, chosen) in enumerate(amounts):
            look, plain = _shaded(i, len(amounts))
            label = noise_label(chosen)
            _line(axis, chosen, "compression_rate", task, look, label, plain)
            _slack(axis, where(chosen, compression_rate=1), task, look["color"])
        axis.set_title(
            f"{task}, {runs[0]['cohort_size']} clients a round, "
            f"{runs[0]['bits']} bits a number\n"
            f"{_server_rate(task, scale)}dotted: {said(task)} r=1",
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
            look, plain = (
                {**plotting.look(kind, i), **_FILLS[i > 0]}
                for kind in ("sketched_ddg", "ddg")
            )
            own = where(runs, model=model)
            label = f"{name}, {parameters(own)}" if own else name
            _line(axis, own, "kilobytes", task, look, label, plain)
        axis.set_title(f"{task}, {noise_label(runs)}")
        _finish(axis, task, "kB up, a client and round")
    picture.suptitle(seeds(rows))
    picture.tight_layout()
    return picture


def draw_cohorts(rows: Rows, scale: str) -> Any:
    """Draws Fig. 7: a panel for each amount of noise, a line for each cohort."""
    del scale
    shown = panels(rows)
    picture, axes = plotting.panels(len(shown), 4.4, 3.6)
    for axis, (task, runs) in zip(axes, shown):
        cohorts = distinct(runs, "cohort_size")
        for i, cohort in enumerate(cohorts):
            chosen = where(runs, cohort_size=cohort)
            look, plain = _shaded(i, len(cohorts))
            label = f"{cohort} clients{epsilon_label(chosen)}"
            _line(axis, chosen, "compression_rate", task, look, label, plain)
            _slack(axis, where(chosen, compression_rate=1), task, look["color"])
        axis.set_title(f"{task}, {amount_label(runs[0])}; dotted: {said(task)} r=1")
        _finish(axis, task, "compression rate r", below=max(1, 3 - len(shown) // 2))
    picture.suptitle(seeds(rows))
    picture.tight_layout()
    return picture
