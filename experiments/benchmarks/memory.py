# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""How much memory this process and TFF's worker take."""

from __future__ import annotations

from typing import Optional

import psutil


class Process:
    """A process, and the memory that is its own or that it sees."""

    def __init__(self, pid: Optional[int] = None):
        """Initializes it: the process of this number, or this one."""
        self._process = psutil.Process(pid)

    @classmethod
    def worker(cls) -> Process:
        """Returns TFF's worker: the largest process that this one has started."""
        children = psutil.Process().children(recursive=True)
        return cls(max(children, key=lambda each: int(each.memory_info().rss)).pid)

    def resident(self) -> int:
        """Returns the bytes in memory now."""
        return int(self._process.memory_info().rss)

    def peak(self) -> int:
        """Returns the most bytes so far."""
        # TensorFlow Federated is imported then.
        from dpfl.training import worker

        return worker.peak_bytes(self._process.pid)
