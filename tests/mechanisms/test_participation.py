# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest

from dpfl import accounting, mechanisms, planning
from dpfl.accounting import k_of_t
from dpfl.accounting.balls_in_bins import BallsInBinsDpEvent
from dpfl.accounting.min_separation import MinSeparationDpEvent
from dpfl.accounting.random_allocation import RandomAllocationDpEvent
from dpfl.mechanisms import build, participation
from tests.refusals import refuses

KINDS = (mechanisms.PoissonSampling, mechanisms.FixedSize, mechanisms.OncePerEpoch)
PARTICIPATIONS = [kind(100, 10, 35) for kind in (*KINDS, mechanisms.RandomAllocation)]
PARTICIPATIONS += [
    mechanisms.CyclicPoisson(100, 10, 35, 4),
    mechanisms.BallsInBins(100, 10, 35),
    mechanisms.BMinSeparation(100, 10, 35, 4),
    mechanisms.KOfT(100, 10, 35),
]


@pytest.mark.parametrize("chosen", PARTICIPATIONS, ids=lambda value: value.name)
def test_the_table_has_it_under_its_name(chosen):
    assert participation.PARTICIPATIONS[chosen.name] is type(chosen)
    drawn = {"drawn_rounds": 35} if chosen.name == "k_of_t" else {}
    assert chosen.first(7) == dataclasses.replace(chosen, rounds=7, **drawn)
    with pytest.raises(dataclasses.FrozenInstanceError):
        chosen.rounds = 1


def test_remaining_clients_skip_the_epoch():
    """Of 109 clients ten rounds of ten take 100: the eleventh round is a new epoch."""
    found = [p.rounds_per_epoch for p in PARTICIPATIONS]
    assert found == [None, None, 10, 10, None, None, None, None]
    chosen = mechanisms.OncePerEpoch(109, 10, 11)
    assert (chosen.rounds_per_epoch, chosen.max_participations) == (10, 2)


def test_only_poisson_sampling_amplifies():
    poisson, fixed, epochs, *_ = PARTICIPATIONS
    assert poisson.sampling_probability == 0.1
    assert fixed.sampling_probability == epochs.sampling_probability == 1
    assert (poisson.max_participations, fixed.max_participations) == (35, 35)
    assert (epochs.rounds_per_epoch, epochs.max_participations) == (10, 4)
    assert epochs.first(10).max_participations == 1
    assert epochs.first(11).max_participations == 2


@pytest.mark.parametrize(
    ("sizes", "name", "value"),
    [
        ((0, 1, 1), "population", 0),
        ((10, 11, 1), "cohort_size", 11),
        ((10, 5, 0), "rounds", 0),
    ],
)
def test_bad_sizes_are_refused(sizes, name, value):
    with refuses(ValueError, name, value):
        mechanisms.FixedSize(*sizes)


def test_epochs_may_be_shorter_than_the_population_allows():
    whole = mechanisms.OncePerEpoch(population=3400, cohort_size=100, rounds=512)
    short = mechanisms.OncePerEpoch(3400, 100, 512, epoch_rounds=32)
    assert (whole.rounds_per_epoch, whole.max_participations) == (34, 16)
    assert (short.rounds_per_epoch, short.max_participations) == (32, 16)
    assert short.first(33).max_participations == 2
    for epoch_rounds in (0, 35, -1):
        with refuses(ValueError, "epoch_rounds", epoch_rounds):
            mechanisms.OncePerEpoch(3400, 100, 512, epoch_rounds=epoch_rounds)


GAUSSIAN = mechanisms.Gaussian(cohort_size=10, clip_norm=1.0, noise_multiplier=1.0)


FAMILIES = [
    mechanisms.L2Csgm(10, 1.0, 1.0, 0.1),
    mechanisms.LinfCsgm(10, 1.0, 4.0, 0.1, linf_ratio=0.05),
    mechanisms.ProjectAndPerturb(10, 1.0, 1.0, compression_rate=2.0),
    mechanisms.DistributedSkellam(10, 1.0, 1.0, 18, noise_source="helpers"),
]


class TestRandomAllocation:
    def test_whole_and_partial_epochs(self):
        chosen = mechanisms.RandomAllocation(109, 10, 35)
        assert chosen.rounds_per_epoch == 10
        assert chosen.max_participations == 4
        run = GAUSSIAN.dp_event(chosen, 50)
        assert run.neighboring_relations[0] == accounting.Relation.ADD_OR_REMOVE_ONE
        whole, begun = run.event.events
        round_event = dp_accounting.GaussianDpEvent(1.0)
        assert whole.count == 3
        assert whole.event == RandomAllocationDpEvent(round_event, 10, 10.9)
        assert begun == RandomAllocationDpEvent(round_event, 5, 10.9)
        assert GAUSSIAN.dp_event(chosen.first(30), 50).event == whole
        assert GAUSSIAN.dp_event(chosen.first(5), 50).event == begun

    @pytest.mark.parametrize("mechanism", FAMILIES, ids=lambda value: value.name)
    @pytest.mark.parametrize("kind", [mechanisms.RandomAllocation, mechanisms.KOfT])
    def test_every_family_that_can_vary_its_cohorts_is_amplified(self, kind, mechanism):
        slot, once = (
            planning.privacy_report(mechanism, kind(200, 10, 40), 500, 1e-5, "rdp")
            for kind in (kind, mechanisms.OncePerEpoch)
        )
        assert slot.relation == "add_or_remove"
        assert slot.epsilon < 0.8 * once.epsilon


