# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Memory and processors: use by a process, and limits of its container.

groups = config.concurrency or machine.processors()
free = machine.free_memory()    # bytes, or None
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
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
# Files of control groups: version 2 writes quota and period into one file, version 1
# has a file for each number.
_QUOTA_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
_MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
# Page cache that the kernel can reclaim, but counts as used.
_GIVEN_BACK = ("total_inactive_file", "inactive_file")
# Version 1 writes a number of about 2**63 for no limit.
_NO_LIMIT = 2**62


def processors() -> int:
    """The number of processors that this process may use, at least 1.

    The smaller of its affinity and of its container's limit of processor time. A part
    of a processor counts as one: fewer groups of clients would leave some of the time
    unused.
    """
    limits = [len(os.sched_getaffinity(0))]
    for folder in _folders("cpu"):
        numbers = _numbers(folder, _QUOTA_FILES)
        # Version 1 writes -1 for no limit.
        if numbers and numbers[0] > 0:
            quota, period = numbers
            limits.append(math.ceil(quota / period))
    return max(1, min(limits))


def memory() -> Optional[int]:
    """The bytes that memory limits leave; None where there is no limit."""
    left = []
    for folder in _folders("memory"):
        numbers = _numbers(folder, _MEMORY_FILES)
        if numbers and numbers[0] < _NO_LIMIT:
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


def _folders(controller: str) -> Iterator[Path]:
    """The control groups that this process is in, with those around them."""
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 2 names no controllers.
        if controllers and controller not in controllers.split(","):
            continue
        folder = _GROUPS / controller if controllers else _GROUPS
        yield folder
        for part in PurePosixPath(path).parts[1:]:
            folder /= part
            yield folder


def _given_back(folder: Path) -> int:
    """The bytes of a control group that its kernel reclaims when needed."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
        stats = dict(line.split() for line in lines)
        return next((int(stats[name]) for name in _GIVEN_BACK if name in stats), 0)
    except (OSError, ValueError):
        # No such file, or one in another format.
        return 0


def _numbers(folder: Path, versions: Sequence[Sequence[str]]) -> Optional[list[int]]:
    """The numbers in a control group's files; None if they are no limit."""
    for names in versions:
        try:
            words = [(folder / name).read_text() for name in names]
            return [int(word) for word in " ".join(words).split()]
        except (OSError, ValueError):
            # Not this version, or "max" for no limit.
            continue
    return None
