# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import json

import numpy as np
import pytest

from dpfl import factorization as mf
from tests import forks


def factorize(tmp_path, *args):
    return forks.run("experiments.factorize", *args, folder=tmp_path)


def rows(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_compute_saves_the_printed_factorization(tmp_path):
    flags = ["--rounds=32", "--matrix_momentum=0.9", "--output=m.npz"]
    (row,) = rows(factorize(tmp_path, "compute", "--json", *flags))
    assert row["total"] == pytest.approx(2564.239220, rel=1e-6)
    assert row["method"] == "optimal" and 0 <= row["gap"] <= 1e-6
    found = mf.load(tmp_path / "m.npz")
    assert found.loss == row["total"] and found.workload == mf.Workload(32, 0.9)


def test_compare_shows_the_methods_and_draws(tmp_path):
    flags = ["--rounds=16,32", "--plot=steps.png", "--json"]
    table = rows(factorize(tmp_path, "compare", *flags))
    by = {(row["rounds"], row["method"]): row for row in table}
    assert by[32, "optimal"]["total"] == pytest.approx(114.559703, rel=2e-6)
    assert by[32, "honaker-full"]["total"] == pytest.approx(158.653149, rel=1e-7)
    assert by[16, "identity"]["total"] == pytest.approx(16 * 17 / 2)
    assert 0 <= by[32, "optimal"]["gap"] <= 1e-6
    assert by[32, "optimal"]["sensitivity_is_exact"]
    assert all(row["ratio"] >= 1 for row in table)
    assert (32, "optimal-prefix-sum") not in by
    assert by[32, "band-low-rank"]["ratio"] < 1.01
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


def test_compare_under_several_participations(tmp_path):
    flags = ["--rounds=32", "--matrix_momentum=0.9", "--matrix_schedule=cooldown"]
    table = rows(
        factorize(tmp_path, "compare", "--epochs=4", "--separation=8", "--json", *flags)
    )
    by = {row["method"]: row for row in table}
    assert by["identity"]["sensitivity"] == pytest.approx(2)
    assert by["identity"]["sensitivity_is_exact"]
    workload = mf.Workload(32, 0.9, mf.LinearCooldown())
    independent = 4 * np.sum(workload.matrix() ** 2)
    assert by["identity"]["total"] == pytest.approx(independent)
    assert "optimal-prefix-sum" in by
    # Its bound is on the loss under one participation, which is not the one shown.
    assert by["optimal"]["gap"] is None


def test_compute_prints_a_table(tmp_path):
    flags = ["--rounds=16", "--matrix_method=blt", "--matrix_buffers=2"]
    first = factorize(tmp_path, "compute", *flags)
    assert first.returncode == 0 and first.stdout.startswith("rounds  method")
