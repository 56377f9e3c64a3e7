# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs that audit themselves, with an engine of vectors and holes made by hand."""

import dataclasses
import functools
import pathlib
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from dpfl import reading
from dpfl.training import canaries, selection
from dpfl.vectors import canaries as vectors
from tests.refusals import refuses
from tests.training import fakes
from tests.training.test_loop import run as run_loop

KEY, DIMENSION, CANARIES = 5, 2000, 1000
OWN = fakes.POPULATION


@functools.cache
def sent(client):
    """What a canary sends whose length is that of the clip."""
    return vectors.update(selection.client_key(KEY, client), DIMENSION, 1.0)


class VectorEngine(fakes.FakeEngine):
    """An engine of the Gaussian mechanism, whose own clients send zeros.

    Args:
      plan: The plan.
      noise: Function of the round and a normal vector to the noise of the round.
      length: The length of a canary once it is clipped, over the clip.
      fails_at: The number of a round that fails.
    """

    def __init__(self, plan, noise, length=1.0, fails_at=None):
        super().__init__(fails_at)
        self._plan, self._noise, self._length = plan, noise, length

    def initialize(self):
        return np.ones(DIMENSION, np.float32)

    def round(self, state, clients):
        number = sum(clients)
        output = super().round(np.float64(0), clients)
        assert number == output.state
        mechanism = self._plan.mechanism
        total, index = np.zeros(DIMENSION), len(self.rounds)
        for client in clients:
            if client >= OWN:
                total += self._length * sent(client)
        scale = mechanism.update_noise_multiplier
        total += scale * self._noise(index, np.random.default_rng(index))
        mean = (total * mechanism.clip_norm / mechanism.cohort_size).astype(np.float32)
        output.state, output.released = state - 0.5 * mean, (mean,)
        return output

    def evaluate(self, state, is_due):
        return super().evaluate(0.0, is_due)


def fresh(index, rng):
    return rng.standard_normal(DIMENSION)


def repeated(index, rng):
    return np.random.default_rng(0).standard_normal(DIMENSION)


HOLES = {
    "left out": (lambda index, rng: np.zeros(DIMENSION), 1.0),
    "halved": (lambda index, rng: fresh(index, rng) / 2, 1.0),
    "repeated": (repeated, 1.0),
    "no clip": (fresh, 3.0),
}


@pytest.fixture
def planned(make_plan):
    def made(participation="once_per_epoch", **changes):
        plan = make_plan(
            participation=participation,
            **{"canaries": CANARIES, "cohort_size": 204, "rounds": 10, "delta": 1e-5}
            | {"epsilon": 8.0, "accounting_method": "auto", "server_momentum": 0.0}
            | changes,
        )
        task = SimpleNamespace(**{**vars(plan.task), "dimension": DIMENSION})
        return dataclasses.replace(plan, task=task)

    return made


def run(plan, engine, store=None):
    """The state, the progress and the findings of a run."""
    state, progress, *_ = run_loop(plan, store or fakes.FakeStore(), engine, key=KEY)
    found = canaries.Canaries(plan, KEY).audit(progress.scores, [state])
    return state, progress, found


def test_honest_runs_are_below_the_claim_and_holes_above(planned):
    plan = planned()
    claim = plan.cost.planned.epsilon
    _, _, honest = run(plan, VectorEngine(plan, fresh))
    assert honest["canaries"] == CANARIES and 400 < honest["canaries_in"] < 600
    for view in honest["views"].values():
        assert view["estimate"]["low"] < claim
        assert view["lower_bounds"]["epsilon"] < claim
        assert view["lower_bounds"]["gaussian_epsilon"] < claim
    # The attack is not far from what it can be.
    assert honest["views"]["all_rounds"]["estimate"]["high"] > 0.8 * claim
    for name, (noise, length) in HOLES.items():
        _, _, found = run(plan, VectorEngine(plan, noise, length))
        view = found["views"]["all_rounds"]
        assert view["estimate"]["low"] > 1.2 * claim
        if name in ("left out", "repeated"):
            # Seen without any assumption on the scores.
            assert view["lower_bounds"]["gaussian_epsilon"] > claim


