# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.factorization import (
    FixedEpochs,
    MinSeparation,
    ShuffledEpochs,
    sensitivity,
)
from tests.refusals import refuses


def brute_force(encoder, patterns):
    """Largest ||sum_{i in pi} s_i C[:, i]|| over patterns pi and signs s."""
    best = 0.0
    for pattern in patterns:
        for signs in itertools.product([1, -1], repeat=len(pattern)):
            moved = encoder[:, list(pattern)] @ np.array(signs, dtype=float)
            best = max(best, float(np.linalg.norm(moved)))
    return best


def separated(rounds, separation, limit):
    steps = range(rounds)
    for size in range(1, (limit or rounds) + 1):
        for pattern in itertools.combinations(steps, size):
            if all(b - a >= separation for a, b in zip(pattern, pattern[1:])):
                yield pattern


def epochs(rounds, count, separation):
    # A client may stay away for an epoch: subsets count too.
    for first in range(rounds):
        whole = list(range(first, rounds, separation))[:count]
        for size in range(1, len(whole) + 1):
            yield from itertools.combinations(whole, size)


def shuffled(rounds, length, window):
    # One round of each epoch or none, all of them in one window.
    for first in range(0, length, window):
        places = range(first, min(first + window, length))
        each = [
            [(), *((begun + place,) for place in places if begun + place < rounds)]
            for begun in range(0, rounds, length)
        ]
        for chosen in itertools.product(*each):
            yield sum(chosen, ())


shapes = st.tuples(
    st.integers(1, 7), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99)
)


def over_shapes(test):
    return settings(derandomize=True, max_examples=80, deadline=None)(
        given(shape=shapes)(test)
    )


@over_shapes
def test_fixed_epochs_against_every_pattern(shape):
    rounds, separation, count, seed = shape
    encoder = np.random.default_rng(seed).normal(size=(rounds, rounds))
    truth = brute_force(np.abs(encoder), epochs(rounds, count, separation))
    found = FixedEpochs(count, separation).sensitivity(np.abs(encoder))
    assert found.exact and found.value == pytest.approx(truth)
    truth = brute_force(encoder, epochs(rounds, count, separation))
    found = FixedEpochs(count, separation).sensitivity(encoder)
    assert found.value >= truth * (1 - 1e-12)


@pytest.mark.parametrize(
    ("length", "window"),
    [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (4, 3), (4, 4), (9, 2)],
)
def test_shuffled_epochs_against_every_pattern(length, window):
    patterns = list(shuffled(7, length, window))
    for seed in range(10):
        encoder = np.random.default_rng(seed).normal(size=(9, 7))
        found = ShuffledEpochs(length, window).sensitivity(encoder)
        assert found.value >= brute_force(encoder, patterns)
        found = ShuffledEpochs(length, window).sensitivity(np.abs(encoder))
        truth = brute_force(np.abs(encoder), patterns)
        assert truth <= found.value <= 1.01 * truth
        assert found.exact == (window == 1 or length == 9)
        assert not found.exact or found.value == pytest.approx(truth)
        if window == length:
            assert ShuffledEpochs(length).sensitivity(np.abs(encoder)) == found


def test_shuffled_epochs_bound_arbitrary_messages():
    generator = np.random.default_rng(0)
    for _ in range(50):
        half = generator.exponential(size=(9, 9))
        gram = (half + half.T).reshape(3, 3, 3, 3)
        messages = generator.normal(size=(3, 3, 3))
        messages[np.arange(3), np.arange(3)] = 0
        own = np.einsum("aiai->ai", gram)
        bound = sensitivity._bound_by_messages(gram, own, messages)
        sums = [
            sum(gram[a, pi[a], b, pi[b]] for a in range(3) for b in range(3))
            for pi in itertools.product(range(3), repeat=3)
        ]
        assert bound >= max(sums)
        assert max(sums) <= sensitivity.one_per_epoch_bound(gram) <= bound


def any_encoder(generator, rounds, separation):
    return generator.normal(size=(rounds, rounds))


def banded_encoder(generator, rounds, separation):
    encoder = generator.normal(size=(rounds, rounds))
    return np.tril(encoder) - np.tril(encoder, -separation)


def falling_toeplitz_encoder(generator, rounds, separation):
    column = np.cumsum(generator.exponential(size=rounds))[::-1]
    return np.tril(column[np.abs(np.subtract.outer(*[np.arange(rounds)] * 2))])


@pytest.mark.parametrize(
    ("make_encoder", "is_exact"),
    [(any_encoder, False), (banded_encoder, True), (falling_toeplitz_encoder, True)],
)
@over_shapes
def test_min_separation_against_every_pattern(make_encoder, is_exact, shape):
    rounds, separation, limit, seed = shape
    encoder = make_encoder(np.random.default_rng(seed), rounds, separation)
    truth = brute_force(encoder, separated(rounds, separation, limit))
    found = MinSeparation(separation, limit).sensitivity(encoder)
    assert found.value >= truth * (1 - 1e-12)
    assert found.exact or not is_exact
    if found.exact:
        assert found.value == pytest.approx(truth)
    if make_encoder is falling_toeplitz_encoder:
        column = encoder[:, 0]
        closed = sensitivity.toeplitz_min_separation(column, separation, limit)
        assert closed == pytest.approx(truth)


def test_sign_dependence_is_reported():
    encoder = np.array([[1.0, -1.0], [0.0, 1.0]])
    found = FixedEpochs(2, 1).sensitivity(encoder)
    # A client that flips its second update moves the output by (2, -1).
    assert found.value == pytest.approx(np.sqrt(5)) and not found.exact


@pytest.mark.parametrize(
    ("plan", "sizes", "name"),
    [
        *[(FixedEpochs, (0, 1), "epochs"), (FixedEpochs, (1, 0), "separation")],
        *[(ShuffledEpochs, (0,), "length"), (ShuffledEpochs, (2, 0), "window")],
        *[(MinSeparation, (0,), "separation"), (MinSeparation, (1, 0), "limit")],
    ],
)
def test_bad_plans_are_refused(plan, sizes, name):
    with refuses(ValueError, name, 0):
        plan(*sizes)
