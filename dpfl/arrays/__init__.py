# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The array libraries that vectors and codecs are written over.

    nx = arrays.of(vector)
    nx.where(vector > 0, nx.sqrt(vector), 0)

Code is written once, in operators and in a part of `jax.numpy`: `of(x)` is the module
that has these functions for the library of an array. Dtypes are numpy's. Random bits
and integers are the same in each library; sums of floats may be added up in another
order. The names that `jax.numpy` does not have are described in `in_numpy`.

JAX needs 64-bit types: call what is written over it inside of `jax.enable_x64(True)`,
which a user's own program of 32-bit types may contain.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

from dpfl import checks, missing

Array = Any
LIBRARIES = ("numpy", "tensorflow", "jax")


# AutoGraph, which would warn of the import, leaves a cached function alone.
@functools.cache
def named(name: str) -> Any:
    """The module of a library; ValueError if there is no such library.

    Args:
      name: "numpy", "tensorflow" or "jax".

    Raises:
      ImportError: If it is not installed.
    """
    checks.choice("arrays", name, LIBRARIES)
    with missing.explained(f"arrays={name!r}"):
        return importlib.import_module(f"dpfl.arrays.in_{name}")


def of(value: Any) -> Any:
    """The module for the library of an array; numpy's for numbers and lists."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(value, tensorflow.Tensor):
        return named("tensorflow")
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.Array):
        return named("jax")
    return named("numpy")
