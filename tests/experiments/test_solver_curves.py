# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import factorization as mf
from experiments.benchmarks import solvers

# Losses known from elsewhere: closed forms and long runs at a gap below 1e-9.
LOSSES = {(8, 0.0): 17.866177, (32, 0.9): 2564.239220}


@pytest.mark.parametrize(("rounds", "momentum"), LOSSES)
def test_all_solvers_come_to_the_same_loss(rounds, momentum):
    workload, loss = mf.Workload(rounds, momentum), LOSSES[rounds, momentum]
    for accelerated in (True, False):
        curve, bound = solvers.fixed_point_curve(workload, accelerated=accelerated)
        assert bound == pytest.approx(loss, rel=1e-7)
        assert curve[-1][1] == pytest.approx(loss, rel=1e-7)
    curve = solvers.lbfgs_curve(workload, 20.0, bound * (1 + 1e-6))
    assert curve[-1][1] == pytest.approx(loss, rel=2e-6)
    seconds, losses = zip(*curve)
    assert list(seconds) == sorted(seconds)
    assert list(losses) == sorted(losses, reverse=True)


def test_solver_stops_at_its_time_limit():
    curve = solvers.lbfgs_curve(mf.Workload(64, 0.9), max_seconds=0.0, target=1.0)
    assert len(curve) == 1
    assert curve[0][1] > 8372.97
