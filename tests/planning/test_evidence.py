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
from tests.refusals import refuses

N, SIZE, ROUNDS = 1000, 50, 200
RANDOM = np.random.default_rng(0)
SAMPLED = dpfl.PoissonSampling(N, SIZE, ROUNDS)
SLOTS = dpfl.RandomAllocation(N, SIZE, ROUNDS)
DRAWN = dpfl.WithoutReplacement(N, SIZE, ROUNDS)
ANY = dpfl.FixedSize(N, SIZE, ROUNDS)
PLANS = [
    dpfl.PoissonSampling(60, 6, 20),
    dpfl.WithoutReplacement(60, 6, 20),
    dpfl.RandomAllocation(62, 6, 20, 8),
    dpfl.CyclicPoisson(60, 6, 20, 1),
    dpfl.CyclicPoisson(60, 6, 20, 3),
    dpfl.BallsInBins(60, 5, 20),
    dpfl.BallsInBins(60, 5, 20, 9),
    dpfl.BMinSeparation(60, 6, 20, 4),
    dpfl.KOfT(60, 6, 20),
    dpfl.KOfT(60, 6, 25).first(20),
    # More rounds of a client than the part of the run has.
    dpfl.KOfT(60, 30, 60).first(10),
]


def ledger_of(plan):
    mechanism = dpfl.Gaussian(plan.cohort_size, 1.0, 1.0)
    return dpfl.Ledger(mechanism, plan, 10, 1e-5, accounting_method="rdp")


def refusals(plan, level, runs, report=lambda index: np.ones(62)):
    """How many honest runs are refused, whose clients report with a probability."""
    refused, random = 0, np.random.default_rng(0)
    for seed in range(runs):
        bets = evidence.Evidence(plan, level=level)
        for index in range(plan.rounds):
            names = select_cohort(plan, seed, index)
            chances = report(index)
            names = names[random.random(len(names)) < chances[names % len(chances)]]
            if bets.refusal(index, names.tolist()):
                refused += 1
                break
            bets.add(index, names.tolist())
    return refused


def test_every_claimed_sampling_scheme_is_tested():
    assert set(evidence.TESTED) <= set(PARTICIPATIONS.values())
    nothing = set(PARTICIPATIONS.values()) - set(evidence.TESTED)
    assert nothing == {dpfl.FixedSize, dpfl.OncePerEpoch}


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_false_alarm_rate_stays_below_its_level(plan):
    """At a level of a fifth, where that can be seen."""
    assert refusals(plan, 0.2, 30) <= stats.binom.ppf(0.999, 30, 0.2)


