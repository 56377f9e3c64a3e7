# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Deadlines, and messages of waiting.

with deadlines.waiting_for("TFF's worker"):
    wait_until_ready()
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Optional

# Seconds until the first report of waiting, and the factor between reports.
_SILENT_SECONDS = 30.0
_LATER = 4


@contextlib.contextmanager
def time_limit(
    seconds: Optional[float], expire: Callable[[float], None]
) -> Iterator[None]:
    """Calls `expire` from another thread if the block takes longer than `seconds`."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, expire, [seconds])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Reports on stderr that the block waits, after some time and then rarely."""
    begun, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        silent = _SILENT_SECONDS
        while not ended.wait(max(0.0, begun + silent - time.monotonic())):
            passed = time.monotonic() - begun
            say(f"still waiting for {what} after {passed:.0f} seconds")
            silent *= _LATER

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def say(sentence: str) -> None:
    """Prints a line on stderr, above any progress bar."""
    import tqdm

    tqdm.tqdm.write(sentence, file=sys.stderr)
