# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The matrix factorization event, and the sensitivity that its noise multiplier means."""

import itertools
import math

import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting.matrix_factorization import banded_stream_event
from dpfl.factorization import sensitivity
from tests.accounting.event_names import GAUSSIAN, POISSON, SELF
from tests.factorization.test_sensitivity import brute_force, separated
from tests.refusals import refuses

ORDERS = np.array([1.5, 2, 8, 64.5])


def test_is_one_gaussian_mechanism():
    event = accounting.MatrixFactorizationDpEvent(0.7)
    np.testing.assert_allclose(event.rdp(ORDERS), ORDERS / (2 * 0.49), rtol=1e-14)
    assert event.as_gaussian() == GAUSSIAN(0.7)


@pytest.mark.parametrize("z", [0.0, 1e-200])
def test_no_noise_no_privacy(z):
    with np.errstate(all="raise"):
        assert np.all(accounting.MatrixFactorizationDpEvent(z).rdp(ORDERS) == np.inf)


def stream_event(release, **settings):
    """The event of clients who choose their rounds without regard to others."""
    return banded_stream_event(release, independent_groups=True, **settings)


def banded(rounds, bands, seed=0):
    """A lower triangular C with `bands` diagonals and columns of norm 1."""
    rng = np.random.default_rng(seed)
    encoder = np.tril(rng.uniform(0.2, 1, (rounds, rounds)))
    for j in range(rounds):
        encoder[:, j] *= (np.arange(rounds) >= j) & (np.arange(rounds) < j + bands)
        encoder[:, j] /= np.linalg.norm(encoder[:, j])
    return encoder


def rdp_of(event, order):
    return accounting.DpflAccountant([order]).compose(event).rdp[0]


def moment(order, shifts, probabilities):
    """log E_Q[(P/Q)^order], P the mixture of N(shift, I): by copies of the client."""
    gram = shifts @ shifts.T
    total = 0.0
    for copies in itertools.product(range(len(shifts)), repeat=order):
        cross = sum(gram[a, b] for a, b in itertools.combinations(copies, 2))
        total += math.prod(probabilities[c] for c in copies) * math.exp(cross)
    return math.log(total)


def stream_moment(order, encoder, rounds, q, noise):
    """The moment of a client that joins each of `rounds` with probability q."""
    joined = list(itertools.product([0, 1], repeat=len(rounds)))
    shifts = np.array([encoder[:, rounds] @ np.array(j) for j in joined]) / noise
    weights = [q ** sum(j) * (1 - q) ** (len(j) - sum(j)) for j in joined]
    return moment(order, shifts, weights)


class TestSeparated:
    @pytest.mark.parametrize(("bands", "separation"), [(1, 1), (2, 2), (2, 3), (3, 4)])
    def test_sensitivity_and_composition_by_all_patterns(self, bands, separation):
        """One Gaussian of the norm of all that a client adds is the k releases."""
        rounds, noise = 9, 1.7
        encoder = banded(rounds, bands, seed=bands)
        worst = brute_force(encoder, separated(rounds, separation, None))
        plan = sensitivity.MinSeparation(separation)
        assert plan.sensitivity(encoder).value == pytest.approx(worst)
        event = stream_event(
            GAUSSIAN(noise), rounds=rounds, bands=bands, separation=separation
        )
        assert event.event.count == -(-rounds // separation)
        found = accounting.epsilon(event, 1e-5)
        assert found.accounting_method == "exact-gaussian"
        want = accounting.gaussian_epsilon(1e-5, noise / worst)
        assert found.epsilon == pytest.approx(want, rel=1e-9)

    def test_fewer_participations_than_fit(self):
        settings = {"rounds": 60, "bands": 4, "separation": 4}
        event = stream_event(GAUSSIAN(1.0), participations=3, **settings)
        assert event.event.count == 3
        event = stream_event(GAUSSIAN(1.0), participations=30, **settings)
        assert event.event.count == 15

    @pytest.mark.parametrize("rounds", [7, 8, 9])
    def test_the_last_columns_of_a_toeplitz_encoder_are_shorter(self, rounds):
        """All patterns of rounds at least 3 apart, against k - 1 releases and a rest."""
        column = np.array([1.0, 0.6, 0.4])
        encoder = sum(np.diag(np.full(rounds - k, column[k]), -k) for k in range(3))
        rest = np.linalg.norm(column[: rounds - 6]) / np.linalg.norm(column)
        noise = 1.4 * np.linalg.norm(column)
        last = {"separation": 3, "last_release": GAUSSIAN(1.4 / rest)}
        event = stream_event(GAUSSIAN(1.4), rounds=rounds, bands=3, **last)
        want = accounting.gaussian_epsilon(
            1e-5, noise / brute_force(encoder, separated(rounds, 3, None))
        )
        assert accounting.epsilon(event, 1e-5).epsilon == pytest.approx(want, rel=1e-9)

    def test_last_release_without_clients_costs_nothing(self):
        far = {"bands": 3, "separation": 3}
        rest = {"participations": 2, "last_release": GAUSSIAN(9.0)}
        event = stream_event(GAUSSIAN(1.0), rounds=8, **far, **rest)
        assert event == stream_event(GAUSSIAN(1.0), rounds=6, **far)


class TestCyclic:
    @pytest.mark.parametrize(("bands", "separation"), [(1, 1), (2, 2), (1, 2), (2, 3)])
    @pytest.mark.parametrize("q", [0.2, 0.7])
    def test_moment_equals_the_mixture_over_participations(self, bands, separation, q):
        encoder = banded(5, bands, seed=3)
        sampled = {"separation": separation, "sampling_probability": q}
        event = stream_event(GAUSSIAN(1.3), rounds=5, bands=bands, **sampled)
        for order in (2, 3):
            limit = (order - 1) * rdp_of(event, order)
            exact = [
                stream_moment(order, encoder, list(range(g, 5, separation)), q, 1.3)
                for g in range(separation)
            ]
            assert max(exact) == pytest.approx(limit, rel=1e-9)

    def test_more_bands_than_the_separation_are_refused(self):
        """Overlapping columns: the truth is above the epsilon, which is refused."""
        encoder, q = banded(5, 3, seed=3), 0.3
        as_if = SELF(POISSON(q, GAUSSIAN(1.3)), 3)
        limit = 2 * rdp_of(as_if, 3)
        assert stream_moment(3, encoder, [0, 2, 4], q, 1.3) > 1.02 * limit
        with refuses(ValueError, "separation", 2):
            stream_event(GAUSSIAN(1.3), rounds=5, bands=3, separation=2)


def test_fixed_size_groups_keep_only_zero_out():
    event = banded_stream_event(GAUSSIAN(1.0), rounds=2, bands=1, separation=2)
    assert accounting.epsilon(event, 1e-5).relation == "replaced_by_zeros"
    free = stream_event(GAUSSIAN(1.0), rounds=2, bands=1, separation=2)
    assert accounting.epsilon(free, 1e-5).relation == "add_or_remove"
