# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Computations that runs of one process share if they differ in their seed alone.

A round is a function of its state, in which the mechanism's seed and the weights are,
and of the clients with their keys. So another seed changes what a run begins with and
not its graph. Whatever else differs, the noise first of all, is part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Optional


class LastProcess:
    """The newest traced process, and what it was traced for."""

    def __init__(self) -> None:
        self._key: Optional[Hashable] = None
        self._process: Any = None

    def get(
        self,
        key: Hashable,
        build: Callable[[], Any],
        begun_anew: Callable[[Any], Optional[Any]],
    ) -> Any:
        """Returns a process, traced now or for the run before.

        Args:
          key: All that the process depends on, except for the seeds.
          build: Traces it.
          begun_anew: From a process of the same key to that with this run's seeds;
            None if it has no such form.
        """
        found = begun_anew(self._process) if key == self._key else None
        if found is None:
            found = build()
        self._key, self._process = key, found
        return found
