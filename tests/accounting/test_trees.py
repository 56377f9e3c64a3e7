# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trees of events in their normal form, with numbers of any kind."""

import fractions
import functools
import math
import random
from collections import Counter

import attr
import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from scipy import optimize, special

from dpfl import accounting
from dpfl.accounting import events, trees
from tests.refusals import refuses

GAUSSIAN = dp_accounting.GaussianDpEvent
LAPLACE = dp_accounting.LaplaceDpEvent
SELF = dp_accounting.SelfComposedDpEvent
COMPOSED = dp_accounting.ComposedDpEvent
POISSON = dp_accounting.PoissonSampledDpEvent
DRAWN = dp_accounting.SampledWithoutReplacementDpEvent
TREE = dp_accounting.SingleEpochTreeAggregationDpEvent
REPEATED = dp_event.RepeatAndSelectDpEvent
NOTHING = dp_accounting.NoOpDpEvent()
OPEN = dp_accounting.NonPrivateDpEvent()
ADD, ZEROS, ONE = (
    accounting.Relation.ADD_OR_REMOVE_ONE,
    accounting.Relation.REPLACE_SPECIAL,
    accounting.Relation.REPLACE_ONE,
)
L2 = accounting.SparsifiedGaussianDpEvent
MOST = events.LARGEST_NOISE_MULTIPLIER
INF = math.inf


def epsilon(event, relation=None, **more):
    return accounting.epsilon(event, 1e-5, relation=relation, **more).epsilon


def by_rdp(event, relation=ADD, orders=None):
    book = accounting.DpflAccountant(orders, relation)
    return book.compose(event).get_epsilon(1e-5)


