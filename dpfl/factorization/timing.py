# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cost of the optimal factorization: time, iterations and peak memory.

Each measurement runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import os
import statistics
import sys
import time

from dpfl import machine
from dpfl.factorization import iteration, optimal
from dpfl.factorization.workloads import Workload


@dataclasses.dataclass(frozen=True)
class Cost:
    """One way to solve one workload.

    Attributes:
      seconds: Wall-clock time to B and C, the median over the repeats.
      iterations: Eigendecompositions at full size.
      loss: ||B||_F^2 max_j ||C[:, j]||^2.
      gap: Relative duality gap reached.
      peak_bytes: Largest resident memory of a process that does nothing else; 0 on
        Windows, which does not tell.
      history: (seconds, relative gap) after each iteration of the last repeat.
    """

    seconds: float
    iterations: int
    loss: float
    gap: float
    peak_bytes: int
    history: tuple[tuple[float, float], ...]


def _peak_bytes() -> int:
    """Returns the most memory that this process has had."""
    found = machine.peak_bytes(os.getpid())
    if found is not None:
        return found
    try:
        import resource
    except ImportError:
        return 0
    # In bytes on macOS, in kibibytes elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _measure(
    workload: Workload, rtol: float, accelerated: bool, max_iterations: int
) -> Cost:
    progress: list[iteration.Progress] = []
    begin = time.perf_counter()
    found = optimal.factorize(
        workload,
        rtol=rtol,
        max_iterations=max_iterations,
        accelerated=accelerated,
        on_progress=progress.append,
    )
    seconds = time.perf_counter() - begin
    # The reports' clock starts after the coarser problems; put the difference first.
    earlier = max(0.0, seconds - progress[-1].seconds) if accelerated else 0.0
    return Cost(
        seconds=seconds,
        iterations=len(progress),
        loss=found.loss,
        gap=progress[-1].gap,
        peak_bytes=_peak_bytes(),
        history=tuple((earlier + p.seconds, p.gap) for p in progress),
    )


def measure(
    workload: Workload,
    *,
    rtol: float = 1e-6,
    accelerated: bool = True,
    repeats: int = 3,
    max_iterations: int = 5000,
) -> Cost:
    """Measures one way to solve one workload, each repeat in a fresh process.

    Args:
      workload: A.
      rtol: Relative duality gap to reach.
      accelerated: False is the plain fixed point.
      repeats: Runs; the time is their median, the memory their largest.
      max_iterations: Iterations allowed.

    Raises:
      ConvergenceError: If the gap is not reached.
    """
    context = multiprocessing.get_context("spawn")
    costs = []
    for _ in range(repeats):
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            task = pool.submit(_measure, workload, rtol, accelerated, max_iterations)
            costs.append(task.result())
    return dataclasses.replace(
        costs[-1],
        seconds=statistics.median(c.seconds for c in costs),
        peak_bytes=max(c.peak_bytes for c in costs),
    )
