# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Ends the workers of TFF's own contexts together with Python.

    worker_end.protect()  # as `import dpfl.aggregators` does
    tff.backends.test.set_sync_test_cpp_execution_context()

TFF starts `worker_binary` as a plain child, which outlives Python and holds its stdout,
so that `program | tail` never ends. Nothing else about the worker is changed: it
accepts connections from anyone, and outlives a Python that was killed. Neither holds
for the worker that `dpfl.engines.tff.local_worker` starts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools

import psutil

_WORKER = "worker_binary"


@functools.cache
def protect() -> None:
    """Makes the workers that are children of this process end when Python exits."""
    atexit.register(_kill_workers)


def _kill_workers() -> None:
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.name() == _WORKER:
                child.kill()
