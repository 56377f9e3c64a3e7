# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The array libraries of an environment: numpy, and TensorFlow or JAX.

These tests run twice: here, and in the environment with JAX (package/test_jax.py).
"""

import pytest

from dpfl import arrays
from tests.arrays import libraries


@pytest.fixture(params=libraries.NAMES)
def nx(request):
    """The module of each library, with 64-bit types."""
    with libraries.wide(request.param):
        yield arrays.named(request.param)
