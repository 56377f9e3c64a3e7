# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What is said of a run: before it, beside its progress bar, and when it is done."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import pathlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

from dpfl import accounting, covered, files
from dpfl.accounting import events
from dpfl.covered import EXACT_FOR_SIMULATION, RELEASED
from dpfl.mechanisms import matrix_factorization
from dpfl.pages import elements, svg
from dpfl.planning import remarks
from dpfl.training import plan as plan_lib
from dpfl.training import provenance, record
from dpfl.training import record as rows_lib
from dpfl.training.record import Progress, Row

# What `provenance.settings` calls the digest of the data.
_FINGERPRINT = "task fingerprint"


def describe(plan: plan_lib.Plan) -> str:
    """Returns what a run will do and cost, in a few lines."""
    config, task, d = plan.config, plan.task, plan.dimension
    bits = plan.mechanism.uplink_bits(d)
    lines = [
        f"task {task.name}: {task.population} clients, {d} parameters",
        f"mechanism {config.mechanism}: {bits:.4g} bits up per client and round "
        f"({32 * d / bits:.4g}-fold compression)",
        *(f"chosen: {sentence}" for sentence in plan.choices),
        f"participation {config.participation}: {config.cohort_size} clients a "
        f"round, {config.rounds} rounds{_participation(plan)}",
        *_stream(plan),
        f"privacy: {privacy_sentence(plan)}",
        *_remarks(plan, plan.cost.planned.epsilon, plan.participation.rounds),
        f"output: {config.output_dir}",
    ]
    return "\n".join(lines)


def _participation(plan: plan_lib.Plan) -> str:
    """Returns how often a client is in a round, where that is less than always."""
    chosen = plan.participation
    parts = []
    if chosen.groups > 1:
        parts.append(f"{chosen.groups} groups")
    if chosen.max_participations < chosen.rounds:
        parts.append(f"a client in at most {chosen.max_participations} rounds")
    if chosen.separation > 1:
        parts.append(f"at least {chosen.separation} rounds apart")
    if chosen.groups > 1 and chosen.sampling_probability < 1:
        parts.append(f"each with probability {chosen.sampling_probability:.4g}")
    return "".join(f", {part}" for part in parts)


def _stream(plan: plan_lib.Plan) -> list[str]:
    """Returns a line on the stream of noise, if there is one."""
    mechanism = plan.mechanism
    if not isinstance(mechanism, matrix_factorization.StreamedMatrix):
        return []
    return [f"noise stream: {matrix_factorization.sentence(mechanism, plan.dimension)}"]


def _stream_numbers(plan: plan_lib.Plan) -> Optional[dict[str, Any]]:
    """Returns the numbers of the stream of noise, None if there is none."""
    mechanism = plan.mechanism
    if not isinstance(mechanism, matrix_factorization.StreamedMatrix):
        return None
    return matrix_factorization.numbers(mechanism, plan.dimension)


def privacy_sentence(plan: plan_lib.Plan) -> str:
    """Returns epsilon of all rounds that were asked for, and how it is met."""
    if not plan.mechanism.is_private:
        return f"none (mechanism {plan.config.mechanism}); epsilon is infinite"
    planned = plan.cost.planned
    energy = ""
    if plan.mechanism.opens_updates:
        energy = (
            "; explained_energy is measured from the updates themselves, outside it"
        )
    return (
        f"epsilon {planned.epsilon:.4g} at delta {planned.delta:.4g} over "
        f"{plan.config.rounds} rounds by {planned.method} ({planned.relation}), "
        f"noise multiplier {_noise_multiplier(plan):.5g}{energy}"
    )


def summary(plan: plan_lib.Plan, progress: Progress) -> dict[str, Any]:
    """Returns the content of summary.json; a seed that was drawn is not in it.

    Args:
      plan: The run's plan.
      progress: Where the run ended.
    """
    privacy = plan.cost.report_after(progress.round_index)
    found = _summary(plan, progress, privacy)
    found["remarks"] = _remarks(plan, privacy.epsilon, progress.round_index)
    return found


def summary_so_far(plan: plan_lib.Plan, progress: Progress) -> dict[str, Any]:
    """Returns the same of a run that goes on, with the epsilon of its last row.

    That is the ledger's, an upper bound that takes no time, and there are no remarks;
    `summary` may take seconds.

    Args:
      plan: The run's plan.
      progress: Where the run is, after a round at least.
    """
    planned, last = plan.cost.planned, progress.tally.last
    if last is None:
        raise ValueError("progress must be of at least one round, found 0")
    method = planned.method if last["epsilon"] >= planned.epsilon else "rdp"
    spent = accounting.PrivacyReport(
        last["epsilon"], planned.delta, method, relation=planned.relation
    )
    return _summary(plan, progress, spent)


