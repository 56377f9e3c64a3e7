# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Makes the workers that TFF's own contexts start end with this process.

    worker_end.protect()  # as `import dpfl.aggregators` does
    tff.backends.test.set_sync_test_cpp_execution_context()

TFF starts `worker_binary` as a plain child, which outlives Python and holds its stdout,
so that `program | tail` never ends. Nothing else about the worker is changed: it
accepts connections from anyone, unless `dpfl.engines.tff.local_worker` starts it.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import functools
import importlib
import os
import queue
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from dpfl import launcher

# Module in which TFF starts its worker, by `subprocess.Popen`.
_PLACE = "tensorflow_federated.python.core.impl.executor_stacks.executor_factory"
_WORKER = "worker_binary"


def protect() -> None:
    """Makes workers that TFF starts from now on end with this process.

    The kernel enforces it, also after SIGKILL. Workers that already run are killed at
    exit.
    """
    place: Any = importlib.import_module(_PLACE)
    if place.subprocess is not subprocess:
        return
    changed = {**vars(subprocess), "Popen": _EndingWorker}
    place.subprocess = types.SimpleNamespace(**changed)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.name() == _WORKER:
                _kill_at_exit(child)


def _kill_at_exit(child: psutil.Process) -> None:
    def kill(parent: int = os.getpid()) -> None:
        # A fork of this process runs this too, but has no such child.
        with contextlib.suppress(psutil.Error):
            if os.getpid() == parent == child.ppid():
                child.kill()

    atexit.register(kill)


class _LikePopen(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        """Accepts any Popen: TFF may ask about workers older than this patch."""
        return isinstance(instance, subprocess.Popen)


class _EndingWorker(subprocess.Popen, metaclass=_LikePopen):
    """A child that the kernel kills when this process ends."""

    def __init__(self, command: Sequence[str], **options: Any):
        start = functools.partial(super().__init__, **options)
        if "python" in os.path.basename(sys.executable or ""):
            _lasting.run(lambda: start(launcher.ends_with_parent(command)))
        else:
            # Python is embedded in another program, and cannot be started.
            start(command)
            _kill_at_exit(psutil.Process(self.pid))


class _LastingThread:
    """A thread that lasts as long as the process; the kernel ends a child with it."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def run(self, call: Callable[[], None]) -> None:
        """Calls a function on the thread, and waits for it to return."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._calls.put((call, done))
        with self._lock:
            # The thread was not started yet, or not in this fork.
            if not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()
        done.result()

    def _serve(self) -> None:
        while True:
            call, done = self._calls.get()
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)


_lasting = _LastingThread()
