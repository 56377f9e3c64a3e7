# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What docs/privacy/misprints.md lists and no other test holds, by numbers."""

import pytest

from dpfl import accounting
from experiments.papers import published_bounds
from tests.accounting.event_names import L2


def test_noise_multiplier_of_fig_1_is_over_the_kept_fraction():
    # sigma / Delta2, as the caption has it, would be a hundredth of the Gaussian's.
    event = L2(1.1952, 0.01, 1e-4, 2**40)
    report = accounting.epsilon(event, 1e-8, accounting_method="rdp")
    assert report.epsilon == pytest.approx(5.0, abs=1e-3)


def test_theorem_e_1_must_not_depend_on_the_unit():
    n, dim, sigma, grid, l2 = 100, 64, 3.0, 1.0, 10.0

    def epsilon(unit):
        return published_bounds.epsilon(
            (l2 * unit) ** 2, dim, n, sigma * unit, grid * unit
        )

    assert epsilon(0.01) == pytest.approx(epsilon(1.0))
    assert epsilon(1.0) == pytest.approx(l2 / (n**0.5 * sigma), rel=1e-6)
