# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`import dpfl` as a user's program has it."""

import subprocess
import sys

import pytest

import dpfl
from dpfl import mechanisms

# Its types are checked in tests/test_style.py.
PROGRAM = """
import dpfl

mechanism = dpfl.L2Csgm(
    cohort_size=1000, clip_norm=0.3, noise_multiplier=0.9, keep_fraction=0.1
)
plan = dpfl.PoissonSampling(population=100_000, cohort_size=1000, rounds=1500)
found = dpfl.calibrate(mechanism, plan, dimension=7850, epsilon=8, delta=1e-6)
noise: float = found.noise_multiplier
spent: float = dpfl.epsilon(found, plan, dimension=7850, delta=1e-6)
relation = dpfl.privacy_report(found, plan, 7850, 1e-6).relation
ledger = dpfl.Ledger(found, plan, dimension=7850, delta=1e-6)
after: float = ledger.record_round()
print(noise, spent, relation, after)
"""


def test_every_name_is_there():
    assert len(dpfl.__all__) <= 62
    for name in dpfl.__all__:
        assert getattr(dpfl, name) is not None
    assert set(dpfl.__all__) <= set(dir(dpfl))
    with pytest.raises(AttributeError, match="nonsense"):
        dpfl.nonsense  # noqa: B018


def test_every_mechanism_and_participation_is_public():
    kinds = (*mechanisms.MECHANISMS.values(), *mechanisms.PARTICIPATIONS.values())
    assert {kind.__name__ for kind in kinds} <= set(dpfl.__all__)


def test_a_program_needs_no_tensorflow(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    code = f"import runpy, sys; runpy.run_path({str(path)!r});" + (
        "sys.exit('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    noise, spent, relation, after = done.stdout.split()
    assert 7.99 < float(spent) <= 8 and relation == "add_or_remove"
    assert 0 < float(after) < 8 and 0.8 < float(noise) < 0.9


def test_a_name_is_registered_once():
    class Other(dpfl.Gaussian):
        """Another mechanism of the same name."""

    with pytest.raises(ValueError, match="name must be one that no other mechanism"):
        dpfl.register(Other, "x:Y")
    with pytest.raises(TypeError, match="config must be a subclass of Mechanism"):
        dpfl.register(int, "x:Y")
    with pytest.raises(ValueError, match="name must be one that no other task has"):
        dpfl.register_task("digits", dpfl.TaskEntry(dpfl.TaskConfig, "x", 1))
