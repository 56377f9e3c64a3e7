# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs tests in environments with other packages than TensorFlow Federated's."""

import pytest

from tests.package.test_jax import run

# Later releases of dp_accounting, and of numpy, in which products of small integers
# wrap otherwise. Both ends of the former are the wheel's.
ACCOUNTING = ("tests/accounting/test_trees.py", "tests/accounting/test_accountant.py")
TESTS = {
    "flower": ("tests/loops/test_flower.py", "tests/test_numbers.py", *ACCOUNTING),
    "pfl": ("tests/loops/test_pfl.py", *ACCOUNTING),
}
# Functions that dpfl does not call, two tests that take seconds, and our integrals, in
# which dp_accounting has no part.
CHOSEN = "not log_a and not bounds_gaussian and not delta_gaussian"
CHOSEN += " and not against_integration"


@pytest.mark.parametrize("name", TESTS)
def test_loops_and_accounting_pass_in_other_environments(name):
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    run(name, "-m", "pytest", *options, "-k", CHOSEN, *TESTS[name])
