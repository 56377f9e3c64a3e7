# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest

from dpfl import accounting, mechanisms
from dpfl.planning import ledger
from tests.refusals import names, refuses

D = 10_000
POISSON = mechanisms.PoissonSampling(100, 50, 60)


def gaussian(noise_multiplier=1.0, cohort_size=50):
    return mechanisms.Gaussian(cohort_size, 1.0, noise_multiplier)


def cost_of(mechanism, participation=POISSON, **more):
    return ledger.RunCost(mechanism, participation, D, 1e-3, **more)


def book_of(participation, **more):
    return ledger.Ledger(gaussian(), participation, D, 1e-3, **more)


@pytest.fixture
def free(monkeypatch):
    """Rounds cost nothing, where participants alone are of interest."""
    report = accounting.PrivacyReport(1.0, 1e-3, "rdp")
    monkeypatch.setattr(accounting, "epsilon", lambda *unused, **options: report)


CSGM = mechanisms.L2Csgm(50, 1.0, 1.0, 0.01)
EPOCHS = mechanisms.OncePerEpoch(100, 50, 6)
WINDOWS = mechanisms.OncePerEpoch(200, 50, 12, min_separation=3)
CYCLES = mechanisms.CyclicPoisson(500, 50, 9, 3)
BINS = mechanisms.BallsInBins(500, 50, 16, 4)


@pytest.mark.parametrize("mechanism", [gaussian(), CSGM])
@pytest.mark.parametrize(
    "participation",
    [
        POISSON,
        mechanisms.OncePerEpoch(100, 50, 7),
        mechanisms.RandomAllocation(260, 50, 12),
    ],
)
def test_epsilon_so_far_matches_the_accountant(mechanism, participation):
    book = cost_of(mechanism, participation, accounting_method="rdp")
    for rounds in (1, 2, 5, participation.rounds):
        event = mechanism.dp_event(participation.first(rounds), D)
        expected = accounting.epsilon(event, 1e-3, accounting_method="rdp").epsilon
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
        *(np.array([3, 4]), Tensor([3, 4]), range(3, 5)),
        [Tensor(3), Tensor(4, has_hash=False)],
    ],
)
def test_clients_in_tensors_are_recognized(cohort):
    once = mechanisms.OncePerEpoch(100, 50, 4)
    book = book_of(once)
    book.record_round(cohort)
    with refuses(ValueError, "participants", 4, 2):
        book.record_round([4])
    resumed = book_of(once)
    resumed.resume_at(1, [cohort])
    with refuses(ValueError, "participants", 4, 2):
        resumed.record_round([4])


@pytest.mark.parametrize("cohort", ["ab", 100, [[1, 2]], np.zeros([2, 2]), [np.nan]])
def test_invalid_client_names_are_refused(cohort):
    book = book_of(mechanisms.OncePerEpoch(100, 50, 4))
    with refuses(TypeError, "participants"):
        book.record_round(cohort)
    with refuses(TypeError, "cohorts"):
        book.resume_at(1, [cohort])
    assert book.rounds == 0


@pytest.mark.parametrize("target", [None, 6.3])
def test_figures_of_secret_rounds_never_fall(monkeypatch, target):
    """Bounds that differ by a third; a small run's are its own as far as they rise."""

    def report_after(cost, rounds):
        noise = np.random.default_rng(rounds).uniform(1, 1.3)
        return accounting.PrivacyReport(rounds**0.5 * noise, 1e-3, "auto")

    monkeypatch.setattr(ledger.RunCost, "report_after", report_after)
    for rounds in (40, 1000):
        plan = mechanisms.BMinSeparation(500, 50, rounds, 3)
        costs = [cost_of(gaussian(), plan, target_epsilon=target) for _ in range(2)]
        spent = [costs[0].epsilon_after(r) for r in range(rounds + 1)]
        assert spent == sorted(spent) and spent[0] == 0
        assert spent[-1] == costs[0].planned.epsilon
        backward = [costs[1].epsilon_after(r) for r in reversed(range(rounds + 1))]
        assert backward[::-1] == spent
        own = [report_after(None, r).epsilon for r in range(1, rounds + 1)]
        assert np.all(np.sqrt(np.arange(rounds + 1)) <= spent)
        if rounds == 40:
            assert np.sum(np.isin(own, spent)) > 10


