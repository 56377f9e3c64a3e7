# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Texts of a run before, during and after its rounds, and its summary.json.

print(report.describe(plan))
summary = report.summary(plan, progress)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Optional

import attr
import numpy as np

from dpfl import accounting, privacy_coverage
from dpfl.mechanisms import matrix_factorization
from dpfl.planning import remarks
from dpfl.planning.budget import Setting
from dpfl.privacy_coverage import EXACT_FOR_SIMULATION, RELEASED
from dpfl.training import engine, provenance, record
from dpfl.training import plan as plan_lib
from dpfl.training.checkpoint import Progress

# Name of the digest of the data in `provenance.settings`.
_FINGERPRINT = "task fingerprint"
_AUDITED = (
    "{} of the clients are canaries: the run is for auditing, and its model is worse "
    "for them."
)


def describe(plan: plan_lib.Plan) -> str:
    """A few lines on the work and the cost of a run."""
    config, task, d = plan.config, plan.task, plan.dimension
    bits = plan.mechanism.uplink_bits(d)
    stream = _of_stream(plan, matrix_factorization.sentence)
    lines = [
        f"task {task.name}: {plan.participation.population} clients, {d} parameters",
        f"mechanism {config.mechanism}: {bits:.4g} bits up per client and round "
        f"({32 * d / bits:.4g}-fold compression)",
        *(f"chosen: {sentence}" for sentence in plan.choices),
        f"participation {config.participation}: {config.cohort_size} clients a "
        f"round, {config.rounds} rounds",
        *([f"noise stream: {stream}"] if stream else []),
        f"privacy: {privacy_sentence(plan)}",
        *_remarks(plan, plan.cost.planned.epsilon, plan.participation.rounds),
        f"engine: {_engine(plan)}",
        f"memory: at most about {plan.memory / 1e9:.1f} GB",
        f"output: {config.output_dir}",
    ]
    return "\n".join(lines)


def _engine(plan: plan_lib.Plan) -> str:
    """Words on the engine, its device, and the other facts that bits depend on."""
    facts = dict(plan.about.facts)
    words = [f"{plan.config.engine} on {facts.pop('device')}"]
    words += [f"{value} {name.replace('_', ' ')}" for name, value in facts.items()]
    return ", ".join(words)


def _of_stream(
    plan: plan_lib.Plan, tell: Callable[[matrix_factorization.StreamedMatrix, int], Any]
) -> Any:
    """The result of `tell` about the stream of noise; None without a stream."""
    mechanism = plan.mechanism
    if isinstance(mechanism, matrix_factorization.StreamedMatrix):
        return tell(mechanism, plan.dimension)
    return None


def privacy_sentence(plan: plan_lib.Plan) -> str:
    """A sentence on epsilon of all planned rounds, and how it is met."""
    if not plan.mechanism.is_private:
        return f"none (mechanism {plan.config.mechanism}); epsilon is infinite"
    planned = plan.cost.planned
    energy = "; epsilon does not cover explained_energy, measured from exact updates"
    return (
        f"epsilon {planned.epsilon:.4g} at delta {planned.delta:.4g} over "
        f"{plan.config.rounds} rounds by {planned.accounting_method} "
        f"({planned.relation}), noise multiplier {plan.mechanism.noise_multiplier:.5g}"
        f"{energy if plan.mechanism.opens_updates else ''}"
    )


def summary(
    plan: plan_lib.Plan, progress: Progress, audit: Optional[Mapping[str, Any]] = None
) -> dict[str, Any]:
    """The content of summary.json, without a seed that was drawn.

    Args:
      plan: The plan of the run.
      progress: Its progress.
      audit: The findings of its canaries, if it has any.
    """
    privacy = plan.cost.report_after(progress.round_index, figures=True)
    content = _summary(plan, progress, privacy)
    if audit:
        content[privacy_coverage.KEY]["audit"] = dict(audit)
    content["remarks"] = _remarks(plan, privacy.epsilon, progress.round_index)
    return content


