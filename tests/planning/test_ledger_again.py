# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A ledger that goes on: rounds that are repeated, and its file after a kill."""

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
from tests.accounting.event_names import GAUSSIAN
from tests.planning.test_ledger import D, book_of, cost_of, gaussian
from tests.refusals import refuses


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
    # No round counts, and its release stays released.
    assert book.again == (1, 0) and book.epsilon == book.cost.epsilon_after(1) > 0
    book.record_round(cohort)
    assert book.again == (0, 1)
    one_sample = dp_accounting.PoissonSampledDpEvent(0.05, GAUSSIAN(1 / math.sqrt(2)))
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


def test_repeated_rows_of_a_stream_are_no_further_rows():
    """Cohorts are drawn afresh, and the noise of a row is not."""
    mechanism = mechanisms.MatrixFactorization(
        cohort_size=50, clip_norm=1.0, noise_multiplier=2.0, **RUN
    )
    book = ledger.Ledger(mechanism, mechanisms.FixedSize(1000, 50, 20), D, 1e-3)
    for rounds in (6, 4):
        book.resume_at(rounds)
    assert book.again == (0, 2)


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
    for line in (b'{"round": 0}', b'{"round": 1, "participants": {"a": 1}}', b"\xff"):
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
