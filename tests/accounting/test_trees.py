# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trees of events in their normal form, with numbers of any kind."""

import math

import attr
import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event

from dpfl import accounting
from dpfl.accounting import events, trees
from tests.accounting.event_names import (
    ADD,
    COMPOSED,
    DRAWN,
    GAUSSIAN,
    L2,
    LAPLACE,
    ONE,
    POISSON,
    SELF,
    TREE,
    UNSUPPORTED,
    ZEROS,
)
from tests.refusals import refuses

REPEATED = dp_event.RepeatAndSelectDpEvent
NOTHING = dp_accounting.NoOpDpEvent()
OPEN = dp_accounting.NonPrivateDpEvent()
MOST = events.LARGEST_NOISE_MULTIPLIER
INF = math.inf


def epsilon(event, relation=None, **more):
    return accounting.epsilon(event, 1e-5, relation=relation, **more).epsilon


def by_rdp(event, relation=ADD, orders=None):
    book = accounting.DpflAccountant(orders, relation)
    return book.compose(event).get_epsilon(1e-5)


@pytest.mark.parametrize(
    ("tree", "same"),
    [
        (COMPOSED([GAUSSIAN(3), GAUSSIAN(4)]), GAUSSIAN(12 / 5)),
        (COMPOSED([COMPOSED([GAUSSIAN(3), NOTHING]), GAUSSIAN(4)]), GAUSSIAN(12 / 5)),
        (SELF(COMPOSED([SELF(GAUSSIAN(6), 2), NOTHING]), 2), GAUSSIAN(3)),
        (COMPOSED([SELF(GAUSSIAN(6), 4)]), GAUSSIAN(3)),
        (COMPOSED([GAUSSIAN(3), SELF(GAUSSIAN(1), 0)]), GAUSSIAN(3)),
        (COMPOSED([L2(3, 1, 1, 1), GAUSSIAN(4)]), GAUSSIAN(12 / 5)),
        (COMPOSED([L2(3, 0.1, 0.1, 64)]), L2(3, 0.1, 0.1, 64)),
        (POISSON(0.5, GAUSSIAN(3)), POISSON(0.5, GAUSSIAN(3))),
        (COMPOSED([GAUSSIAN(3), OPEN]), OPEN),
        (COMPOSED([NOTHING, SELF(OPEN, 3)]), GAUSSIAN(0)),
    ],
)
def test_sampled_gaussian_trees_cost_as_one_release(tree, same):
    found, want = epsilon(POISSON(0.2, tree)), epsilon(POISSON(0.2, same))
    assert found == pytest.approx(want, rel=1e-9)
    assert trees.relations_of(POISSON(0.2, tree)) == (ADD, ZEROS)
    if ONE in trees.relations_of(tree):
        run = accounting.RunDpEvent(tree, (ADD, ONE))
        found = [epsilon(DRAWN(9, 3, event), ONE) for event in (tree, run, same)]
        assert found == pytest.approx([found[-1]] * 3, rel=1e-9)


def test_order_infinity_of_repeat_and_select():
    for inside in (GAUSSIAN(1), L2(1.0, 0.5, 0.5, 8), POISSON(0.1, GAUSSIAN(1))):
        selected = REPEATED(inside, 2, 1)
        assert by_rdp(selected, orders=[INF]) == INF


@pytest.mark.skipif(
    not hasattr(dp_event, "RandomizedResponseDpEvent"), reason="it came with 0.5"
)
def test_randomized_response_at_any_order():
    event = dp_event.RandomizedResponseDpEvent(np.float32(0.5), np.int8(2))
    assert by_rdp(event, ONE, orders=[1.0, INF]) == pytest.approx(math.log(3))
    ledger = accounting.DpflAccountant([2.0, INF], ONE).compose(event)
    assert ledger.get_epsilon(0.0) == pytest.approx(math.log(3))
    assert ledger.get_delta(1.1) == 0 < ledger.get_delta(1.0)
    for wrong in (2.5, INF, 0, True):
        with refuses((TypeError, ValueError), "num_buckets", wrong):
            epsilon(dp_event.RandomizedResponseDpEvent(0.5, wrong), ONE)


def test_samples_of_samples_are_samples():
    twice = POISSON(0.5, SELF(POISSON(0.2, GAUSSIAN(1)), 1))
    assert epsilon(twice) == pytest.approx(epsilon(POISSON(0.1, GAUSSIAN(1.0))))
    assert epsilon(POISSON(0.5, NOTHING)) == 0


