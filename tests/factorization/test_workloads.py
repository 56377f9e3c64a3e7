# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.factorization import Workload, workloads
from tests.refusals import refuses


def schedules():
    return st.one_of(
        st.just(workloads.ConstantRate()),
        st.builds(workloads.DropRate, st.floats(0.1, 2), st.floats(0.1, 1)),
        st.builds(workloads.LinearCooldown, st.floats(0.05, 1), st.floats(0.1, 1)),
    )


any_workload = st.integers(1, 12).flatmap(
    lambda n: st.builds(Workload, st.just(n), st.floats(0, 0.99), schedules())
)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(any_workload)
def test_matrix_is_the_momentum_recurrence(workload):
    gradients = np.random.default_rng(0).normal(size=(workload.rounds, 2))
    moment, iterate, expected = np.zeros(2), np.zeros(2), []
    for rate, gradient in zip(workload.rates, gradients):
        moment = workload.momentum * moment + gradient
        iterate = iterate + rate * moment
        expected.append(iterate)
    np.testing.assert_allclose(workload.matrix() @ gradients, expected, atol=1e-9)
    np.testing.assert_allclose(workload.apply(gradients), expected, atol=1e-9)
    np.testing.assert_allclose(workload.solve(np.array(expected)), gradients, atol=1e-8)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(any_workload)
def test_dict_round_trip(workload):
    assert Workload.from_dict(workload.as_dict()) == workload


def test_cooldown_ends_at_its_final_rate():
    rates = workloads.LinearCooldown().rates(8)
    np.testing.assert_allclose(rates, [1, 1, 1, 1, 1, 1, 0.525, 0.05])


def test_drop_over_the_last_quarter():
    np.testing.assert_allclose(workloads.DropRate(0.1).rates(4), [1, 1, 1, 0.1])


def test_toeplitz_only_at_a_constant_rate():
    assert workloads.Workload(4, 0.9).is_toeplitz
    assert not workloads.Workload(4, 0.9).is_prefix_sum
    assert not workloads.Workload(4, 0.9, workloads.LinearCooldown()).is_toeplitz


@pytest.mark.parametrize(
    ("make", "arguments", "name", "value"),
    [
        (Workload, (0,), "rounds", 0),
        (Workload, (2.0,), "rounds", 2.0),
        (Workload, (True,), "rounds", True),
        (Workload, (4, 1.0), "momentum", 1.0),
        (Workload, (4, float("nan")), "momentum", "nan"),
        (Workload, (4, -0.1), "momentum", -0.1),
        (Workload, (4, 0.9, 0.1), "schedule", 0.1),
        (workloads.DropRate, (0.0,), "factor", 0.0),
        (workloads.LinearCooldown, (0.05, 2.0), "fraction", 2.0),
    ],
)
def test_bad_arguments_are_refused_in_one_line(make, arguments, name, value):
    with refuses((ValueError, TypeError), name, value) as caught:
        make(*arguments)
    assert "\n" not in str(caught.value)
