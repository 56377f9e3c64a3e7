# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the tests of arrays in environments with JAX and without TensorFlow."""

import os
import subprocess
from pathlib import Path

import pytest

from tools import interpreters

ROOT = Path(__file__).resolve().parent.parent.parent
# A codec of each library, without TensorFlow.
CODECS = """
import importlib.util, dpfl
from dpfl import arrays
assert importlib.util.find_spec("tensorflow") is None
made = [dpfl.make_codec(dpfl.TEST_CONFIGS["l2_csgm"], 8, arrays=x) for x in ("numpy", "jax")]
assert [codec.nx for codec in made] == [arrays.named("numpy"), arrays.named("jax")]
"""
# Each compilation takes seconds, so that the later release has a part of the tests.
CHOSEN = {"jax": "", "jax-newest": "million or precision or vectors or jax-l2_csgm"}


@pytest.mark.parametrize("name", CHOSEN)
def test_array_tests_pass_in_jax(name):
    python = interpreters.find_environment(name)
    if python is None:
        assert "CI" not in os.environ, f"tools/interpreters.py made no {name}"
        pytest.skip(f"there is no {name} here; tools/interpreters.py makes it")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    for command in (
        ["-c", CODECS],
        ["-m", "pytest", *options, "-k", CHOSEN[name], "tests/arrays"],
    ):
        done = subprocess.run(
            [str(python), *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