@pytest.mark.parametrize(
    "inside",
    [
        # Which of the two comes first may say what the second one sees.
        COMPOSED([L2(1.0, 0.1, 0.1, 64), GAUSSIAN(1.0)]),
        SELF(L2(1.0, 0.1, 0.1, 64), 2),
        SELF(POISSON(0.1, GAUSSIAN(1.0)), 2),
        COMPOSED([GAUSSIAN(1.0), LAPLACE(1.0)]),
        accounting.MatrixFactorizationDpEvent(1.0),
        accounting.SparsifiedMatrixFactorizationDpEvent(2.0, 0.1, 0.05, 4096),
    ],
)
@pytest.mark.parametrize(
    "sample", [lambda e: POISSON(0.1, e), lambda e: DRAWN(9, 3, e)]
)
def test_unproven_samples_are_refused(inside, sample):
    for relation in (ADD, ZEROS, ONE, None):
        with pytest.raises(UNSUPPORTED):
            epsilon(sample(inside), relation)


BAD_NOISE = [math.nan, -1.0, -1, INF, -INF, np.float32("nan"), 1j, "1", None, True]


@pytest.mark.parametrize("noise", BAD_NOISE)
@pytest.mark.parametrize(
    "around",
    [
        lambda e: e,
        lambda e: SELF(COMPOSED([GAUSSIAN(1.0), SELF(e, 2)]), 3),
        lambda e: POISSON(0.1, e),
        lambda e: POISSON(0.1, COMPOSED([GAUSSIAN(1.0), e])),
        lambda e: DRAWN(10, 1, SELF(e, 2)),
        lambda e: REPEATED(e, 2, 1),
        lambda e: accounting.RunDpEvent(e, (ADD, ZEROS)),
    ],
)
@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_bad_noise_multipliers_are_refused_at_any_depth(noise, around, kind):
    event = around(kind(noise))
    calls = (
        lambda: accounting.DpflAccountant().compose(event),
        lambda: accounting.epsilon(event, 1e-5),
        lambda: accounting.relations_of(event),
        lambda: accounting.loss_distribution(event, 1e-5),
        lambda: accounting.calibrate_noise_multiplier(lambda _: event, 1.0, 1e-5),
    )
    for call in calls:
        with refuses((TypeError, ValueError), "noise_multiplier", noise):
            call()


@pytest.mark.parametrize(
    ("name", "value", "event"),
    [
        ("count", -1, SELF(GAUSSIAN(1.0), -1)),
        ("count", 1.5, SELF(GAUSSIAN(1.0), 1.5)),
        pytest.param("count", 10**400, SELF(GAUSSIAN(1.0), 10**400), id="huge"),
        ("sampling_probability", math.nan, POISSON(math.nan, GAUSSIAN(1.0))),
        ("sampling_probability", -0.1, POISSON(-0.1, GAUSSIAN(1.0))),
        ("sampling_probability", 1.1, POISSON(1.1, GAUSSIAN(1.0))),
        ("noise_multiplier", -1, TREE(-1, [3])),
        ("step_counts", -3, TREE(1.0, [-3])),
        ("sampling_probability", "'0.1'", POISSON("0.1", GAUSSIAN(1.0))),
        ("sample_size", 11, DRAWN(10, 11, GAUSSIAN(1.0))),
        ("sample_size", 0.5, DRAWN(10, 0.5, GAUSSIAN(1.0))),
        ("source_dataset_size", 0, DRAWN(0, 0, GAUSSIAN(1.0))),
        ("events", GAUSSIAN(1.0), COMPOSED(GAUSSIAN(1.0))),
        ("event", None, COMPOSED([GAUSSIAN(1.0), None])),
        ("event", 1.0, SELF(1.0, 2)),
        ("event", [GAUSSIAN(1.0)], POISSON(0.1, [GAUSSIAN(1.0)])),
        ("mean", math.nan, REPEATED(GAUSSIAN(1.0), math.nan, 1)),
        ("shape", -1, REPEATED(GAUSSIAN(1.0), 2, -1)),
        ("shape", "'1'", REPEATED(GAUSSIAN(1.0), 2, "1")),
        ("mean", INF, REPEATED(GAUSSIAN(1.0), INF, 1)),
        ("mean", 0.5, REPEATED(GAUSSIAN(1.0), 0.5, 1)),
        ("mean", None, REPEATED(GAUSSIAN(1.0), None, 1)),
        ("step_counts", [], TREE(1.0, [])),
        ("step_counts", 0, TREE(1.0, 0)),
        ("step_counts", 7.5, TREE(1.0, 7.5)),
        ("step_counts", math.nan, TREE(1.0, [3, math.nan])),
        ("step_counts", 3.0, TREE(1.0, np.array([3.0, 2.0]))),
        ("step_counts", "list_iterator", TREE(1.0, iter([3]))),
    ],
)
def test_other_bad_fields_are_refused_at_any_depth(name, value, event):
    for tree in (event, COMPOSED([SELF(event, 2)])):
        with refuses((TypeError, ValueError), name, value):
            accounting.DpflAccountant().compose(tree)
        with refuses((TypeError, ValueError), name, value):
            accounting.epsilon(tree, 1e-5)


