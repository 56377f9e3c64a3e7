# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


import numpy as np
import pytest

from dpfl import privacy_coverage
from dpfl.training import checkpoint, provenance, selection
from dpfl.training import engine as engine_lib
from dpfl.training import loop as loop_lib
from dpfl.training import record as record_lib
from tests.refusals import names, refuses
from tests.training import fakes

SEED = 3


def run(plan, store, engine=None, said=None, record=None, key=SEED):
    """Runs a loop; returns (state, progress, engine, record)."""
    engine, record = engine or fakes.FakeEngine(), record or fakes.FakeRecord()
    loop = loop_lib.Loop(
        plan,
        key,
        engine=engine,
        store=store,
        record=record,
        publish=lambda saved: None,
        say=(said if said is not None else []).append,
    )
    return (*loop.run(), engine, record)


def loop_plan(make_plan, participation, **more):
    return make_plan(
        participation=participation,
        cohort_size=5,
        rounds=6,
        noise_multiplier=1.0,
        eval_every=4,
        checkpoint_every=4,
        **more,
    )


@pytest.fixture
def plan(make_plan):
    return loop_plan(make_plan, "once_per_epoch")


def test_runs_all_rounds_with_the_seed_s_cohorts(plan):
    store = fakes.FakeStore()
    state, progress, engine, record = run(plan, store)
    cohorts = [selection.select_cohort(plan.participation, SEED, r) for r in range(6)]
    assert engine.rounds == [cohort.tolist() for cohort in cohorts]
    assert state == sum(sum(cohort) for cohort in engine.rounds)
    assert progress.participations.tolist() == [
        sum(client in cohort for cohort in engine.rounds) for client in range(20)
    ]
    # The first round is always saved.
    assert [c.round_index for c in store.saved] == [1, 4, 6]
    assert [row["round"] for row in record.rows] == [1, 2, 3, 4, 5, 6]
    assert progress.rows == progress.times == [] and progress.seconds >= 0


def test_row_has_losses_epsilon_noise_and_bits(plan):
    *_, record = run(plan, fakes.FakeStore())
    rows = record.rows
    assert [row["eval_accuracy"] for row in rows] == [None, None, None, 0.5, None, 0.5]
    assert rows[0]["exact_train_loss"] == 0.1
    for row in rows:
        assert row["epsilon"] == plan.cost.epsilon_after(row["round"])
        assert row["noise_multiplier"] == 1.0
        assert row["exact_clients"] == 5 and row["exact_uplink_bits"] == 8
        assert row["exact_total_uplink_bits"] == 5 * 8 * row["round"]
        down = row["exact_total_downlink_bits"]
        assert down == 5 * 32 * fakes.DIMENSION * row["round"]
        # Nested names are joined; what is no number is left out.
        assert row["exact_aggregator_inner_x"] == 2
        assert not any(name.endswith("inner_y") for name in row)


def test_metrics_on_clients_test_examples_are_exact(plan):
    def evaluate(state, is_due):
        value = np.float32("nan") if is_due else None
        return {"loss": value, "accuracy": value}

    engine = fakes.FakeEngine()
    engine.evaluate = evaluate
    *_, record = run(fakes.of_clients(plan), fakes.FakeStore(), engine)
    for row in record.rows:
        assert not any(name.startswith("eval_") for name in row)
    # A loss on them that is no number ends nothing.
    losses = [row["exact_eval_loss"] for row in record.rows]
    assert np.isnan([losses[3], losses[5]]).all() and losses[:3] == [None] * 3


def test_unmeasured_uplink_bits_follow_the_formula(plan):
    """Of a mechanism that shows the sum alone, which one client can make large."""

    def change(output, number):
        output.train = {"loss": np.float32("inf")}
        output.aggregator = {"downlink_bits": 7.0, "noise_stddev": 2.0}

    *_, record = run(plan, fakes.FakeStore(), fakes.FakeEngine(change=change))
    assert len(record.rows) == 6
    for row in record.rows:
        assert row["uplink_bits"] == 32 * fakes.DIMENSION
        assert row["downlink_bits"] == row["aggregator_downlink_bits"] == 7
        assert "exact_uplink_bits" not in row and row["aggregator_noise_stddev"] == 2


def test_released_only_runs_write_no_exact_values(make_plan):
    plans = [
        loop_plan(make_plan, "once_per_epoch", measure=measure)
        for measure in (None, "released")
    ]
    assert provenance.digest(plans[0]) == provenance.digest(plans[1])
    stores = [fakes.FakeStore(), fakes.FakeStore()]
    (whole, *_, every), (state, *_, record) = map(run, plans, stores)
    assert state == whole
    assert record.rows == [privacy_coverage.without_exact(row) for row in every.rows]
    held = stores[1].saved
    assert all(set(time) == {"round"} for saved in held for time in saved.times)
    # Where it goes on, the sums of what is exact are known all the same.
    assert held[-1].totals.clients == 30


