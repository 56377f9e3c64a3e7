# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The accountant: dp_accounting's own tests, every order from 1 on, refusals."""

import math
from unittest import mock

import attr
import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant, rdp_privacy_accountant_test

from dpfl import accounting
from dpfl.accounting import events
from tests.accounting.event_names import (
    ADD,
    COMPOSED,
    DRAWN,
    GAUSSIAN,
    L2,
    LAPLACE,
    LINF,
    ONE,
    POISSON,
    SELF,
    UNSUPPORTED,
)
from tests.refusals import refuses

STREAM = accounting.MatrixFactorizationDpEvent
INF = math.inf
THEIR_ORDERS = rdp_privacy_accountant.DEFAULT_RDP_ORDERS

OWN = {
    "sparsified": lambda z: L2(z, 0.1, 0.05, 4096),
    "sampled": lambda z: L2(z, 0.1, 0.05, 4096, 0.1),
    "linf": lambda z: LINF(z, 0.1, 0.05, 4096),
    "stream": STREAM,
    "sparse stream": lambda z: accounting.SparsifiedMatrixFactorizationDpEvent(
        z, 0.1, 0.05, 4096
    ),
    **{
        name: lambda z, kind=kind: kind(9, z, 1.0, 3.0, 15, noise_of_helpers=True)
        for name, kind in (
            ("discrete gaussian", accounting.DistributedDiscreteGaussianDpEvent),
            ("skellam", accounting.DistributedSkellamDpEvent),
        )
    },
}
each_event = pytest.mark.parametrize("make_event", OWN.values(), ids=OWN)


class DpAccountingsOwnTest(rdp_privacy_accountant_test.RdpPrivacyAccountantTest):
    """The installed dp_accounting's tests, with our accountant in the place of theirs.

    They are the tests that dp_accounting (Apache-2.0) ships in its wheel; whatever
    release is installed, they are the ones that belong to it.
    """

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(
            rdp_privacy_accountant, "RdpAccountant", accounting.DpflAccountant
        )
        patch.start()
        self.addCleanup(patch.stop)

    # Where dpfl does better than some releases of dp_accounting, or says it otherwise.

    # One number of it differs in some releases: `peers.csv` has all of them.
    test_compute_rdp_poisson_sampled_gaussian = None

    def test_log_a_frac_early_termination(self):
        # At small orders dp_accounting's series may not converge; the quadrature does.
        sampled = POISSON(0.1, GAUSSIAN(1.0))
        assert np.all(np.isfinite(accounting.DpflAccountant().compose(sampled).rdp))


# Of dp_accounting's own series, which an accountant of ours does not have, and of its
# refusals, which have other words here: `test_trees` has ours.
for _name in dir(DpAccountingsOwnTest):
    if _name.startswith("test_compute_log_a") or "_raise" in _name:
        setattr(DpAccountingsOwnTest, _name, None)


@pytest.mark.parametrize("q", [1.0, 0.3, 0.01])
def test_order_1_is_the_kullback_leibler_divergence(q):
    x = np.linspace(-14, 15, 200_001)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    ratio = 1 - q + q * np.exp(x - 0.5)
    exact = np.sum(density * ratio * np.log(ratio)) * (x[1] - x[0])
    event = L2(1.0, 1.0, 1.0, 1, q)
    [found, above] = accounting.DpflAccountant([1, 1.01]).compose(event).rdp
    assert exact <= found < above
    assert found == pytest.approx(exact, rel=1e-5)


def test_events_at_orders_1_and_infinity():
    event = STREAM(2.0)
    found = accounting.DpflAccountant([1, 2, INF]).compose(event, 3).rdp
    np.testing.assert_allclose(found, [3 / 8, 6 / 8, INF], rtol=1e-5)
    nobody = L2(2.0, 0.1, 0.1, 64, 0.0)
    ledger = accounting.DpflAccountant([1, INF]).compose(nobody)
    np.testing.assert_array_equal(ledger.rdp, [0, 0])
    assert ledger.get_epsilon(0.0) == 0


def test_infinite_rdp_at_order_infinity_leaves_the_other_orders():
    # dp_accounting's conversion reports an epsilon of 0 here.
    with_infinity = accounting.DpflAccountant([2, 32, INF]).compose(GAUSSIAN(2.0))
    without = accounting.DpflAccountant([2, 32]).compose(GAUSSIAN(2.0))
    for delta in (1e-9, 1e-5, 0.1):
        want = without.get_epsilon_and_optimal_order(delta)
        assert with_infinity.get_epsilon_and_optimal_order(delta) == want
        assert with_infinity.get_epsilon(delta) == want[0] > 0
    for epsilon in (0.1, 1.0):
        want = without.get_delta_and_optimal_order(epsilon)
        assert with_infinity.get_delta_and_optimal_order(epsilon) == want
        assert with_infinity.get_delta(epsilon) == want[0]
    alone = accounting.DpflAccountant([INF]).compose(GAUSSIAN(2.0))
    assert alone.get_epsilon(1e-5) == INF
    assert alone.get_delta(5.0) == 1


