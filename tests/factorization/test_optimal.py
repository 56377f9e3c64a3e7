# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.factorization import iteration, optimal
from dpfl.factorization.workloads import (
    DropRate,
    ExplicitRates,
    LinearCooldown,
    Workload,
)

# Published values of the least loss, one participation.
LOSSES = [
    (8, 0.0, 17.866177),
    (16, 0.0, 45.665357),
    (32, 0.0, 114.559703),
    (64, 0.0, 282.201421),
    (256, 0.0, 1631.403045),
    (32, 0.9, 2564.239220),
    (64, 0.9, 8372.967919),
]


@pytest.mark.parametrize(("rounds", "momentum", "loss"), LOSSES)
def test_known_losses_are_met_and_certified(rounds, momentum, loss):
    found = optimal.factorize(Workload(rounds, momentum), rtol=1e-8)
    assert found.loss == pytest.approx(loss, rel=1e-7)
    assert found.lower_bound <= loss * (1 + 1e-7)
    assert 0 <= found.gap <= 1e-8


def test_two_rounds_by_hand():
    # X = [[1, x], [x, 1]] and G = [[2, 1], [1, 1]]: the loss is
    # tr(G X^-1) = (3 - 2 x) / (1 - x^2), least at x = (3 - sqrt 5) / 2.
    x = (3 - np.sqrt(5)) / 2
    found = iteration.solve(np.array([[2.0, 1.0], [1.0, 1.0]]), rtol=1e-13)
    np.testing.assert_allclose(found.gram, [[1, x], [x, 1]], rtol=1e-6)
    loss = (3 - 2 * x) / (1 - x * x)
    assert found.history[-1].loss == pytest.approx(loss, rel=1e-12)


def test_one_round_is_the_gaussian_mechanism():
    found = optimal.factorize(Workload(1))
    np.testing.assert_allclose(found.decoder(), [[1.0]])
    np.testing.assert_allclose(found.encoder(), [[1.0]])
    assert found.loss == pytest.approx(1.0)


workloads = st.integers(2, 24).flatmap(
    lambda n: st.builds(
        Workload,
        st.just(n),
        st.floats(0, 0.98),
        st.one_of(
            st.builds(DropRate, st.floats(0.05, 2)),
            st.builds(LinearCooldown, st.floats(0.05, 1)),
            st.lists(st.floats(0.1, 2), min_size=n, max_size=n).map(
                lambda v: ExplicitRates(tuple(v))
            ),
        ),
    )
)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(workloads)
def test_factors_are_lower_triangular_and_multiply_to_the_workload(workload):
    found = optimal.factorize(workload, rtol=1e-7)
    decoder, encoder = found.materialize()
    assert not np.any(np.triu(decoder, 1)) and not np.any(np.triu(encoder, 1))
    assert np.max(np.abs(decoder @ encoder - workload.matrix())) < 1e-9
    np.testing.assert_allclose(np.linalg.norm(encoder, axis=0), 1, rtol=1e-9)
    assert found.gap <= 1e-7 * (1 + 1e-6)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(workloads, st.integers(0, 100))
def test_bound_holds_at_every_vector(workload, seed):
    matrix = workload.matrix()
    v = np.exp(np.random.default_rng(seed).normal(size=workload.rounds))
    bound = iteration.Root.of(matrix.T @ matrix, v).bound
    assert bound <= optimal.factorize(workload).loss * (1 + 1e-12)


def test_bound_is_the_lagrangian_at_the_best_multiple():
    matrix = Workload(6, 0.5).matrix()
    gram, v = matrix.T @ matrix, np.arange(1.0, 7.0)

    def lagrangian(multiple):
        # 2 tr R(v) - sum(v), from the root's definition.
        half = np.diag(np.sqrt(multiple * v))
        trace = np.sum(np.sqrt(np.linalg.eigvalsh(half @ gram @ half)))
        return 2 * trace - np.sum(multiple * v)

    values = [lagrangian(m) for m in np.geomspace(1e-2, 1e2, 4001)]
    bound = iteration.Root.of(gram, v).bound
    assert max(values) <= bound == pytest.approx(max(values), rel=1e-5)


