# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import hashlib
import math

import numpy as np
import pytest

from dpfl import seed_domains
from dpfl.mechanisms import (
    BallsInBins,
    BMinSeparation,
    CyclicPoisson,
    FixedSize,
    KOfT,
    OncePerEpoch,
    PoissonSampling,
    RandomAllocation,
)
from dpfl.training import selection
from tests.refusals import refuses


@pytest.mark.parametrize(
    "participation, chosen",
    [
        (PoissonSampling(100, 4, 9), [3, 20, 32, 50, 99]),
        (OncePerEpoch(100, 4, 9), [9, 65, 68, 95]),
        (FixedSize(1000, 5, 9), [103, 228, 477, 680, 745]),
        (RandomAllocation(100, 6, 40), [11, 32, 39, 46, 50, 69, 95]),
        (CyclicPoisson(100, 6, 40, 5), [1, 3, 16, 32, 40, 43, 90, 92]),
        (BMinSeparation(100, 6, 40, 5), [2, 6, 8, 33, 76, 81]),
        (KOfT(100, 6, 40), [62, 77, 97]),
        (OncePerEpoch(100, 6, 40, 8, 5), [17, 51, 73, 83, 86, 99]),
    ],
    ids=str,
)
def test_cohorts_are_stable_across_versions(participation, chosen):
    """A new version must not change whom a seed chooses."""
    round_index = 3 if participation.rounds == 9 else 18
    found = selection.select_cohort(participation, 7, round_index)
    assert found.tolist() == chosen


def cohorts(participation, seed=5):
    return [
        selection.select_cohort(participation, seed, t)
        for t in range(participation.rounds)
    ]


def counts_of(chosen, population):
    """How often each client is chosen."""
    return np.bincount(np.concatenate(chosen), minlength=population)


def test_poisson_samples_each_client_at_the_stated_rate():
    chosen = cohorts(PoissonSampling(20, 5, 8000), 1)
    counts = counts_of(chosen, 20)
    # Binomial(8000, 1/4): standard deviation 0.0048 of the rate; 4% is two of them,
    # and 5% of the pooled rate 46 of its.
    assert np.max(np.abs(counts / 8000 - 0.25)) < 4.5 * 0.0048
    assert abs(counts.mean() / 8000 - 0.25) < 0.005
    # Poisson sampling and not a fixed size: the variance is N q (1 - q) = 3.75.
    assert abs(np.var([len(cohort) for cohort in chosen]) / 3.75 - 1) < 0.08


def test_fixed_size_is_fixed_and_fair():
    chosen = cohorts(FixedSize(20, 5, 8000), 1)
    assert {len(cohort) for cohort in chosen} == {5}
    counts = counts_of(chosen, 20)
    assert np.max(np.abs(counts / 8000 - 0.25)) < 4.5 * math.sqrt(0.1875 / 8000)


def test_no_client_repeats_within_an_epoch():
    participation = OncePerEpoch(23, 5, 40)
    assert participation.rounds_per_epoch == 4
    chosen = cohorts(participation, 9)
    for start in range(0, 40, 4):
        epoch = np.concatenate(chosen[start : start + 4])
        assert len(epoch) == 20 == len(set(epoch))
    # Another order each epoch.
    assert tuple(chosen[0]) != tuple(chosen[4])


def test_slots_are_drawn_independently_per_client():
    participation = RandomAllocation(23, 5, 8000)
    assert participation.rounds_per_epoch == 4
    chosen = cohorts(participation, 9)
    together = sitting_out = 0
    for start in range(0, 8000, 4):
        epoch = chosen[start : start + 4]
        everybody = np.concatenate(epoch)
        assert len(everybody) == len(set(everybody.tolist()))
        sitting_out += 0 not in everybody
        together += any(0 in c and 1 in c for c in epoch)
    counts = np.stack([counts_of(chosen[place::4], 23) for place in range(4)])
    # Each round with 5/23, standard deviation 0.0092 of a rate in 2000 epochs.
    assert np.max(np.abs(counts / 2000 - 5 / 23)) < 4.5 * 0.0092
    # What is left, 3/23, and two in the same round: 4 (5/23)^2, independently.
    assert abs(sitting_out / 2000 - 3 / 23) < 0.03
    assert abs(together / 2000 - 4 * (5 / 23) ** 2) < 0.035
    # Cohorts are binomial: the variance is N q (1 - q), 3.91.
    sizes = [len(cohort) for cohort in chosen]
    assert abs(np.mean(sizes) - 5) < 0.1
    assert abs(np.var(sizes) / 3.913 - 1) < 0.1


