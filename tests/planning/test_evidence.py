# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Against honest cohorts: no false alarms. Against those of other plans: a refusal."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

import dpfl
from dpfl.mechanisms import PARTICIPATIONS
from dpfl.planning import evidence
from dpfl.training.selection import select_cohort

N, SIZE, ROUNDS = 1000, 50, 200
RANDOM = np.random.default_rng(0)
SAMPLED = dpfl.PoissonSampling(N, SIZE, ROUNDS)
SLOTS = dpfl.RandomSlot(N, SIZE, ROUNDS)
PLANS = [
    dpfl.PoissonSampling(60, 6, 20),
    dpfl.WithoutReplacement(60, 6, 20),
    dpfl.RandomSlot(62, 6, 20, 8),
    dpfl.CyclicPoisson(60, 6, 20, 1),
    dpfl.CyclicPoisson(60, 6, 20, 3),
    dpfl.BallsInBins(60, 5, 20),
    dpfl.BallsInBins(60, 5, 20, 9),
    dpfl.BMinSeparation(60, 6, 20, 4),
]


def test_whoever_claims_something_of_the_choice_has_a_law():
    claimed = {kind for kind in PARTICIPATIONS.values() if kind in evidence.LAWS}
    assert claimed == set(evidence.LAWS)
    nothing = set(PARTICIPATIONS.values()) - claimed
    assert nothing == {dpfl.FixedSize, dpfl.OncePerEpoch}


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_an_honest_history_is_refused_no_more_often_than_it_may_be(plan):
    """At a level of a fifth, where that can be seen; 200 histories."""
    refused = 0
    for seed in range(200):
        bets = evidence.Evidence(plan, level=0.2)
        for index in range(plan.rounds):
            names = select_cohort(plan, seed, index).tolist()
            if bets.refusal(index, names):
                refused += 1
                break
            bets.add(index, names)
    assert refused <= stats.binom.ppf(0.999, 200, 0.2)


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_sizes_have_the_law_that_is_claimed_given_the_rounds_before(plan):
    """Mean and variance of what is left of a size, over 300 honest histories."""
    scores, clients = [], []
    for seed in range(300):
        bets = evidence.Evidence(plan)
        for index in range(plan.rounds):
            names = select_cohort(plan, seed, index).tolist()
            free = bets._law.size(bets._seen, index)
            if free and 0 < free.chance < 1 and free.clients:
                mean = free.clients * free.chance
                scores.append((len(names) - mean) / np.sqrt(mean * (1 - free.chance)))
                clients.append(free.is_exact)
            bets.add(index, names)
    scores, exact = np.array(scores), np.array(clients, bool)
    if isinstance(plan, dpfl.WithoutReplacement):
        assert not len(scores)
        return
    assert abs(np.mean(scores[exact])) < 4.5 / np.sqrt(exact.sum())
    assert abs(np.mean(scores[exact] ** 2) - 1) < 4.5 * np.sqrt(2.2 / exact.sum())
    # Where there may be more such clients, sizes are larger and vary more.
    assert exact.all() or np.mean(scores[~exact] ** 2) > 1


@pytest.mark.parametrize("clients, chance", [(1000, 0.05), (400, 0.5), (30, 0.1)])
def test_wealth_does_not_grow_on_average(clients, chance):
    """Exactly, over all sizes that a round can have, after any rounds before."""
    free = evidence.Free(clients, chance)
    narrow = evidence._Narrow(round(clients * chance))
    large = evidence._Tilts(2.0 ** np.arange(-10, 2))
    for before in (None, 0, 3, round(clients * chance), round(clients * chance) + 2):
        if before is not None:
            narrow, large = narrow.after(before, free), large.after(before, free)
        for more in (0, 7):
            # Who may join besides makes sizes vary more; the bets are as they were.
            sizes = np.arange(clients + more + 1)
            law = stats.binom.logpmf(sizes, clients + more, chance)[:, None]
            assert np.exp(law.max()) <= evidence.most_probable(free)
            bets = [narrow] if more else [narrow, large]
            for bet in bets:
                gains = np.array([bet.after(x, free)._logs - bet._logs for x in sizes])
                assert np.all(special.logsumexp(law + gains, axis=0) <= 1e-9)
    joins = stats.binom.pmf(np.arange(21), 20, chance)
    tilts = evidence._tilts(chance)
    wealth = [np.exp(evidence._log_wealth(tilts, c, 20, chance)) for c in range(21)]
    assert joins @ wealth == pytest.approx(1, abs=1e-9)


def fixed(size, rounds=ROUNDS, of=N):
    return [RANDOM.permutation(of)[:size].tolist() for _ in range(rounds)]


def shuffled():
    return [c for _ in range(10) for c in RANDOM.permutation(N).reshape(20, 50)]


def present(client):
    honest = (select_cohort(SAMPLED, 5, index).tolist() for index in range(ROUNDS))
    return [sorted({client, *names}) for names in honest]


def dealt(groups, size):
    parts = RANDOM.permutation(N).reshape(groups, -1)
    return [RANDOM.permutation(parts[t % groups])[:size] for t in range(ROUNDS)]


