# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Streams over a whole run: their events against brute force, and their two ends."""

import itertools
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest

from dpfl import accounting, mechanisms, planning
from dpfl.accounting import trees
from dpfl.mechanisms import build, matrix_factorization
from dpfl.planning import ledger
from tests.refusals import names, refuses

D = 10_000
N, COHORT, ROUNDS = 64, 8, 48


FIELDS = {
    **{"rounds_per_epoch": None, "cohort_size": COHORT, "clip_norm": 0.5},
    **{"noise_multiplier": 1.5, "noise_stream": "run", "rounds": ROUNDS},
    "matrix_method": "toeplitz",
}
# Streams of an epoch instead.
RESTARTS = {"rounds_per_epoch": 8, "noise_stream": "epoch", "rounds": None}
RESTARTS["matrix_bands"] = 8


def matrix(**changes):
    return mechanisms.MatrixFactorization(**{**FIELDS, **changes})


def sgmf(**changes):
    kept = {"keep_fraction": 0.1, "linf_ratio": 0.05}
    return mechanisms.Sgmf(**{**FIELDS, **kept, **changes})


MAKERS = {"matrix_factorization": matrix, "sgmf": sgmf}
WITHOUT = {
    "matrix_factorization": mechanisms.Gaussian(COHORT, 0.5, 1.5),
    "sgmf": mechanisms.L2Csgm(COHORT, 0.5, 1.5, 0.1, linf_ratio=0.05),
}


POISSON = mechanisms.PoissonSampling(N, COHORT, ROUNDS)


def cyclic(groups, rounds=ROUNDS):
    return mechanisms.CyclicPoisson(N, COHORT, rounds, groups)


def once(separation=None, rounds=ROUNDS, epoch=None):
    return mechanisms.OncePerEpoch(N, COHORT, rounds, epoch, separation)


def epsilon(mechanism, participation, accounting_method="rdp"):
    return planning.epsilon(mechanism, participation, D, 1e-5, accounting_method)


@pytest.mark.parametrize("maker", MAKERS)
class TestTwoEnds:
    @pytest.mark.parametrize("accounting_method", ["rdp", "auto"])
    def test_one_diagonal_is_poisson_sampling(self, maker, accounting_method):
        """And independent noise."""
        expected = epsilon(WITHOUT[maker], POISSON, accounting_method)
        config = MAKERS[maker](matrix_bands=1)
        for participation in (cyclic(1), POISSON):
            found = epsilon(config, participation, accounting_method)
            assert found == pytest.approx(expected, rel=1e-9)
        assert config.stddev == pytest.approx(1.5 * 0.5 * config.keep_fraction)

    def test_full_sampling_in_turn_equals_separated_rounds(self, maker):
        """8 groups of 8: q' is 1, and epochs of 8 rounds are as private."""
        whole, separated = cyclic(8), once(8)
        assert whole.sampling_probability == 1
        config = MAKERS[maker](matrix_bands=8)
        found, expected = epsilon(config, whole), epsilon(config, separated)
        assert found == pytest.approx(expected, rel=1e-12)
        # Six rounds of each client: six epochs of a stream that restarts.
        restarts = MAKERS[maker](**RESTARTS)
        assert found == pytest.approx(epsilon(restarts, once()), rel=1e-9)


@pytest.mark.parametrize("maker", MAKERS)
class TestEvent:
    def test_numbers_match_the_participation(self, maker):
        config = MAKERS[maker](matrix_bands=2)
        event = config.dp_event(cyclic(4, rounds=46), D)
        assert event.event.count == 12 and event.event.event.sampling_probability == 0.5
        assert event.neighboring_relations[0] == accounting.Relation.ADD_OR_REMOVE_ONE
        # Epochs of eight rounds, the last one begun: six rounds of a client, and not
        # the twelve that would fit at a distance of four.
        event = config.dp_event(once(4, rounds=46), D)
        assert event.event.count == 6
        assert event.neighboring_relations == (accounting.Relation.REPLACE_SPECIAL,)

    def test_first_and_last_rounds_release_less_of_each_column(self, maker):
        """One row of C, of which the sensitivity is its first entry."""
        config = MAKERS[maker](matrix_bands=4)
        column = config.factorization.factors.c
        more = np.linalg.norm(column) / column[0]
        assert more > 1.2
        found = epsilon(config, cyclic(4, rounds=1))
        noisier = config.with_noise_multiplier(config.noise_multiplier * more)
        expected = epsilon(noisier, cyclic(4, rounds=4))
        assert found == pytest.approx(expected, rel=1e-9)
        # 45 rounds in groups of four: the first group's last is in one row alone.
        whole, last = config.dp_event(cyclic(4, rounds=45), D).event.events
        assert whole.count == 11
        ratio = last.event.noise_multiplier / whole.event.event.noise_multiplier
        assert ratio == pytest.approx(more)

    def test_epsilon_never_falls(self, maker):
        config = MAKERS[maker](matrix_bands=4)
        for participation in (cyclic(4), once(5)):
            cost = ledger.RunCost(
                config, participation, D, 1e-5, accounting_method="rdp"
            )
            spent = [cost.epsilon_after(r) for r in range(ROUNDS + 1)]
            assert spent == sorted(spent)
            assert spent[-1] == pytest.approx(epsilon(config, participation))

    def test_a_round_is_sampled_and_an_epoch_is_not(self, maker):
        event = MAKERS[maker](matrix_bands=1).round_dp_event(D, 0.25)
        assert trees.bare(event).sampling_probability == 0.25
        restarts = MAKERS[maker](**RESTARTS)
        with refuses(ValueError, "sampling_probability", 0.25):
            restarts.round_dp_event(D, 0.25)


