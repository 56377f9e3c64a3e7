# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The page of a run: one HTML file with charts.

page = Page(plan, directory)
page.at_checkpoint(progress)
page.write(report.summary(plan, progress))
"""

from __future__ import annotations

import math
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import files, privacy_coverage
from dpfl.accounting import events
from dpfl.pages import elements, svg
from dpfl.privacy_coverage import EXACT_FOR_SIMULATION
from dpfl.training import plan as plan_lib
from dpfl.training import record, report
from dpfl.training.checkpoint import Progress
from dpfl.training.record import Row

# Words, label and whether the axis is logarithmic, of the page's charts of the metric.
_AXES = {
    "epsilon": ("epsilon", "epsilon so far", False),
    "total_uplink_bits": ("bits", "bits up of all clients so far", True),
}

NAME = "report.html"
# Least time between two pages of a run that goes on: a page shows all rounds, and must
# not slow down a long run.
SECONDS_BETWEEN = 60.0
# Heading of the last section, which holds everything exact.
EXACT_HEADING = "Exact values"
_CLIPPED = "clipped_fraction"
_RELATIONS = {
    name: events.DESCRIPTIONS[relation] for relation, name in events.NAMES.items()
}


class Page:
    """The page of one run, rewritten periodically while the run continues."""

    def __init__(self, plan: plan_lib.Plan, directory: pathlib.Path):
        self._plan = plan
        self._directory = directory
        self._written_at = time.monotonic()

    def at_checkpoint(self, progress: Progress) -> None:
        """Writes the page if the last time is long ago, with the ledger's epsilon."""
        if time.monotonic() - self._written_at < SECONDS_BETWEEN:
            return
        self.write(report.summary_so_far(self._plan, progress))
        self._written_at = time.monotonic()

    def write(self, summary: Mapping[str, Any]) -> None:
        """Writes the page from the result of `summary`."""
        text = html(
            summary,
            record.read_rows(self._directory / record.METRICS),
            record.read_rows(self._directory / record.TIMES),
            planned_rounds=self._plan.last_round,
        )
        files.write_atomically(self._directory / NAME, text)


