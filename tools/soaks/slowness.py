# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The tests on a machine that is busy, and in a process that was stopped meanwhile."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tools.soaks import kills, runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PYTEST = (sys.executable, "-m", "pytest", "-q", "--show-capture=no")
# How long the tests run before they are stopped, and stay stopped.
_BEFORE_SECONDS = (10.0, 60.0)
_STOPPED_SECONDS = 60.0


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Keeps processors busy inside of the block, as so many other users would."""
    pids = [runs.fork(_spin) for _ in range(processes)]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _spin() -> None:
    while True:
        pass


def under_load(tests: Sequence[str], processes: int) -> kills.Outcome:
    """Runs tests beside processes that do nothing but compute.

    Args:
      tests: As pytest takes them.
      processes: How many.
    """
    with load(processes):
        done = subprocess.run([*_PYTEST, *tests], cwd=_ROOT, stdout=subprocess.PIPE)
    return _outcome(done.returncode, done.stdout.decode())


def stopped(tests: Sequence[str], seed: int, times: int) -> kills.Outcome:
    """Runs tests, and stops and continues their process, not those that it started.

    Args:
      tests: As pytest takes them.
      seed: Of the moments.
      times: How often at the most; no more once the tests have ended.
    """
    draw = random.Random(f"{seed} stops")
    process = subprocess.Popen([*_PYTEST, *tests], cwd=_ROOT, stdout=subprocess.PIPE)
    for _ in range(times):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=draw.uniform(*_BEFORE_SECONDS))
            break
        process.send_signal(signal.SIGSTOP)
        time.sleep(_STOPPED_SECONDS)
        process.send_signal(signal.SIGCONT)
    said, _ = process.communicate()
    return _outcome(process.returncode, said.decode())


def _outcome(code: int, said: str) -> kills.Outcome:
    """Returns how many tests passed, and which did not."""
    passed = re.search(r"(\d+) passed", said)
    faults = re.findall(r"^(?:FAILED|ERROR) .*", said, re.MULTILINE)
    if code and not faults:
        faults = [f"the tests ended with exit code {code}: {said[-500:]}"]
    return kills.Outcome(int(passed[1]) if passed else 0, faults)
