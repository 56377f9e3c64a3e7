# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""How many processors this process has."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
# Version 2 of control groups writes quota and period, version 1 has a file for each.
_QUOTA_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


def available() -> int:
    """Returns how many processors this process may use, at least 1.

    They are those that it may run on, and no more than a container's limit of processor
    time is worth. Part of a processor counts as one: fewer groups of clients than that
    would leave some of the time unused.
    """
    limits = [math.ceil(limit) for limit in map(_limit, _folders()) if limit]
    return max(1, min([len(os.sched_getaffinity(0)), *limits]))


def _folders() -> Iterator[Path]:
    """Yields the control groups that this process is in, with those around them.

    A container may see the path of its group outside of it, which is not there inside,
    and its own group as the outermost.
    """
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 2 names no controllers.
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = _GROUPS / "cpu" if controllers else _GROUPS
        yield folder
        for part in PurePosixPath(path).parts[1:]:
            folder /= part
            yield folder


def _limit(folder: Path) -> float:
    """Returns how many processors a control group's time is worth; 0 for no limit."""
    for names in _QUOTA_FILES:
        try:
            words = [(folder / name).read_text() for name in names]
            quota, period = map(int, " ".join(words).split())
        except (OSError, ValueError):
            # Not this version, or "max" for no limit.
            continue
        # Version 1 writes -1 for no limit.
        return max(0, quota) / period
    return 0