def _without_seed(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings as the page shows them: without the seed, which reveals the noise."""
    return {**settings, "seed": "given, not shown"} if "seed" in settings else settings


def html(
    summary: Mapping[str, Any],
    rows: Sequence[Row],
    times: Sequence[Row],
    planned_rounds: int,
) -> str:
    """The page of a run.

    Args:
      summary: Content of summary.json.
      rows: Rows of metrics.csv.
      times: Rows of times.csv.
      planned_rounds: Rounds in all.
    """
    name = f"{summary['task']}, {summary['mechanism']}"
    done = summary["rounds"]
    state = f"{done} of {planned_rounds} rounds"
    if done < planned_rounds:
        state += "; the run continues, or was stopped"
    released = [privacy_coverage.without_exact(row) for row in rows]
    # The metric that judges the run is the first.
    columns = list(privacy_coverage.plain_keys(summary).get("final_metrics", {}))
    # Shown here if they are the formula's.
    bits = _communication(summary)
    return elements.page(
        f"dpfl: {name}",
        [
            elements.heading(name, 1),
            elements.paragraph(state, is_soft=True),
            *(elements.paragraph(why) for why in [summary["stopped_early"]] if why),
            elements.cards(_cards(summary)),
            elements.charts(_charts(released, columns)),
            elements.heading("Privacy"),
            elements.facts(_privacy(summary)),
            *(elements.paragraph(remark) for remark in summary["remarks"]),
            *(
                [elements.heading("Communication"), elements.facts(bits)]
                if bits
                else []
            ),
            elements.heading("Settings"),
            elements.paragraph("The flags that were given; all others are defaults."),
            elements.facts(_without_seed(summary["flags"])),
            elements.folded(
                "All settings", elements.facts(_without_seed(summary["settings"]))
            ),
            elements.heading("Source"),
            elements.facts(_source(summary)),
            *_exact_section(summary, rows, times, columns),
        ],
    )


_WHOSE = (
    "The guarantee covers the values above, and none below: these are exact values of "
    "the clients' data, for the experimenter alone."
)
_SIMULATED = "In a deployment a secure sum would hide some of them from the server."


def _exact_section(
    summary: Mapping[str, Any],
    rows: Sequence[Row],
    times: Sequence[Row],
    columns: Sequence[str],
) -> list[str]:
    """The end of the page, with everything that the guarantee does not cover.

    Args:
      summary: Content of summary.json.
      rows: Rows of metrics.csv.
      times: Rows of times.csv.
      columns: Columns of the metrics on the evaluation set.
    """
    exact = summary.get(privacy_coverage.KEY)
    if not exact:
        return []
    sentences = [_WHOSE]
    if summary["measure"] == EXACT_FOR_SIMULATION:
        sentences.append(_SIMULATED)
    plain, plain_times = (
        [privacy_coverage.plain_names(row) for row in each] for each in (rows, times)
    )
    most = {"rounds that a client took part in, at most": exact["max_participations"]}
    return [
        elements.heading(EXACT_HEADING),
        elements.paragraph(" ".join(sentences)),
        elements.cards({**_cards(exact), **_seconds(plain_times)}),
        elements.charts(
            [
                *_in_training(plain, columns),
                *(_over(plain, columns, "epsilon") if "final_metrics" in exact else []),
                *_over(plain, columns, "total_uplink_bits"),
                *_exact_charts(plain, plain_times),
            ]
        ),
        elements.facts({**_communication(exact), **most}),
    ]


def _cards(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The page's headline numbers; missing ones are left out."""
    final = summary.get("final_metrics", {})
    cards = {f"test {report.words(name)}": value for name, value in final.items()}
    if "epsilon" in summary:
        cards[f"epsilon at delta {elements.shown(summary['delta'])}"] = summary[
            "epsilon"
        ]
    for way in ("up", "down"):
        column = f"{way}link_bits_per_parameter"
        if column in summary:
            cards[f"bits {way} a parameter"] = summary[column]
    return cards


def _seconds(times: Sequence[Row]) -> dict[str, Any]:
    seconds = sorted(row["seconds"] for row in times if "seconds" in row)
    if not seconds:
        return {}
    return {"seconds a round, median": seconds[len(seconds) // 2]}


def _points(rows: Sequence[Row], x: str, y: str) -> list[svg.Point]:
    """The finite points of two columns."""
    pairs = [(row.get(x), row.get(y)) for row in rows]
    return [
        (a, b)
        for a, b in pairs
        if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
    ]


def _chart(
    rows: Sequence[Row],
    x: str,
    y: str,
    title: str,
    labels: tuple[str, str],
    **more: Any,
) -> str:
    return svg.chart([svg.Line(title, _points(rows, x, y))], title, *labels, **more)


def _charts(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Charts of the metrics on the evaluation set, and of epsilon."""
    metrics = [(each, report.words(each)) for each in columns]
    return [
        *(_chart(rows, "round", c, name, ("round", name)) for c, name in metrics),
        *_over(rows, columns, "epsilon"),
        _chart(rows, "round", "epsilon", "epsilon", ("round", "epsilon")),
    ]


def _over(rows: Sequence[Row], columns: Sequence[str], x: str) -> list[str]:
    """The chart of the first metric over epsilon or bits, if there is one."""
    charts = []
    for column in columns[:1]:
        words, label, is_logarithmic = _AXES[x]
        name = f"test {report.words(column)}"
        title, labels = f"{name} over {words}", (label, name)
        chart = _chart(rows, x, column, title, labels, is_logarithmic=is_logarithmic)
        charts.append(chart)
    return charts


def _in_training(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Charts of the metrics in training, without exact_ marks."""
    charts = []
    for column in columns:
        name, train = report.words(column), column.replace("eval_", "train_", 1)
        lines = [
            svg.Line("test set", _points(rows, "round", column)),
            svg.Line("training", _points(rows, "round", train), 1, True),
        ]
        charts.append(svg.chart(lines, f"{name} in training", "round", name))
    return charts


def _exact_charts(rows: Sequence[Row], times: Sequence[Row]) -> list[str]:
    """Charts of time and clips, without exact_ marks."""
    labels = ("round", "seconds")
    time_chart = _chart(times, "round", "seconds", "time a round", labels)
    clipped = [name for name in (rows[0] if rows else ()) if name.endswith(_CLIPPED)]
    lines = [
        svg.Line(_clip_name(name), _points(rows, "round", name), color)
        for color, name in enumerate(clipped)
    ]
    return [time_chart, svg.chart(lines, "share of updates clipped", "round", "share")]


def _clip_name(column: str) -> str:
    """The name of a column's clip, such as "l2"."""
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
        "accounting_method": summary["accounting_method"],
        "noise multiplier": summary["noise_multiplier"],
        "choice of clients": participation,
        "whom clients trust": summary["trust"],
    }


def _communication(summary: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "uplink_bits_per_client": "bits up, a client and round",
        "uplink_bits_per_parameter": "bits up, a parameter and round",
        "downlink_bits_per_client": "bits down, a client and round",
        "downlink_bits_per_parameter": "bits down, a parameter and round",
        "total_uplink_bits": "bits up, all clients and rounds",
        "total_downlink_bits": "bits down, all clients and rounds",
        "compression_rate": "compression against 32 bits a parameter",
    }
    return {words: summary[name] for name, words in names.items() if name in summary}


def _source(summary: Mapping[str, Any]) -> dict[str, Any]:
    git = summary["git"] or {}
    changed = ", with changes that are not committed" if git.get("is_changed") else ""
    commit = f"{git['commit']}{changed}" if git else "none: not a source tree"
    return {**summary["versions"], "commit": commit}
