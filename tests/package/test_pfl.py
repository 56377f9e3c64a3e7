# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the tests of the adapter for pfl in their environment."""

from tests.package.test_jax import run


def test_the_adapter_for_pfl_passes():
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    run("pfl", "-m", "pytest", *options, "tests/loops/test_pfl.py")
