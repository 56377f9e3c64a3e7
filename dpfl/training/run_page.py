# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A run's own report: `report.html`, one file with all that is known of the run."""

from __future__ import annotations

import math
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import files
from dpfl.accounting import adjacency
from dpfl.pages import elements, svg
from dpfl.training import metrics, report
from dpfl.training import plan as plan_lib
from dpfl.training.progress import Progress
from dpfl.training.rows import Row

NAME = "report.html"
# While rounds go on, the page is made again at a checkpoint that comes so much later
# than the last time: it shows all rounds, and must not slow down a long run.
SECONDS_BETWEEN = 60.0
_CLIPPED = "clipped_fraction"
_RELATIONS = {
    name: adjacency.DESCRIPTIONS[relation] for relation, name in adjacency.NAMES.items()
}


class Page:
    """The page of one run, made again now and then while it goes on."""

    def __init__(self, plan: plan_lib.Plan, directory: pathlib.Path):
        """Initializes the page; nothing is written yet.

        Args:
          plan: The run's.
          directory: Its output folder.
        """
        self._plan = plan
        self._directory = directory
        self._written_at = time.monotonic()

    def at_checkpoint(self, progress: Progress) -> None:
        """Writes the page if the last time is long ago; epsilon is that of the ledger.

        Args:
          progress: Where the run is; its rows are in the files.
        """
        if time.monotonic() - self._written_at < SECONDS_BETWEEN:
            return
        self.write(report.summary_so_far(self._plan, progress))
        self._written_at = time.monotonic()

    def write(self, summary: Mapping[str, Any]) -> None:
        """Writes the page.

        Args:
          summary: From `report`.

        Raises:
          OSError: If it cannot be written.
        """
        text = html(
            summary,
            metrics.read_rows(self._directory / metrics.METRICS),
            metrics.read_rows(self._directory / metrics.TIMES),
            planned_rounds=self._plan.last_round,
        )
        files.write_atomically(self._directory / NAME, text)


def html(
    summary: Mapping[str, Any],
    rows: Sequence[Row],
    times: Sequence[Row],
    planned_rounds: int,
) -> str:
    """Returns the page.

    Args:
      summary: As in summary.json.
      rows: Of metrics.csv.
      times: Of times.csv.
      planned_rounds: How many rounds there are to be.
    """
    name = f"{summary['task']}, {summary['mechanism']}"
    done = summary["rounds"]
    state = f"{done} of {planned_rounds} rounds"
    if done < planned_rounds:
        state += "; the run goes on, or was stopped"
    return elements.page(
        f"dpfl: {name}",
        [
            elements.heading(name, 1),
            elements.paragraph(state, is_soft=True),
            *(elements.paragraph(why) for why in [summary["stopped_early"]] if why),
            elements.cards(_cards(summary, times)),
            elements.charts(_charts(rows, times)),
            elements.paragraph(_WHOSE, is_soft=True),
            elements.heading("Privacy"),
            elements.facts(_privacy(summary)),
            *(elements.paragraph(remark) for remark in summary["remarks"]),
            elements.heading("Communication"),
            elements.facts(_communication(summary)),
            elements.heading("Settings"),
            elements.paragraph("These were given, the others are defaults."),
            elements.facts(summary["flags"]),
            elements.folded("All settings", elements.facts(summary["settings"])),
            elements.heading("Source"),
            elements.facts(_source(summary)),
        ],
    )


_WHOSE = (
    "The guarantee covers the model, epsilon and what is measured on the test set. "
    "What is measured in training (loss, accuracy, share of updates clipped) is exact, "
    "of the clients themselves, and is for the experimenter alone."
)