class TestAnyMatrix:
    """Where rounds of a client share rows of C: the sensitivity of all together."""

    @pytest.mark.parametrize("method", ["optimal", "toeplitz", "blt"])
    def test_sensitivity_by_all_patterns(self, method):
        buffers = {"matrix_buffers": 2} if method == "blt" else {}
        config = matrix(rounds=6, matrix_method=method, **buffers)
        found = config.factorization
        encoder = found.factors.released_encoder(found.workload)
        one = np.max(np.linalg.norm(encoder, axis=0))

        def worst(patterns, released):
            """Over vectors of all signs, in one dimension."""
            return max(
                np.linalg.norm(encoder[:released, list(rounds)] @ signs)
                for rounds in patterns
                for signs in itertools.product([-1, 1], repeat=len(rounds))
            )

        pairs = list(itertools.product(range(3), range(3, 6)))
        cases = {
            # Three rounds at a distance of two, of which some may be left out.
            mechanisms.CyclicPoisson(6, 2, 6, 2): [(0, 2, 4), (1, 3, 5)],
            # Two epochs of three rounds, in windows of two rounds and one, and of all.
            mechanisms.OncePerEpoch(6, 2, 6, 3, 2): [
                *itertools.product((0, 1), (3, 4)),
                (2, 5),
            ],
            mechanisms.OncePerEpoch(6, 2, 6, 3): pairs,
            # A run that ends before its matrix does, within an epoch or a cycle.
            mechanisms.OncePerEpoch(6, 2, 4, 3): [(0, 3), (1, 3), (2, 3)],
            mechanisms.CyclicPoisson(6, 2, 3, 2): [(0, 2), (1,)],
            mechanisms.OncePerEpoch(6, 2, 1, 3): [(0,)],
        }
        for participation, patterns in cases.items():
            config = replace(config, cohort_size=2)
            least = one / worst(patterns, participation.rounds)
            exact = accounting.gaussian_epsilon(1e-5, 1.5 * least)
            found = epsilon(config, participation, "auto")
            assert exact * (1 - 1e-9) <= found <= 1.02 * exact

    def test_epsilon_never_falls(self):
        config = matrix(matrix_method="optimal", rounds=24)
        for plan in (cyclic(4, 24), once(3, 24, 6), once(None, 24, 6)):
            cost = ledger.RunCost(config, plan, D, 1e-5)
            spent = [cost.epsilon_after(r) for r in range(24 + 1)]
            assert spent == sorted(spent) and len(set(spent)) > 20

    def test_it_is_not_amplified(self):
        config = matrix(matrix_method="optimal")
        sampled = config.dp_event(cyclic(2), D).event
        assert sampled.count == 1
        assert isinstance(sampled.event, dp_accounting.GaussianDpEvent)

    def test_sparsified_streams_refuse_dense_encoders(self):
        with refuses(ValueError, "min_separation", 4, 48, "sgmf"):
            sgmf(matrix_method="optimal").dp_event(cyclic(4), D)


