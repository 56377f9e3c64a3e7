# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
import re

import pytest

from dpfl import accounting, mechanisms
from dpfl.mechanisms import remarks

D, DELTA = 1000, 1e-3
POISSON = mechanisms.PoissonSampling(100, 50, 60)


def epsilon_of(mechanism, participation=POISSON):
    event = mechanism.dp_event(D, participation)
    return accounting.epsilon(event, DELTA).epsilon


def remark(mechanism, participation=POISSON, epsilon=None):
    if epsilon is None:
        epsilon = epsilon_of(mechanism, participation)
    return remarks.epsilon_remark(epsilon, mechanism, D, participation, DELTA)


@pytest.mark.parametrize(
    "mechanism",
    [mechanisms.Gaussian(50, 1.0, 0.1), mechanisms.L2Csgm(50, 1.0, 0.0, 0.1)],
)
def test_the_noise_that_it_names_meets_eight_and_hardly_less(mechanism):
    found = remark(mechanism)
    assert found.startswith("note that an ") and "\n" not in found
    named = re.search(r"a noise_multiplier of (\S+) brings it to 8$", found).group(1)
    met = epsilon_of(mechanism.with_noise_multiplier(float(named)))
    assert 7.98 < met <= 8


def test_fifty_is_not_remarked_on_and_more_is():
    mechanism = mechanisms.Gaussian(50, 1.0, 0.1)
    assert remark(mechanism, epsilon=50.0) == ""
    assert "epsilon of 50.01 protects nobody" in remark(mechanism, epsilon=50.01)
    assert "an infinite epsilon protects nobody" in remark(mechanism, epsilon=math.inf)


def test_where_no_noise_does_it_says_so():
    """Integers of two bits hold no noise that would."""
    mechanism = mechanisms.DistributedDiscreteGaussian(50, 1.0, 0.1, bits=2)
    found = remark(mechanism, mechanisms.FixedSize(100, 50, 60), epsilon=math.inf)
    assert found.endswith("no noise_multiplier brings it to 8 with these settings")


def test_a_mechanism_that_promises_nothing_is_left_alone():
    assert remark(mechanisms.NoMechanism(50)) == ""


def test_a_delta_above_one_in_all_clients():
    assert remarks.delta_remark(0.02, 50) == ""
    assert "delta is above 1/50" in remarks.delta_remark(0.021, 50)
