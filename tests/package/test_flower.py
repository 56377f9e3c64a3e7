# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the tests of the adapter for Flower in their environment."""

from tests.package.test_jax import run


def test_the_adapter_for_flower_passes():
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    run("flower", "-m", "pytest", *options, "tests/loops/test_flower.py")
