# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from dpfl import factorization as mf
from dpfl.factorization import Workload, iteration, optimal, optimal_epochs
from tests.factorization.test_sensitivity import brute_force, epochs
from tests.refusals import refuses

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


workloads = st.integers(1, 24).flatmap(
    lambda n: st.builds(
        Workload,
        st.just(n),
        st.floats(0, 0.98),
        st.one_of(
            st.builds(mf.DropRate, st.floats(0.05, 2)),
            st.builds(mf.LinearCooldown, st.floats(0.05, 1)),
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
def test_acceleration_needs_fewer_iterations(momentum):
    workload = Workload(128, momentum)
    fast = optimal.solve_workload(workload, rtol=1e-7)
    slow = {"accelerated": False, "max_iterations": 2000}
    plain = optimal.solve_workload(workload, rtol=1e-7, **slow)
    losses = [found.history[-1].loss for found in (fast, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=2e-7)
    assert 4 * len(fast.history) < len(plain.history)


def test_bounds_improve_monotonically_and_are_reported():
    seen = optimal.solve_workload(Workload(50, 0.9), accelerated=False).history
    assert all(a.loss >= b.loss for a, b in zip(seen, seen[1:]))
    assert all(a.bound <= b.bound for a, b in zip(seen, seen[1:]))
    assert seen[-1].gap <= 1e-6 < seen[-2].gap


def test_prolong_copies_edges_and_preserves_constants():
    v = np.array([8.0, 4.0, 2.0, 2.0, 2.0, 2.0, 1.0, 0.5])
    longer = iteration.prolong(v, 16)
    assert longer[0] / longer[1] == pytest.approx(2)
    assert longer[-2] / longer[-1] == pytest.approx(2)
    np.testing.assert_allclose(iteration.prolong(np.full(5, 3.0), 17), 3.0)
    np.testing.assert_allclose(iteration.prolong(v, 8), v)


def test_iteration_limit_is_an_error_with_the_gap():
    with refuses(iteration.ConvergenceError, "rtol", 1e-12, 2, "0.000991733"):
        optimal.solve_workload(Workload(8), rtol=1e-12, max_iterations=2)


@pytest.mark.parametrize(("value", "shown"), [(0.0, 0.0), (float("nan"), "nan")])
@pytest.mark.parametrize("method", ["optimal", "optimal-epochs"])
def test_bad_gaps_are_refused(method, value, shown):
    with refuses(ValueError, "rtol", shown):
        mf.compute(Workload(3), method, rtol=value)


def test_prefix_sum_for_momentum_is_post_processing():
    workload = Workload(32, 0.9, mf.LinearCooldown())
    post = optimal.for_momentum(workload)
    prefix = optimal.factorize(Workload(32))
    np.testing.assert_array_equal(post.encoder(), prefix.encoder())
    decoder, encoder = post.materialize()
    np.testing.assert_allclose(decoder @ encoder, workload.matrix(), atol=1e-9)
    by_hand = workload.matrix() @ np.linalg.inv(Workload(32).matrix())
    np.testing.assert_allclose(decoder, by_hand @ prefix.decoder(), atol=1e-9)
    assert post.loss > 1.1 * optimal.factorize(workload).loss
    assert post.gap is None


@pytest.mark.parametrize(
    ("workload", "separation"),
    [(mf.prefix_sum(12), 3), (mf.prefix_sum(11), 4), (mf.Workload(12, 0.5), 4)],
)
def test_error_and_sensitivity_of_the_factors(workload, separation):
    found = mf.compute(workload, "optimal-epochs", separation=separation)
    decoder, encoder = found.materialize()
    np.testing.assert_allclose(decoder @ encoder, workload.matrix(), atol=1e-9)
    assert not np.any(np.triu(encoder, 1))
    times = -(-workload.rounds // separation)
    plan = mf.FixedEpochs(times, separation)
    assert found.sensitivity(plan).value == pytest.approx(1)
    worst = brute_force(encoder, epochs(workload.rounds, times, separation))
    assert worst <= 1 + 1e-9 and worst > 0.999
    solution = optimal_epochs.solve_epochs(workload, separation)
    assert found.errors(plan).total == pytest.approx(solution.loss, rel=1e-9)
    assert 0 <= solution.gap <= 1e-3


def test_single_participation_is_the_plain_optimum():
    found = mf.compute(mf.prefix_sum(20), "optimal-epochs", rtol=1e-6)
    want = mf.compute(mf.prefix_sum(20), "optimal")
    assert found.loss == pytest.approx(want.loss, rel=2e-6)
    assert found.params == {"separation": 20, "rtol": 1e-6}


def test_no_other_encoder_is_below_the_bound():
    """Toeplitz, banded and random ones; and a search over all triangular encoders."""
    workload, plan = mf.prefix_sum(8), mf.FixedEpochs(4, 2)
    bound = optimal_epochs.solve_epochs(workload, 2, rtol=1e-5).bound
    for method, params in (
        ("toeplitz", {"participations": 4, "separation": 2}),
        ("banded", {"bands": 2}),
        ("optimal", {}),
        ("identity", {}),
    ):
        found = mf.compute(workload, method, **params)
        assert found.errors(plan).total > bound
    matrix = workload.matrix()
    below = np.tril_indices(8)

    def total(entries):
        encoder = np.zeros((8, 8))
        encoder[below] = entries
        squared = plan.sensitivity(encoder).value ** 2
        return np.sum((matrix @ np.linalg.inv(encoder)) ** 2) * squared

    start = mf.compute(workload, "banded", bands=2).encoder()[below]
    for seed in range(3):
        moved = start + 0.05 * np.random.default_rng(seed).normal(size=len(start))
        found = optimize.minimize(total, moved, method="Powell", options={"maxiter": 3})
        assert found.fun > bound


def test_gradient_is_right_and_infeasible_points_have_no_bound():
    matrix = mf.prefix_sum(6).matrix()
    dual = optimal_epochs.Dual(matrix.T @ matrix, 2)
    rng = np.random.default_rng(0)
    near = dual.start + 0.2 * rng.normal(size=len(dual.start))
    slope = optimize.approx_fprime(near, lambda params: dual(params)[0], 1e-6)
    np.testing.assert_allclose(dual(near)[1], slope, atol=1e-4)
    # Entries of S at 1 and of both signs: W has negative eigenvalues.
    far = dual.start.copy()
    far[2:] = np.where(np.arange(len(far) - 2) % 2, 1.0, -1.0)
    assert np.isfinite(dual(far)[0]) and dual(far)[0] > dual(dual.start)[0]
    assert dual.solution(far).bound == 0


def test_too_few_iterations_are_an_error():
    with refuses(iteration.ConvergenceError, "rtol", 1e-09, 2):
        optimal_epochs.solve_epochs(mf.prefix_sum(9), 3, rtol=1e-9, max_iterations=2)
    with refuses(ValueError, "separation", 10):
        optimal_epochs.solve_epochs(mf.prefix_sum(9), 10)
