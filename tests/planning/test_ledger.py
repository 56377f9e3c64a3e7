# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import math
import os
import subprocess
import sys
import threading
from unittest import mock

import dp_accounting
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


CSGM = mechanisms.L2Csgm(50, 1.0, 1.0, 0.01)


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
        np.array([3, 4]),
        Tensor([3, 4]),
        Tensor([3, 4], has_hash=False),
        [Tensor(3), Tensor(4)],
        [Tensor(3, has_hash=False), np.int64(4)],
        range(3, 5),
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


def test_once_per_epoch_charges_an_epoch_in_its_first_round():
    participation = mechanisms.OncePerEpoch(100, 50, 4)
    book = cost_of(gaussian(), participation)
    spent = [book.epsilon_after(r) for r in range(5)]
    assert spent[1] == spent[2] < spent[3] == spent[4]


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


def test_report_uses_the_ledgers_method():
    book = book_of(POISSON, accounting_method="tight")
    assert book.report().epsilon == 0 and book.report().relation == "add_or_remove"
    book.record_round()
    assert book.report().accounting_method == "exact-gaussian"
    assert book.record_round() == book.report().epsilon
    assert book.report().accounting_method == "pld"


def test_a_client_that_returns_too_early_is_refused():
    book = book_of(mechanisms.OncePerEpoch(100, 50, 6))
    book.record_round(f"client {i}" for i in range(50))
    with refuses(ValueError, "participants", "epoch", "client 7", 2):
        book.record_round(["client 60", "client 7"])
    assert book.rounds == 1
    book.record_round(["client 60"])
    # A new epoch, in which all may come again, but not twice.
    with refuses(ValueError, "participants", "client 7", 3):
        book.record_round(["client 7", "client 7"])
    book.record_round(["client 7"])
    with refuses(ValueError, "participants", "epoch", "client 7", 4):
        book.record_round(["client 7"])


def test_client_of_another_group_is_refused_until_its_round():
    book = book_of(mechanisms.CyclicPoisson(500, 50, 9, 3))
    book.record_round(["a"])
    for number in (2, 3):
        with refuses(ValueError, "participants", 3, "'a'", number):
            book.record_round(["a"])
        book.record_round(["b"] if number == 2 else [])
    book.record_round(["a"])
    book.resume_at(6, [["b"], ["c"]])
    for client in "cb":
        with refuses(ValueError, "participants", repr(client), 7):
            book.record_round([client])
    book.record_round(["a"])
    book.record_round(["b"])
    with refuses(ValueError, "cohorts", 9, 10):
        book.resume_at(9, [[]] * 10)


def test_a_client_stays_in_its_group():
    """Columns of a dense C may be orthogonal within groups, and not across them."""
    book = book_of(mechanisms.BallsInBins(500, 50, 16, 4))
    for clients in (["a"], [], [], [], []):
        book.record_round(clients)
    with refuses(ValueError, "participants", "group 1", 6, "'a'", "group 0"):
        book.record_round(["a"])
    book.resume_at(8, [["b"], [], [], []])
    with refuses(ValueError, "participants", "group 0", 9, "'c'"):
        book.resume_at(8, [["c"], [], [], [], []])
        book.record_round(["c"])
    book.record_round(["a", "b"])
    # Those of rounds that are recorded here are known.
    with refuses(ValueError, "participants", 4, "'b'"):
        book.resume_at(10, [[]])
        book.record_round(["b"])


def test_separated_epochs_refuse_early_returns():
    """Epochs of four rounds, three rounds apart: in windows of two."""
    book = book_of(mechanisms.OncePerEpoch(200, 50, 12, min_separation=3))
    for clients in (["a"], [], ["b"], ["c"]):
        book.record_round(clients)
    for client in "bc":
        with refuses(ValueError, "participants", 3, repr(client)):
            book.record_round([client])
    book.record_round(["a"])
    with refuses(ValueError, "participants", "epoch", "'a'"):
        book.record_round(["a"])
    with refuses(ValueError, "participants", "group 0", 6, "'b'", "group 1"):
        book.record_round(["b"])
    book.record_round([])
    book.record_round(["b"])