def test_seeds_differ_by_domain_and_index():
    found = {
        selection.derive_seed(s, domain, i)
        for s in range(5)
        for domain in seed_domains.RunDomain
        for i in range(5)
    }
    assert len(found) == 5 * len(seed_domains.RunDomain) * 5
    assert all(0 <= seed < 2**126 for seed in found)
    # Not a matter of how the parts are glued together.
    model = seed_domains.RunDomain.MODEL
    assert selection.derive_seed(11, model, 1) != selection.derive_seed(1, model, 11)


def test_run_seeds_are_stable_across_versions():
    """The first 126 bits of SHA-256, computed with another program."""
    assert {p.value for p in seed_domains.RunDomain} == {
        *("aggregator", "model", "poisson", "fixed", "epoch", "slot", "client"),
        *("group", "window"),
    }
    digest = "53f968347dc6a45bd6f9b2945e6bda16"
    assert (
        selection.derive_seed(7, seed_domains.RunDomain.MECHANISM)
        == int(digest, 16) >> 2
    )


def test_a_runs_key_is_a_hash_of_seed_and_settings():
    digest = hashlib.sha256(b"dpfl run:settings:7").hexdigest()
    assert selection.run_key(7, "settings") == int(digest, 16)
    pairs = [(7, "a"), (7, "b"), (8, "a"), (7 + 2**63, "a"), (7 + 2**126, "a")]
    assert len({selection.run_key(*pair) for pair in pairs}) == 5


def test_client_keys_are_distinct():
    keys = [selection.client_key(key, client) for key in (1, 2) for client in range(50)]
    assert len({word for key in keys for word in key}) == 200
    assert all(0 <= word < 2**63 for key in keys for word in key)
    assert sum(word >= 2**62 for key in keys for word in key) > 50


@pytest.mark.parametrize("seed", [-1, True, 1.5, None, "3"])
def test_a_bad_seed_is_named(seed):
    with refuses((TypeError, ValueError), "seed", repr(seed)):
        selection.derive_seed(seed, seed_domains.RunDomain.MODEL)
    with refuses((TypeError, ValueError), "seed", repr(seed)):
        selection.run_key(seed, "")
    with refuses(TypeError, "participation", "poisson"):
        selection.select_cohort("poisson", 0, 0)


def gaps(chosen):
    """The distances of rounds of one client, for all clients and rounds."""
    found, last = [], {}
    for t, cohort in enumerate(chosen):
        found += [t - last[client] for client in cohort.tolist() if client in last]
        last.update(dict.fromkeys(cohort.tolist(), t))
    return found


@pytest.mark.parametrize(("population", "separation"), [(20, 3), (23, 4), (23, 5)])
def test_windows_hold_the_separation(population, separation):
    """Epochs of five rounds of four; three clients are left over in two cases."""
    plan = OncePerEpoch(population, 4, 500, 5, separation)
    chosen = cohorts(plan)
    assert {len(cohort) for cohort in chosen} == {4}
    found = gaps(chosen)
    assert min(found) == separation
    # Somebody is as late in the next epoch as can be, but nobody sits out for ever.
    assert max(found) >= 10 - separation
    for epoch in range(100):
        assert len(set(np.concatenate(chosen[5 * epoch : 5 * epoch + 5]))) == 20
    counts = counts_of(chosen, population)
    assert counts.min() > 50 and (population > 20 or set(counts) == {100})
    shuffled = {tuple(cohort) for cohort in chosen[4::5]}
    assert (len(shuffled) == 1) == (separation == 5 and population == 20)


@pytest.mark.parametrize(
    "same, other",
    [
        (OncePerEpoch(23, 5, 12), OncePerEpoch(23, 5, 12, None, 1)),
        (PoissonSampling(50, 10, 30), CyclicPoisson(50, 10, 30)),
        (BallsInBins(53, 10, 30), CyclicPoisson(53, 10, 30, 5)),
    ],
    ids=str,
)
def test_one_group_or_separation_one_equals_plain_participation(same, other):
    for first, second in zip(cohorts(same), cohorts(other)):
        np.testing.assert_array_equal(first, second)