def test_phi_is_the_diagonal_of_the_root():
    matrix = Workload(5, 0.3).matrix()
    gram, v = matrix.T @ matrix, np.array([3.0, 1.0, 2.0, 0.5, 1.5])
    root = iteration.Root.of(gram, v)
    dense = (root.vectors * root.values) @ root.vectors.T
    half = np.diag(np.sqrt(v))
    np.testing.assert_allclose(dense @ dense, half @ gram @ half, atol=1e-12)
    np.testing.assert_allclose(root.phi, np.diag(dense))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_derivative_of_phi_has_its_spectrum_between_a_half_and_one(momentum):
    # The claim that justifies a step of 2, by finite differences at the fixed point.
    workload = Workload(12, momentum)
    matrix = workload.matrix()
    gram = matrix.T @ matrix
    v = optimal.solve_workload(workload, rtol=1e-13).v
    h, columns = 1e-5, []
    for i in range(12):
        up, down = v.copy(), v.copy()
        up[i] *= np.exp(h)
        down[i] *= np.exp(-h)
        logs = [np.log(iteration.Root.of(gram, moved).phi) for moved in (up, down)]
        columns.append((logs[0] - logs[1]) / (2 * h))
    values = np.sort(np.linalg.eigvals(np.array(columns).T).real)
    assert values[0] == pytest.approx(0.5, abs=1e-4)
    assert values[-1] < 1


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_acceleration_finds_the_same_in_fewer_iterations(momentum):
    workload = Workload(128, momentum)
    fast = optimal.solve_workload(workload, rtol=1e-7)
    plain = optimal.solve_workload(
        workload, rtol=1e-7, accelerated=False, max_iterations=2000
    )
    losses = [found.history[-1].loss for found in (fast, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=2e-7)
    assert 4 * len(fast.history) < len(plain.history)


def test_first_accelerated_step_is_twice_the_plain_one():
    v, phi_v = np.array([1.0, 4.0]), np.array([2.0, 2.0])
    # phi^2 / v is v times (phi / v)^2.
    step = iteration.AndersonUpdate()(v, phi_v, 1.0)
    np.testing.assert_allclose(step, [4.0, 1.0])


def test_a_step_that_loses_ground_is_undone():
    update = iteration.AndersonUpdate()
    v = np.array([1.0, 4.0])
    best_phi = np.array([2.0, 2.5])
    update(v, np.array([2.0, 2.0]), 1.0)
    update(v + 1, best_phi, 2.0)
    # The third bound is lower: back to a plain step from the second, the best.
    np.testing.assert_array_equal(update(v + 2, np.ones(2), 1.5), best_phi)


def test_bounds_only_improve_and_are_reported():
    seen = []
    found = optimal.solve_workload(
        Workload(50, 0.9), accelerated=False, on_progress=seen.append
    )
    assert tuple(seen) == found.history
    assert all(a.loss >= b.loss for a, b in zip(seen, seen[1:]))
    assert all(a.bound <= b.bound for a, b in zip(seen, seen[1:]))
    assert seen[-1].gap <= 1e-6 < seen[-2].gap


def test_prolong_copies_the_edges_and_keeps_a_constant():
    v = np.array([8.0, 4.0, 2.0, 2.0, 2.0, 2.0, 1.0, 0.5])
    longer = iteration.prolong(v, 16)
    assert longer[0] / longer[1] == pytest.approx(2)
    assert longer[-2] / longer[-1] == pytest.approx(2)
    np.testing.assert_allclose(iteration.prolong(np.full(5, 3.0), 17), 3.0)
    np.testing.assert_allclose(iteration.prolong(v, 8), v)


def test_reaching_the_limit_is_an_error_that_names_the_gap():
    with pytest.raises(iteration.ConvergenceError, match="was not reached in 2 iter"):
        optimal.solve_workload(Workload(8), rtol=1e-12, max_iterations=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": 0.0}, "rtol must be greater than 0, found 0"),
        ({"rtol": float("nan")}, "rtol must be a finite number"),
        ({"max_iterations": 0}, "max_iterations must be at least 1"),
        ({"start": np.ones(2)}, "start must hold 3 positive values, found 2"),
        ({"start": np.zeros(3)}, "start must hold 3 positive values"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        iteration.solve(np.eye(3), **options)


def test_prefix_sum_for_momentum_is_post_processing():
    workload = Workload(32, 0.9, LinearCooldown())
    post = optimal.for_momentum(workload)
    prefix = optimal.factorize(Workload(32))
    np.testing.assert_array_equal(post.encoder(), prefix.encoder())
    decoder, encoder = post.materialize()
    np.testing.assert_allclose(decoder @ encoder, workload.matrix(), atol=1e-9)
    by_hand = workload.matrix() @ np.linalg.inv(Workload(32).matrix())
    np.testing.assert_allclose(decoder, by_hand @ prefix.decoder(), atol=1e-9)
    assert post.loss > 1.1 * optimal.factorize(workload).loss
    assert post.gap is None
