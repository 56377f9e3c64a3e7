# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Import guard of the modules that need TensorFlow Federated, which import it first.

    from dpfl import needs_tff  # noqa: F401

`pip install dpfl` brings accounting, factorization and mechanisms to every platform;
the rest runs where TensorFlow Federated 0.87 is published.
"""

from __future__ import annotations

import importlib.util
import platform
import sys

PYTHONS = ((3, 9), (3, 10), (3, 11))


def remedy() -> str:
    """A sentence on how to install TensorFlow Federated here, or else JAX."""
    with_jax = "; pip install 'dpfl[jax]' trains and audits in JAX"
    with_jax = with_jax if sys.version_info >= (3, 11) else ""
    system = (sys.platform, platform.machine())
    if system == ("linux", "x86_64") and sys.version_info[:2] in PYTHONS:
        return (
            "this part of dpfl needs TensorFlow Federated 0.87, which is not "
            'installed; python -m pip install --no-deps -r "$(python -m dpfl '
            f'requirements)" installs it{with_jax}'
        )
    return (
        "this part of dpfl needs TensorFlow Federated 0.87, which is published for "
        "Linux on x86_64 with Python 3.9, 3.10 and 3.11; this is Python "
        f"{platform.python_version()} on {sys.platform} {platform.machine()}; "
        "dpfl.accounting, dpfl.factorization, dpfl.mechanisms, dpfl-privacy and "
        f"dpfl-factorize work here{with_jax}"
    )


if importlib.util.find_spec("tensorflow_federated") is None:
    raise ImportError(remedy(), name="tensorflow_federated")