def test_checkpoint_holds_rows_since_the_previous_one(plan):
    store, record = fakes.FakeStore(), fakes.FakeRecord()
    seen = []

    def save(checkpoint):
        # The files say nothing yet that the newest checkpoint does not.
        seen.append((checkpoint.round_index, len(record.rows)))
        fakes.FakeStore.save(store, checkpoint)

    store.save = save
    run(plan, store, record=record)
    assert seen == [(1, 0), (4, 1), (6, 4)]
    held = [[row["round"] for row in c.rows] for c in store.saved]
    assert held == [[1], [2, 3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("participation", "more"),
    [
        ("once_per_epoch", {}),
        ("once_per_epoch", {"min_separation": 3}),
        ("random_allocation", {}),
        ("cyclic_poisson", {"min_separation": 3}),
        ("balls_in_bins", {}),
        ("b_min_separation", {"min_separation": 3}),
        ("k_of_t", {}),
    ],
)
def test_resuming_changes_nothing(make_plan, participation, more):
    plan = loop_plan(make_plan, participation, **more)
    whole, expected, _, files = run(plan, fakes.FakeStore())
    store, said, record = fakes.FakeStore(), [], fakes.FakeRecord()
    with refuses(RuntimeError, "the worker is gone"):
        run(plan, store, fakes.FakeEngine(fails_at=6), record=record)
    assert [c.round_index for c in store.saved] == [1, 4] and len(record.rows) == 4
    # Whatever of an append was done when the process ended.
    for done in (1, 2, 4):
        again = fakes.FakeStore()
        again.saved = list(store.saved)
        files_then = fakes.FakeRecord(record.rows[:done])
        state, progress, engine, *_ = run(plan, again, said=said, record=files_then)
        assert said.pop() == "resuming after round 4"
        assert len(engine.rounds) == 2 and files_then.rows == files.rows
        assert state == whole and progress.totals == expected.totals
        assert progress.participations.tolist() == expected.participations.tolist()

    state, progress, engine, *_ = run(plan, again, record=files_then)
    assert engine.rounds == [] and state == whole and progress.round_index == 6
    assert files_then.rows == files.rows


def test_rounds_with_other_noise_are_refused_on_resume(plan):
    """Five rounds with half the noise once went on, and counted as if they had it."""
    for change in (
        lambda saved: saved.rows[1].update(noise_multiplier=0.5),
        lambda saved: saved.totals.last.update(noise_multiplier=0.5),
    ):
        store = fakes.FakeStore()
        with refuses(RuntimeError, "the worker is gone"):
            run(plan, store, fakes.FakeEngine(fails_at=6))
        change(store.saved[-1])
        with refuses(record_lib.DamagedRecordError, "noise_multiplier", 0.5):
            run(plan, store)


def changed(at, state=None, **measured):
    """An engine of which one round, or each, has another state or measures more."""

    def change(output, number):
        if at in (number, "each"):
            output.aggregator.update(measured)
            output.state = output.state if state is None else state

    return fakes.FakeEngine(change=change)


@pytest.mark.parametrize(
    "engine, bad, parts",
    [
        (changed(4, np.float64("nan")), 4, ("eval_loss", "nan")),
        (changed(3, np.float64("inf")), 3, ("model",)),
    ],
)
def test_diverged_model_ends_the_run_at_its_round(
    make_plan, monkeypatch, engine, bad, parts
):
    """For good: the round is counted, and no other noise is drawn for it."""
    on_a_card = engine_lib.About({"device": "a card"}, False)
    monkeypatch.setattr(engine_lib, "about", lambda plan: on_a_card)
    plan = loop_plan(make_plan, "once_per_epoch")
    store, record = fakes.FakeStore(), fakes.FakeRecord()
    for each in (engine, again := fakes.FakeEngine()):
        with refuses(loop_lib.DivergedError, bad, *parts, "client_lr"):
            run(plan, store, each, record=record)
        assert store.saved[-1].round_index == bad == len(record.rows)
    assert bad == len(engine.rounds) and again.rounds == []
    assert record.rows[-1]["epsilon"] == plan.cost.epsilon_after(bad)


def test_nonfinite_client_updates_do_not_end_the_run(plan):
    engine = changed(3, nonfinite_clients=5)
    assert run(plan, fakes.FakeStore(), engine)[1].round_index == 6


def test_exhausted_budget_stops_the_run(make_plan):
    settings = {"cohort_size": 5, "rounds": 6, "noise_multiplier": 2.0}
    free = make_plan(**settings).cost
    reports = [free.report_after(rounds).epsilon for rounds in (3, 4)]
    budget = sum(reports) / 2
    plan = make_plan(epsilon=budget, **settings)
    store, said = fakes.FakeStore(), []
    _, progress, *_ = run(plan, store, said=said)
    assert progress.round_index == 3 and progress.totals.last["epsilon"] <= budget
    # The last one is saved and evaluated wherever it is.
    assert [c.round_index for c in store.saved] == [1, 3]
    assert progress.totals.last["eval_accuracy"] == 0.5
    assert len(said) == 1 and names(said[0], 3, 6)


def test_unaccounted_cohort_never_trains(plan, monkeypatch):
    monkeypatch.setattr(loop_lib.selection, "select_cohort", lambda *unused: [1, 2, 3])
    engine = fakes.FakeEngine()
    with refuses(ValueError, "epoch", 1, 2):
        run(plan, fakes.FakeStore(), engine)
    assert engine.rounds == [[1, 2, 3]]


def test_repeated_client_in_epoch_is_refused_after_resume(plan, monkeypatch):
    store = fakes.FakeStore()
    run(plan, store)
    # Epochs have four rounds: after six, two are left in the second.
    del store.saved[-1]
    newest = store.saved[-1]
    totals = newest.totals._replace(rounds=5)
    store.saved.append(newest._replace(round_index=5, totals=totals))
    fifth = selection.select_cohort(plan.participation, SEED, 4)
    monkeypatch.setattr(loop_lib.selection, "select_cohort", lambda *unused: fifth)
    with refuses(ValueError, "epoch", 6):
        run(plan, store)


def test_checkpoint_with_mismatched_state_is_refused(plan):
    store, engine = fakes.FakeStore(), fakes.FakeEngine()
    run(plan, store)
    store.saved.pop()

    def from_leaves(leaves):
        raise ValueError("other shapes")

    engine.from_leaves = from_leaves
    record = fakes.FakeRecord([{}] * 6)
    with pytest.raises(checkpoint.DamagedCheckpointError):
        run(plan, store, engine, record=record)
    assert len(record.rows) == 6 and engine.rounds == []