def test_ledger_resumes_from_another_process():
    book = book_of(mechanisms.OncePerEpoch(100, 50, 6))
    book.resume_at(3, [["a"]])
    assert book.epsilon == book.cost.epsilon_after(3)
    with refuses(ValueError, "participants", "'a'", 4):
        book.record_round(["a"])
    book.record_round(["b"])
    for rounds in (-1, 7):
        with refuses(ValueError, "rounds", rounds):
            book.resume_at(rounds)


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
        (mechanisms.OncePerEpoch(100, 50, 6), [["a"], ["b"], ["c"], ["c"]], ["'c'", 4]),
        (mechanisms.CyclicPoisson(100, 50, 6, 2), [["a"], ["a"]], ["'a'", 2]),
        (mechanisms.CyclicPoisson(100, 50, 6, 2), [["a"], [], [], ["a"]], ["group 1"]),
        (mechanisms.RandomAllocation(100, 50, 6), [["a"], ["a"]], ["'a'", 2]),
        (mechanisms.BMinSeparation(200, 50, 6, 3), [["a"], ["b"], ["a"]], ["'a'", 3]),
        (mechanisms.KOfT(300, 50, 6), [["a"], ["b"], ["a"]], ["'a'", 2]),
        (POISSON, [["a", "b", "a"]], ["'a'", 1]),
    ],
)
def test_recording_and_resuming_share_one_check(participation, cohorts, parts):
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


def epsilon_of(event):
    return accounting.epsilon(event, 1e-3).epsilon


def test_repeated_rounds_with_fresh_cohorts_are_charged_again():
    """A hundred rounds of which two are done again are 102 sampled releases."""
    sampled = mechanisms.PoissonSampling(1000, 50, 100)
    book = book_of(sampled)
    book.resume_at(60)
    book.resume_at(58)
    assert book.again == (2, 0) and book.epsilon == book.cost.epsilon_after(60)
    book.resume_at(100)
    more = dataclasses.replace(sampled, rounds=102)
    assert book.epsilon == epsilon_of(gaussian().dp_event(more, D))
    assert book.epsilon > book.cost.planned.epsilon


@pytest.mark.parametrize(
    "participation, lost, times",
    [
        # Three rounds of one epoch, and of two.
        (mechanisms.OncePerEpoch(500, 50, 30), (4, 7), 4),
        (mechanisms.OncePerEpoch(500, 50, 30), (8, 12), 5),
        (mechanisms.FixedSize(500, 50, 30), (8, 12), 34),
    ],
)
def test_lost_round_counts_as_a_participation(participation, lost, times):
    """By the exact curve of so many Gaussian releases."""
    book = book_of(participation)
    book.resume_at(lost[1])
    book.resume_at(lost[0])
    book.resume_at(30)
    exact = accounting.gaussian_epsilon(1e-3, 1 / math.sqrt(times))
    assert book.epsilon == pytest.approx(exact, rel=1e-9)


def test_repeated_release_of_one_sample_is_not_a_fresh_sample():
    """The second counts as if nobody was sampled: two of one sample cost less."""
    book = book_of(mechanisms.PoissonSampling(1000, 50, 10))
    cohort = range(40)
    book.record_round(cohort)
    book.resume_at(0)
    assert book.again == (1, 0)
    book.record_round(cohort)
    assert book.again == (0, 1)
    one_sample = dp_accounting.PoissonSampledDpEvent(
        0.05, dp_accounting.GaussianDpEvent(1 / math.sqrt(2))
    )
    apart = accounting.gaussian_epsilon(1e-3, 1.0)
    assert epsilon_of(one_sample) < book.epsilon > apart
    other = book_of(mechanisms.PoissonSampling(1000, 50, 10))
    other.record_round(cohort)
    other.resume_at(0)
    other.record_round(range(41))
    assert other.again == (1, 0) and other.epsilon < book.epsilon