def test_run_stops_before_the_round_exceeding_the_budget():
    free = cost_of(gaussian())
    budget = (free.epsilon_after(20) + free.epsilon_after(21)) / 2
    book = cost_of(gaussian(), target_epsilon=budget)
    assert book.rounds_allowed == 20
    assert names(book.stop_message, 20, 60, 21, "epsilon")
    exact = cost_of(gaussian(), target_epsilon=free.epsilon_after(20))
    assert exact.rounds_allowed == 20


def test_not_even_one_round():
    book = cost_of(gaussian(0.1), target_epsilon=0.1, accounting_method="rdp")
    assert book.rounds_allowed == book.report_after(0).epsilon == 0


def test_no_privacy_and_no_noise_are_infinite():
    for mechanism in (mechanisms.NoMechanism(50), gaussian(0.0)):
        book = cost_of(mechanism)
        assert math.isinf(book.epsilon_after(3)) and math.isinf(book.planned.epsilon)
        assert book.rounds_allowed == 60


def test_custom_loop_gets_epsilon_each_round():
    """Plain Gaussian rounds by the exact curve, and by order a, a t / (2 z^2)."""
    run = gaussian(5.0), mechanisms.FixedSize(100, 50, 3), D, 1e-3
    book, by_rdp = ledger.Ledger(*run), ledger.Ledger(*run, accounting_method="rdp")
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
    assert book.report().accounting_method == "exact-gaussian"
    assert book.report().relation == "replaced_by_zeros"
    with refuses(ValueError, "rounds", 3, 4):
        book.record_round()
    assert book.rounds == 3


def test_ledger_resumes_from_another_process():
    book = book_of(mechanisms.OncePerEpoch(100, 50, 6))
    book.resume_at(3, [["a"]])
    assert book.epsilon == book.cost.epsilon_after(3)
    with refuses(ValueError, "participants", "'a'", 4):
        book.record_round(["a"])
    for rounds in (-1, 7):
        with refuses(ValueError, "rounds", rounds):
            book.resume_at(rounds)
    with refuses(ValueError, "cohorts", 5, 6):
        book.resume_at(5, [[]] * 6)
    # Those of rounds that are recorded here are known.
    book = book_of(BINS)
    for clients in (["a"], [], [], [], []):
        book.record_round(clients)
    book.resume_at(8, [["c"], [], [], [], []])
    with refuses(ValueError, "participants", "group 0", 9, "'c'"):
        book.record_round(["c"])
    book.record_round(["a", "b"])
    book.resume_at(10, [[]])
    with refuses(ValueError, "participants", 4, "'b'"):
        book.record_round(["b"])


@pytest.mark.parametrize(
    "values, parts",
    [
        ({"delta": 1.0}, ("delta", 1.0)),
        ({"accounting_method": "exact"}, ("accounting_method", "exact")),
        ({"target_epsilon": 0.0}, ("target_epsilon", 0.0)),
        ({"dimension": 0}, ("dimension", 0)),
        ({"mechanism": gaussian(cohort_size=7)}, ("cohort_size", 7, 50)),
    ],
)
def test_bad_values_are_named(values, parts):
    good = {"mechanism": gaussian(), "dimension": D, "delta": 1e-3}
    with refuses(ValueError, *parts):
        ledger.Ledger(**{**good, "participation": POISSON, **values})


def test_default_delta():
    assert ledger.default_delta(100) == 1e-3
    assert ledger.default_delta(342_477) == pytest.approx(342_477**-1.1)