def _summary(
    plan: plan_lib.Plan, progress: Progress, privacy: accounting.PrivacyReport
) -> dict[str, Any]:
    config = plan.config
    final, exact = _measured(plan, progress)
    found = {
        "task": config.task,
        "mechanism": config.mechanism,
        "rounds": progress.round_index,
        "stopped_early": plan.cost.stop_message,
        "measure": config.measure,
        **final,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "accountant": privacy.method,
        "relation": privacy.relation,
        "trust": plan.mechanism.trust,
        "remarks": [],
        "noise_multiplier": _noise_multiplier(plan),
        "groups": plan.participation.groups,
        "min_separation": plan.participation.separation,
        "planned_participations": plan.participation.max_participations,
        "noise_stream": _stream_numbers(plan),
        "dimension": plan.dimension,
        "population": plan.task.population,
        "mechanism_options": dataclasses.asdict(plan.mechanism),
        "task_options": dataclasses.asdict(config.task_config),
        "settings": {
            name: value
            for name, value in provenance.settings(plan).items()
            if name != _FINGERPRINT and not (name == "seed" and config.seed is None)
        },
        "flags": dict(config.flags),
        "versions": provenance.versions(),
        "git": provenance.git_state(),
    }
    return {**found, covered.KEY: exact} if exact else found


