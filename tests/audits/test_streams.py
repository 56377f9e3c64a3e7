# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Streams over a run through their codecs: what an adversary sees is what is claimed.

Scores of the real noise have the law of log-likelihood ratios of independent releases,
drawn here from their definition.
"""

import dataclasses

import numpy as np
import pytest

from dpfl import accounting
from experiments.audits import cases, streams
from tests.accounting import simulators

CASES = [case for own in cases.STREAMS.values() for case in own]
SAMPLED = [case for case in CASES if case.participation.sampling_probability == 0.5]


def releases(case, present, trials, rng):
    """Scores of as many independent releases as a client has turns."""
    config, participation = case.mechanism, case.participation
    canary = np.asarray(case.block)
    keep = getattr(config, "keep_fraction", 1.0)
    turns = participation.sampling_probability, participation.max_participations
    simulator = simulators.SparsifiedGaussianSimulator(
        canary, keep, config.noise_multiplier * keep, *turns
    )
    return simulator.score(simulator.sample(rng, present, trials))


def scores(made, runs):
    """Scores with the canary, and without."""
    found = [made._run() for _ in range(runs)]
    return tuple(
        np.concatenate([score[is_there == there] for score, is_there in found])
        for there in (True, False)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.setting)
def test_cases_match_their_participation(case):
    bands = case.mechanism.factorization.factors.bands
    separation = case.participation.separation
    assert bands <= separation or case.mechanism.matrix_method == "optimal"
    claim = case.claim()
    adds = case.participation.varies_cohorts
    assert claim.relation == ("add_or_remove" if adds else "replaced_by_zeros")
    assert 2 < claim.epsilon < 8


@pytest.mark.parametrize("case", SAMPLED, ids=lambda case: case.setting)
def test_run_is_one_release_per_participation(case):
    made = streams.StreamCanaries(case, 3)
    found = scores(made, 8)
    rng = np.random.default_rng(1)
    for there, seen in zip((True, False), found):
        expected = releases(case, there, 100_000, rng)
        assert len(seen) > 200
        error = np.std(expected) / np.sqrt(len(seen))
        assert abs(np.mean(seen) - np.mean(expected)) < 4.5 * error
        assert 0.75 < np.std(seen) / np.std(expected) < 1.3
    # More than what independent noise of the same size would leave of it.
    assert np.mean(found[0]) - np.mean(found[1]) > 1


def test_all_participations_of_a_client_at_once():
    """Rounds that share rows of C: N(mu^2 / 2, mu^2), mu that of the claim."""
    [case] = [case for case in CASES if case.mechanism.matrix_method == "optimal"]
    present, absent = scores(streams.StreamCanaries(case, 3), 12)
    encoder = case.mechanism.factorization.encoder()
    # Epochs of four rounds, windows of three: who is in round 3 has no other.
    pairs = [encoder[:, s] + encoder[:, t] for s in (0, 1, 2) for t in (4, 5)]
    shifts = np.linalg.norm(pairs, axis=1) / case.mechanism.stddev
    longest = np.max(shifts)
    claimed = case.claim().epsilon
    exact = accounting.gaussian_epsilon(case.delta, 1 / longest)
    assert exact <= claimed <= 1.001 * exact
    for sign, seen in ((1, present), (-1, absent)):
        error = np.abs(sign * np.mean(seen) - np.mean(shifts**2 / 2))
        assert error < 4.5 * longest / np.sqrt(len(seen))


def test_missing_noise_is_detected(monkeypatch):
    case = SAMPLED[0]
    louder = case.mechanism.with_noise_multiplier(2.5)
    honest = dataclasses.replace(case, mechanism=louder).claim()
    monkeypatch.setattr(streams.StreamCase, "claim", lambda self: honest)
    [found] = streams.StreamCanaries(case, 1).findings(900, in_tff=False)
    assert found.verdict == "ABOVE" and not found.is_sound


def test_tff_gives_the_same(tff_context):
    case = next(case for case in CASES if case.mechanism.name == "sgmf")
    made = streams.StreamCanaries(case, 1)
    found = made.findings(4, in_tff=True)
    assert [(each.check, each.is_sound) for each in found] == [
        *(("epsilon", True), ("composition", True))
    ]
