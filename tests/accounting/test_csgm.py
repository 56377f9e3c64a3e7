# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The sparsified mechanisms against quadrature, limits, published values and order."""

import decimal
import math

import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting import csgm, log_space
from tests.accounting.event_names import L2, LINF, SELF
from tests.accounting.quadrature import log_moment

MODEL = 1018174
STREAM = accounting.SparsifiedMatrixFactorizationDpEvent

ORDERS = np.array([1.25, 1.5, 2, 2.5, 3, 4, 5.5, 8, 16, 33.3, 64, 256, 1024])


def release(orders, keep, full, shift, q=1.0):
    """Log-moments at `orders` with K = full and DeltaInf / stddev = shift."""
    ratio = full**-0.5
    multiplier = ratio / (shift * keep)
    got = L2(multiplier, keep, ratio, 10**9, q).rdp(orders)
    return got * (np.asarray(orders) - 1)


@pytest.mark.parametrize("keep", [1e-6, 1e-3, 0.3, 0.999, 1.0])
@pytest.mark.parametrize(
    ("full", "shift"), [(1.0, 0.05), (1.0, 0.3), (1.0, 2.0), (2.0, 1.2), (1.6, 0.8)]
)
@pytest.mark.parametrize("q", [1.0, 0.3, 0.001])
def test_one_and_two_coordinates_equal_quadrature(keep, full, shift, q):
    shifts = [shift, shift * math.sqrt(full - 1)] if full > 1 else [shift]
    orders = (2, 3, 5) if full > 1 else (2, 3, 5, 8)
    want = [log_moment(shifts, keep, q, order) for order in orders]
    got = release(orders, keep, full, shift, q)
    np.testing.assert_allclose(got, want, rtol=2e-9, atol=1e-16)


