# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Imports what most programs need, as they do it; `tests.forks` starts them from here."""

from experiments import start

start.import_tensorflow()

import matplotlib.backends.backend_agg  # noqa: E402, F401
import matplotlib.figure  # noqa: E402, F401

import dpfl.engines.tff.engine  # noqa: E402, F401
import dpfl.training.run  # noqa: E402, F401
