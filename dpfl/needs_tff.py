# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Import guard of the modules that need TensorFlow Federated, which import it first.

    from dpfl import needs_tff  # noqa: F401

`pip install dpfl` brings mechanisms and all that is in numpy to every platform; the
rest runs where TensorFlow Federated 0.87 is published.
"""

from __future__ import annotations

import importlib.util

from dpfl import missing

if importlib.util.find_spec("tensorflow_federated") is None:
    raise missing.error("this part of dpfl", "tensorflow_federated")
