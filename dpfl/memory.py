# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The most memory that a process has had."""

from __future__ import annotations

from typing import Optional


def peak_bytes(pid: int) -> Optional[int]:
    """Returns the largest resident memory of a process since its exec or fork.

    What getrusage says instead is never less than the parent's memory at the start.

    Args:
      pid: Of a process that is running.

    Returns:
      VmHWM, or None where the kernel does not say it.
    """
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        # Not Linux, or the process has ended.
        pass
    return None
