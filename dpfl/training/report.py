# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What is said of a run: before it, beside its progress bar, and when it is done."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

from dpfl import accounting, covered
from dpfl.covered import RELEASED
from dpfl.mechanisms import matrix_factorization, noise_stream, remarks
from dpfl.training import plan as plan_lib
from dpfl.training import provenance
from dpfl.training import rows as rows_lib
from dpfl.training.progress import Progress

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
    return [f"noise stream: {noise_stream.sentence(mechanism, plan.dimension)}"]


def _stream_numbers(plan: plan_lib.Plan) -> Optional[dict[str, Any]]:
    """Returns the numbers of the stream of noise, None if there is none."""
    mechanism = plan.mechanism
    if not isinstance(mechanism, matrix_factorization.StreamedMatrix):
        return None
    return noise_stream.numbers(mechanism, plan.dimension)


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
    setting = (plan.mechanism, plan.dimension)
    budget = (cost.delta, cost.method)
    found = [
        remarks.epsilon_remark(epsilon, *setting, plan.participation, *budget),
        remarks.delta_remark(cost.delta, plan.task.population),
    ]
    if rounds and plan.config.noise_multiplier is not None:
        those = plan.participation.first(rounds)
        found.append(remarks.bits_remark(epsilon, *setting, those, *budget))
    return [sentence for sentence in found if sentence]
