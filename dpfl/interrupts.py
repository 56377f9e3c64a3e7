# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Ctrl-C while libraries are imported: the process exits at once.

with interrupts.at_once():
    from dpfl import needs_tff
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

EXIT_CODE = 130


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Makes Ctrl-C exit at once with code 130, and one word on stderr.

    Without it Python raises KeyboardInterrupt in the middle of a library's import,
    which some libraries turn into an ImportError and others swallow. The block must not
    do anything that needs cleaning up. A handler that somebody else installed is kept.
    """
    is_main = threading.current_thread() is threading.main_thread()
    usual = signal.default_int_handler
    if not is_main or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _end(*unused: Any) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_CODE)