def _cards(summary: Mapping[str, Any], times: Sequence[Row]) -> dict[str, Any]:
    names = sorted(summary["final_metrics"], key=lambda name: name != "eval_accuracy")
    found = {f"test {n[len('eval_') :]}": summary["final_metrics"][n] for n in names}
    found[f"epsilon at delta {elements.shown(summary['delta'])}"] = summary["epsilon"]
    found["bits up a parameter"] = summary["uplink_bits_per_parameter"]
    found["bits down a parameter"] = summary["downlink_bits_per_parameter"]
    seconds = sorted(row["seconds"] for row in times)
    if seconds:
        found["seconds a round, median"] = seconds[len(seconds) // 2]
    return found


def _points(rows: Sequence[Row], x: str, y: str) -> list[svg.Point]:
    """Returns the finite points of two columns."""
    pairs = [(row.get(x), row.get(y)) for row in rows]
    return [
        (a, b)
        for a, b in pairs
        if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
    ]


def _charts(rows: Sequence[Row], times: Sequence[Row]) -> list[str]:
    """Returns curves over the rounds, and accuracy over what it cost."""
    found = [
        svg.chart(
            [
                svg.Line("test set", _points(rows, "round", f"eval_{name}"), 0),
                svg.Line("training", _points(rows, "round", f"train_{name}"), 1, True),
            ],
            name,
            "round",
            name,
        )
        for name in ("accuracy", "loss")
    ]
    bits = _points(rows, "total_uplink_bits", "eval_accuracy")
    is_positive = all(x > 0 for x, _ in bits)
    clipped = [name for name in (rows[0] if rows else ()) if name.endswith(_CLIPPED)]
    lines = [
        svg.Line(_clip_name(name), _points(rows, "round", name), color)
        for color, name in enumerate(clipped)
    ]
    accuracy, epsilon = "test accuracy", "epsilon so far"
    for points, title, x, y in (
        (_points(rows, "epsilon", "eval_accuracy"), "over epsilon", epsilon, accuracy),
        (bits, "over bits", "bits up of all clients so far", accuracy),
        (_points(rows, "round", "epsilon"), "epsilon", "round", epsilon),
        (_points(times, "round", "seconds"), "time a round", "round", "seconds"),
    ):
        name = f"test accuracy {title}" if y == accuracy else title
        is_logarithmic = points is bits and is_positive
        line = svg.Line(name, points)
        found.append(svg.chart([line], name, x, y, is_logarithmic=is_logarithmic))
    found.append(svg.chart(lines, "share of updates clipped", "round", "share"))
    return found


def _clip_name(column: str) -> str:
    """Returns which clip a column is of, such as "l2"."""
    return column[len("aggregator_") : -len(_CLIPPED)].strip("_") or "clipped"


def _privacy(summary: Mapping[str, Any]) -> dict[str, Any]:
    relation = summary["relation"]
    settings = summary["settings"]
    participation = (
        f"{settings['participation']}, {settings['cohort_size']} of "
        f"{summary['population']} clients a round; one took part in at most "
        f"{summary['max_participations']} rounds"
    )
    return {
        "epsilon": summary["epsilon"],
        "delta": summary["delta"],
        "holds if": f"{_RELATIONS.get(relation, relation)} ({relation})",
        "accountant": summary["accountant"],
        "noise multiplier": summary["noise_multiplier"],
        "choice of clients": participation,
        "whom clients trust": summary["trust"],
    }


def _communication(summary: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for way in ("up", "down"):
        for what in ("client", "parameter"):
            value = summary[f"{way}link_bits_per_{what}"]
            found[f"bits {way}, a {what} and round"] = value
        found[f"bits {way}, all clients and rounds"] = summary[f"total_{way}link_bits"]
    found["compression against 32 bits a parameter"] = summary["compression_rate"]
    return found


def _source(summary: Mapping[str, Any]) -> dict[str, Any]:
    git = summary["git"] or {}
    changed = ", with changes that are not committed" if git.get("is_changed") else ""
    commit = f"{git['commit']}{changed}" if git else "none: not a source tree"
    return {**summary["versions"], "commit": commit}