def test_a_killed_run_has_the_scores_of_a_whole_one(planned):
    plan, store = planned(checkpoint_every=4), fakes.FakeStore()
    state, progress, found = run(plan, VectorEngine(plan, fresh))
    with pytest.raises(RuntimeError):
        run(plan, VectorEngine(plan, fresh, fails_at=7), store)
    engine = VectorEngine(plan, fresh)
    engine.rounds = [[]] * store.load_newest().round_index
    again = run(plan, engine, store)
    np.testing.assert_array_equal(again[0], state)
    np.testing.assert_array_equal(again[1].scores, progress.scores)
    assert progress.scores.shape == (11, CANARIES) and again[2] == found


@pytest.mark.parametrize(
    ("participation", "relation"),
    [("poisson", "add_or_remove"), ("fixed", "replaced_by_zeros")],
)
def test_absent_canaries_are_those_that_the_relation_removes(
    planned, participation, relation
):
    plan = planned(participation, rounds=2, noise_multiplier=1.0)
    assert plan.cost.planned.relation == relation
    engine = VectorEngine(plan, fresh)
    run(plan, engine)
    for index, clients in enumerate(engine.rounds):
        chosen = selection.select_cohort(plan.participation, KEY, index).tolist()
        out = [
            client
            for client in chosen
            if client >= OWN and not vectors.is_in(selection.client_key(KEY, client))
        ]
        assert len(out) > 50
        left = [client for client in chosen if client not in out]
        assert clients == (left if relation == "add_or_remove" else chosen)


def test_unknown_rounds_are_weighed_by_their_probability():
    """Independent rounds of known variance have the ratio of the mixture."""
    rng, q = np.random.default_rng(2), 0.3
    is_in = rng.random(4000) < 0.5
    joins = (rng.random((3, 4000)) < q) & is_in
    scores = 5 * rng.standard_normal((3, 4000)) + 20 * joins
    found = canaries.log_ratios(scores, np.full((3, 4000), q))
    each = (scores * 20 - 200) / 25
    expected = np.sum(np.log1p(q * np.expm1(each)), 0)
    assert (
        np.corrcoef(np.argsort(np.argsort(found)), np.argsort(np.argsort(expected)))[
            0, 1
        ]
        > 0.99
    )


def test_a_round_of_nothing_and_rounds_in_blocks_are_scored(monkeypatch):
    rng = np.random.default_rng(3)
    scores, chances = rng.standard_normal((4, 300)), np.ones((4, 300))
    scores[1] = 0
    assert np.isfinite(canaries.log_ratios(scores, chances)).all()
    monkeypatch.setattr(canaries, "_ROUNDS", 2)
    assert np.isfinite(canaries.log_ratios(scores, chances)).all()


def test_plan_counts_canaries_and_refuses_what_they_cannot_audit(make_plan):
    plan = make_plan(canaries=1000, cohort_size=60, noise_multiplier=1.0)
    assert plan.participation.population == OWN + 1000
    assert plan.canary_length == 8 * plan.mechanism.clip_norm
    without = make_plan(cohort_size=5, noise_multiplier=1.0)
    assert without.canary_length is None
    assert without.cost.delta > plan.cost.delta
    assert make_plan(mechanism="none", canaries=100).canary_length == 0.5
    for changes in ({"measure": "released"}, {"mechanism": "none", "weighted": True}):
        with refuses(ValueError, "canaries", 100):
            make_plan(canaries=100, **changes)
    with refuses(ValueError, "canaries", 10**6):
        make_plan(canaries=10**6, rounds=1000, noise_multiplier=1.0)
    with refuses(ValueError, "canaries", 99):
        make_plan(canaries=99)


def test_honest_runs_exceed_the_claim_no_more_often_than_allowed():
    root = pathlib.Path(__file__).resolve().parents[2]
    rows = list(reading.read_csv(root / "docs/results/self_audits.csv"))
    for view in ("final_model", "all_rounds"):
        honest = [r for r in rows if (r["kind"], r["view"]) == ("honest", view)]
        assert len(honest) == 200
        levels = {"lower_bound": 0.05, "gaussian_lower_bound": 0.05, "low": 0.025}
        for name, level in levels.items():
            above = sum(float(row[name]) > float(row["claim"]) for row in honest)
            assert scipy.stats.binom.sf(above - 1, 200, level) > 0.01
    holes = [r for r in rows if r["kind"] != "honest" and r["view"] == "all_rounds"]
    assert len(holes) == 3
    assert all(float(row["low"]) > 1.2 * float(row["claim"]) for row in holes)