def test_groups_participate_in_turn():
    plan = CyclicPoisson(60, 5, 3000, 4)
    chosen = cohorts(plan)
    groups = [set(np.concatenate(chosen[g::4]).tolist()) for g in range(4)]
    assert sum(map(len, groups)) == 60 == len(set.union(*groups))
    # Each client drew its group: sizes differ.
    assert len({len(group) for group in groups}) > 1
    assert min(gaps(chosen)) == 4 and all(gap % 4 == 0 for gap in gaps(chosen))
    # 750 turns of each client with probability 1/3: standard deviation 0.017.
    counts = counts_of(chosen, 60)
    assert np.max(np.abs(counts / 750 - 1 / 3)) < 4.5 * 0.0172
    # Groups of another seed are others.
    assert groups != [
        set(np.concatenate(cohorts(plan.first(400), 6)[g::4])) for g in range(4)
    ]


def test_window_rounds_are_separated_and_uniform():
    """Who is free joins with 8/40, and is free again five rounds later."""
    plan = BMinSeparation(64, 8, 12, 4)
    assert plan.turn_probability == 0.2
    joined = np.zeros([600, plan.rounds, plan.population], bool)
    for seed, of_run in enumerate(joined):
        for t, cohort in enumerate(cohorts(plan, seed)):
            of_run[t, cohort] = True
    # 38,400 draws of 1/8: a standard deviation of 0.0017.
    assert np.max(np.abs(joined.mean(axis=(0, 2)) - 1 / 8)) < 4.5 * 0.0017
    assert not np.any(np.sum(joined[:, :4], axis=1) > 1)
    free = ~np.any([joined[:, t : t + 8] for t in (1, 2, 3)], axis=0)
    joins = joined[:, 4 : 4 + 8]
    assert not np.any(joins & ~free)
    # Of who is free a fifth joins, whatever came before and whoever else does.
    assert abs(np.mean(joins[free]) - 0.2) < 0.005
    once_before = free & joined[:, :8]
    assert abs(np.mean(joins[once_before]) - 0.2) < 0.01
    sizes = joins.sum(axis=2)
    assert abs(np.var(sizes) / (64 / 8 * 7 / 8) - 1) < 0.1


def test_k_of_t_draws_each_set_equally_often():
    """Of 30 clients 10 in each of five rounds: one or two rounds of each."""
    plan = KOfT(30, 10, 5)
    joined = np.zeros([1500, 5, 30], bool)
    for seed, of_run in enumerate(joined):
        for t, cohort in enumerate(cohorts(plan, seed)):
            of_run[t, cohort] = True
    numbers = joined.sum(axis=1)
    assert set(np.unique(numbers)) == {1, 2}
    # 45,000 sets: 2/3 of them have two rounds, each pair 1/15 and each round alone
    # 1/15 of all, with a standard deviation of 0.0012.
    codes = np.tensordot(1 << np.arange(5), joined, axes=(0, 1))
    found = np.bincount(codes.ravel(), minlength=32) / codes.size
    sizes = np.array([bin(code).count("1") for code in range(32)])
    assert np.max(np.abs(found[(sizes == 1) | (sizes == 2)] - 1 / 15)) < 4.5 * 0.0012
    assert abs(np.mean(numbers == 2) - 2 / 3) < 4.5 * 0.0022
    # Clients are independent of each other.
    sizes = joined.sum(axis=2)
    assert abs(np.var(sizes) / (30 * 2 / 9) - 1) < 0.06
    # The rounds of a longer plan are those of its first ones.
    for plan in (KOfT(30, 10, 5), KOfT(30, 10, 5).first(2)):
        assert (
            selection.select_cohort(plan, 3, 1).tolist()
            == np.flatnonzero(joined[3, 1]).tolist()
        )


def test_groups_are_drawn_independently_per_client():
    """Two of 40 are in the same of four groups in a quarter of the runs."""
    together, sizes = 0, []
    for seed in range(1200):
        plan = BallsInBins(40, 10, 4)
        first, *_ = cohorts(plan, seed)
        together += (0 in first) == (1 in first) and 0 in first
        sizes.append(len(first))
    # All of a group join, each client with 1/4: N q (1 - q) is 7.5.
    assert abs(together / 1200 - 1 / 16) < 0.025
    assert abs(np.mean(sizes) - 10) < 0.4 and abs(np.var(sizes) / 7.5 - 1) < 0.2
