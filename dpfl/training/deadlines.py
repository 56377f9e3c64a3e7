# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Deadlines and messages of waiting, in time during which this process ran.

    with deadlines.waiting_for("TFF's worker") as clock:
        while not is_ready() and clock.seconds() < 60:
            time.sleep(0.1)

Time while this process was suspended, or its machine slept, does not count towards
deadlines, since others may have answered long ago. So time is counted in steps, and a
jump counts as one step.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Optional

_STEP_SECONDS = 1.0
# Least number of steps in a limit, so that a jump is a small part of a short limit.
_STEPS = 10
# Seconds until the first report of waiting, and the factor between reports.
_SILENT_SECONDS = 30.0
_LATER = 4


class Clock:
    """Counts seconds in which this process ran; it must be read once a step."""

    def __init__(self, step: float = _STEP_SECONDS):
        self._step = step
        self._seconds = 0.0
        self._read = time.monotonic()
        self._lock = threading.Lock()

    def seconds(self) -> float:
        """The seconds so far."""
        with self._lock:
            now = time.monotonic()
            self._seconds += min(now - self._read, self._step)
            self._read = now
            return self._seconds


@contextlib.contextmanager
def counting(
    act: Callable[[float], bool] = lambda passed: False, step: float = _STEP_SECONDS
) -> Iterator[Clock]:
    """Runs a block with a clock that a thread reads at every step.

    Args:
      act: Called by the thread with the seconds so far; returns whether it is done.
      step: Seconds between readings.
    """
    clock, ended = Clock(step), threading.Event()

    def count() -> None:
        while not ended.wait(step) and not act(clock.seconds()):
            pass

    threading.Thread(target=count, daemon=True).start()
    try:
        yield clock
    finally:
        ended.set()


@contextlib.contextmanager
def time_limit(
    seconds: Optional[float], expire: Callable[[float], None]
) -> Iterator[None]:
    """Calls `expire` from another thread if the block takes longer than `seconds`."""
    if seconds is None:
        yield
        return

    def is_over(passed: float) -> bool:
        if passed >= seconds:
            expire(seconds)
        return passed >= seconds

    with counting(is_over, min(_STEP_SECONDS, seconds / _STEPS)):
        yield


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[Clock]:
    """Reports on stderr that the block waits, after some time and then rarely."""
    silent = _SILENT_SECONDS

    def tell(passed: float) -> bool:
        nonlocal silent
        if passed >= silent:
            say(f"still waiting for {what} after {passed:.0f} seconds")
            silent *= _LATER
        return False

    with counting(tell) as clock:
        yield clock


def say(sentence: str) -> None:
    """Prints a line on stderr, above any progress bar."""
    import tqdm

    tqdm.tqdm.write(sentence, file=sys.stderr)
