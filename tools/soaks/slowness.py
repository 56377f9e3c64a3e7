# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The tests on a machine that is busy, in processes that are stopped meanwhile."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from tools.soaks import kills, runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PYTEST = (sys.executable, "-m", "pytest", "-q", "--show-capture=no")
# How long the tests run before they are stopped, and stay stopped.
_BEFORE_SECONDS = _STOPPED_SECONDS = 60.0


def under_load(processes: int, tests: Sequence[str], stops: int) -> kills.Outcome:
    """Runs tests beside processes that do nothing but compute.

    Args:
      tests: As pytest takes them.
      stops: How often all of pytest's processes, the workers of `-n` among them, are
        stopped for a minute and continued.
    """
    busy = [runs.fork(_spin) for _ in range(processes)]
    # Tests wait for what they killed to be gone, which an orphan that is adopted, and
    # not waited for, never is.
    runs.adopt_orphans(False)
    try:
        process = subprocess.Popen(
            [*_PYTEST, *tests],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(stops):
            time.sleep(_BEFORE_SECONDS)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGSTOP)
                time.sleep(_STOPPED_SECONDS)
                os.killpg(process.pid, signal.SIGCONT)
        said, _ = process.communicate()
    finally:
        for pid in busy:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    passed = re.search(r"(\d+) passed", said)
    faults = re.findall(r"^(?:FAILED|ERROR) .*", said, re.MULTILINE)
    if process.returncode and not faults:
        faults = [f"the tests ended with exit code {process.returncode}: {said[-500:]}"]
    return int(passed[1]) if passed else 0, faults


def _spin() -> None:
    while True:
        pass