RUN = {"rounds_per_epoch": None, "noise_stream": "run", "rounds": 20}


@pytest.mark.parametrize(
    "more, separation",
    [({"rounds_per_epoch": 10}, 1), (RUN, 1), ({**RUN, "matrix_method": "banded"}, 4)],
)
def test_repeated_rows_of_a_stream_cost_at_most_the_charge(more, separation):
    """Against the distance of the laws of all rows, by their covariance.

    Rounds 13 to 15, counted from 0, are lost and done again: their own rows of Z are
    drawn afresh, on those before. One client is in a round of the first epoch, in one
    of the second when it is lost, and in one in its place.
    """
    if "matrix_method" in more:
        more = {**more, "matrix_bands": 4}
    mechanism = mechanisms.MatrixFactorization(
        cohort_size=50, clip_norm=1.0, noise_multiplier=2.0, **more
    )
    plan = mechanisms.OncePerEpoch(500, 50, 20, min_separation=separation)
    book = ledger.Ledger(mechanism, plan, D, 1e-3)
    for rounds in (16, 13, 20):
        book.resume_at(rounds)

    rows = mechanism.factorization.noising_rows()
    lower = np.linalg.cholesky(rows @ rows.T)
    lower = np.kron(np.eye(20 // len(lower)), lower)
    again = np.zeros((3, 23))
    again[:, :13], again[:, 20:] = lower[13:16, :13], lower[13:16, 13:16]
    noise = mechanism.stddev * np.vstack([np.pad(lower, [(0, 0), (0, 3)]), again])
    inverse = np.linalg.inv(noise @ noise.T)
    most = 0.0
    for first, lost, then in itertools.product(range(10), range(10, 16), range(10, 20)):
        if (lost < 13 or then < 13) and lost != then:
            continue
        if min(lost, then) - first >= separation:
            there = np.isin([*range(20), *range(13, 16)], [first])
            there[then] = True
            there[20:] |= np.isin(range(13, 16), [lost])
            most = max(most, there @ inverse @ there)
    assert book.again == (0, 1 if separation == 1 else 2)
    cost = accounting.gaussian_epsilon(1e-3, 1 / math.sqrt(most))
    assert book.cost.planned.epsilon < cost <= book.epsilon < 3 * cost


def test_masked_rows_cannot_be_repeated():
    mechanism = mechanisms.Sgmf(
        10, cohort_size=50, clip_norm=1.0, noise_multiplier=1.0, keep_fraction=0.5
    )
    book = ledger.Ledger(mechanism, mechanisms.OncePerEpoch(500, 50, 20), D, 1e-3)
    book.resume_at(3)
    with refuses(ValueError, "rounds", "sgmf"):
        book.resume_at(2)
    assert book.rounds == 3 and book.again == (0, 0)


def test_budget_counts_repeated_rounds():
    budget = cost_of(gaussian()).epsilon_after(21)
    book = ledger.Ledger.of(cost_of(gaussian(), target_epsilon=budget * 1.0001))
    book.resume_at(20)
    book.resume_at(19)
    assert book.record_round() == pytest.approx(budget)
    with refuses(ValueError, "rounds", 20, 21):
        book.record_round()
    assert book.rounds == 20


def test_concurrent_line_is_not_truncated(tmp_path):
    """A ledger that was opened meanwhile took it for one that a kill left."""
    run = gaussian(), mechanisms.OncePerEpoch(500, 50, 30), D, 1e-3
    path = tmp_path / "ledger"
    book = ledger.Ledger(*run, path=path)
    before, opened, others = path.stat().st_size, os.fsync, []

    def other():
        others.append(ledger.Ledger(*run, path=path))

    def slow(descriptor):
        waiting.start()
        waiting.join(0.2)
        assert not others and path.stat().st_size > before
        opened(descriptor)

    waiting = threading.Thread(target=other)
    with mock.patch.object(os, "fsync", slow):
        book.record_round(["a"])
    waiting.join()
    assert others[0].rounds == 1 and book.record_round(["b"])


def test_a_ledgers_file_outlives_its_process(tmp_path):
    """A kill after each line, or in the middle of one."""
    run = gaussian(), mechanisms.OncePerEpoch(500, 50, 30), D, 1e-3
    path = tmp_path / "ledger"
    book = ledger.Ledger(*run, path=path)
    assert path.stat().st_mode & 0o777 == 0o600
    book.record_round(["a", 1])
    book.record_round(np.array([2, 3]))
    book.record_round()
    book.resume_at(6, [["b"], ["c"], ["d"]])
    content = path.read_bytes()
    for end in range(content.index(b"\n") + 1, len(content) + 1):
        path.write_bytes(content[:end])
        again = ledger.Ledger(*run, path=path)
        lines = content[:end].count(b"\n") - 1
        assert again.rounds == lines
        assert again.again == (0, 0)
    # The state is one of round 2: what it does again is another release.
    again.resume_at(2)
    with refuses(ValueError, "participants", "'a'", 3):
        again.record_round(["a"])
    again.record_round(["d"])
    with refuses(ValueError, path):
        book.record_round()
    assert book.rounds == 6
    last = ledger.Ledger(*run, path=path)
    assert last.rounds == 3 and last.again == again.again == (0, 1)
    assert last.epsilon == again.epsilon > book.epsilon
    with refuses(ValueError, "participants", "'d'", 4):
        last.record_round(["d"])
    with refuses(TypeError, "participants", b"e"):
        last.record_round([b"e"])
    with refuses(ValueError, path):
        ledger.Ledger(gaussian(2.0), *run[1:], path=path)
    for line in (
        b"[]",
        b'{"round": 0}',
        b'{"round": 1, "participants": [[]]}',
        b'{"round": 1, "participants": {"a": 1}}',
        b'{"round": 1, "round": 2}',
        b"[" * 10**5,
        b"\xff",
    ):
        path.write_bytes(content[: content.index(b"\n") + 1] + line + b"\n")
        with refuses(ValueError, path):
            ledger.Ledger(*run, path=path)
    path.write_text("{}\n")
    with refuses(ValueError, path):
        ledger.Ledger(*run, path=path)
    with refuses(ValueError, "path", tmp_path):
        ledger.Ledger(*run, path=tmp_path)


def test_file_keeps_lost_rounds_even_if_skipped(tmp_path):
    """Counted as released: rounds 2 to 4, after a state of round 1 and not of 3."""
    run = gaussian(), mechanisms.PoissonSampling(500, 50, 30), D, 1e-3
    for cohorts in ([], [["d"]], [["b"], ["c"], ["d"]]):
        path = tmp_path / str(len(cohorts))
        books = [ledger.Ledger(*run, path=path), ledger.Ledger(*run)]
        for book in books:
            for _ in range(3):
                book.record_round()
            book.resume_at(1)
            book.resume_at(4, cohorts)
            assert book.rounds == 4 and book.again == (2, 0)
        again = ledger.Ledger(*run, path=path)
        assert again.rounds == 4 and again.again == (2, 0)
    # A file that goes on from other rounds has no more lines than it needs.
    again.resume_at(30)
    assert ledger.Ledger(*run, path=path).rounds == 30
    assert path.read_text().count("\n") == 9


def test_unwritable_round_is_not_recorded(tmp_path):
    """By a limit of the size of files, in the middle of a line."""
    script = """
import resource, signal, sys
import dpfl
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
plan = dpfl.FixedSize(10**6, 50, 30)
run = dpfl.Gaussian(50, 1.0, 1.0), plan, 10, 1e-5
book = dpfl.Ledger(*run, path=sys.argv[1])
book.record_round()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    book.record_round(range(10**5))
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    assert book.rounds == 1
    book.record_round([1])
    assert dpfl.Ledger(*run, path=sys.argv[1]).rounds == 2
    sys.exit(7)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "ledger")]
    assert subprocess.run(command, check=False).returncode == 7


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
def test_resuming_far_back_remembers_participants(tmp_path, in_a_file, plan, most):
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
