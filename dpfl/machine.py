# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Memory and processors: what a process used, and what its container leaves to it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Optional


def peak_bytes(pid: int) -> Optional[int]:
    """The largest resident memory of a process since its exec or fork.

    What getrusage says instead is never less than the parent's memory at the start.
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


# What libraries say when memory runs out, beside MemoryError.
_SHORT = ("failed to map segment", "annot allocate memory", "can't start new thread")
# Limits of memory with which the libraries of numpy, or of TensorFlow, crash without a
# word while they are loaded or begin.
LEAST_LIMIT, LEAST_FOR_TENSORFLOW = 256 * 2**20, 3 * 2**30


def ran_out(error: BaseException) -> bool:
    """Whether an error is for want of memory, or of threads."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in _SHORT
    )


def check_limit(least: int = LEAST_LIMIT) -> None:
    """Raises MemoryError if the limit of memory (ulimit -v) is below so many bytes."""
    try:
        import resource
    except ImportError:
        # Windows has none.
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < least:
        found = f"{least >> 20} MB, found {limit >> 20} MB"
        raise MemoryError(f"ulimit -v must be at least {found}")


_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_MEMORY_INFO = Path("/proc/meminfo")
# By version of control groups, of which the first has a file for each number. Version 2
# writes quota and period into one.
_QUOTA_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
_MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
# Files that were read and that nobody needs, which count as used until memory is short.
_GIVEN_BACK = ("total_inactive_file", "inactive_file")
# Version 1 writes a number of about 2**63 for no limit.
_NO_LIMIT = 2**62


def processors() -> int:
    """The number of processors that this process may use, at least 1.

    They are those that it may run on, and no more than a container's limit of processor
    time is worth. Part of a processor counts as one: fewer groups of clients than that
    would leave some of the time unused.
    """
    found = [len(os.sched_getaffinity(0))]
    for folder in _folders("cpu"):
        numbers = _numbers(folder, _QUOTA_FILES)
        # Version 1 writes -1 for no limit.
        if numbers and numbers[0] > 0:
            quota, period = numbers
            found.append(math.ceil(quota / period))
    return max(1, min(found))


def memory() -> Optional[int]:
    """The bytes that limits of memory leave; None where there is no limit."""
    left = []
    for folder in _folders("memory"):
        numbers = _numbers(folder, _MEMORY_FILES)
        if numbers and numbers[0] < _NO_LIMIT:
            limit, used = numbers
            left.append(max(0, limit - max(0, used - _given_back(folder))))
    return min(left, default=None)


def free_memory() -> Optional[int]:
    """The bytes that this machine has left, and no more than limits leave.

    None on systems that do not say it as Linux does.
    """
    limit = memory()
    try:
        lines = _MEMORY_INFO.read_text().splitlines()
        found = dict(line.split(":") for line in lines)
        free = int(found["MemAvailable"].split()[0]) * 1024
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
    """The bytes of a control group that its kernel takes back at need."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
        found = dict(line.split() for line in lines)
        return next((int(found[name]) for name in _GIVEN_BACK if name in found), 0)
    except (OSError, ValueError):
        # No such file, or one of another form.
        return 0


def _numbers(folder: Path, versions: Sequence[Sequence[str]]) -> Optional[list[int]]:
    """The numbers in a control group's files, None where they are no limit."""
    for names in versions:
        try:
            words = [(folder / name).read_text() for name in names]
            return [int(word) for word in " ".join(words).split()]
        except (OSError, ValueError):
            # Not this version, or "max" for no limit.
            continue
    return None
