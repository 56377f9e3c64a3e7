# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.factorization import FixedEpochs, MinSeparation, OneParticipation, sensitivity


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


shapes = st.tuples(
    st.integers(1, 7), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99)
)


def over_shapes(test):
    return settings(derandomize=True, max_examples=80, deadline=None)(
        given(shapes)(test)
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


@over_shapes
def test_min_separation_of_any_encoder_is_bounded(shape):
    rounds, separation, limit, seed = shape
    encoder = np.random.default_rng(seed).normal(size=(rounds, rounds))
    truth = brute_force(encoder, separated(rounds, separation, limit))
    found = MinSeparation(separation, limit).sensitivity(encoder)
    assert found.value >= truth * (1 - 1e-12)
    if found.exact:
        assert found.value == pytest.approx(truth)


@over_shapes
def test_min_separation_of_a_banded_encoder_is_exact(shape):
    rounds, separation, limit, seed = shape
    encoder = np.random.default_rng(seed).normal(size=(rounds, rounds))
    encoder = np.tril(encoder) - np.tril(encoder, -separation)
    found = MinSeparation(separation, limit).sensitivity(encoder)
    assert found.exact
    truth = brute_force(encoder, separated(rounds, separation, limit))
    assert found.value == pytest.approx(truth)


@over_shapes
def test_min_separation_of_a_falling_toeplitz_encoder_is_exact(shape):
    rounds, separation, limit, seed = shape
    drops = np.random.default_rng(seed).exponential(size=rounds)
    column = np.cumsum(drops)[::-1]
    encoder = np.tril(column[np.abs(np.subtract.outer(*[np.arange(rounds)] * 2))])
    truth = brute_force(encoder, separated(rounds, separation, limit))
    found = MinSeparation(separation, limit).sensitivity(encoder)
    assert found.exact and found.value == pytest.approx(truth)
    closed = sensitivity.toeplitz_min_separation(column, separation, limit)
    assert closed == pytest.approx(truth)


def test_by_hand():
    encoder = np.array([[3.0, 0.0], [4.0, 2.0]])
    assert OneParticipation().sensitivity(encoder).value == pytest.approx(5)
    # Both rounds: columns add to (3, 6).
    found = MinSeparation(1).sensitivity(encoder)
    assert found.value == pytest.approx(np.sqrt(45))
    assert FixedEpochs(2, 1).sensitivity(encoder).value == pytest.approx(np.sqrt(45))
    assert MinSeparation(2).sensitivity(encoder).value == pytest.approx(5)


def test_signs_matter_and_the_result_says_so():
    encoder = np.array([[1.0, -1.0], [0.0, 1.0]])
    found = FixedEpochs(2, 1).sensitivity(encoder)
    # A client that flips its second update moves the output by (2, -1).
    assert found.value == pytest.approx(np.sqrt(5)) and not found.exact


def test_heaviest_set_by_hand():
    weights = np.array([5.0, 6.0, 5.0, 1.0, 4.0])
    assert sensitivity.heaviest_set(weights, 2) == pytest.approx(14)
    assert sensitivity.heaviest_set(weights, 2, 2) == pytest.approx(10)
    assert sensitivity.heaviest_set(weights, 3) == pytest.approx(10)
    assert sensitivity.heaviest_set(-weights, 2) == 0


@pytest.mark.parametrize("column", [[1.0, 2.0], [1.0, -0.5]])
def test_closed_form_refuses_rising_or_negative_coefficients(column):
    with pytest.raises(ValueError, match="must not be negative and must not rise"):
        sensitivity.toeplitz_min_separation(np.array(column), 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedEpochs(0, 1),
        lambda: FixedEpochs(1, 0),
        lambda: MinSeparation(0),
        lambda: MinSeparation(1, 0),
    ],
)
def test_bad_plans(make):
    with pytest.raises(ValueError, match="must be at least 1, found 0"):
        make()
