# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import csv
import dataclasses

import pytest

from dpfl.tasks import metrics, registry
from dpfl.training import checkpoint, page, record, report
from tests.training.test_report import progress, row


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folder(tmp_path):
    rows = [
        {**row(1, None), "exact_aggregator_l2_clipped_fraction": 0.25},
        {**row(2, 0.75), "exact_aggregator_l2_clipped_fraction": 0.5},
    ]
    write_csv(tmp_path / "metrics.csv", rows)
    seconds = [{"round": i, "exact_seconds": i / 2} for i in (1, 2)]
    times = [{**each, "exact_unix_time": 1.0} for each in seconds]
    write_csv(tmp_path / "times.csv", times)
    return tmp_path


def text_of(folder):
    return (folder / page.NAME).read_text(encoding="utf-8")


def written(plan, folder, rows):
    page.Page(plan, folder).write(report.summary(plan, progress(rows)))
    return text_of(folder)


def test_page_does_not_reveal_the_seed(make_plan, folder):
    seed = 987654321
    plan = make_plan(noise_multiplier=2.0, rounds=2, seed=seed, flags={"seed": seed})
    done = [row(1, None), row(2, 0.75)]
    assert str(seed) in str(report.summary(plan, progress(done)))
    assert str(seed) not in written(plan, folder, done)


def test_page_shows_the_summary(make_plan, folder):
    hostile = "<script>alert(1)</script>"
    plan = make_plan(noise_multiplier=2.0, rounds=2, flags={"data_dir": hostile})
    done = [row(1, None), row(2, 0.75)]
    summary, text = report.summary(plan, progress(done)), written(plan, folder, done)
    for part in (
        "digits, gaussian",
        "2 of 2 rounds</p>",
        f"<b>{summary['epsilon']:.4g}</b><span>epsilon at delta 0.001</span>",
        "one client is added or removed (add_or_remove)",
        summary["accounting_method"],
        "a trusted server: it sees each client&#x27;s message",
        "bits up a parameter",
        summary["versions"]["numpy"],
        summary["git"]["commit"],
        "&lt;script&gt;",
    ):
        assert part in text, part
    assert "<script" not in text and "<p></p>" not in text
    released, _, exact = text.partition(f"<h2>{page.EXACT_HEADING}</h2>")
    # Accuracy and loss, accuracy over epsilon, epsilon, epsilon over delta.
    assert released.count("<figure>") == 5
    for rate in summary["audit_figures"]["true_positive_rates"].values():
        assert f"<td>{rate:.4g}</td>" in released
    # Loss in training, accuracy over bits, time, clipped.
    assert exact.count("<figure>") == 4
    for words in ("share of updates clipped", "training", "bits up", "seconds"):
        assert words in exact and words not in released
    assert "of a simulation" not in text


def test_page_is_rewritten_at_intervals_during_a_run(make_plan, monkeypatch, folder):
    plan = make_plan(noise_multiplier=2.0, rounds=8)
    now = [100.0]
    monkeypatch.setattr(page.time, "monotonic", lambda: now[0])
    own = page.Page(plan, folder)
    saved = progress([row(1, None), row(2, 0.75)])
    now[0] += page.SECONDS_BETWEEN - 1
    own.at_checkpoint(saved)
    assert not (folder / page.NAME).exists()
    now[0] += 1
    own.at_checkpoint(saved)
    assert "2 of 8 rounds" in text_of(folder)
    # The epsilon of the last row, that of the ledger.
    assert "<b>0.25</b><span>epsilon at delta" in text_of(folder)
    (folder / page.NAME).unlink()
    own.at_checkpoint(saved)
    assert not (folder / page.NAME).exists()


def test_run_without_rounds_or_metrics_has_a_page(make_plan, tmp_path):
    text = written(make_plan(noise_multiplier=2.0), tmp_path, [])
    assert "<figure>" not in text and "0 of 8 rounds" in text


def test_own_metric_of_a_task_shows_everywhere(make_plan, monkeypatch, tmp_path):
    """Rows, events, bar, summary, last lines, page and pictures follow the table."""
    top = metrics.TaskMetric("top_5", "test top-5 accuracy")
    entry = dataclasses.replace(registry.TASKS["digits"], metric=top)
    monkeypatch.setitem(registry.TASKS, "digits", entry)
    plan = make_plan(noise_multiplier=2.0, rounds=2)
    found, own = checkpoint.beginning(20).totals, []
    for value in (None, 0.625):
        evaluated = {"loss": value, "top_5": value}
        one = record.round_row(plan, found, 5, {"top_5": 0.5}, evaluated, 1.0, {})
        found, own = found.plus(one), [*own, one]
    files = record.MetricsFiles(tmp_path)
    files.rewind()
    files.append(own, [{"round": 1}, {"round": 2}])
    assert b"eval_top_5" in (tmp_path / record.EVENTS).read_bytes()
    assert "test top-5 accuracy 0.625" in report.postfix(plan, found)
    saved = checkpoint.beginning(20)._replace(round_index=2, totals=found)
    summary = report.summary(plan, saved)
    assert list(summary["final_metrics"]) == ["eval_top_5", "eval_loss"]
    assert summary["final_top_5"] == 0.625 and "final_accuracy" not in summary
    assert summary["lower_is_better"] == ["loss"]
    assert report.final_lines(summary).startswith("top 5 0.6250, loss 0.6250 after")
    page.Page(plan, tmp_path).write(summary)
    released, _, exact = text_of(tmp_path).partition(page.EXACT_HEADING)
    for part in ("<b>0.625</b><span>test top 5</span>", "test top 5 over epsilon"):
        assert part in released
    assert "top 5 in training" in exact and "accuracy" not in released + exact