def summary_so_far(plan: plan_lib.Plan, progress: Progress) -> dict[str, Any]:
    """The summary of an unfinished run, with the epsilon of its last row.

    That epsilon is the ledger's, an upper bound that takes no time, and there are no
    remarks; `summary` may take seconds.
    """
    planned, last = plan.cost.planned, progress.totals.last
    if last is None:
        raise ValueError("no round has completed yet")
    accounting_method = (
        planned.accounting_method if last["epsilon"] >= planned.epsilon else "rdp"
    )
    spent = accounting.PrivacyReport(
        last["epsilon"], planned.delta, accounting_method, relation=planned.relation
    )
    return _summary(plan, progress, spent)


def _summary(
    plan: plan_lib.Plan, progress: Progress, privacy: accounting.PrivacyReport
) -> dict[str, Any]:
    config = plan.config
    final, exact = _measured(plan, progress)
    content = {
        "task": config.task,
        "mechanism": config.mechanism,
        "rounds": progress.round_index,
        "model": engine.MODEL,
        "stopped_early": plan.cost.stop_message,
        "measure": config.measure,
        **final,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "accounting_method": privacy.accounting_method,
        "relation": privacy.relation,
        "audit_figures": attr.asdict(privacy.figures) if privacy.figures else None,
        "trust": _trust(plan),
        "lower_is_better": [
            name
            for name in record.evaluation(progress.totals.evaluated or {})
            if plan.task_entry.lower_is_better(name)
        ],
        "remarks": [],
        "noise_multiplier": plan.mechanism.noise_multiplier,
        "groups": plan.participation.groups,
        "min_separation": plan.participation.separation,
        "planned_participations": plan.participation.max_participations,
        "noise_stream": _of_stream(plan, matrix_factorization.numbers),
        "dimension": plan.dimension,
        "population": plan.participation.population,
        "mechanism_options": dataclasses.asdict(plan.mechanism),
        "task_options": dataclasses.asdict(config.task_config),
        "settings": {
            name: value
            for name, value in provenance.settings(plan).items()
            if name != _FINGERPRINT and not (name == "seed" and config.seed is None)
        },
        "flags": dict(config.flags),
        "engine": {"engine": config.engine, **plan.about.facts},
        "versions": provenance.versions(),
        "git": provenance.git_state(),
    }
    return {**content, privacy_coverage.KEY: exact} if exact else content


def _trust(plan: plan_lib.Plan) -> str:
    if plan.mechanism.sums_securely and plan.config.measure == EXACT_FOR_SIMULATION:
        opened = "; exact metrics, which no epsilon covers, are opened beside the sum"
        return f"{plan.mechanism.trust}{opened}"
    return plan.mechanism.trust