@pytest.mark.parametrize(
    ("participation", "parts"),
    [
        (
            mechanisms.RandomAllocation(N, COHORT, ROUNDS),
            ("participation", mechanisms.RandomAllocation.name),
        ),
        (cyclic(4, rounds=49), ("rounds", 48, 49)),
        (once(3), ("min_separation", 3, 4)),
        (POISSON, ("min_separation", 1, 4)),
        (
            mechanisms.BallsInBins(N, COHORT, ROUNDS),
            ("participation", "balls_in_bins", "sgmf"),
        ),
    ],
)
def test_unsuitable_participations_are_refused(participation, parts):
    with refuses(ValueError, *parts):
        sgmf(matrix_bands=4).dp_event(participation, D)


class TestBallsInBins:
    BINS = mechanisms.BallsInBins(N, COHORT, ROUNDS)

    def test_the_event_has_the_columns_of_groups(self):
        """Of the rows that are released, whatever the signs of C."""
        config = matrix(matrix_method="banded-inverse", matrix_bands=3)
        c = np.abs(config.factorization.encoder())
        for rounds in (3, ROUNDS):
            event = config.dp_event(self.BINS.first(rounds), D).event
            part = c[:rounds, :rounds]
            own = np.stack([part[:, g :: self.BINS.groups].sum(axis=1) for g in (0, 1)])
            assert event.gram[:2, :2] == pytest.approx(own @ own.T)
            scale = config.noise_multiplier * config.matrix_sensitivity
            assert event.noise_multiplier == pytest.approx(scale)


class TestBMinSeparation:
    def test_the_event_has_the_columns(self):
        """Of the rows that are released, whatever the signs of C."""
        config = matrix(matrix_method="banded", matrix_bands=3)
        c = np.abs(config.factorization.encoder())
        chosen = mechanisms.BMinSeparation(N, COHORT, ROUNDS, 4)
        scale = config.noise_multiplier * config.matrix_sensitivity
        for rounds in (2, 5, ROUNDS):
            event = config.dp_event(chosen.first(rounds), D).event
            part = event._encoder.toarray() * scale
            assert part == pytest.approx(c[:rounds, :rounds])
            assert (event.separation, event.rounds) == (4, rounds)
            assert event.rate == pytest.approx(COHORT / N)

    def test_bands_must_not_exceed_the_separation(self):
        chosen = mechanisms.BMinSeparation(N, COHORT, ROUNDS, 3)
        with refuses(ValueError, "min_separation", 3, 4):
            matrix(matrix_bands=4).dp_event(chosen, D)


@pytest.mark.parametrize(
    "plan",
    [TestBallsInBins.BINS, mechanisms.BMinSeparation(N, COHORT, ROUNDS, 3)],
)
def test_identity_is_independent_noise(plan):
    config = matrix(matrix_method="identity", matrix_bands=None)
    expected = WITHOUT["matrix_factorization"].dp_event(plan, D)
    assert config.dp_event(plan, D).event == expected.event


def test_run_streams_need_no_epoch_flags():
    values = {"cohort_size": 8, "clip_norm": 1.0, "noise_multiplier": 1.0}
    assert build.missing_fields("matrix_factorization", values) == ["rounds_per_epoch"]
    run = {**values, "noise_stream": "run", "rounds": 12, "matrix_method": "identity"}
    assert build.missing_fields("matrix_factorization", run) == []
    made = build.build("matrix_factorization", run)
    assert (made.rounds_per_epoch, made.stream_rounds) == (None, 12)


def test_dense_noise_that_takes_days_is_refused():
    def check(dimension, **options):
        matrix(**options).check_cost(cyclic(4), dimension)

    dense = {"matrix_method": "optimal", "matrix_bands": None}
    check(10**11, matrix_bands=4)
    check(10**9, **dense)
    # Three blocks of 16 rows draw 16, 32 and 48 rows of Z: 96e11 numbers in all.
    with refuses(ValueError, "matrix_method", "optimal", 43):
        check(10**11, **dense)


def test_run_keeps_rows_of_its_bands_or_dense_block():
    """One row for each band but one, and several times a block of all 48 rows."""
    none, banded = (matrix(matrix_bands=h).run_vectors(100) for h in (1, 4))
    dense = matrix(matrix_method="optimal").run_vectors(100)
    assert banded - none == 3
    assert dense - none > 5 * 48


def test_stream_keeps_all_diagonals_but_one():
    for bands in (1, 2, 16):
        config = matrix(matrix_bands=bands)
        found = matrix_factorization.numbers(config, 100)
        assert (found["bands"], found["kept_bytes"]) == (bands, 400 * (bands - 1))
    said = matrix_factorization.sentence(matrix(matrix_bands=16), 1_018_174)
    assert names(said, 48, 16, "61.09", 15)