# The probability that a client that is chosen reports, by its index and round.
AVAILABILITIES = {
    "few": lambda index: np.full(60, 0.15),
    "uneven": lambda index: np.random.default_rng(1).beta(0.5, 0.5, 60),
    "they arrive one by one": lambda index: np.arange(60) // 3 <= index,
    "nights": lambda index: np.full(60, index // 3 % 2),
}


# The first plan of each class.
@pytest.mark.parametrize("plan", {type(p): p for p in PLANS[::-1]}.values(), ids=repr)
@pytest.mark.parametrize("kind", AVAILABILITIES)
def test_dropouts_are_not_refused(plan, kind):
    """Who joins less often than is claimed claims too much: at a level of a tenth."""
    found = refusals(plan, 0.1, 10, AVAILABILITIES[kind])
    assert found <= stats.binom.ppf(0.9999, 10, 0.1)


@pytest.mark.parametrize(
    "draw",
    [
        lambda random, seen: random.random(N) < 0.05 * (np.arange(N) % 2),
        lambda random, seen: random.random(N) < 0.05 * (np.arange(N) < 800),
        lambda random, seen: random.random(N) < 0.05 * random.beta(0.5, 0.5, N),
        lambda random, seen: random.random(N) < 0.01,
        lambda random, seen: random.random(N) < 0.05 * (np.arange(N) < 5 * seen),
        # More clients than were thought of, and an hour's rest for those that came.
        lambda random, seen: random.random(1200) < 0.05,
    ],
)
def test_smaller_or_larger_population_is_not_refused(draw):
    """Whole runs of 200 rounds, at the level that a ledger has."""
    random = np.random.default_rng(0)
    ledger = ledger_of(SAMPLED)
    for index in range(ROUNDS):
        ledger._history.check(names := np.flatnonzero(draw(random, index)).tolist())
        ledger._history.add(names)


@pytest.mark.parametrize("clients, chance", [(300, 0.05), (100, 0.5), (30, 0.1)])
def test_wealth_does_not_grow_on_average(clients, chance):
    """Exactly, over all sizes that a round can have, after any rounds before."""
    usual = round(clients * chance)
    narrow = evidence._Narrow(usual)
    tilts = evidence._tilts(chance)
    back = evidence._Tilts(np.concatenate([2.0 ** np.arange(-10, 0), tilts]))
    for before in (None, 3, usual):
        if before is not None:
            narrow = narrow.after(before, chance)
            back = back.after(before, clients, chance)
        # Any number of clients, who may join less often.
        for share in (1e-3, 0.8, 1, 2):
            for joins in (chance, chance / 50):
                of = round(clients * share * chance / joins)
                sizes = np.arange(of + 1)
                law = stats.binom.logpmf(sizes, of, joins)[:, None]
                most = evidence.most_probable(sizes, chance)
                assert np.all(np.exp(law[:, 0]) <= most * (1 + 1e-9))
                bets = [narrow, back] if of <= clients else [narrow]
                likely = np.flatnonzero(law[:, 0] > -60)
                for bet in bets:
                    more = (clients, chance) if bet is back else (chance,)
                    gains = [bet.after(x, *more)._logs - bet._logs for x in likely]
                    total = special.logsumexp(law[likely] + gains, axis=0)
                    assert np.all(total <= 1e-9), (before, share, joins)
    joins = stats.binom.pmf(np.arange(21), 20, chance)
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


SHORT = [c[:23] if t % 10 == 9 else c for t, c in enumerate(fixed(50))]
# Slots that were drawn once, for all epochs.
ONE_DRAW = [select_cohort(SLOTS, 1, t % 20) for t in range(ROUNDS)]
SAME = [range(50)] * ROUNDS


@pytest.mark.parametrize(
    "plan, cohorts, rounds",
    [
        # The commonest mistake in tutorials, and with a last batch that is not full.
        *((SAMPLED, cohorts, 12) for cohorts in (fixed(50), fixed(40), shuffled())),
        *((SAMPLED, SHORT, 25), (SAMPLED, SAME, 2), (SAMPLED, present(7), 12)),
        *((SAMPLED, fixed(100), 9), (DRAWN, SAME, 2), (DRAWN, fixed(51), 1)),
        *((DRAWN, shuffled(), 40), (SLOTS, shuffled(), 12), (SLOTS, ONE_DRAW, 21)),
        (dpfl.BallsInBins(N, 50, ROUNDS), dealt(20, 50), 15),
        (dpfl.CyclicPoisson(N, 50, ROUNDS, 4), dealt(4, 50), 20),
        (dpfl.BMinSeparation(N, 50, ROUNDS, 4), dealt(4, 50), 20),
        (dpfl.KOfT(N, 50, 20), SAME[:20], 2),
    ],
)
def test_cohorts_of_another_participation_are_refused(plan, cohorts, rounds):
    """Recorded and resumed alike."""
    ledger, resumed = ledger_of(plan), ledger_of(plan)
    with refuses(ValueError, "participants", plan.name):
        for cohort in cohorts:
            ledger.record_round(cohort)
    done = ledger.rounds
    assert done < rounds
    with refuses(ValueError, "cohorts", plan.name):
        resumed.resume_at(done + 1, cohorts[: done + 1])
    resumed.resume_at(done, cohorts[:done])
    with refuses(ValueError, "participants", plan.name):
        resumed.record_round(cohorts[done])
    # Clients that are not named, and plans that claim nothing, are not judged.
    ledger.record_round()
    free = ledger_of(ANY)
    free.resume_at(done + 1, cohorts[: done + 1])


@pytest.mark.parametrize("plan", [SAMPLED, SLOTS, dpfl.BMinSeparation(300, 15, 60, 4)])
def test_unseen_rounds_are_not_counted(plan):
    """Gaps, rounds that are done again and honest ones in between."""
    ledger = ledger_of(plan)
    for index in range(0, 30, 3):
        ledger.resume_at(index)
        for number in (index, index + 1):
            ledger.record_round(select_cohort(plan, 3, number))
        ledger.resume_at(index)
        ledger.record_round()
    assert ledger.rounds == 28


def test_larger_population_than_planned_is_not_refused():
    """Cohorts of 50 of 2,000, where half as many give a larger epsilon."""
    ledger = ledger_of(DRAWN)
    ledger.resume_at(ROUNDS, fixed(50, of=2 * N))


@pytest.mark.parametrize("plan", [SAMPLED, SLOTS, dpfl.CyclicPoisson(N, 50, ROUNDS, 4)])
def test_returning_clients_are_counted_exactly(plan):
    bets = evidence.Evidence(plan)
    cohorts = [select_cohort(plan, 3, index).tolist() for index in range(60)]
    for index, names in enumerate(cohorts):
        for begin in (plan.excluded_from(index), index - 10):
            recent = {*itertools.chain(*cohorts[max(0, begin) : index])}
            turn = plan.group_of(index)
            old = {
                client
                for before, cohort in enumerate(cohorts[:index])
                for client in cohort
                if plan.group_of(before) == turn
            } - recent
            expected = len(old & {*names}), len(old)
            assert bets._again(index, names, begin) == expected
        bets.add(index, names)
