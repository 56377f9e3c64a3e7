# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Memory and processors: use by a process, and limits of its container.

groups = config.concurrency or machine.processors()
free = machine.free_memory()    # bytes, or None
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Optional


def peak_bytes(pid: int) -> Optional[int]:
    """The largest resident memory of a process since its exec or fork.

    getrusage is no substitute: it never says less than the parent's memory at the
    start.
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


_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_MEMORY_INFO = Path("/proc/meminfo")
# Page cache that the kernel can reclaim, but counts as used.
_GIVEN_BACK = "inactive_file"


def processors() -> int:
    """The number of processors that this process may use, at least 1.

    The smaller of its affinity and of its container's limit of processor time. A part
    of a processor counts as one: fewer groups of clients would leave some of the time
    unused.
    """
    limits = [len(os.sched_getaffinity(0))]
    for folder in _folders():
        numbers = _numbers(folder / "cpu.max")
        if numbers:
            quota, period = numbers
            limits.append(math.ceil(quota / period))
    return max(1, min(limits))


def memory() -> Optional[int]:
    """The bytes that memory limits leave; None where there is no limit."""
    left = []
    for folder in _folders():
        numbers = [
            *_numbers(folder / "memory.max"),
            *_numbers(folder / "memory.current"),
        ]
        if len(numbers) == 2:
            limit, used = numbers
            left.append(max(0, limit - max(0, used - _given_back(folder))))
    return min(left, default=None)


def free_memory() -> Optional[int]:
    """The free bytes of this machine, or what memory limits leave if that is less.

    None on systems that do not report it as Linux does.
    """
    limit = memory()
    try:
        lines = _MEMORY_INFO.read_text().splitlines()
        meminfo = dict(line.split(":") for line in lines)
        free = int(meminfo["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return limit
    return free if limit is None else min(free, limit)


def _folders() -> Iterator[Path]:
    """The control groups, of version 2, that this process is in."""
    with contextlib.suppress(OSError):
        for line in _OWN.read_text().splitlines():
            folder, path = _GROUPS, line.partition("0::")[2]
            yield folder
            for part in PurePosixPath(path).parts[1:]:
                folder /= part
                yield folder


def _given_back(folder: Path) -> int:
    """The bytes of a control group that its kernel reclaims when needed."""
    with contextlib.suppress(OSError, KeyError):
        lines = (folder / "memory.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)[_GIVEN_BACK])
    return 0


def _numbers(path: Path) -> list[int]:
    """The numbers in a control group's file; none if they are no limit."""
    # Not in this group, or "max" for no limit.
    with contextlib.suppress(OSError, ValueError):
        return [int(word) for word in path.read_text().split()]
    return []
