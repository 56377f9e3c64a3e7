# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.factorization import tree
from dpfl.factorization.workloads import Workload


def encoder(rounds):
    return tree.tree_encoder(tree.intervals(rounds), rounds)


def test_encoder_is_the_recursive_construction():
    expected = np.ones((1, 1))
    for _ in range(4):
        rows, size = expected.shape
        zero = np.zeros((rows, size))
        expected = np.block([[expected, zero], [zero, expected]])
        expected = np.vstack([expected, np.ones((1, 2 * size))])
        np.testing.assert_array_equal(encoder(2 * size), expected)


@pytest.mark.parametrize(
    ("rounds", "loss"),
    [(8, 21.942857), (32, 158.653149), (64, 405.718240), (256, 2463.712279)],
)
def test_honaker_full_meets_known_losses(rounds, loss):
    found = tree.honaker_full(Workload(rounds))
    assert found.loss == pytest.approx(loss, rel=1e-7)


def test_online_variances_by_hand():
    # Rounds 1, 2, 3, 4: one leaf; a pair (2/3); a pair and a leaf; a height 2 (4/7).
    rows = np.sum(tree.online_decoder(4) ** 2, axis=1)
    np.testing.assert_allclose(rows, [1, 2 / 3, 5 / 3, 4 / 7])
    # A column of C is sqrt(3) long, and what is released of the first one sqrt(19/7).
    loss = tree.honaker_online(Workload(4)).loss
    assert loss == pytest.approx(19 / 7 * np.sum(rows))


@settings(derandomize=True, max_examples=20, deadline=None)
@given(st.integers(1, 33))
def test_full_is_the_pseudo_inverse(rounds):
    nodes = encoder(rounds)
    expected = np.tri(rounds) @ np.linalg.pinv(nodes)
    np.testing.assert_allclose(tree.full_decoder(rounds), expected, atol=1e-10)


@settings(derandomize=True, max_examples=20, deadline=None)
@given(st.integers(1, 33))
def test_online_is_the_least_norm_solution_on_complete_nodes(rounds):
    nodes = encoder(rounds)
    complete = np.array([np.flatnonzero(row)[-1] for row in nodes])
    found = tree.honaker_online(Workload(rounds))
    first, height = found.factors.nodes.T
    np.testing.assert_array_equal(first + (1 << height) - 1, complete)
    np.testing.assert_array_equal(found.encoder(), nodes)
    for step, row in enumerate(found.decoder()):
        ready = complete <= step
        target = (np.arange(rounds) <= step).astype(float)
        expected = np.zeros(len(nodes))
        expected[ready] = np.linalg.pinv(nodes[ready].T) @ target
        np.testing.assert_allclose(row, expected, atol=1e-10)


def test_full_sensitivity_is_the_depth_and_bounds_online():
    for rounds in (7, 16, 40):
        full = tree.honaker_full(Workload(rounds))
        online = tree.honaker_online(Workload(rounds))
        norms = [
            found.factors.row_norms_squared(found.workload) for found in (full, online)
        ]
        assert np.all(norms[0] <= norms[1] * (1 + 1e-12))
        depth = int(np.log2(rounds)) + 1
        assert full.sensitivity().value == pytest.approx(np.sqrt(depth))
        assert online.sensitivity().value <= np.sqrt(depth) * (1 + 1e-12)


@pytest.mark.parametrize(("rounds", "value"), [(64, 2.468), (1024, 3.077)])
def test_online_releases_less_than_its_nodes(rounds, value):
    online = tree.honaker_online(Workload(rounds))
    assert np.linalg.norm(online.encoder(), axis=0).max() > 1.07 * value
    assert online.sensitivity().value == pytest.approx(value, abs=5e-4)


def test_released_encoder_projects_c_on_the_row_space():
    for build in (tree.honaker_full, tree.honaker_online):
        found = build(Workload(21, 0.9))
        decoder, encoder = found.materialize()
        released = found.factors.released_encoder(found.workload)
        assert not np.any(np.triu(released, 1))
        # The same distances between what two clients release, as in the row space of B.
        projected = np.linalg.pinv(decoder) @ decoder @ encoder
        np.testing.assert_allclose(
            released.T @ released, projected.T @ projected, atol=1e-9
        )
        for rounds in (1, 8, 20):
            part = np.linalg.pinv(decoder[:rounds]) @ found.workload.matrix()[:rounds]
            norm = np.linalg.norm(part, axis=0).max()
            assert found.sensitivity(rounds=rounds).value == pytest.approx(norm)
