# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math

import dp_accounting
import pytest

from dpfl import accounting, mechanisms
from dpfl.accounting.random_slot import RandomSlotDpEvent
from dpfl.mechanisms import participation

PARTICIPATIONS = [
    mechanisms.PoissonSampling(100, 10, 35),
    mechanisms.FixedSize(100, 10, 35),
    mechanisms.OncePerEpoch(100, 10, 35),
    mechanisms.RandomSlot(100, 10, 35),
]


@pytest.mark.parametrize("chosen", PARTICIPATIONS, ids=lambda value: value.name)
def test_the_table_has_it_under_its_name(chosen):
    assert participation.PARTICIPATIONS[chosen.name] is type(chosen)
    assert chosen.first(7) == dataclasses.replace(chosen, rounds=7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        chosen.rounds = 1


def test_only_an_epoch_says_when_a_client_may_return():
    assert [p.rounds_per_epoch for p in PARTICIPATIONS] == [None, None, 10, 10]


def test_clients_left_over_sit_the_epoch_out():
    """Of 109 clients ten rounds of ten take 100: the eleventh round is a new epoch."""
    chosen = mechanisms.OncePerEpoch(109, 10, 11)
    assert (chosen.rounds_per_epoch, chosen.max_participations) == (10, 2)


def test_poisson_amplifies_and_the_others_do_not():
    poisson, fixed, epochs, _ = PARTICIPATIONS
    assert poisson.sampling_probability == 0.1
    assert fixed.sampling_probability == epochs.sampling_probability == 1
    assert (poisson.max_participations, fixed.max_participations) == (35, 35)
    assert (epochs.rounds_per_epoch, epochs.epochs) == (10, 4)
    assert epochs.first(10).max_participations == 1
    assert epochs.first(11).max_participations == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0, 1, 1), "^population must be .*found 0"),
        ((10, 11, 1), "cohort_size must be at most the population of 10 .* found 11"),
        ((10, 5, 0), "^rounds must be .*found 0"),
    ],
)
def test_participation_refuses(args, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.FixedSize(*args)


def test_an_epoch_can_be_shorter_than_the_clients_suffice_for():
    whole = mechanisms.OncePerEpoch(population=3400, cohort_size=100, rounds=512)
    short = mechanisms.OncePerEpoch(3400, 100, 512, epoch_rounds=32)
    assert (whole.rounds_per_epoch, whole.epochs) == (34, 16)
    assert (short.rounds_per_epoch, short.epochs) == (32, 16)
    assert short.first(33).max_participations == 2


@pytest.mark.parametrize("epoch_rounds", [0, 35, -1])
def test_an_epoch_cannot_have_a_client_twice(epoch_rounds):
    with pytest.raises(ValueError, match="rounds_per_epoch"):
        mechanisms.OncePerEpoch(3400, 100, 512, epoch_rounds=epoch_rounds)


GAUSSIAN = mechanisms.Gaussian(cohort_size=10, clip_norm=1.0, noise_multiplier=1.0)


class TestRandomSlot:
    def test_whole_epochs_and_one_that_has_begun(self):
        chosen = mechanisms.RandomSlot(109, 10, 35)
        assert (chosen.slots, chosen.rounds_per_epoch) == (10.9, 10)
        assert chosen.max_participations == 4
        run = GAUSSIAN.dp_event(50, chosen)
        assert run.relations[0] == accounting.Relation.ADD_OR_REMOVE_ONE
        whole, begun = run.event.events
        round_event = dp_accounting.GaussianDpEvent(1.0)
        assert whole.count == 3
        assert whole.event == RandomSlotDpEvent(round_event, 10, 10.9)
        assert begun == RandomSlotDpEvent(round_event, 5, 10.9)
        assert GAUSSIAN.dp_event(50, chosen.first(30)).event == whole
        assert GAUSSIAN.dp_event(50, chosen.first(5)).event == begun

    def test_it_costs_less_than_shuffling_and_than_poisson_sampling(self):
        costs = [
            accounting.epsilon(GAUSSIAN.dp_event(50, who), 1e-5, method="rdp").epsilon
            for who in (
                mechanisms.RandomSlot(100, 10, 50),
                mechanisms.PoissonSampling(100, 10, 50),
                mechanisms.OncePerEpoch(100, 10, 50),
            )
        ]
        assert costs == sorted(costs)
        assert costs[0] < 0.9 * costs[1] < 0.5 * costs[2]

    def test_epsilon_rises_round_by_round(self):
        chosen = mechanisms.RandomSlot(50, 10, 12)
        spent = [
            accounting.epsilon(GAUSSIAN.dp_event(50, chosen.first(r)), 1e-5).epsilon
            for r in range(1, 13)
        ]
        assert spent == sorted(spent)

    @pytest.mark.parametrize(
        "mechanism",
        [
            mechanisms.L2Csgm(10, 1.0, 1.0, 0.1),
            mechanisms.LinfCsgm(10, 1.0, 4.0, 0.1, linf_ratio=0.05),
            mechanisms.ProjectAndPerturb(10, 1.0, 1.0, compression_rate=2.0),
            mechanisms.DistributedDiscreteGaussian(
                10, 1.0, 1.0, bits=18, noise_source="helpers"
            ),
        ],
        ids=lambda value: value.name,
    )
    def test_every_family_that_can_vary_its_cohorts_is_amplified(self, mechanism):
        slot, once = (
            accounting.epsilon(mechanism.dp_event(500, who), 1e-5, method="rdp")
            for who in (
                mechanisms.RandomSlot(200, 10, 40),
                mechanisms.OncePerEpoch(200, 10, 40),
            )
        )
        assert slot.relation == "add_or_remove"
        assert slot.epsilon < 0.8 * once.epsilon

    def test_without_noise_there_is_no_privacy(self):
        chosen = mechanisms.RandomSlot(200, 10, 40)
        silent = dataclasses.replace(GAUSSIAN, noise_multiplier=0.0)
        assert accounting.epsilon(silent.dp_event(5, chosen), 1e-5).epsilon == math.inf
        none = mechanisms.NoMechanism(10)
        assert accounting.epsilon(none.dp_event(5, chosen), 1e-5).epsilon == math.inf

    def test_correlated_noise_and_noise_of_the_clients_are_refused(self):
        chosen = mechanisms.RandomSlot(200, 10, 40)
        with pytest.raises(ValueError, match="once_per_epoch"):
            mechanisms.MatrixFactorization(
                cohort_size=10, clip_norm=1.0, noise_multiplier=1.0, rounds_per_epoch=20
            ).dp_event(50, chosen)
        with pytest.raises(ValueError, match="once_per_epoch or fixed.*random_slot"):
            mechanisms.Dome(10, 1.0, 1.0, sketch_size=4).dp_event(50, chosen)
