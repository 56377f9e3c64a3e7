# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest

from dpfl import accounting, mechanisms
from dpfl.planning import ledger

D = 10_000
POISSON = mechanisms.PoissonSampling(100, 50, 60)


def gaussian(noise_multiplier=1.0, cohort_size=50):
    return mechanisms.Gaussian(cohort_size, 1.0, noise_multiplier)


def cost_of(mechanism, participation=POISSON, **more):
    return ledger.RunCost(mechanism, participation, D, 1e-3, **more)


def book_of(participation, **more):
    return ledger.Ledger(gaussian(), participation, D, 1e-3, **more)


CSGM = mechanisms.L2Csgm(50, 1.0, 1.0, 0.01)


@pytest.mark.parametrize("mechanism", [gaussian(), CSGM])
@pytest.mark.parametrize(
    "participation",
    [POISSON, mechanisms.OncePerEpoch(100, 50, 7), mechanisms.RandomSlot(260, 50, 12)],
)
def test_epsilon_so_far_is_that_of_the_accountant(mechanism, participation):
    book = cost_of(mechanism, participation, method="rdp")
    for rounds in (1, 2, 5, participation.rounds):
        event = mechanism.dp_event(participation.first(rounds), D)
        expected = accounting.epsilon(event, 1e-3, method="rdp").epsilon
        assert book.epsilon_after(rounds) == pytest.approx(expected, rel=1e-12)
    assert book.epsilon_after(0) == 0
    assert book.epsilon_after(participation.rounds) == book.planned.epsilon


class Tensor:
    """Equal to nothing but itself, as those of PyTorch; or without a hash, as JAX's."""

    def __init__(self, values, has_hash=True):
        self.values = values
        if not has_hash:
            self.__class__ = Unhashable

    def tolist(self):
        return self.values

    def item(self):
        return self.values


class Unhashable(Tensor):
    __hash__ = None


@pytest.mark.parametrize(
    "cohort",
    [
        np.array([3, 4]),
        Tensor([3, 4]),
        Tensor([3, 4], has_hash=False),
        [Tensor(3), Tensor(4)],
        [Tensor(3, has_hash=False), np.int64(4)],
        range(3, 5),
    ],
)
def test_clients_in_tensors_are_known_again(cohort):
    once = mechanisms.OncePerEpoch(100, 50, 4)
    book = book_of(once)
    book.record_round(cohort)
    with pytest.raises(ValueError, match="found 4 again in round 2"):
        book.record_round([4])
    resumed = book_of(once)
    resumed.resume_at(1, [cohort])
    with pytest.raises(ValueError, match="found 4 again in round 2"):
        resumed.record_round([4])


@pytest.mark.parametrize("cohort", ["ab", 100, [[1, 2]], np.zeros([2, 2])])
def test_what_are_no_names_is_refused(cohort):
    book = book_of(mechanisms.OncePerEpoch(100, 50, 4))
    with pytest.raises(TypeError, match="^participants must be names of clients"):
        book.record_round(cohort)
    with pytest.raises(TypeError, match="^cohorts must be names of clients"):
        book.resume_at(1, [cohort])
    assert book.rounds == 0


def test_once_per_epoch_costs_an_epoch_at_its_first_round():
    participation = mechanisms.OncePerEpoch(100, 50, 4)
    book = cost_of(gaussian(), participation)
    spent = [book.epsilon_after(r) for r in range(5)]
    assert spent[1] == spent[2] < spent[3] == spent[4]


def test_the_run_stops_before_the_round_that_would_exceed():
    free = cost_of(gaussian())
    budget = (free.epsilon_after(20) + free.epsilon_after(21)) / 2
    book = cost_of(gaussian(), target_epsilon=budget)
    assert book.rounds_allowed == 20
    assert "after 20 of 60 rounds" in book.stop_message
    assert "round 21 would bring epsilon" in book.stop_message
    exact = cost_of(gaussian(), target_epsilon=free.epsilon_after(20))
    assert exact.rounds_allowed == 20


