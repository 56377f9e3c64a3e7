# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
import json
import re

import attr
import numpy as np
import pytest

from dpfl import files
from dpfl.training import checkpoint, record, report
from tests.refusals import names, refuses
from tests.training import fakes


def row(number, accuracy, clients=5, total=100.0):
    return {
        "round": number,
        "exact_clients": clients,
        "exact_train_loss": 1.25,
        "eval_loss": None if accuracy is None else 0.5,
        "eval_accuracy": accuracy,
        "epsilon": 0.125 * number,
        "exact_total_uplink_bits": total,
        "exact_total_downlink_bits": 2 * total,
    }


def progress(rows):
    start = checkpoint.beginning(fakes.POPULATION)
    counts = np.full(fakes.POPULATION, 2)
    return start._replace(
        round_index=len(rows), totals=totals(rows), participations=counts, seconds=1.5
    )


def totals(rows):
    return functools.reduce(record.RunTotals.plus, rows, record.RunTotals())


def test_description_before_the_run(make_plan):
    plan = make_plan(accounting_method="auto")
    lines = report.describe(plan).split("\n")
    assert lines[0] == "task digits: 20 clients, 100 parameters"
    assert lines[1].startswith("mechanism gaussian: 3200 bits up per client and round")
    assert lines[2] == "participation poisson: 5 clients a round, 8 rounds"
    words = r"privacy: epsilon (7\.99\d|8) at delta 0.001 over 8 rounds by pld "
    assert re.match(words + r"\(add_or_remove\), noise multiplier", lines[3])
    assert lines[4] == "engine: tff on cpu"
    assert lines[5].startswith("memory: ")
    assert lines[6] == "output: nowhere" and len(lines) == 7


def test_a_stream_over_the_run_is_described(make_plan):
    plan = make_plan(
        mechanism="sgmf",
        participation="cyclic_poisson",
        min_separation=3,
        noise_multiplier=8.0,
        mechanism_options={
            **{"noise_stream": "run", "matrix_method": "toeplitz", "matrix_bands": 2},
            "keep_fraction": 0.5,
        },
    )
    assert names(report.describe(plan), "noise stream", "2 diagonals")
    found = report.summary(plan, progress([row(1, None)]))
    assert (found["groups"], found["min_separation"]) == (3, 3)
    assert found["planned_participations"] == 3
    assert found["relation"] == "add_or_remove"
    kept = {"lasts": "run", "rounds": 8, "bands": 2, "kept_bytes": 400}
    assert found["noise_stream"] == kept


def test_description_says_epsilon_is_infinite_without_privacy(make_plan):
    plan = make_plan(mechanism="none")
    said = report.describe(plan)
    assert names(said, "privacy", "mechanism none", "epsilon", "infinite")
    assert "note" not in said


def test_huge_epsilon_and_delta_are_noted_before_and_after(make_plan):
    plan = make_plan(noise_multiplier=0.01, delta=0.051)
    lines = report.describe(plan).split("\n")
    notes = [line for line in lines if line.startswith("note")]
    summary = report.summary(plan, progress([row(1, 0.25)]))
    for epsilon, delta in (notes, summary["remarks"]):
        assert names(epsilon, "epsilon", "noise_multiplier")
        assert names(delta, "delta", "1/20")
    last = report.final_lines(summary)
    assert summary["epsilon"] > 50 and all(each in last for each in notes[1:])


def coarse_plan(make_plan, bits, rounds=8):
    """Of a mechanism of which one bit more than 6 halves epsilon."""
    return make_plan(
        mechanism="distributed_discrete_gaussian",
        mechanism_options={"bits": bits, "noise_source": "helpers"},
        noise_multiplier=0.5,
        rounds=rounds,
    )


def test_beneficial_extra_bits_are_noted_before_and_after(make_plan):
    """Before the run epsilon is that of all 8 rounds, and after it of those done."""
    whole, two = (
        coarse_plan(make_plan, 7, rounds).cost.planned.epsilon for rounds in (8, 2)
    )
    plan = coarse_plan(make_plan, 6)
    [note] = [x for x in report.describe(plan).split("\n") if x.startswith("note")]
    assert names(note, "bits", 7, "epsilon", f"{whole:.4g}")
    [remark] = report.summary(plan, progress([row(1, 0.25), row(2, 0.5)]))["remarks"]
    assert names(remark, "bits", 7, "epsilon", f"{two:.4g}")
    # None where noise is calibrated to the budget.
    config = dataclasses.replace(plan.config, noise_multiplier=None, epsilon=40.0)
    assert "note" not in report.describe(dataclasses.replace(plan, config=config))