@pytest.mark.parametrize("keep", [0.001, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("q", [1.0, 0.1])
def test_chord_bounds_every_order_in_both_directions(keep, q):
    orders = [1.1, 1.5, 1.9, 2.2, 2.5, 3.7, 5.5]
    shifts, full, shift = [0.9, 0.9 * math.sqrt(0.5)], 1.5, 0.9
    bound = release(orders, keep, full, shift, q)
    for order, limit in zip(orders, bound):
        assert log_moment(shifts, keep, q, order) <= limit
        assert log_moment(shifts, keep, q, 1 - order) <= limit
    # The chord is no wild guess either: near the integers it is close.
    near = release([2.001], keep, full, shift, q)[0]
    assert near <= 1.01 * log_moment(shifts, keep, q, 2.001)


@pytest.mark.parametrize("q", [1.0, 0.2])
def test_random_vectors_within_the_bounds_never_exceed(q):
    rng = np.random.default_rng(20)
    keep, full, shift = 0.2, 1.6, 1.1
    limit = release([2, 3, 4.5, 6], keep, full, shift, q)
    closest = 0.0
    for _ in range(6):
        squares = rng.dirichlet([0.5, 0.5, 0.5])[:2] * full
        squares = np.minimum(squares, 1.0) * shift**2
        values = [log_moment(np.sqrt(squares), keep, q, a) for a in (2, 3, 4.5, 6)]
        assert np.all(values <= limit)
        closest = max(closest, values[0] / limit[0])
    assert closest > 0.9


def exact_log_moment(order, probability, exponent):
    """log E[exp(exponent(l))] to 80 digits."""
    with decimal.localcontext(decimal.Context(prec=80)) as context:
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        p = decimal.Decimal(probability)
        total = sum(
            math.comb(order, l)
            * (1 - p) ** (order - l)
            * p**l
            * decimal.Decimal(exponent(l)).exp()
            for l in range(order + 1)
        )
        return float(total.ln())


@pytest.mark.parametrize("keep", [1e-6, 1e-3, 0.4, 0.99, 1 - 1e-12])
@pytest.mark.parametrize("shift_squared", [1e-12, 1e-4, 1.0, 1e6])
@pytest.mark.parametrize("order", [2, 64, 1024])
def test_keeps_full_relative_precision(keep, shift_squared, order):
    d = decimal.Decimal
    want = exact_log_moment(
        order, keep, lambda l: d(l * (l - 1)) * d(shift_squared) / 2
    )
    got = csgm.coordinate_log_moment([order], keep, shift_squared)[0]
    assert got == pytest.approx(want, rel=1e-11)


@pytest.mark.parametrize("moment", [1e-12, 1e-3, 30.0, 1e5])
def test_sampled_log_moment_keeps_full_relative_precision(moment):
    l = np.arange(257)
    moments = moment * l * (l - 1) / 2
    for order, q in ((1, 0.4), (2, 1e-6), (64, 0.01), (256, 0.5)):
        want = exact_log_moment(order, q, lambda l: decimal.Decimal(moments[l]))
        got = log_space.sampled_log_moment([order], q, moments[: order + 1])[0]
        assert got == pytest.approx(want, rel=1e-11)
    everybody = log_space.sampled_log_moment([4], 1.0, moments[:5])[0]
    assert everybody == pytest.approx(moments[4], rel=1e-11)


@pytest.mark.parametrize("q", [1.0, 0.01])
@pytest.mark.parametrize("keep", [1e-6, 0.5, 1 - 1e-12, 1.0])
def test_finite_and_silent_over_the_whole_range(keep, q):
    with np.errstate(all="raise"):
        for full in (1.5, 1e8):
            for stddev in (1e-3, 1e6):
                event = L2(stddev / keep, keep, full**-0.5, 10**9, q)
                got = event.rdp([2, 64, 1024] if keep == 1 else ORDERS)
                assert np.isfinite(got).all() and (got > 0).all()


def test_out_of_range_inputs_are_infinite_without_warnings():
    with np.errstate(all="raise"):
        event = L2(1e-200, 0.1, 0.5, 100, 0.1)
        assert np.all(event.rdp([2, 10]) == np.inf)
        event = L2(0.0, 0.1, 0.5, 100)
        assert np.all(event.rdp([2, 10.5]) == np.inf)
        event = L2(1.0, 0.1, 0.5, 100, 0.0)
        assert np.all(event.rdp([2, 10.5]) == 0)


def test_nothing_dropped_is_the_gaussian_mechanism():
    event = L2(1.3, 1.0, 0.01, MODEL)
    np.testing.assert_allclose(event.rdp(ORDERS), ORDERS / (2 * 1.3**2), rtol=1e-12)
    # The binomial sum, not the closed form, at almost 1.
    event = L2(1.3, 1 - 1e-15, 0.01, MODEL)
    whole = ORDERS[ORDERS == np.floor(ORDERS)]
    np.testing.assert_allclose(event.rdp(whole), whole / (2 * 1.3**2), rtol=1e-9)


def test_linf_event_costs_d_coordinates():
    whole = [2, 5, 32]
    linf = LINF(1.0, 0.1, 0.02, 40000)
    l2 = L2(1.0, 0.1, 0.02, 40000)
    np.testing.assert_allclose(linf.rdp(whole), 16 * l2.rdp(whole), rtol=1e-12)


@pytest.mark.parametrize(
    ("event", "same"),
    [
        # An L2 bound that cannot bind, and an L-infinity bound above it.
        (LINF(1.0, 0.1, 0.01, 2000, 0.5), L2(1.0, 0.1, 0.01, 2000, 0.5)),
        (L2(1.5, 0.1, 7.0, 5000), L2(1.5, 0.1, 1.0, 5000)),
        (STREAM(1.5, 0.1, 0.03, 5000), L2(1.5, 0.1, 0.03, 5000)),
    ],
)
def test_equivalent_events_cost_the_same(event, same):
    np.testing.assert_allclose(event.rdp(ORDERS), same.rdp(ORDERS), rtol=1e-12)


@pytest.mark.parametrize(
    ("q", "rounds", "delta", "keep", "published"),
    [
        (0.5, 60, 1e-3, 0.01, 2.206),
        (0.03, 1500, 1e-5, 0.01, 1.111),
        (0.03, 1500, 1e-5, 1.0, 1.030),
    ],
)
def test_noise_multipliers_of_training_runs(q, rounds, delta, keep, published):
    ratio = math.sqrt(2 * math.log(MODEL * 100) / MODEL)

    def make(orders):
        def run(z):
            release = L2(z, keep, ratio, MODEL, q)
            return SELF(release, rounds)

        options = {"accounting_method": "rdp", "rtol": 1e-6, "orders": orders}
        return accounting.calibrate_noise_multiplier(run, 8.0, delta, **options)

    assert make(list(range(2, 65))) == pytest.approx(published, abs=5.1e-4)
    assert make(None) <= published + 5.1e-4


@pytest.mark.parametrize("z", [0.02, 0.7, 30.0])
def test_with_nothing_dropped_sampling_never_costs(z):
    orders = [1.1, 1.9, 2, 2.5, 7.3, 64]
    for keep in (1 - 1e-12, 1.0):
        rates = 0.1, 0.9, 1 - 1e-9, 1 - 1e-14, 1.0
        rising = [L2(z, keep, 0.1, 1000, q).rdp(orders) for q in rates]
        for less, more in zip(rising, rising[1:]):
            assert np.all(less <= more * (1 + (1e-9 if keep < 1 else 0)))


def test_large_orders_are_chords_of_a_few(monkeypatch):
    """Of 10,000 orders that a sum is over a tenth is computed, and bounds the rest."""
    asked = []
    exact = csgm.l2_log_moment

    def counted(orders, *numbers):
        asked.append(len(orders))
        return exact(orders, *numbers)

    event = L2(2.0, 0.1, 0.05, 4096, 0.1)
    every = np.arange(2, 1501)
    numbers = 0.1, (0.05 / 0.2) ** 2, 400.0
    moments = np.zeros(1501)
    moments[2:] = exact(every, *numbers)
    want = log_space.sampled_log_moment([1400, 1500], 0.1, moments)
    monkeypatch.setattr(csgm, "l2_log_moment", counted)
    found = event.rdp([1400.0, 1500.0]) * [1399, 1499]
    assert np.all(found >= want * (1 - 1e-12))
    np.testing.assert_allclose(found, want, rtol=1e-3)
    low, high = event.rdp([1024.0, 10_000.0])
    assert low < high < event.rdp([10_000.5])[0] < math.inf
    assert sum(asked) < 4 * 1100
    assert event.rdp([log_space.MOST_ORDER + 1.0])[0] == math.inf
    # A Gaussian has a bound at any order.
    whole = L2(2.0, 1.0, 1.0, 1, 0.1)
    assert whole.rdp([1e9])[0] == pytest.approx(1e9 / 8)