def test_not_even_one_round():
    book = cost_of(gaussian(0.1), target_epsilon=0.1, method="rdp")
    assert book.rounds_allowed == book.report_after(0).epsilon == 0


def test_no_privacy_and_no_noise_are_infinite():
    for mechanism in (mechanisms.NoMechanism(50), gaussian(0.0)):
        book = cost_of(mechanism)
        assert math.isinf(book.epsilon_after(3)) and math.isinf(book.planned.epsilon)
        assert book.rounds_allowed == 60


def test_a_foreign_loop_gets_epsilon_for_each_round():
    """Plain Gaussian rounds by the exact curve, and by order a, a t / (2 z^2)."""
    run = gaussian(5.0), mechanisms.FixedSize(100, 50, 3), D, 1e-3
    book, by_rdp = ledger.Ledger(*run), ledger.Ledger(*run, method="rdp")
    orders = np.asarray(accounting.DEFAULT_ORDERS)
    for t in (1, 2, 3):
        exact = accounting.gaussian_epsilon(1e-3, 5.0 / math.sqrt(t))
        renyi = orders * t / (2 * 5.0**2)
        loss = renyi + np.log1p(-1 / orders) - np.log(1e-3 * orders) / (orders - 1)
        assert book.record_round(range(50)) == pytest.approx(exact, rel=1e-9)
        assert by_rdp.record_round() == pytest.approx(np.min(loss), rel=1e-9)
        assert book.rounds == t and book.epsilon == book.cost.epsilon_after(t)
    assert book.report() == book.cost.planned
    assert book.epsilon == book.report().epsilon < by_rdp.epsilon
    assert book.report().method == "exact-gaussian"
    assert book.report().relation == "replaced_by_zeros"
    with pytest.raises(ValueError, match="rounds must be at most the 3 .* found 4"):
        book.record_round()
    assert book.rounds == 3


def test_the_report_is_by_the_ledgers_method():
    book = book_of(POISSON, method="tight")
    assert book.report().epsilon == 0 and book.report().relation == "add_or_remove"
    book.record_round()
    assert book.report().method == "exact-gaussian"
    assert book.record_round() == book.report().epsilon
    assert book.report().method == "pld"


def test_a_client_that_returns_too_early_is_refused():
    book = book_of(mechanisms.OncePerEpoch(100, 50, 6))
    book.record_round(f"client {i}" for i in range(50))
    with pytest.raises(ValueError, match="once in the epoch, found 'client 7' again"):
        book.record_round(["client 60", "client 7"])
    assert book.rounds == 1
    book.record_round(["client 60"])
    # A new epoch, in which all may come again, but not twice.
    with pytest.raises(ValueError, match="once in the round, found 'client 7' again"):
        book.record_round(["client 7", "client 7"])
    book.record_round(["client 7"])
    with pytest.raises(ValueError, match="in round 4"):
        book.record_round(["client 7"])


def test_a_client_of_another_group_is_refused_until_its_turn():
    book = book_of(mechanisms.CyclicPoisson(500, 50, 9, 3))
    book.record_round(["a"])
    for number in (2, 3):
        with pytest.raises(
            ValueError, match=f"once in any 3 rounds, found 'a' again in round {number}"
        ):
            book.record_round(["a"])
        book.record_round(["b"] if number == 2 else [])
    book.record_round(["a"])
    book.resume_at(6, [["b"], ["c"]])
    for client in "cb":
        with pytest.raises(ValueError, match=f"found '{client}' again in round 7"):
            book.record_round([client])
    book.record_round(["a"])
    book.record_round(["b"])
    with pytest.raises(ValueError, match="at most 9 rounds, or none, found 10"):
        book.resume_at(9, [[]] * 10)


