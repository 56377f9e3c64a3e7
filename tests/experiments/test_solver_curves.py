# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


from dpfl import factorization as mf
from experiments.benchmarks import solvers


def test_solver_stops_at_its_time_limit():
    curve = solvers.lbfgs_curve(mf.Workload(64, 0.9), max_seconds=0.0, target=1.0)
    assert len(curve) == 1
    assert curve[0][1] > 8372.97
