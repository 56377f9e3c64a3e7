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
from typing import Any, NamedTuple

from dpfl import files, privacy_coverage
from dpfl.accounting import audit_figures, events
from dpfl.pages import elements, svg
from dpfl.privacy_coverage import EXACT_FOR_SIMULATION
from dpfl.training import plan as plan_lib
from dpfl.training import record, report
from dpfl.training.checkpoint import Progress
from dpfl.training.record import Row

NAME = "report.html"
# Least time between two pages of a run that goes on: a page shows all rounds, and must
# not slow down a long run.
SECONDS_BETWEEN = 60.0
# Heading of the last section, which holds everything exact.
EXACT_HEADING = "Exact values"
_CLIPPED = "clipped_fraction"
_BITS = "total_uplink_bits"
_BITS_OF_CARDS = {
    "uplink_bits_per_parameter": "bits up a parameter",
    "downlink_bits_per_parameter": "bits down a parameter",
    "compression_rate": "compression against 32 bits a parameter",
}
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
    # The metric that judges the run is the first.
    columns = list(privacy_coverage.plain_keys(summary).get("final_metrics", {}))
    released, exact = _charts(rows, times, columns)
    return elements.page(
        f"dpfl: {name}",
        [
            elements.heading(name, 1),
            elements.paragraph(state, is_soft=True),
            *(elements.paragraph(why) for why in [summary["stopped_early"]] if why),
            elements.cards(_cards(summary)),
            elements.charts(released),
            elements.heading("Privacy"),
            elements.facts(_privacy(summary)),
            elements.charts(_epsilon_curve(summary)),
            *(elements.paragraph(remark) for remark in summary["remarks"]),
            elements.heading("Settings"),
            elements.paragraph("The flags that were given; all others are defaults."),
            elements.facts(_without_seed(summary["flags"])),
            elements.folded(
                "All settings", elements.facts(_without_seed(summary["settings"]))
            ),
            elements.heading("Source"),
            elements.facts(_source(summary)),
            *_exact_section(summary, exact, times),
        ],
    )


_WHOSE = (
    "The guarantee covers the values above, and none below: these are exact values of "
    "the clients' data, for the experimenter alone."
)
_SIMULATED = "In a deployment a secure sum would hide some of them from the server."


def _exact_section(
    summary: Mapping[str, Any], charts: Sequence[str], times: Sequence[Row]
) -> list[str]:
    """The end of the page, with everything that the guarantee does not cover.

    Args:
      summary: Content of summary.json.
      charts: Charts of exact values.
      times: Rows of times.csv.
    """
    exact = summary.get(privacy_coverage.KEY)
    if not exact:
        return []
    sentences = [_WHOSE]
    if summary["measure"] == EXACT_FOR_SIMULATION:
        sentences.append(_SIMULATED)
    most = {"rounds that a client took part in, at most": exact["max_participations"]}
    return [
        elements.heading(EXACT_HEADING),
        elements.paragraph(" ".join(sentences)),
        elements.cards({**_cards(exact), **_seconds(times)}),
        elements.charts(charts),
        elements.facts({**most, **report.audit_facts(summary)}),
    ]


def _cards(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The page's headline numbers; missing ones are left out."""
    final = summary.get("final_metrics", {})
    cards = {f"test {report.words(name)}": value for name, value in final.items()}
    if "epsilon" in summary:
        cards[f"epsilon at delta {elements.shown(summary['delta'])}"] = summary[
            "epsilon"
        ]
    for column, label in _BITS_OF_CARDS.items():
        if column in summary:
            cards[label] = summary[column]
    return cards


def _seconds(times: Sequence[Row]) -> dict[str, Any]:
    name = f"{privacy_coverage.MARK}seconds"
    seconds = sorted(row[name] for row in times if name in row)
    if not seconds:
        return {}
    return {"seconds a round, median": seconds[len(seconds) // 2]}


class _Chart(NamedTuple):
    """A chart of columns over `x`, by the labels of their lines."""

    title: str
    columns: Mapping[str, str]
    y_label: str
    x: str = "round"
    x_label: str = "round"

    def drawn(self, rows: Sequence[Row]) -> str:
        """The chart of rows without exact_ marks; "" if there are no points."""
        lines = [
            svg.Line(label, _points(rows, self.x, column), number, number > 0)
            for number, (label, column) in enumerate(self.columns.items())
        ]
        is_logarithmic = self.x == _BITS
        labels = (self.x_label, self.y_label)
        return svg.chart(lines, self.title, *labels, is_logarithmic=is_logarithmic)


def _points(rows: Sequence[Row], x: str, y: str) -> list[svg.Point]:
    """The finite points of two columns."""
    pairs = [(row.get(x), row.get(y)) for row in rows]
    return [
        (a, b)
        for a, b in pairs
        if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
    ]


def _charts(
    rows: Sequence[Row], times: Sequence[Row], columns: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The charts of released values alone, and those with an exact one.

    Args:
      rows: Rows of metrics.csv.
      times: Rows of times.csv.
      columns: Columns of the metrics on the evaluation set, without exact_ marks.
    """
    marked = [{**row, **own} for row, own in zip(rows, times)]
    plain = [privacy_coverage.plain_names(row) for row in marked]
    names = list(plain[0]) if plain else []
    charts = []
    for column in columns:
        name, train = report.words(column), column.replace("eval_", "train_", 1)
        charts.append(_Chart(name, {name: column}, name))
        if train in names:
            both = {"test set": column, "training": train}
            charts.append(_Chart(f"{name} in training", both, name))
    for column in columns[:1]:
        name = f"test {report.words(column)}"
        over = {"epsilon": "epsilon so far", _BITS: "bits up of all clients so far"}
        for x, label in over.items():
            title = f"{name} over {label.partition(' ')[0]}"
            charts.append(_Chart(title, {name: column}, name, x, label))
    charts += [
        _Chart("epsilon", {"epsilon": "epsilon"}, "epsilon"),
        _Chart("time a round", {"time a round": "seconds"}, "seconds"),
        _Chart(
            "share of updates clipped",
            {_clip_name(name): name for name in names if name.endswith(_CLIPPED)},
            "share",
        ),
    ]
    exact = set(names) - set(marked[0] if marked else ())
    sections: tuple[list[str], list[str]] = ([], [])
    for chart in charts:
        is_exact = not exact.isdisjoint({chart.x, *chart.columns.values()})
        sections[is_exact].append(chart.drawn(plain))
    return sections


def _clip_name(column: str) -> str:
    """The name of a column's clip, such as "l2"."""
    return column[len("aggregator_") : -len(_CLIPPED)].strip("_") or "clipped"


def _privacy(summary: Mapping[str, Any]) -> dict[str, Any]:
    relation = summary["relation"]
    settings, figures = summary["settings"], summary["audit_figures"]
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
        **(audit_figures.facts(figures) if figures else {}),
    }


def _epsilon_curve(summary: Mapping[str, Any]) -> list[str]:
    """The chart of epsilon over delta, if it is known."""
    figures = summary["audit_figures"]
    if not (figures and figures["epsilons"]):
        return []
    line = svg.Line("epsilon", list(figures["epsilons"].items()))
    title = "epsilon over delta"
    return [svg.chart([line], title, "delta", "epsilon", is_logarithmic=True)]


def _source(summary: Mapping[str, Any]) -> dict[str, Any]:
    git = summary["git"] or {}
    changed = ", with changes that are not committed" if git.get("is_changed") else ""
    commit = f"{git['commit']}{changed}" if git else "none: not a source tree"
    facts = {**summary["engine"], **summary["versions"], "commit": commit}
    return {"model": summary["model"], **facts}
