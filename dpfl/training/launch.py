# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Child processes that end with the thread that started them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Runs before the program, in its process: asks the kernel to kill it when the thread
# that started it ends, then makes sure that this has not happened already. A separate
# program, since code between fork and exec is not safe beside TensorFlow's threads.
_LAUNCHER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(1, int(signal.SIGKILL), 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG) failed")
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent has gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


def ends_with_parent(command: Sequence[str]) -> list[str]:
    """The command that runs `command` until the thread that starts it ends.

    Args:
      command: Path of a program and its arguments.

    Returns:
      A command line for `subprocess`, to be started by this process (Linux only).
    """
    pid = str(os.getpid())
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, pid, *command]