def test_nan_divergences_count_as_infinite():
    class Unknown(accounting.RdpDpEvent):
        def rdp(self, orders):
            return np.where(np.equal(orders, 2), math.nan, 1.0)

    found = accounting.DpflAccountant([2.0, 3.0, INF]).compose(Unknown()).rdp
    np.testing.assert_array_equal(found, [INF, 1.0, INF])


@each_event
def test_composes_with_dp_accountings_events_at_any_depth(make_event):
    event = make_event(2.0)
    orders = [1.5, 2, 7.25, 32]
    tree = COMPOSED(
        [SELF(COMPOSED([event, GAUSSIAN(3.0)]), 4), dp_accounting.NoOpDpEvent(), event]
    )
    found = accounting.DpflAccountant(orders).compose(tree, 2).compose(event).rdp
    want = 11 * event.rdp(orders) + 8 * np.array(orders) / 18
    np.testing.assert_allclose(found, want, rtol=1e-12)


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (SELF(POISSON(0.01, GAUSSIAN(1.0)), 100), ADD),
        (DRAWN(100, 25, GAUSSIAN(2.0)), ONE),
    ],
)
def test_stock_events_agree_with_dp_accounting(event, relation):
    event = COMPOSED([event, LAPLACE(2.0)])
    ours = accounting.DpflAccountant(THEIR_ORDERS, relation).compose(event).rdp
    theirs = rdp_privacy_accountant.RdpAccountant(None, relation).compose(event).rdp
    # dp_accounting subtracts 1 in floats: absolute, not relative accuracy. From 0.4.4
    # on what it computes at fractional orders is only a bound.
    assert np.all(ours <= theirs * (1 + 1e-9) + 1e-11)
    whole = np.array(THEIR_ORDERS) % 1 == 0
    np.testing.assert_allclose(ours[whole], theirs[whole], rtol=1e-9, atol=1e-11)
    # So that the default orders never cost more than the stock ones.
    assert set(THEIR_ORDERS) <= set(accounting.DEFAULT_ORDERS)


@pytest.mark.parametrize(
    "name", ["sparsified", "sampled", "linf", "discrete gaussian", "skellam"]
)
def test_poisson_sampling_around_an_event(name):
    event = OWN[name](2.0)
    sampled = attr.evolve(event, sampling_probability=0.3 * event.sampling_probability)
    got = accounting.epsilon(POISSON(0.3, event), 1e-5)
    assert got == accounting.epsilon(sampled, 1e-5)
    assert got.epsilon < accounting.epsilon(event, 1e-5).epsilon


@each_event
def test_zero_out_costs_as_removal_and_replace_one_is_refused(make_event):
    event, neighboring_relations = make_event(1.0), accounting.Relation
    zeros, other = (
        accounting.DpflAccountant(neighboring_relation=relation)
        for relation in (
            neighboring_relations.REPLACE_SPECIAL,
            neighboring_relations.REPLACE_ONE,
        )
    )
    removed = accounting.DpflAccountant().compose(event)
    np.testing.assert_array_equal(zeros.compose(event).rdp, removed.rdp)
    with refuses(UNSUPPORTED, "neighboring_relation", "REPLACE_ONE"):
        other.compose(event)


@pytest.mark.parametrize("noise", [1e6, 1e7, 1e8, 1e12])
@pytest.mark.parametrize("epsilon", [0, 0.1, 50, 1e308, INF])
def test_delta_under_much_noise(noise, epsilon):
    # dp_accounting 0.4.3 to 0.6 crashes on an RDP below 1e-16.
    book = accounting.DpflAccountant().compose(GAUSSIAN(noise))
    least = accounting.gaussian_delta(min(epsilon, 1e308), noise)
    assert least <= book.get_delta(epsilon) <= 2 / noise
    selected = dp_event.RepeatAndSelectDpEvent(GAUSSIAN(noise), 2, INF)
    assert accounting.epsilon(selected, 1e-5).epsilon > 0


def test_rdp_events_must_define_rdp():
    @attr.s(frozen=True)
    class Silent(events.RdpDpEvent):
        pass

    with refuses(TypeError, "Silent", "rdp"):
        Silent()


def test_events_with_inherited_equality_are_cached_apart():
    class Costly(accounting.RdpDpEvent):
        neighboring_relations = events.TRUSTED_RELATIONS

        def __init__(self, cost):
            object.__setattr__(self, "cost", cost)

        def rdp(self, orders):
            return np.full(len(orders), self.cost)

    assert Costly(1.0) == Costly(2.0)
    spent = [accounting.epsilon(Costly(c), 1e-5).epsilon for c in (1.0, 2.0)]
    assert spent[1] == pytest.approx(spent[0] + 1)


def test_events_without_a_hash_are_accounted_for():
    @attr.s(frozen=True, auto_attribs=True)
    class Listed(accounting.RdpDpEvent):
        costs: list

        def rdp(self, orders):
            return np.full(len(orders), sum(self.costs))

    spent = [accounting.epsilon(Listed(c), 1e-5).epsilon for c in ([1.0], [1.0, 1.0])]
    assert spent[1] == pytest.approx(spent[0] + 1)