def test_the_summary(make_plan):
    plan = make_plan(noise_multiplier=2.0, flags={"rounds": 8})
    rows = [row(1, 0.25, 5, 100.0), row(2, 0.75, 3, 240.0), row(3, None, 2, 300.0)]
    found = report.summary(plan, progress(rows))
    json.dumps(files.plain(found))
    assert found["rounds"] == 3 and found["stopped_early"] is None
    assert found["model"] == "model.npz"
    assert (found["final_accuracy"], found["final_loss"]) == (0.75, 0.5)
    assert found["final_metrics"] == {"eval_accuracy": 0.75, "eval_loss": 0.5}
    # What was spent, not what was planned.
    assert found["epsilon"] == plan.cost.report_after(3).epsilon
    assert found["epsilon"] < plan.cost.planned.epsilon
    figures = plan.cost.report_after(3, figures=True).figures
    assert found["audit_figures"] == attr.asdict(figures)
    assert figures.epsilons[found["delta"]] == found["epsilon"]
    exact = found["exact"]
    assert exact["max_participations"] == 2 and found["noise_multiplier"] == 2.0
    # 300 bits from ten clients.
    assert exact["uplink_bits_per_client"] == 30
    assert exact["uplink_bits_per_parameter"] == 0.3
    assert exact["downlink_bits_per_client"] == 60
    assert exact["compression_rate"] == pytest.approx(3200 / 30)
    assert exact["total_uplink_bits"] == 300
    assert exact["wall_time_seconds"] == 1.5 and exact["task_fingerprint"] == "f"
    assert "task fingerprint" not in found["settings"]
    assert found["mechanism"] == "gaussian" and found["flags"] == {"rounds": 8}
    assert found["mechanism_options"]["clip_norm"] == 0.5
    assert found["remarks"] == []


@pytest.mark.parametrize("seed", [None, 5])
def test_drawn_seed_is_not_published(make_plan, seed):
    plan = make_plan(noise_multiplier=2.0, seed=seed)
    settings = report.summary(plan, progress([row(1, 0.5)]))["settings"]
    assert ("seed" in settings) is (seed is not None)


def test_final_lines_show_epsilon_and_metrics(make_plan):
    plan = make_plan(noise_multiplier=2.0)
    rows = [row(1, 0.25)]
    lines = report.final_lines(report.summary(plan, progress(rows))).split("\n")
    assert lines[0] == "accuracy 0.2500, loss 0.5000 after 1 rounds"
    assert names(lines[1], "epsilon", 1)
    bits = "bits a client and round: 20 up (0.2 a parameter"
    assert lines[2].startswith(f"exact: {bits}")
    assert lines[3:] == [
        "exact: a client took part in at most 2 rounds",
        "epsilon does not cover the lines that begin with exact",
    ]
    nothing = report.summary(plan, progress([]))
    assert nothing["epsilon"] == 0
    assert nothing["exact"]["uplink_bits_per_client"] == 3200
    assert "accuracy" not in report.final_lines(nothing)


def exact_eval(row):
    return {n.replace("eval_", "exact_eval_"): value for n, value in row.items()}


def test_metrics_on_clients_test_examples_are_exact(make_plan):
    plan = fakes.of_clients(make_plan(noise_multiplier=2.0))
    found = report.summary(plan, progress([exact_eval(row(1, 0.25))]))
    assert not any(name.startswith("final_") for name in found)
    assert found["exact"]["final_accuracy"] == 0.25
    assert found["exact"]["final_metrics"] == {"eval_accuracy": 0.25, "eval_loss": 0.5}
    assert report.final_lines(found).startswith("exact: accuracy 0.2500, loss 0.5")
    said = report.postfix(plan, totals([exact_eval(row(1, 0.25))]))
    assert "exact test accuracy 0.250" in said


def test_released_only_summary_has_no_exact_section(make_plan):
    plan = make_plan(noise_multiplier=2.0, measure="released")
    rows = [row(1, 0.25)]
    found = report.summary(plan, progress(rows))
    assert "exact" not in found and found["measure"] == "released"
    assert found["final_accuracy"] == 0.25 and found["uplink_bits_per_client"] == 3200
    assert "total_uplink_bits" not in found and "wall_time_seconds" not in found
    lines = report.final_lines(found)
    assert "exact" not in lines and "bits a client and round: 3200 up" in lines
    assert report.postfix(plan, totals(rows)) == "test accuracy 0.250, epsilon 0.12"
    own = report.summary(fakes.of_clients(plan), progress([exact_eval(row(1, 0.25))]))
    assert not any(name.startswith("final_") for name in own) and "exact" not in own
    assert report.final_lines(own).startswith("epsilon ")


def test_progress_bar_postfix(make_plan):
    plan = make_plan(noise_multiplier=2.0)
    rows = [row(1, 0.25, total=1e6), row(2, None, total=2e6)]
    expected = (
        "exact loss 1.250, test accuracy 0.250, epsilon 0.25, exact bits up 2e+06"
    )
    assert report.postfix(plan, totals(rows)) == expected
    assert "accuracy" not in report.postfix(plan, totals(rows[1:]))
    with refuses(ValueError, "round"):
        report.postfix(plan, totals([]))