def _measured(
    plan: plan_lib.Plan, progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The measurements of a run that the event covers, and the exact ones.

    There are no exact ones if everything written is covered; bits are then the
    formula's.
    """
    evaluated = record.evaluation(progress.totals.evaluated or {})
    first = plan.task_entry.metric
    names = sorted(evaluated, key=lambda name: name != first.name)
    final = {
        first.final_column: None,
        **{f"final_{name}": evaluated[name] for name in names},
        "final_metrics": {f"eval_{name}": evaluated[name] for name in names},
    }
    is_of_clients = plan.task.clients_hold_test_examples
    if plan.config.measure == RELEASED:
        bits = record.bits_per_client(plan, record.RunTotals())
        bits = {name: v for name, v in bits.items() if not name.startswith("total_")}
        return {**({} if is_of_clients else final), **bits}, {}
    exact = {
        **(final if is_of_clients else {}),
        "max_participations": int(np.max(progress.participations, initial=0)),
        **record.bits_per_client(plan, progress.totals),
        "wall_time_seconds": progress.seconds,
        "task_fingerprint": plan.task.fingerprint,
    }
    return {} if is_of_clients else final, exact


def final_lines(summary: Mapping[str, Any]) -> str:
    """The last lines of a run, from `summary`, which mark exact values."""
    exact = summary.get(privacy_coverage.KEY, {})
    every = privacy_coverage.plain_keys(summary)

    def mark(name: str) -> str:
        return "exact: " if name in exact else ""

    lines = [] if summary["rounds"] else ["no round has completed"]
    if summary["rounds"] and every.get("final_metrics"):
        values = every["final_metrics"].items()
        said = ", ".join(f"{words(name)} {value:.4f}" for name, value in values)
        lines.append(f"{mark('final_metrics')}{said} after {summary['rounds']} rounds")
    lines += [
        f"epsilon {summary['epsilon']:.4g} at delta {summary['delta']:.4g} by "
        f"{summary['accounting_method']} ({summary['relation']}) over "
        f"{summary['rounds']} released rounds",
        *summary["remarks"],
        f"{mark('uplink_bits_per_client')}bits a client and round: "
        f"{every['uplink_bits_per_client']:.4g} up "
        f"({every['uplink_bits_per_parameter']:.4g} a parameter, "
        f"{every['compression_rate']:.4g}-fold compression), "
        f"{every['downlink_bits_per_client']:.4g} down",
    ]
    if exact:
        most = exact["max_participations"]
        lines.append(f"exact: a client took part in at most {most} rounds")
        found = audit_facts(summary).items()
        lines += [f"exact: {name}: {value}" for name, value in found]
        lines.append("epsilon does not cover the lines that begin with exact")
    return "\n".join(lines)


def audit_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """The findings of canaries for readers; none without canaries."""
    audit = summary.get(privacy_coverage.KEY, {}).get("audit")
    if not audit:
        return {}
    facts = {}
    for view, found in audit["views"].items():
        name = f"epsilon of {audit['canaries']} canaries, {view.replace('_', ' ')}"
        estimate = "about {epsilon:.4g} ({low:.4g} to {high:.4g})"
        bounds = "at least {epsilon:.4g}, or {gaussian_epsilon:.4g} as a Gaussian's"
        words = [bounds.format(**found["lower_bounds"])]
        if "estimate" in found:
            words.insert(0, estimate.format(**found["estimate"]))
        facts[name] = "; ".join([*words, f"{100 * audit['confidence']:g}% each"])
    return facts


def words(column: str) -> str:
    """A metric's name in words, from its column in metrics.csv."""
    return column[len(record.EVAL) :].replace("_", " ")


def postfix(plan: plan_lib.Plan, totals: record.RunTotals) -> str:
    """Training loss, the metric, epsilon and bits for the progress bar.

    Exact values are marked, and left out if nothing exact may be written.
    """
    row = totals.last
    if row is None:
        raise ValueError("no round has completed yet")
    parts = [("exact_train_loss", row, "loss {:.3f}")]
    if totals.evaluated is not None:
        metric = plan.task_entry.metric
        column = privacy_coverage.column(totals.evaluated, metric.column) or ""
        parts.append((column, totals.evaluated, f"{metric.label} {{:.3f}}"))
    parts.append(("epsilon", row, "epsilon {:.2f}"))
    parts.append(("exact_total_uplink_bits", row, "bits up {:.3g}"))
    words = {
        name: text.format(values[name])
        for name, values, text in parts
        if name in values
    }
    if plan.config.measure == RELEASED:
        words = privacy_coverage.without_exact(words)
    return ", ".join(
        f"exact {text}" if name.startswith(privacy_coverage.MARK) else text
        for name, text in words.items()
    )


def _remarks(plan: plan_lib.Plan, epsilon: float, rounds: int) -> list[str]:
    """Sentences about an epsilon or a delta that mean little."""
    cost = plan.cost
    number = plan.config.canaries
    audited = [_AUDITED.format(number)] if number else []
    if not plan.mechanism.is_private:
        return audited
    budget = (cost.delta, cost.accounting_method)
    setting = Setting(plan.dimension, plan.participation, *budget)
    sentences = [
        remarks.epsilon_remark(epsilon, plan.mechanism, setting),
        remarks.delta_remark(cost.delta, plan.participation.population),
    ]
    if rounds and plan.config.noise_multiplier is not None:
        done = plan.participation.first(rounds)
        setting = Setting(plan.dimension, done, *budget)
        sentences.append(remarks.bits_remark(epsilon, plan.mechanism, setting))
    return audited + [sentence for sentence in sentences if sentence]
