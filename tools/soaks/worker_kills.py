# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds spread over two workers, one of which is killed at a random moment of each."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from typing import Any, Optional

import numpy as np

_COHORT = list(range(8))
_WORKERS = 2


class Rounds:
    """A process spread over workers of this machine, each of which may die."""

    def __init__(self, stack: contextlib.ExitStack):
        """Starts the workers, which the stack ends, and runs one round."""
        import tensorflow_federated as tff

        from dpfl import mechanisms
        from dpfl.engines.tff import local_worker as worker_lib
        from dpfl.engines.tff import remote_workers, shared_memory
        from dpfl.tasks import load_task
        from experiments.benchmarks import rounds

        self._stack = stack
        self.workers = [self._started(None) for _ in range(_WORKERS)]
        local = stack.enter_context(worker_lib.start(groups=True))
        self._context = local.context(secure_sums=True)
        tff.framework.set_default_context(self._context)
        sizes = {"examples_per_client": 40, "batch_size": 2, "num_test_examples": 2}
        task = load_task(
            "synthetic", model="small_cnn", num_clients=len(_COHORT), **sizes
        )
        mechanism = mechanisms.L2Csgm(len(_COHORT), 1.0, 1.0, 0.1)
        with shared_memory.in_graphs():
            made = rounds.grouped_rounds(task, mechanism, 1)
        self.said: list[str] = []
        places = [f"127.0.0.1:{w.port}" for w in self.workers]
        pool = remote_workers.workers_at(places, task, self.said.append)
        stack.callback(pool.close)
        self.process = remote_workers.RemoteProcess(
            made, rounds.no_noise, rounds.own_key, pool, local
        )
        self.state = self.process.initialize()
        self.round()

    def round(self) -> list[bytes]:
        """The bits of a round from the first state."""
        import tensorflow as tf

        output = self.process.next(self.state, _COHORT)
        return [np.asarray(leaf).tobytes() for leaf in tf.nest.flatten(output)]

    def kill(self, number: int) -> None:
        """Kills a worker."""
        os.kill(self.workers[number].pid, signal.SIGKILL)

    def restart(self, number: int) -> None:
        """Starts a worker in the place of one that was killed."""
        import tensorflow_federated as tff

        port = self.workers[number].port
        self.workers[number].close()
        self.workers[number] = self._started(port)
        # A start makes the new worker's context the default.
        tff.framework.set_default_context(self._context)

    def _started(self, port: Optional[int]) -> Any:
        from dpfl.engines.tff import local_worker as worker_lib

        worker = worker_lib.start(
            concurrency=1, groups=True, isolation="loopback", port=port
        )
        return self._stack.enter_context(worker)


def kill_in_rounds(seed: int, kills: int) -> tuple[int, list[str]]:
    """Kills workers in the middle of rounds, and compares the rounds' bits."""
    drawn = random.Random(seed)
    faults = []
    with contextlib.ExitStack() as stack:
        rounds = Rounds(stack)
        begun = time.monotonic()
        expected = rounds.round()
        seconds = time.monotonic() - begun
        for number in range(kills):
            victim = drawn.randrange(_WORKERS)
            delay = drawn.uniform(0, seconds)
            timer = threading.Timer(delay, rounds.kill, [victim])
            timer.start()
            bits = rounds.round()
            timer.join()
            if bits != expected:
                faults.append(f"kill {number}: other bits after {delay:.3f} s")
            rounds.restart(victim)
    return kills, faults