STREAM = mechanisms.MatrixFactorization(
    None, 10, 1.0, 1.0, noise_stream="run", rounds=40
)
DOME = mechanisms.Dome(10, 1.0, 1.0, sketch_size=4)


@pytest.mark.parametrize("kind", [mechanisms.RandomAllocation, mechanisms.KOfT])
def test_no_noise_has_no_privacy_and_other_noise_is_refused(kind):
    chosen = kind(200, 10, 40)
    silent = dataclasses.replace(GAUSSIAN, noise_multiplier=0.0)
    for mechanism in (silent, mechanisms.NoMechanism(10)):
        assert planning.epsilon(mechanism, chosen, 5, 1e-5) == math.inf
    for mechanism in (STREAM, DOME):
        with refuses(ValueError, "participation", chosen.name):
            mechanism.dp_event(chosen, 50)


class TestKOfT:
    def test_k_is_rounded_at_random(self):
        """Of 100 clients 10 in each of 35 rounds are three or four rounds of each."""
        chosen = PARTICIPATIONS[-1]
        assert chosen.law == (3, 35, 0.5) and chosen.max_participations == 4
        first = chosen.first(3)
        assert first.law == chosen.law and first.max_participations == 3
        assert [chosen.most_rounds_in(20, last) for last in (21, 35)] == [1, 4]
        assert chosen.neighboring_relations[0] == accounting.Relation.ADD_OR_REMOVE_ONE
        assert chosen.varies_cohorts and not mechanisms.KOfT(10, 10, 3).varies_cohorts
        event = GAUSSIAN.dp_event(chosen.first(30), 50).event
        assert event == k_of_t.KOfTDpEvent(1.0, 30, 3, 35, 0.5)
        masked = FAMILIES[0].dp_event(chosen, 50).event.events
        assert [part.event.rounds for part in masked] == [10, 5]
        with refuses(ValueError, "rounds", 36):
            chosen.first(36)