@pytest.mark.parametrize(
    "plan, cohorts, rounds, fits",
    [
        # The commonest mistake in tutorials, and with a last batch that is not full.
        (SAMPLED, fixed(50), 12, dpfl.WithoutReplacement(N, 50, ROUNDS)),
        (SAMPLED, fixed(40), 12, dpfl.WithoutReplacement(N, 40, ROUNDS)),
        (
            SAMPLED,
            [c[:23] if t % 10 == 9 else c for t, c in enumerate(fixed(50))],
            25,
            dpfl.WithoutReplacement(N, 50, ROUNDS),
        ),
        (SAMPLED, [range(50)] * ROUNDS, 12, dpfl.FixedSize(N, 50, ROUNDS)),
        (SAMPLED, shuffled(), 12, dpfl.OncePerEpoch(N, 50, ROUNDS)),
        (SAMPLED, present(7), 12, dpfl.FixedSize(N, 50, ROUNDS)),
        (SAMPLED, fixed(100), 3, dpfl.FixedSize(N, 100, ROUNDS)),
        (
            dpfl.WithoutReplacement(N, 50, ROUNDS),
            [range(50)] * ROUNDS,
            12,
            dpfl.FixedSize(N, 50, ROUNDS),
        ),
        (
            dpfl.WithoutReplacement(N, 50, ROUNDS),
            fixed(51),
            1,
            dpfl.FixedSize(N, 51, ROUNDS),
        ),
        (
            dpfl.WithoutReplacement(N, 50, ROUNDS),
            shuffled(),
            40,
            dpfl.OncePerEpoch(N, 50, ROUNDS),
        ),
        (SLOTS, shuffled(), 12, dpfl.OncePerEpoch(N, 50, ROUNDS)),
        # Slots that were drawn once, for all epochs.
        (
            SLOTS,
            [select_cohort(SLOTS, 1, t % 20) for t in range(ROUNDS)],
            21,
            dpfl.OncePerEpoch(N, 50, ROUNDS),
        ),
        (
            dpfl.BallsInBins(N, 50, ROUNDS),
            dealt(20, 50),
            15,
            dpfl.OncePerEpoch(N, 50, ROUNDS),
        ),
        (
            dpfl.CyclicPoisson(N, 50, ROUNDS, 4),
            dealt(4, 50),
            20,
            dpfl.FixedSize(N, 50, ROUNDS),
        ),
        (
            dpfl.BMinSeparation(N, 50, ROUNDS, 4),
            dealt(4, 50),
            20,
            dpfl.FixedSize(N, 50, ROUNDS),
        ),
    ],
)
def test_cohorts_of_another_plan_are_refused(plan, cohorts, rounds, fits):
    """Recorded and resumed alike, with the plan that would fit."""
    mechanism = dpfl.Gaussian(50, 1.0, 1.0)
    ledger = dpfl.Ledger(mechanism, plan, 10, 1e-5, method="rdp")
    with pytest.raises(ValueError, match="^participants must be drawn") as found:
        for cohort in cohorts:
            ledger.record_round(cohort)
    done = ledger.rounds
    assert done < rounds and str(fits) in str(found.value)
    dpfl.Ledger(dpfl.Gaussian(fits.cohort_size, 1.0, 1.0), fits, 10, 1e-5)
    resumed = dpfl.Ledger(mechanism, plan, 10, 1e-5, method="rdp")
    with pytest.raises(ValueError, match="^cohorts must be drawn"):
        resumed.resume_at(done + 1, cohorts[: done + 1])
    resumed.resume_at(done, cohorts[:done])
    with pytest.raises(ValueError, match="^participants must be drawn"):
        resumed.record_round(cohorts[done])
    # Clients that are not named, and plans that claim nothing, are not judged.
    ledger.record_round()
    free = dpfl.Ledger(mechanism, dpfl.FixedSize(N, 50, ROUNDS), 10, 1e-5)
    free.resume_at(done + 1, cohorts[: done + 1])


@pytest.mark.parametrize("plan", [SAMPLED, SLOTS, dpfl.BMinSeparation(N, 50, 200, 4)])
def test_rounds_that_were_not_seen_are_not_guessed(plan):
    """Gaps, rounds that are done again and honest ones in between."""
    ledger = dpfl.Ledger(dpfl.Gaussian(50, 1.0, 1.0), plan, 10, 1e-5, method="rdp")
    for index in range(0, 120, 3):
        ledger.resume_at(index)
        for number in (index, index + 1):
            ledger.record_round(select_cohort(plan, 3, number))
        ledger.resume_at(index)
        ledger.record_round()
    assert ledger.rounds == 118


def test_cohorts_of_nobody_are_not_those_that_are_not_known():
    ledger = dpfl.Ledger(dpfl.Gaussian(50, 1.0, 1.0), SAMPLED, 10, 1e-5)
    with pytest.raises(ValueError, match="^participants must be drawn.*None.*"):
        for _ in range(ROUNDS):
            ledger.record_round([])
    ledger.resume_at(ROUNDS)


def test_more_clients_than_were_thought_of_are_no_contradiction():
    """Cohorts of 50 of 2,000, where half as many give a larger epsilon."""
    plan = dpfl.WithoutReplacement(N, 50, ROUNDS)
    ledger = dpfl.Ledger(dpfl.Gaussian(50, 1.0, 1.0), plan, 10, 1e-5, method="rdp")
    ledger.resume_at(ROUNDS, fixed(50, of=2 * N))


def test_late_returns_are_counted_as_by_sets():
    counted, cohorts = evidence._Returns(SAMPLED), fixed(50, 60)
    assert counted.window == 10
    for index, names in enumerate(cohorts):
        recent = {*itertools.chain(*cohorts[max(0, index - 10) : index])}
        old = {*itertools.chain(*cohorts[:index])} - recent
        late, free = counted.late(names)
        assert late == len(old & {*names})
        assert free == (50, len(old) / N, True)
        counted.add(names)