@pytest.mark.parametrize("number", [int, float, np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("sequence", [list, tuple])
@pytest.mark.parametrize(("count", "truth"), [(2, 4.070), (100, 88.6)])
def test_releases_of_one_sample(number, sequence, count, truth):
    # dp_accounting 0.4.3 to 0.6 takes an integer for an event: 2.133, of any count.
    one = GAUSSIAN(number(1))
    for inside in (COMPOSED(sequence([one] * count)), SELF(one, number(count))):
        if number in (float, np.float32) and not isinstance(inside, COMPOSED):
            continue
        assert by_rdp(POISSON(0.1, inside)) == pytest.approx(truth, rel=1e-3)
        plain = POISSON(0.1, GAUSSIAN(count**-0.5))
        assert epsilon(POISSON(0.1, inside)) == pytest.approx(epsilon(plain), rel=1e-9)
        drawn = DRAWN(number(100), number(10), inside)
        if number not in (float, np.float32):
            plain = DRAWN(100, 10, GAUSSIAN(count**-0.5))
            want = epsilon(plain, ONE)
            assert epsilon(drawn, ONE) == pytest.approx(want, rel=1e-9)


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


def test_tree_step_counts_of_any_integer_type():
    want = epsilon(TREE(1.0, [127, 255, 3]))
    for steps in (
        (127, np.uint8(255), 3),
        np.array([127, 255, 3], np.uint8),
        [np.int8(127), np.int64(255)],
        np.uint8(255),
        np.array(255),
    ):
        assert epsilon(TREE(1, steps)) == want


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
        with pytest.raises(dp_accounting.UnsupportedEventError):
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


def test_numpy_numbers_equal_python_numbers():
    event = COMPOSED(
        [
            SELF(GAUSSIAN(np.float64(2)), np.uint8(200)),
            POISSON(fractions.Fraction(1, 4), GAUSSIAN(np.int16(3))),
            LAPLACE(np.int8(5)),
        ]
    )
    same = COMPOSED(
        [SELF(GAUSSIAN(2.0), 200), POISSON(0.25, GAUSSIAN(3.0)), LAPLACE(5.0)]
    )
    for count in (np.uint8(200), 200):
        found = accounting.DpflAccountant([2.0, 8.0]).compose(event, count).rdp
        want = accounting.DpflAccountant([2.0, 8.0]).compose(same, 200).rdp
        np.testing.assert_array_equal(found, want)
    [first, second, third] = trees.normalised(event).events
    assert type(first.count) is int
    numbers = (first.event.noise_multiplier, second.sampling_probability)
    for number in (*numbers, second.event.noise_multiplier, third.noise_multiplier):
        assert type(number) is float


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


# Releases are (share, shift): (1 - share) N(0, 1) + share N(shift, 1) against N(0, 1).
# What a few hundred trees cost is integrated numerically, without a formula that dpfl or
# dp_accounting has.
ORDERS = (1.5, 2.0, 3.25, 8.0, 32.0)
NOISES = (1, 2, 3, 5, 0.7, 1.5, 2.25, 40)
KINDS = (int, float, np.float64, np.int64, np.uint8, fractions.Fraction)


def number(rng, value):
    """The value as a number of some kind that has it."""
    return rng.choice([kind for kind in KINDS if kind(value) == value])(value)


def whole(rng, value):
    return rng.choice([int, np.int64, np.uint8])(value)


def gaussians(rng, depth):
    """A tree of Gaussians alone, and the sum of their squared shifts."""
    z = rng.choice(NOISES)
    kind = rng.randrange(5) if depth else rng.randrange(2)
    if kind == 0:
        return GAUSSIAN(number(rng, z)), z**-2
    if kind == 1:
        return L2(number(rng, z), 1, 1.0, 1), z**-2
    if kind == 2:
        inside, square = gaussians(rng, depth - 1)
        return SELF(inside, whole(rng, kind)), 2 * square
    if kind == 3:
        inside, square = gaussians(rng, depth - 1)
        return accounting.RunDpEvent(inside, (ADD, ZEROS)), square
    parts = [gaussians(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    events_of_parts = rng.choice([list, tuple])(event for event, _ in parts)
    return COMPOSED(events_of_parts), sum(square for _, square in parts)


def tree(rng, depth):
    """A tree for adding and removing, and how often each release is in it."""
    kind = rng.randrange(6) if depth else rng.randrange(4)
    share = rng.choice([0.01, 0.25, 0.5])
    if kind < 2:
        inside, square = gaussians(rng, 2)
        return POISSON(number(rng, share), inside), Counter({(share, square**0.5): 1})
    if kind == 2:
        inside, square = gaussians(rng, 1)
        return inside, Counter({(1.0, square**0.5): 1})
    if kind == 3:
        # One coordinate that is kept at random, of clients that join at random.
        z, keep = rng.choice(NOISES), rng.choice([0.25, 0.5])
        masked = L2(number(rng, z), keep, 1, 1, 0.5)
        shift = 1 / (z * keep)
        return POISSON(number(rng, share), masked), Counter(
            {(share * keep / 2, shift): 1}
        )
    if kind == 4:
        inside, found = tree(rng, depth - 1)
        count = rng.randrange(1, 4)
        return SELF(inside, whole(rng, count)), Counter(
            {r: n * count for r, n in found.items()}
        )
    parts = [tree(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    total = sum((found for _, found in parts), Counter())
    return COMPOSED([event for event, _ in parts] + [NOTHING]), total


def log_mixture(x, weights_and_means):
    logs = [math.log(w) - (x - m) ** 2 / 2 for w, m in weights_and_means if w]
    return np.logaddexp.reduce(logs) - 0.5 * math.log(2 * math.pi)


@functools.cache
def moments(first, second):
    """log E_second (first / second)^order, by equal steps."""
    means = [m for _, m in (*first, *second)]
    far = ORDERS[-1] * (max(means) - min(means)) + 14
    x = np.arange(min(means) - far, max(means) + far, 0.02)
    p, q = (log_mixture(x, law) for law in (first, second))
    logs = [order * p + (1 - order) * q for order in ORDERS]
    return np.array([np.logaddexp.reduce(log) + math.log(0.02) for log in logs])


def pair(share, shift):
    return ((1 - share, 0.0), (share, shift)), ((1.0, 0.0),)


def exact_rdp(releases, make=pair):
    """The larger one of both directions, of all releases together."""
    both = np.zeros((2, len(ORDERS)))
    for release, count in releases.items():
        laws = make(*release)
        both += count * np.array([moments(*laws), moments(*laws[::-1])])
    return both.max(axis=0) / (np.array(ORDERS) - 1)


@pytest.mark.parametrize("seed", range(100))
def test_trees_against_integration(seed):
    event, releases = tree(random.Random(seed), 2)
    exact = exact_rdp(releases)
    found = accounting.DpflAccountant(ORDERS).compose(event).rdp
    assert np.all(found >= exact * (1 - 1e-9) - 1e-12)
    is_whole = np.array(ORDERS) % 1 == 0
    if "keep_fraction=0" not in repr(event):
        is_whole[:] = True
    # Between whole orders chords bound what is masked.
    np.testing.assert_allclose(found[is_whole], exact[is_whole], rtol=1e-7, atol=1e-11)
    assert np.all(np.diff(found) >= 0)


def least_epsilon(releases, delta, step=2e-3, size=2**16):
    """The epsilon of both directions with losses rounded down, by one product."""
    epsilons = []
    for sign in (1, -1):
        spectrum = np.ones(size // 2 + 1, complex)
        for (share, shift), count in releases.items():
            x = np.linspace(-13, shift + 13, 60_001)
            law, other = pair(share, shift)
            loss = sign * (log_mixture(x, law) - log_mixture(x, other))
            own = law if sign == 1 else other
            masses = sum(w * np.diff(special.ndtr(x - m)) for w, m in own)
            places = np.floor(np.minimum(loss[1:], loss[:-1]) / step).astype(int)
            sides = np.bincount(places % size, masses, size)
            spectrum *= np.fft.rfft(sides) ** count
        masses = np.fft.irfft(spectrum, size)
        losses = step * np.roll(np.arange(-size // 2, size // 2), size // 2)
        order = np.argsort(losses)
        masses, losses = masses[order], losses[order]

        def delta_at(epsilon, masses=masses, losses=losses):
            above = losses > epsilon
            return masses[above] @ -np.expm1(epsilon - losses[above])

        epsilons.append(optimize.brentq(lambda e: delta_at(e) - delta, -1, 60))
    return max(0.0, *epsilons)


@pytest.mark.parametrize("seed", range(1030, 1070))
def test_epsilons_of_trees_against_integration(seed):
    event, releases = tree(random.Random(seed), 1)
    if sum(n * shift * shift for (_, shift), n in releases.items()) > 30:
        pytest.skip("losses are longer than the oracle's")
    least = least_epsilon(releases, 1e-5)
    auto, rdp = (
        accounting.epsilon(event, 1e-5, accounting_method=m) for m in ("auto", "rdp")
    )
    assert least - 1e-9 <= auto.epsilon <= rdp.epsilon
    if auto.accounting_method in ("pld", "exact-gaussian"):
        assert auto.epsilon <= 1.01 * least + 0.002 * sum(releases.values()) + 1e-3


def drawn_tree(rng, depth):
    """A tree for replacing one, and how often each release is in it."""
    share, z = rng.choice([0.01, 0.25, 0.5, 1.0]), rng.choice(NOISES)
    kind = rng.randrange(4) if depth else rng.randrange(2)
    if kind < 2:
        inside = [GAUSSIAN(number(rng, z)), SELF(GAUSSIAN(number(rng, 2 * z)), 4)][kind]
        inside = rng.choice(
            [inside, COMPOSED([inside]), accounting.RunDpEvent(inside, [ONE])]
        )
        size = rng.choice([int, np.int64])(100 * share)
        return DRAWN(whole(rng, 100), size, inside), Counter({(share, 1 / z): 1})
    if kind == 2:
        inside, found = drawn_tree(rng, depth - 1)
        return SELF(inside, whole(rng, 3)), Counter(
            {r: 3 * n for r, n in found.items()}
        )
    parts = [drawn_tree(rng, depth - 1) for _ in range(3)]
    return COMPOSED([event for event, _ in parts]), sum(
        (f for _, f in parts), Counter()
    )


def swapped(share, shift):
    """Of two clients in opposite directions, none of the others sending anything."""
    return tuple(((1 - share, 0.0), (share, side * shift / 2)) for side in (1, -1))


@pytest.mark.parametrize("seed", range(40))
def test_drawn_trees_against_integration(seed):
    event, releases = drawn_tree(random.Random(seed), 2)
    found = accounting.DpflAccountant(ORDERS, ONE).compose(event).rdp
    for make in (pair, swapped):
        assert np.all(found >= exact_rdp(releases, make) * (1 - 1e-9) - 1e-12)
    everybody = Counter()
    for (_, shift), count in releases.items():
        everybody[1.0, shift] += count
    assert np.all(found <= exact_rdp(everybody) * (1 + 1e-9))
    assert accounting.epsilon(event, 1e-5).relation == "replace_one"
