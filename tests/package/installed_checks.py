# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What must hold where the wheel is installed without TensorFlow; run there as is.

The environment has nothing but the wheel and what it asks for, so these are plain
asserts. The commands of the wheel compute an epsilon and a factorization beside them.
"""

import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import dpfl

SITE = Path(dpfl.__file__).resolve().parent.parent


def check_only_ours_is_installed():
    assert "site-packages" in SITE.parts, SITE
    assert importlib.metadata.version("dpfl") == dpfl.__version__
    for foreign in ("experiments", "configs", "tests", "tools", "tensorflow"):
        assert importlib.util.find_spec(foreign) is None, foreign
    assert not any(name.startswith("tensorflow") for name in sys.modules)


def check_noise():
    """Bits that a TensorFlow stream has, whatever numpy and Python are here."""
    mechanism = dpfl.Gaussian(cohort_size=5, clip_norm=1.0, noise_multiplier=1.0)
    plan = dpfl.PoissonSampling(population=20, cohort_size=5, rounds=2)
    drawn = [list(row * 2**18) for row in dpfl.noise(mechanism, plan, 3, seed=7)]
    assert drawn == [[-111022, -117617, -10557], [-138304, 195896, 86340]], drawn


def check_what_is_missing_says_so():
    for name in ("aggregators",):
        try:
            importlib.import_module(f"dpfl.{name}")
        except ImportError as error:
            sentence = str(error)
            assert "TensorFlow Federated 0.87" in sentence, sentence
            assert "\n" not in sentence
            assert "Python 3.9 to 3.11" in sentence, sentence
            assert "python -m dpfl requirements" in sentence, sentence
        else:
            raise AssertionError(f"dpfl.{name} was imported without TensorFlow")


if __name__ == "__main__":
    checks = [check for name, check in vars().items() if name.startswith("check_")]
    for check in checks:
        check()
    print(len(checks))
