# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Ctrl-C and too little memory while libraries are imported: one line, and an exit.

early.check_limit()
with early.ends_at_once():
    from dpfl import needs_tff
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

INTERRUPTED_EXIT_CODE = 130


@contextlib.contextmanager
def ends_at_once() -> Iterator[None]:
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
    os._exit(INTERRUPTED_EXIT_CODE)


# Messages of libraries when memory runs out, beside MemoryError.
_SHORT = ("failed to map segment", "annot allocate memory", "can't start new thread")
# Memory limits below which the libraries of numpy, or of TensorFlow, crash without a
# message while they are loaded or begin.
LEAST_LIMIT, LEAST_FOR_TENSORFLOW = 256 * 2**20, 3 * 2**30


def ran_out(error: BaseException) -> bool:
    """Whether an error is due to a lack of memory or of threads."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in _SHORT
    )


def check_limit(least: int = LEAST_LIMIT) -> None:
    """Raises MemoryError if the memory limit (ulimit -v) is below `least` bytes."""
    try:
        import resource
    except ImportError:
        # Windows has none.
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < least:
        raise MemoryError(
            f"the memory limit is too low: ulimit -v is {limit >> 20} MB, "
            f"{least >> 20} MB are needed"
        )