class TestSeparation:
    def test_cyclic_groups(self):
        """35 rounds of four groups: the first three have nine turns, the last eight."""
        chosen = mechanisms.CyclicPoisson(100, 10, 35, 4)
        assert (chosen.groups, chosen.separation) == (4, 4)
        assert chosen.sampling_probability == 0.4
        assert chosen.max_participations == 9
        assert chosen.first(33).max_participations == 9
        assert chosen.first(32).max_participations == 8
        assert chosen.neighboring_relations[0] == accounting.Relation.ADD_OR_REMOVE_ONE
        assert chosen.varies_cohorts
        assert [chosen.excluded_from(r) for r in (0, 3, 4, 34)] == [0, 0, 1, 31]
        whole = mechanisms.CyclicPoisson(100, 10, 35, 10)
        assert whole.sampling_probability == 1

    def test_balls_in_bins(self):
        """Of 109 clients ten groups are drawn; 35 rounds are four turns of five."""
        chosen = mechanisms.BallsInBins(109, 10, 35)
        assert (chosen.groups, chosen.separation, chosen.max_participations) == (
            *(10, 10),
            4,
        )
        assert (chosen.sampling_probability, chosen.turn_probability) == (1, 100 / 109)
        assert chosen.turns.tolist() == [4] * 5 + [3] * 5
        assert chosen.neighboring_relations[0] == accounting.Relation.ADD_OR_REMOVE_ONE
        assert mechanisms.BallsInBins(109, 10, 35, 4).groups == 4
        event = GAUSSIAN.dp_event(chosen, 50).event
        assert event == BallsInBinsDpEvent(1.0, np.diag(chosen.turns), chosen.groups)
        costs = [
            planning.epsilon(GAUSSIAN, kind(100, 10, 30), 50, 1e-5, "rdp")
            for kind in (mechanisms.BallsInBins, mechanisms.OncePerEpoch)
        ]
        assert costs[0] < 0.8 * costs[1]

    def test_b_min_separation(self):
        """Of 100 clients 30 cannot join: they were in one of the last three rounds."""
        chosen = mechanisms.BMinSeparation(100, 10, 35, 4)
        assert (chosen.groups, chosen.separation) == (1, 4)
        assert chosen.max_participations == 9
        assert chosen.turn_probability == pytest.approx(10 / 70)
        assert chosen.sampling_probability == 1 and chosen.varies_cohorts
        assert chosen.neighboring_relations[0] == accounting.Relation.ADD_OR_REMOVE_ONE
        assert [chosen.excluded_from(r) for r in (0, 3, 4, 34)] == [0, 0, 1, 31]
        assert mechanisms.BMinSeparation(100, 10, 35).turn_probability == 0.1
        assert mechanisms.BMinSeparation(100, 10, 35, 10).turn_probability == 1
        event = GAUSSIAN.dp_event(chosen, 50).event
        assert event == MinSeparationDpEvent(1.0, np.ones([35, 1]), 4, 10 / 70)
        assert event.rate == pytest.approx(0.1)
        sampled = mechanisms.BMinSeparation(100, 10, 35)
        poisson = mechanisms.PoissonSampling(100, 10, 35)
        assert GAUSSIAN.dp_event(sampled, 5) == GAUSSIAN.dp_event(poisson, 5)

    @pytest.mark.parametrize("mechanism", FAMILIES, ids=lambda value: value.name)
    @pytest.mark.parametrize("kind", participation.SECRET_PARTICIPATIONS)
    def test_secret_participation_is_for_plain_gaussian_sums(self, kind, mechanism):
        chosen = kind(200, 10, 40)
        with refuses(ValueError, "participation", chosen.name, mechanism.name):
            mechanism.dp_event(chosen, 500)

    def test_windows_of_an_epoch(self):
        chosen = mechanisms.OncePerEpoch(100, 10, 35, min_separation=7)
        assert (chosen.separation, chosen.window, chosen.groups) == (7, 4, 3)
        assert chosen.sampling_probability == 1 and chosen.max_participations == 4
        assert chosen.neighboring_relations == PARTICIPATIONS[2].neighboring_relations
        # All of the epoch, and the rounds before it that are too near.
        assert [chosen.excluded_from(r) for r in (9, 10, 13, 16, 19)] == [
            *(0, 4, 7, 10, 10)
        ]
        loose, fixed = (dataclasses.replace(chosen, min_separation=b) for b in (1, 10))
        assert (loose.window, loose.groups) == (10, 1)
        assert (fixed.window, fixed.groups) == (1, 10)
        assert [chosen.group_of(r) for r in (0, 3, 4, 9, 10, 17, 18)] == [
            *(0, 0, 1, 2, 0, 1, 2)
        ]
        assert loose.group_of(9) is None
        assert mechanisms.OncePerEpoch(100, 10, 35).separation == 1

    @pytest.mark.parametrize(
        ("kind", "separation"),
        [
            *[(mechanisms.CyclicPoisson, 11), (mechanisms.CyclicPoisson, 0)],
            *[(mechanisms.BMinSeparation, 11), (mechanisms.BallsInBins, 11)],
            *[(mechanisms.OncePerEpoch, 11), (mechanisms.OncePerEpoch, 0)],
        ],
    )
    def test_separation_must_fit_the_population(self, kind, separation):
        with refuses(ValueError, "min_separation", separation):
            kind(109, 10, 35, min_separation=separation)

    def test_rounds_whose_epsilon_takes_minutes_are_refused(self):
        with refuses(ValueError, "rounds", 100_001):
            mechanisms.BMinSeparation(109, 10, 100_001, 4)

    def test_trusted_server_mechanisms_accept_cyclic_groups(self):
        """Without a stream that is Poisson sampling of T / b rounds."""
        cyclic, twice = mechanisms.CyclicPoisson(100, 10, 40, 2), 0.2
        event = GAUSSIAN.dp_event(cyclic, 50).event
        assert event.count == 20 and event.event.sampling_probability == twice
        with refuses(ValueError, "participation", "cyclic_poisson"):
            DOME.dp_event(cyclic, 50)


class TestBuild:
    @pytest.mark.parametrize("name", participation.PARTICIPATIONS)
    def test_built_from_flags(self, name):
        more = {"rounds_per_epoch": 5} if name in participation.WITH_EPOCHS else {}
        if name in participation.WITH_SEPARATION:
            more["min_separation"] = 3
        made = build.participation(name, 100, 10, 35, **more)
        assert type(made) is participation.PARTICIPATIONS[name]
        assert (made.population, made.cohort_size, made.rounds) == (100, 10, 35)
        for field, value in more.items():
            assert getattr(made, field) == value
        assert made.separation == more.get("min_separation", 1)

    @pytest.mark.parametrize(
        ("name", "separation", "parts"),
        [
            ("sometimes", None, ("participation", "sometimes")),
            ("poisson", 2, ("min_separation", 2)),
            ("cyclic_poisson", None, ("min_separation", "cyclic_poisson")),
        ],
    )
    def test_bad_flags_are_refused(self, name, separation, parts):
        with refuses(ValueError, *parts):
            build.participation(name, 100, 10, 35, min_separation=separation)
