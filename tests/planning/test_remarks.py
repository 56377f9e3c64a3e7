# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
import re

import pytest

from dpfl import accounting, mechanisms, planning
from dpfl.planning import remarks
from dpfl.planning.budget import Setting
from tests.refusals import names

D, DELTA = 1000, 1e-3
POISSON = mechanisms.PoissonSampling(100, 50, 60)


def epsilon_of(mechanism, participation=POISSON, dimension=D):
    return planning.epsilon(mechanism, participation, dimension, DELTA)


def remark(mechanism, participation=POISSON, epsilon=None):
    if epsilon is None:
        epsilon = epsilon_of(mechanism, participation)
    return remarks.epsilon_remark(epsilon, mechanism, Setting(D, participation, DELTA))


@pytest.mark.parametrize(
    "mechanism",
    [mechanisms.Gaussian(50, 1.0, 0.1), mechanisms.L2Csgm(50, 1.0, 0.0, 0.1)],
)
def test_suggested_noise_meets_epsilon_eight_tightly(mechanism):
    found = remark(mechanism)
    assert names(found, "note", "epsilon", 8) and "\n" not in found
    named = re.search(r"noise_multiplier of (\S+)", found).group(1)
    met = epsilon_of(mechanism.with_noise_multiplier(float(named)))
    assert 7.98 < met <= 8


def test_epsilon_above_fifty_is_noted():
    # Without sampling, where the Gaussian's noise is known by a formula.
    own = mechanisms.Gaussian(50, 1.0, 0.1), mechanisms.FixedSize(100, 50, 60)
    assert remark(*own, epsilon=50.0) == ""
    assert names(remark(*own, epsilon=50.01), "epsilon", 50.01)
    assert names(remark(*own, epsilon=math.inf), "epsilon", "infinite")
    assert remark(mechanisms.NoMechanism(50)) == ""


def test_note_says_if_no_noise_suffices():
    """Integers of two bits hold no noise that would."""
    mechanism = mechanisms.DistributedDiscreteGaussian(50, 1.0, 0.1, bits=2)
    found = remark(mechanism, mechanisms.FixedSize(100, 50, 60), epsilon=math.inf)
    assert names(found, "no noise_multiplier", 8)


def test_a_delta_above_one_in_all_clients():
    assert remarks.delta_remark(0.02, 50) == ""
    assert names(remarks.delta_remark(0.021, 50), "delta", "1/50")


def helped(bits):
    return mechanisms.DistributedDiscreteGaussian(
        100, 1.0, 1.0, bits, noise_source="helpers"
    )


@pytest.mark.parametrize(
    ("one_more", "two_more", "named"),
    [
        *[(0.91, 0.905, None), (0.89, 0.81, 9), (0.89, 0.80, 10)],
        *[(0.91, 0.89, 10), (math.inf, math.inf, None)],
    ],
)
def test_each_extra_bit_must_save_a_tenth_of_epsilon(
    monkeypatch, one_more, two_more, named
):
    costs = {9: one_more, 10: two_more}

    def epsilon(event, delta, accounting_method):
        return accounting.PrivacyReport(costs[event], delta, accounting_method)

    monkeypatch.setattr(accounting, "epsilon", epsilon)
    kind = mechanisms.DistributedDiscreteGaussian
    monkeypatch.setattr(kind, "dp_event", lambda own, *setting: own.bits)
    found = remarks.bits_remark(1.0, helped(8), Setting(D, POISSON, DELTA))
    assert (found == "") if named is None else names(found, "bits", named)
