# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The accountant: dp_accounting's conformance tests, composition, refusals."""

import math
from collections.abc import Sequence

import attr
import dp_accounting
import numpy as np
import pytest
from dp_accounting import privacy_accountant_test, rdp

from dpfl import accounting
from dpfl.accounting import events

GAUSSIAN = dp_accounting.GaussianDpEvent
SELF = dp_accounting.SelfComposedDpEvent
COMPOSED = dp_accounting.ComposedDpEvent
NEIGHBORS = dp_accounting.NeighboringRelation

OWN = {
    "sparsified": lambda z: accounting.SparsifiedGaussianDpEvent(z, 0.1, 0.05, 4096),
    "sampled": lambda z: accounting.SparsifiedGaussianDpEvent(z, 0.1, 0.05, 4096, 0.1),
    "linf": lambda z: accounting.LinfSparsifiedGaussianDpEvent(z, 0.1, 0.05, 4096),
    "stream": lambda z: accounting.MatrixFactorizationDpEvent(z),
    "sparse stream": lambda z: accounting.SparsifiedMatrixFactorizationDpEvent(
        z, 0.1, 0.05, 4096
    ),
}
each_event = pytest.mark.parametrize("make_event", OWN.values(), ids=OWN)


class ConformanceTest(privacy_accountant_test.PrivacyAccountantTest):
    """What dp_accounting asks of every accountant."""

    def _make_test_accountants(self):
        return [
            accounting.DpflAccountant(),
            accounting.DpflAccountant([2, 3.5, 64]),
            accounting.DpflAccountant(neighboring_relation=NEIGHBORS.REPLACE_SPECIAL),
        ]


@each_event
def test_composes_with_dp_accountings_events_at_any_depth(make_event):
    event = make_event(2.0)
    orders = [1.5, 2, 7.25, 32]
    tree = COMPOSED(
        [SELF(COMPOSED([event, GAUSSIAN(3.0)]), 4), dp_accounting.NoOpDpEvent(), event]
    )
    accountant = accounting.DpflAccountant(orders).compose(tree, 2).compose(event)
    want = 11 * event.rdp(orders) + 8 * np.array(orders) / 18
    np.testing.assert_allclose(accountant.rdp, want, rtol=1e-12)


def test_stock_events_cost_what_they_cost():
    tree = COMPOSED(
        [
            SELF(dp_accounting.PoissonSampledDpEvent(0.01, GAUSSIAN(1.0)), 100),
            dp_accounting.LaplaceDpEvent(2.0),
        ]
    )
    ours = accounting.DpflAccountant(rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
    theirs = rdp.RdpAccountant()
    ours, theirs = ours.compose(tree).rdp, theirs.compose(tree).rdp
    # dp_accounting subtracts 1 in floats: absolute, not relative accuracy. From 0.4.4
    # on what it computes at fractional orders is only a bound.
    assert np.all(ours <= theirs * (1 + 1e-9) + 1e-11)
    whole = np.array(rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS) % 1 == 0
    np.testing.assert_allclose(ours[whole], theirs[whole], rtol=1e-9, atol=1e-11)


def test_default_orders_never_cost_more_than_the_stock_ones():
    theirs = set(rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
    assert theirs <= set(accounting.DEFAULT_ORDERS)


@pytest.mark.parametrize("name", ["sparsified", "sampled", "linf"])
def test_poisson_sampling_around_an_event(name):
    event = OWN[name](2.0)
    sampled = attr.evolve(event, sampling_probability=0.3 * event.sampling_probability)
    got = accounting.epsilon(dp_accounting.PoissonSampledDpEvent(0.3, event), 1e-5)
    assert got == accounting.epsilon(sampled, 1e-5)
    assert got.epsilon < accounting.epsilon(event, 1e-5).epsilon


@pytest.mark.parametrize("name", ["stream", "sparse stream"])
def test_poisson_sampling_without_a_proof_is_refused(name):
    event = dp_accounting.PoissonSampledDpEvent(0.3, OWN[name](2.0))
    accountant = accounting.DpflAccountant()
    assert not accountant.supports(event)
    with pytest.raises(dp_accounting.UnsupportedEventError):
        accountant.compose(SELF(event, 3))
    assert np.all(accountant.rdp == 0)


@each_event
def test_replacing_one_client_by_another_is_refused(make_event):
    accountant = accounting.DpflAccountant(neighboring_relation=NEIGHBORS.REPLACE_ONE)
    with pytest.raises(dp_accounting.UnsupportedEventError, match="REPLACE_ONE"):
        accountant.compose(make_event(1.0))


@each_event
def test_replaced_by_zero_costs_the_same(make_event):
    one = accounting.DpflAccountant().compose(make_event(1.0))
    other = accounting.DpflAccountant(neighboring_relation=NEIGHBORS.REPLACE_SPECIAL)
    np.testing.assert_array_equal(one.rdp, other.compose(make_event(1.0)).rdp)


@each_event
def test_dp_accountings_calibration_works(make_event):
    z = dp_accounting.calibrate_dp_mechanism(
        accounting.DpflAccountant, lambda z: SELF(make_event(z), 10), 3.0, 1e-6
    )
    report = accounting.epsilon(SELF(make_event(z), 10), 1e-6, method="rdp")
    epsilon = report.epsilon
    assert 3.0 * (1 - 1e-5) <= epsilon <= 3.0


@each_event
def test_events_survive_the_named_tuple_form(make_event):
    event = make_event(1.5)
    again = dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple())
    assert again == event
    assert hash(again) == hash(event)
    with pytest.raises(attr.exceptions.FrozenInstanceError):
        event.noise_multiplier = 2.0


@each_event
def test_no_noise_is_infinite_and_composes(make_event):
    report = accounting.epsilon(COMPOSED([make_event(0.0), GAUSSIAN(1.0)]), 1e-5)
    assert report.epsilon == math.inf


@attr.s(frozen=True, auto_attribs=True)
class _ForeignDpEvent(dp_accounting.DpEvent):
    rho: float


def test_register_teaches_an_event_and_its_subclasses(monkeypatch):
    from dpfl.accounting import accountant

    monkeypatch.setattr(accountant, "_TABLE", dict(accountant._TABLE))
    assert not accounting.DpflAccountant().supports(_ForeignDpEvent(0.5))
    accounting.register(_ForeignDpEvent, lambda event, orders: event.rho * orders)

    class Sub(_ForeignDpEvent):
        pass

    got = accounting.DpflAccountant([2, 4]).compose(SELF(Sub(0.5), 3)).rdp
    np.testing.assert_allclose(got, [3, 6])


@pytest.mark.parametrize("bad", [int, 3, "GaussianDpEvent"])
def test_register_refuses_what_is_no_event(bad):
    with pytest.raises(TypeError, match="^event_type must"):
        accounting.register(bad, lambda event, orders: orders)


@pytest.mark.parametrize("orders", [[0.9, 2.0], [], [math.nan], ["a"]])
def test_bad_orders_are_refused(orders):
    with pytest.raises((TypeError, ValueError), match="^orders must"):
        accounting.DpflAccountant(orders)


def test_an_event_must_say_its_rdp():
    @attr.s(frozen=True)
    class Silent(events.RdpDpEvent):
        pass

    with pytest.raises(TypeError, match="rdp"):
        Silent()

    @attr.s(frozen=True)
    class Constant(events.RdpDpEvent):
        def rdp(self, orders: Sequence[float]) -> np.ndarray:
            return np.full(len(orders), 0.25)

    assert np.all(accounting.DpflAccountant([2, 3]).compose(Constant()).rdp == 0.25)
