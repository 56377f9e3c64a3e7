# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest

from dpfl import accounting, mechanisms
from dpfl.training import ledger

D = 10_000
POISSON = mechanisms.PoissonSampling(100, 50, 60)


def gaussian(noise_multiplier=1.0, cohort_size=50):
    return mechanisms.Gaussian(cohort_size, 1.0, noise_multiplier)


def csgm(noise_multiplier=1.0):
    return mechanisms.L2Csgm(50, 1.0, noise_multiplier, 0.01)


@pytest.mark.parametrize("make", [gaussian, csgm])
@pytest.mark.parametrize(
    "participation", [POISSON, mechanisms.OncePerEpoch(100, 50, 7)]
)
def test_epsilon_so_far_is_that_of_the_accountant(make, participation):
    book = ledger.Ledger(make(), D, participation, 1e-3)
    for rounds in (1, 2, 5, participation.rounds):
        event = make().dp_event(D, participation.first(rounds))
        expected = accounting.epsilon(event, 1e-3).epsilon
        assert book.epsilon_after(rounds) == pytest.approx(expected, rel=1e-12)
    assert book.epsilon_after(0) == 0
    assert book.epsilon_after(participation.rounds) == book.planned.epsilon


def test_once_per_epoch_costs_an_epoch_at_its_first_round():
    participation = mechanisms.OncePerEpoch(100, 50, 4)
    book = ledger.Ledger(gaussian(), D, participation, 1e-3)
    spent = [book.epsilon_after(r) for r in range(5)]
    assert spent[1] == spent[2] < spent[3] == spent[4]


@pytest.mark.parametrize("method", ["rdp", "tight"])
def test_calibrated_noise_meets_the_budget_and_no_more(method):
    found = ledger.calibrate(csgm(), D, POISSON, 8.0, 1e-3, method)
    book = ledger.Ledger(found, D, POISSON, 1e-3, target_epsilon=8.0, method=method)
    assert 7.9 < book.planned.epsilon <= 8.0
    assert book.rounds_allowed == 60
    assert book.stop_message is None


def test_the_run_stops_before_the_round_that_would_exceed():
    mechanism = gaussian(1.0)
    free = ledger.Ledger(mechanism, D, POISSON, 1e-3)
    budget = (free.epsilon_after(20) + free.epsilon_after(21)) / 2
    book = ledger.Ledger(mechanism, D, POISSON, 1e-3, target_epsilon=budget)
    assert book.rounds_allowed == 20
    assert "after 20 of 60 rounds" in book.stop_message
    assert "round 21 would bring epsilon" in book.stop_message
    exact = ledger.Ledger(
        mechanism, D, POISSON, 1e-3, target_epsilon=free.epsilon_after(20)
    )
    assert exact.rounds_allowed == 20


def test_not_even_one_round():
    book = ledger.Ledger(gaussian(0.1), D, POISSON, 1e-3, target_epsilon=0.1)
    assert book.rounds_allowed == 0
    assert book.actual(0, np.zeros(100, int)).epsilon == 0


def test_what_happened_is_what_is_reported():
    participation = mechanisms.OncePerEpoch(100, 50, 6)
    book = ledger.Ledger(gaussian(), D, participation, 1e-3)
    after_two = book.actual(2, [1] * 100)
    assert after_two.epsilon == book.epsilon_after(2) < book.planned.epsilon
    with pytest.raises(ValueError, match="at most 1 for each client, found 2"):
        book.actual(2, [2] + [1] * 99)


def test_no_privacy_is_infinite():
    book = ledger.Ledger(mechanisms.NoMechanism(50), D, POISSON, 1e-3)
    assert math.isinf(book.epsilon_after(3)) and math.isinf(book.planned.epsilon)
    assert book.rounds_allowed == 60


def test_no_noise_is_infinite():
    book = ledger.Ledger(gaussian(0.0), D, POISSON, 1e-3)
    assert math.isinf(book.planned.epsilon) and math.isinf(book.epsilon_after(1))


def test_default_delta():
    assert ledger.default_delta(100) == 1e-3
    assert ledger.default_delta(342_477) == pytest.approx(342_477**-1.1)