@pytest.mark.parametrize("noise", [0, 0.0, 1e-200, np.float32(0)])
@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_no_noise_is_no_privacy(noise, kind):
    event = kind(noise)
    for tree in (event, COMPOSED([GAUSSIAN(1.0), SELF(event, 2)])):
        assert epsilon(tree) == by_rdp(tree) == INF
    if kind is GAUSSIAN:
        for tree in (event, COMPOSED([GAUSSIAN(1.0), SELF(event, 2)])):
            assert epsilon(POISSON(0.1, tree)) == by_rdp(POISSON(0.1, tree)) == INF
            assert epsilon(DRAWN(9, 3, tree), ONE) == INF


@pytest.mark.parametrize("noise", [1e6, 1e7, 1e9, MOST, 1e50, 1e160, 1e300])
def test_much_noise_costs_little_and_is_never_negative(noise):
    sampled = POISSON(0.5, SELF(GAUSSIAN(noise), 2))
    drawn = DRAWN(10, 5, SELF(GAUSSIAN(noise), 2))
    orders = np.array(accounting.DEFAULT_ORDERS)
    counted = min(noise, MOST)
    for event, relation in ((sampled, ADD), (drawn, ONE)):
        for tree in (event, SELF(event, 7)):
            rdp = accounting.DpflAccountant(orders, relation).compose(tree).rdp
            # With a share of 1/2 at least an eighth of what it is without.
            least = orders / counted**2 / 8 * (1 - 1e-9)
            assert np.all(rdp > least) and np.all(rdp < 8 * 7 * orders / counted**2)
            assert 0 <= epsilon(tree, relation) < 1e-2
    seldom = SELF(POISSON(1e-6, GAUSSIAN(noise)), 1000)
    assert 0 <= epsilon(seldom, accounting_method="tight") <= 1e-6
    plain = accounting.DpflAccountant(orders).compose(GAUSSIAN(noise)).rdp
    np.testing.assert_allclose(plain, orders / 2 / counted**2, rtol=1e-12)


def test_numbers_of_event_subclasses_are_checked():
    @attr.s(frozen=True, auto_attribs=True)
    class Own(GAUSSIAN):
        name: str = "own"

    with refuses(ValueError, "noise_multiplier", -1.0):
        epsilon(Own(-1.0))
    assert by_rdp(Own(2)) == by_rdp(GAUSSIAN(2.0))


def test_overflowing_counts_cost_infinity():
    event = GAUSSIAN(1.0)
    for _ in range(30):
        event = SELF(event, trees.MOST_RELEASES)
    assert by_rdp(event) == INF or by_rdp(event) > 1e290
    assert epsilon(POISSON(0.1, event)) == INF


@pytest.mark.parametrize("worse", [2000.5, 1e6, 1e9, 1e300, INF, 1.0])
def test_orders_without_a_value_are_never_optimal(worse):
    # dp_accounting 0.4.3 has NaN at order 2000.5, and 0 for what it makes of it.
    for inside in (SELF(GAUSSIAN(0.3), 2), GAUSSIAN(0.2)):
        for event, relation in (
            (POISSON(0.5, inside), ADD),
            (DRAWN(4, 2, inside), ONE),
        ):
            alone = by_rdp(event, relation, [2.0])
            assert alone > 10
            both = by_rdp(event, relation, [2.0, worse])
            assert both == pytest.approx(alone) or both < alone and worse == 2000.5
            book = accounting.DpflAccountant([2.0, worse], relation).compose(event)
            assert not np.isnan(book.rdp).any() and (book.rdp >= 0).all()
            assert book.get_delta(1.0) > 1e-5


def test_samples_of_equal_releases_keep_their_relations():
    both = accounting.RunDpEvent(GAUSSIAN(1), (ADD, ZEROS))
    zeros = accounting.RunDpEvent(GAUSSIAN(1), (ZEROS,))
    one = accounting.RunDpEvent(GAUSSIAN(1), (ONE,))
    sampled = POISSON(0.1, COMPOSED([both, SELF(both, 1)]))
    assert trees.relations_of(sampled) == (ADD, ZEROS)
    assert epsilon(sampled) == epsilon(POISSON(0.1, SELF(GAUSSIAN(1), 2)))
    assert not accounting.DpflAccountant(None, ONE).supports(sampled)
    for event in (POISSON(0.1, COMPOSED([both, zeros])), DRAWN(9, 3, both)):
        assert trees.relations_of(event) == ()
        for relation in (ADD, ZEROS, ONE):
            assert not accounting.DpflAccountant(None, relation).supports(event)
    assert trees.relations_of(DRAWN(9, 3, one)) == (ONE,)
    assert trees.relations_of(DRAWN(9, 3, GAUSSIAN(1))) == (ONE,)