def test_a_client_stays_in_its_group():
    """Columns of a dense C may be orthogonal within groups, and not across them."""
    book = book_of(mechanisms.BallsInBins(500, 50, 16, 4))
    for clients in (["a"], [], [], [], []):
        book.record_round(clients)
    with pytest.raises(ValueError, match="group 1 in round 6, found 'a' of group 0"):
        book.record_round(["a"])
    book.resume_at(8, [["b"], [], [], []])
    with pytest.raises(ValueError, match="be of group 0 in round 9, found 'c' of gr"):
        book.resume_at(8, [["c"], [], [], [], []])
        book.record_round(["c"])
    book.record_round(["a", "b"])
    # Those of rounds that are recorded here are known.
    with pytest.raises(ValueError, match="once in any 4 rounds, found 'b' again"):
        book.resume_at(10, [[]])
        book.record_round(["b"])


def test_a_client_is_refused_across_epochs_that_are_set_apart():
    """Epochs of four rounds, three rounds apart: in windows of two."""
    book = book_of(mechanisms.OncePerEpoch(200, 50, 12, min_separation=3))
    for clients in (["a"], [], ["b"], ["c"]):
        book.record_round(clients)
    for client in "bc":
        with pytest.raises(ValueError, match="once in any 3 rounds, found"):
            book.record_round([client])
    book.record_round(["a"])
    with pytest.raises(ValueError, match="once in the epoch, found 'a' again"):
        book.record_round(["a"])
    with pytest.raises(ValueError, match="group 0 in round 6, found 'b' of group 1"):
        book.record_round(["b"])
    book.record_round([])
    book.record_round(["b"])


def test_under_sampling_a_client_may_come_in_every_round():
    book = book_of(POISSON)
    book.record_round([1, 2])
    book.record_round([1, 2])
    with pytest.raises(ValueError, match="once in the round, found 1 again"):
        book.record_round([1, 1])


def test_a_ledger_goes_on_where_another_process_was():
    book = book_of(mechanisms.OncePerEpoch(100, 50, 6))
    book.resume_at(3, [["a"]])
    assert book.epsilon == book.cost.epsilon_after(3)
    with pytest.raises(ValueError, match="found 'a' again in round 4"):
        book.record_round(["a"])
    book.record_round(["b"])
    for rounds, words in ((3, "at least 4"), (7, "at most the 6")):
        with pytest.raises(ValueError, match=words):
            book.resume_at(rounds)


def test_a_budget_refuses_the_round_that_exceeds_it():
    cost = cost_of(gaussian())
    budget = (cost.epsilon_after(2) + cost.epsilon_after(3)) / 2
    book = ledger.Ledger.of(cost_of(gaussian(), target_epsilon=budget))
    assert book.record_round() < book.record_round() <= budget
    with pytest.raises(ValueError, match="at most 2, found 3: the run stops after 2"):
        book.record_round()


@pytest.mark.parametrize(
    "values, words",
    [
        ({"delta": 1.0}, "delta must be greater than 0 and less than 1"),
        ({"method": "exact"}, "method must be one of auto, rdp, tight, found 'exact'"),
        ({"target_epsilon": 0.0}, "target_epsilon must be greater than 0"),
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"mechanism": gaussian(cohort_size=7)}, "cohort_size must be that"),
    ],
)
def test_bad_values_are_named(values, words):
    good = {"mechanism": gaussian(), "dimension": D, "delta": 1e-3}
    with pytest.raises(ValueError, match=words):
        ledger.Ledger(**{**good, "participation": POISSON, **values})


def test_default_delta():
    assert ledger.default_delta(100) == 1e-3
    assert ledger.default_delta(342_477) == pytest.approx(342_477**-1.1)


def test_cohorts_of_earlier_rounds_may_not_have_a_client_in_two_groups():
    book = book_of(mechanisms.CyclicPoisson(100, 50, 8, min_separation=2))
    with pytest.raises(ValueError, match="group 1 in round 2, found 'a' of group 0"):
        book.resume_at(2, [["a"], ["a"]])
    assert book.rounds == 0
    with pytest.raises(ValueError, match="at least 3 and at most 3 rounds, or none"):
        book.resume_at(3, [["b"], ["c"]])
    book.resume_at(3, [["a"], ["b"], ["c"]])
    with pytest.raises(ValueError, match="group 1 in round 4, found 'a' of group 0"):
        book.record_round(["a"])
