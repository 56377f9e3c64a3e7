# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Ctrl-C while libraries are imported: the process ends, whatever they would do."""

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
    """Has an interrupt end the process with exit code 130 and one word on stderr.

    Without it Python raises KeyboardInterrupt in the middle of a library's import, of
    which some make an ImportError, and others nothing at all. Nothing may be under way
    that has to be tidied up. A handler of somebody else's is left in place.
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
