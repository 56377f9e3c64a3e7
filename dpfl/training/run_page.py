# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A run's own report: `report.html`, one file with all that is known of the run."""

from __future__ import annotations

import math
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import covered, files
from dpfl.accounting import adjacency
from dpfl.covered import EXACT_FOR_SIMULATION
from dpfl.pages import elements, svg
from dpfl.training import metrics, report
from dpfl.training import plan as plan_lib
from dpfl.training.progress import Progress
from dpfl.training.rows import Row

NAME = "report.html"
# While rounds go on, the page is made again at a checkpoint that comes so much later
# than the last time: it shows all rounds, and must not slow down a long run.
SECONDS_BETWEEN = 60.0
# Above the last section of the page, which holds all that is exact.
EXACT_HEADING = "Exact values"
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
    released = [covered.without_exact(row) for row in rows]
    return elements.page(
        f"dpfl: {name}",
        [
            elements.heading(name, 1),
            elements.paragraph(state, is_soft=True),
            *(elements.paragraph(why) for why in [summary["stopped_early"]] if why),
            elements.cards(_cards(summary)),
            elements.charts(_charts(released)),
            elements.heading("Privacy"),
            elements.facts(_privacy(summary)),
            *(elements.paragraph(remark) for remark in summary["remarks"]),
            *_communication_section(summary),
            elements.heading("Settings"),
            elements.paragraph("These were given, the others are defaults."),
            elements.facts(summary["flags"]),
            elements.folded("All settings", elements.facts(summary["settings"])),
            elements.heading("Source"),
            elements.facts(_source(summary)),
            *_exact_section(summary, rows, times),
        ],
    )


_WHOSE = (
    "The guarantee covers what stands above, and nothing below: these are exact values "
    "of the clients' data, for the experimenter alone."
)
_SIMULATED = "Some are of a simulation: a secure sum would hide them from the server."


def _exact_section(
    summary: Mapping[str, Any], rows: Sequence[Row], times: Sequence[Row]
) -> list[str]:
    """Returns the end of the page, with all that the guarantee does not cover."""
    exact = summary.get(covered.KEY)
    if not exact:
        return []
    sentences = [_WHOSE]
    if summary["measure"] == EXACT_FOR_SIMULATION:
        sentences.append(_SIMULATED)
    plain = [covered.plain_names(row) for row in rows]
    most = {"rounds that a client took part in, at most": exact["max_participations"]}
    return [
        elements.heading(EXACT_HEADING),
        elements.paragraph(" ".join(sentences)),
        elements.cards({**_cards(exact), **_seconds(times)}),
        elements.charts(_exact_charts(plain, times, "final_metrics" in exact)),
        elements.facts({**_communication(exact), **most}),
    ]


def _cards(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers that are shown large, of those that are there."""
    final = found.get("final_metrics", {})
    names = sorted(final, key=lambda name: name != "eval_accuracy")
    cards = {f"test {n[len('eval_') :]}": final[n] for n in names}
    if "epsilon" in found:
        cards[f"epsilon at delta {elements.shown(found['delta'])}"] = found["epsilon"]
    for way in ("up", "down"):
        column = f"{way}link_bits_per_parameter"
        if column in found:
            cards[f"bits {way} a parameter"] = found[column]
    return cards


def _seconds(times: Sequence[Row]) -> dict[str, Any]:
    taken = (covered.value(row, "seconds") for row in times)
    seconds = sorted(found for found in taken if found is not None)
    if not seconds:
        return {}
    return {"seconds a round, median": seconds[len(seconds) // 2]}


def _points(rows: Sequence[Row], x: str, y: str) -> list[svg.Point]:
    """Returns the finite points of two columns."""
    pairs = [(row.get(x), row.get(y)) for row in rows]
    return [
        (a, b)
        for a, b in pairs
        if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
    ]


def _charts(rows: Sequence[Row]) -> list[str]:
    """Returns curves over the rounds, and accuracy over epsilon."""
    lines = [
        (name, "round", name, _points(rows, "round", f"eval_{name}"))
        for name in ("accuracy", "loss")
    ]
    lines.append(_over_epsilon(rows))
    lines.append(("epsilon", "round", "epsilon", _points(rows, "round", "epsilon")))
    return [
        svg.chart([svg.Line(name, points)], name, x, y) for name, x, y, points in lines
    ]


def _over_epsilon(rows: Sequence[Row]) -> tuple[str, str, str, list[svg.Point]]:
    """Returns title, axes and points of test accuracy over epsilon."""
    points = _points(rows, "epsilon", "eval_accuracy")
    return "test accuracy over epsilon", "epsilon so far", "test accuracy", points


def _exact_charts(
    rows: Sequence[Row], times: Sequence[Row], is_of_clients: bool
) -> list[str]:
    """Returns the same of the clients' training, bits, time and clips.

    Args:
      rows: Of metrics.csv, no column marked.
      times: Of times.csv.
      is_of_clients: Whether what is measured on the test set is exact too.
    """
    found = [
        svg.chart(
            [
                svg.Line("test set", _points(rows, "round", f"eval_{name}"), 0),
                svg.Line("training", _points(rows, "round", f"train_{name}"), 1, True),
            ],
            f"{name} in training",
            "round",
            name,
        )
        for name in ("accuracy", "loss")
    ]
    if is_of_clients:
        title, x, y, points = _over_epsilon(rows)
        found.append(svg.chart([svg.Line(title, points)], title, x, y))
    bits = _points(rows, "total_uplink_bits", "eval_accuracy")
    title, x = "test accuracy over bits", "bits up of all clients so far"
    is_logarithmic = all(x > 0 for x, _ in bits)
    line = svg.Line(title, bits)
    found.append(
        svg.chart([line], title, x, "test accuracy", is_logarithmic=is_logarithmic)
    )
    plain_times = [covered.plain_names(row) for row in times]
    line = svg.Line("time a round", _points(plain_times, "round", "seconds"))
    found.append(svg.chart([line], "time a round", "round", "seconds"))
    clipped = [name for name in (rows[0] if rows else ()) if name.endswith(_CLIPPED)]
    lines = [
        svg.Line(_clip_name(name), _points(rows, "round", name), color)
        for color, name in enumerate(clipped)
    ]
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
        f"{summary['population']} clients a round"
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


def _communication_section(summary: Mapping[str, Any]) -> list[str]:
    """Returns the bits where they are those of the formula."""
    found = _communication(summary)
    return [elements.heading("Communication"), elements.facts(found)] if found else []


def _communication(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the bits that are there, by what they are of."""
    names = {
        f"{way}link_bits_per_{what}": f"bits {way}, a {what} and round"
        for way in ("up", "down")
        for what in ("client", "parameter")
    }
    names["total_uplink_bits"] = "bits up, all clients and rounds"
    names["total_downlink_bits"] = "bits down, all clients and rounds"
    names["compression_rate"] = "compression against 32 bits a parameter"
    return {words: summary[name] for name, words in names.items() if name in summary}


def _source(summary: Mapping[str, Any]) -> dict[str, Any]:
    git = summary["git"] or {}
    changed = ", with changes that are not committed" if git.get("is_changed") else ""
    commit = f"{git['commit']}{changed}" if git else "none: not a source tree"
    return {**summary["versions"], "commit": commit}
