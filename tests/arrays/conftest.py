# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The array libraries of an environment: numpy, and TensorFlow or JAX.

These tests run twice: here, and in the environment with JAX (package/test_jax.py).
"""

import importlib.metadata
import os

import pytest

from dpfl import arrays
from tests.arrays import libraries

# Four devices on a processor; optimized programs take longer to compile than they save.
_FLAGS = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
if not libraries.HAS_TENSORFLOW:
    # Its newer code for fused operations takes a third longer to compile; later releases
    # have no other.
    if importlib.metadata.version("jax").startswith("0.8."):
        _FLAGS += " --xla_cpu_use_fusion_emitters=false"
    os.environ.setdefault("XLA_FLAGS", _FLAGS)
# The JAX beside TensorFlow Federated is too old.
collect_ignore_glob = ["test_jax_*"] if libraries.HAS_TENSORFLOW else []


@pytest.fixture(params=libraries.NAMES)
def nx(request):
    """The module of each library, with 64-bit types."""
    with libraries.wide(request.param):
        yield arrays.named(request.param)