@pytest.mark.parametrize(
    "participation, cohorts, parts",
    [
        (EPOCHS, [["a"], ["b", "a"]], ["epoch", "'a'", 2]),
        # A new epoch, in which all may come again, but not twice.
        (EPOCHS, [["a"], ["b"], ["a", "a"]], ["'a'", 3]),
        (EPOCHS, [["a"], ["b"], ["c"], ["c"]], ["epoch", "'c'", 4]),
        # Epochs of four rounds, three rounds apart: in windows of two.
        (WINDOWS, [["a"], [], ["b"], ["c"], ["b"]], [3, "'b'"]),
        (WINDOWS, [["a"], [], ["b"], ["c"], ["c"]], [3, "'c'"]),
        (WINDOWS, [["a"], [], [], [], ["a"], ["a"]], ["epoch", "'a'"]),
        (WINDOWS, [[], [], ["b"], [], [], ["b"]], ["group 0", 6, "'b'", "group 1"]),
        (WINDOWS, [["a"], [], ["b"], [], [], [], ["b"], ["b"]], ["'b'", 8]),
        (CYCLES, [["a"], ["a"]], [3, "'a'", 2]),
        (CYCLES, [["a"], ["b"], ["a"]], [3, "'a'", 3]),
        (CYCLES, [["a"], ["b"], ["c"], ["a"], [], [], ["b"]], ["'b'", 7, "group 1"]),
        # Columns of a dense C may be orthogonal within groups, and not across them.
        (BINS, [["a"], [], [], [], [], ["a"]], ["group 1", 6, "'a'", "group 0"]),
        (mechanisms.RandomAllocation(100, 50, 6), [["a"], ["a"]], ["'a'", 2]),
        (mechanisms.BMinSeparation(200, 50, 6, 3), [["a"], ["b"], ["a"]], ["'a'", 3]),
        (mechanisms.KOfT(300, 50, 6), [["a"], ["b"], ["a"]], ["'a'", 2]),
        (POISSON, [["a", "b", "a"]], ["'a'", 1]),
    ],
)
def test_recording_and_resuming_share_one_check(free, participation, cohorts, parts):
    recorded, resumed = book_of(participation), book_of(participation)
    with refuses(ValueError, "participants", *parts):
        for cohort in cohorts:
            recorded.record_round(cohort)
    with refuses(ValueError, "cohorts", *parts):
        resumed.resume_at(len(cohorts), cohorts)
    assert recorded.rounds == len(cohorts) - 1 and resumed.rounds == 0
    resumed.resume_at(len(cohorts) - 1, cohorts[:-1])
    with refuses(ValueError, *parts):
        resumed.resume_at(len(cohorts), cohorts[-1:])
    assert resumed.rounds == len(cohorts) - 1


@pytest.mark.parametrize(
    "cohorts, value", [(5, 5), ("ab", "'a'"), ([1], 1), (None, None)]
)
def test_non_list_cohorts_are_refused(cohorts, value):
    with refuses(TypeError, "cohorts", value):
        ledger.Ledger(gaussian(), mechanisms.FixedSize(500, 50, 30), D, 1e-3).resume_at(
            2, cohorts
        )


@pytest.mark.parametrize(
    "plan, most, in_a_file",
    [
        (mechanisms.OncePerEpoch(500, 50, 30), 10, False),
        (mechanisms.RandomAllocation(500, 50, 30), 10, True),
        (mechanisms.BMinSeparation(500, 50, 30, 4), 4, True),
    ],
)
def test_resuming_far_back_remembers_participants(
    free, tmp_path, in_a_file, plan, most
):
    """In an epoch before that of the rounds that are lost."""
    path = tmp_path / "ledger" if in_a_file else None
    book = book_of(plan, path=path, accounting_method="rdp")
    book.record_round(["a"])
    for number in range(2, 25):
        book.record_round([number])
    for rounds in (1, 2, most - 1):
        book.resume_at(rounds)
        with refuses(ValueError, "participants", "'a'"):
            book.record_round(["a"])
        for number in range(rounds + 1, 25):
            book.record_round([number])
    book.resume_at(1, [["b"]])
    book.record_round(["a"])