def _measured(
    plan: plan_lib.Plan, progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what a run measured: what the event covers, and what is exact.

    Nothing is exact where all that is written is to be covered; bits are then those of
    the formula.
    """
    evaluated = covered.plain_names(progress.tally.evaluated or {})
    final = {
        "final_accuracy": evaluated.get("eval_accuracy"),
        "final_loss": evaluated.get("eval_loss"),
        "final_metrics": {k: v for k, v in evaluated.items() if k.startswith("eval_")},
    }
    is_of_clients = plan.task.clients_hold_test_examples
    if plan.config.measure == RELEASED:
        bits = rows_lib.bits_per_client(plan, rows_lib.Tally())
        bits = {name: v for name, v in bits.items() if not name.startswith("total_")}
        return {**({} if is_of_clients else final), **bits}, {}
    exact = {
        **(final if is_of_clients else {}),
        "max_participations": int(np.max(progress.participations, initial=0)),
        **rows_lib.bits_per_client(plan, progress.tally),
        "wall_time_seconds": progress.seconds,
        "task_fingerprint": plan.task.fingerprint,
    }
    return {} if is_of_clients else final, exact


def final_lines(found: Mapping[str, Any]) -> str:
    """Returns the end of a run in a few lines; those with exact values say so.

    Args:
      found: What `summary` returned.
    """
    exact = found.get(covered.KEY, {})
    every = covered.plain_keys(found)
    lines = [
        *_final_measures(found, exact),
        f"epsilon {found['epsilon']:.4g} at delta {found['delta']:.4g} by "
        f"{found['accountant']} ({found['relation']}), from the {found['rounds']} "
        "rounds that were released",
        *found["remarks"],
        f"{_mark('uplink_bits_per_client' in exact)}bits a client and round: "
        f"{every['uplink_bits_per_client']:.4g} up "
        f"({every['uplink_bits_per_parameter']:.4g} a parameter, "
        f"{every['compression_rate']:.4g}-fold compression), "
        f"{every['downlink_bits_per_client']:.4g} down",
    ]
    if exact:
        most = exact["max_participations"]
        lines.append(f"{_mark(True)}a client took part in at most {most} rounds")
        lines.append("epsilon does not cover the lines that begin with exact")
    return "\n".join(lines)


def _final_measures(found: Mapping[str, Any], exact: Mapping[str, Any]) -> list[str]:
    """Returns a line on the final model, if it was measured and may be told."""
    if not found["rounds"]:
        return ["no round was done"]
    every = covered.plain_keys(found)
    if every.get("final_accuracy") is None:
        return []
    return [
        f"{_mark('final_accuracy' in exact)}accuracy {every['final_accuracy']:.4f}, "
        f"loss {every['final_loss']:.4f} after {found['rounds']} rounds"
    ]


def _mark(is_exact: bool) -> str:
    """Returns what stands before a line of exact values."""
    return "exact: " if is_exact else ""


def title(plan: plan_lib.Plan) -> str:
    """Returns what stands above a run's pictures."""
    epsilon = plan.cost.planned.epsilon
    privacy = f", epsilon {epsilon:.3g}" if math.isfinite(epsilon) else ""
    return f"{plan.config.task}, {plan.config.mechanism}{privacy}"


def postfix(plan: plan_lib.Plan, tally: rows_lib.Tally) -> str:
    """Returns loss, accuracy, epsilon and bits for the progress bar.

    What is exact is called so, and is left out where nothing exact is to be written.

    Args:
      plan: The run's plan.
      tally: Of the rounds so far, at least one.

    Raises:
      ValueError: If there is none.
    """
    row = tally.last
    if row is None:
        raise ValueError("tally must be of at least one round, found 0")
    parts = [("exact_train_loss", row, "loss {:.3f}")]
    if tally.evaluated is not None:
        column = covered.column(tally.evaluated, "eval_accuracy") or ""
        parts.append((column, tally.evaluated, "accuracy {:.3f}"))
    parts.append(("epsilon", row, "epsilon {:.2f}"))
    parts.append(("exact_total_uplink_bits", row, "bits up {:.3g}"))
    words = {
        name: text.format(values[name])
        for name, values, text in parts
        if name in values
    }
    if plan.config.measure == RELEASED:
        words = covered.without_exact(words)
    return ", ".join(
        f"exact {said}" if name.startswith(covered.MARK) else said
        for name, said in words.items()
    )


def _noise_multiplier(plan: plan_lib.Plan) -> Any:
    """Returns the mechanism's noise multiplier, None for one without noise."""
    return provenance.noise_multiplier(plan)


def _remarks(plan: plan_lib.Plan, epsilon: float, rounds: int) -> list[str]:
    """Returns the sentences about an epsilon or a delta that mean little.

    Args:
      plan: The run's plan.
      epsilon: Of the first rounds.
      rounds: How many these are.
    """
    cost = plan.cost
    if not plan.mechanism.is_private:
        return []
    budget = (plan.dimension, cost.delta, cost.method)
    found = [
        remarks.epsilon_remark(epsilon, plan.mechanism, plan.participation, *budget),
        remarks.delta_remark(cost.delta, plan.task.population),
    ]
    if rounds and plan.config.noise_multiplier is not None:
        those = plan.participation.first(rounds)
        found.append(remarks.bits_remark(epsilon, plan.mechanism, those, *budget))
    return [sentence for sentence in found if sentence]


# File name, column, label, logarithmic axis.
_PICTURES = (
    ("accuracy_by_round", "round", "round", False),
    ("accuracy_by_epsilon", "epsilon", "epsilon so far", False),
    ("accuracy_by_bits", "total_uplink_bits", "bits sent by all clients so far", True),
)


# Left, bottom, width and height of the axes; matplotlib takes longer to find a place
# for them than to draw.
_PLACE = (0.13, 0.15, 0.84, 0.76)


@functools.cache
def prepare() -> None:
    """Begins to import what `draw` needs, while Python waits for a worker's rounds."""
    name = "matplotlib.backends.backend_agg"
    threading.Thread(target=importlib.import_module, args=(name,), daemon=True).start()


def draw(
    rows: Sequence[dict[str, Any]], directory: pathlib.Path, title: str
) -> list[pathlib.Path]:
    """Draws test accuracy as PNG files; the name of an exact one says so.

    Args:
      rows: Rows of metrics.csv; those without a test accuracy are left out.
      directory: Where the files go.
      title: Above each picture.

    Returns:
      The files: one each against round, epsilon (if finite) and bits (if written).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = [row for row in rows if covered.value(row, "eval_accuracy") is not None]
    paths = []
    for name, column, label, is_logarithmic in _PICTURES:
        seen = [
            (x, covered.value(row, "eval_accuracy"))
            for row in points
            if (x := covered.value(row, column)) is not None and math.isfinite(x)
        ]
        if not seen:
            continue
        figure = Figure(figsize=(5, 3.4))
        FigureCanvasAgg(figure)
        axes = figure.add_axes(_PLACE)
        axes.plot(*zip(*seen), marker="." if len(seen) < 50 else None)
        if is_logarithmic and min(seen)[0] > 0:
            axes.set_xscale("log")
        axes.set(xlabel=label, ylabel="test accuracy", title=title)
        axes.grid(alpha=0.3)
        drawn = [covered.column(rows[0], each) for each in (column, "eval_accuracy")]
        is_exact = any(str(each).startswith(covered.MARK) for each in drawn)
        path = directory / f"{covered.MARK if is_exact else ''}{name}.png"
        files.save_figure(figure, path, dpi=120)
        paths.append(path)
    return paths


NAME = "report.html"
# While rounds go on, the page is made again at a checkpoint that comes so much later
# than the last time: it shows all rounds, and must not slow down a long run.
SECONDS_BETWEEN = 60.0
# Above the last section of the page, which holds all that is exact.
EXACT_HEADING = "Exact values"
_CLIPPED = "clipped_fraction"
_RELATIONS = {
    name: events.DESCRIPTIONS[relation] for relation, name in events.NAMES.items()
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
        self.write(summary_so_far(self._plan, progress))
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
            record.read_rows(self._directory / record.METRICS),
            record.read_rows(self._directory / record.TIMES),
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
