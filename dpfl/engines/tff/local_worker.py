# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TFF's worker process, isolated from others and ended with this process.

    worker = local_worker.start(concurrency=4)
    tff.framework.set_default_context(worker.context(secure_sums=True))
    worker.close()

`tff.framework.local_cpp_executor_factory` starts `worker_binary` as a plain child: it
accepts connections from anyone, it survives its parent, and it inherits stdout, so that
`binary | tail` never ends. Here the same binary is started behind a barrier
(`dpfl.engines.tff.isolation`), with PR_SET_PDEATHSIG, in a session of its own (Ctrl-C
reaches Python alone), with its output in a file or nowhere, and it is killed by `close`
and at exit. Only public API of TFF is used, apart from the path of the binary.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import threading
from typing import Any, Optional, Union

import tensorflow_federated as tff

from dpfl import checks, machine
from dpfl.engines.tff import connection
from dpfl.engines.tff import isolation as isolation_lib
from dpfl.engines.tff.connection import WorkerDiedError
from dpfl.training import deadlines

_POLL_SECONDS = 0.02
# Threads of TFF for each group. A TensorFlow call occupies one also while it waits for
# its arguments, so that with one thread a group, calls that wait for one group may
# block another. Four sufficed in all trials.
_CALLS_OF_A_GROUP = 4


class Worker:
    """A running worker and the TFF execution contexts that talk to it.

    Attributes:
      isolation: The worker's isolation: one of `engine.ISOLATIONS`.
      port: TCP port that an unprotected worker listens on; None if it has none.
    """

    def __init__(self, isolated: isolation_lib.Isolated):
        self._isolated = isolated
        self._process = isolated.process
        self.pid = isolated.process.pid
        self.isolation = isolated.isolation
        self.port = isolated.port
        self._closed = False
        self._timed_out: Optional[float] = None
        self._connection = connection.Connection(isolated.target)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def context(self, *, secure_sums: bool = False) -> tff.framework.SyncContext:
        """A synchronous context; with `secure_sums` plain sums simulate secure ones."""
        secure = connection.compiled_with_plain_sums
        return tff.framework.SyncExecutionContext(
            executor_fn=tff.framework.ResourceManagingExecutorFactory(self._executor),
            compiler_fn=secure if secure_sums else connection.compiled,
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )

    def _executor(self, cardinalities: dict) -> tff.framework.RemoteExecutor:
        # Also called when TFF retries a computation.
        self.wait_until_ready()
        cardinalities.setdefault(tff.CLIENTS, 0)
        # By default TFF disposes of the values of several rounds at a time.
        remote = tff.framework.RemoteExecutor(self._connection, dispose_batch_size=1)
        remote.set_cardinalities(cardinalities)
        return remote

    def deadline(
        self, seconds: Optional[float]
    ) -> contextlib.AbstractContextManager[None]:
        """Kills the worker if the block takes longer; the pending call then fails."""
        return deadlines.time_limit(seconds, self._expire)

    def close(self) -> None:
        """Kills the worker; safe to call more than once."""
        if self._closed:
            return
        self._closed = True
        self._connection.forget()
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._isolated.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *unused_exception: Any) -> None:
        self.close()

    def _expire(self, seconds: float) -> None:
        self._timed_out = seconds
        self._process.kill()

    def wait_until_ready(self) -> None:
        """Waits until the worker answers.

        Raises:
          WorkerDiedError: If the process ended, or was stopped by `close` or by a
            deadline.
        """
        self._check_alive()
        if self._connection.is_ready:
            return
        with deadlines.waiting_for(f"TFF's worker process {self.pid}"):
            while not self._connection.is_ready:
                self._isolated.attend(_POLL_SECONDS)
                self._check_alive()

    def _check_alive(self) -> None:
        own = f"TFF's worker process {self.pid}"
        if self._timed_out is not None:
            raise WorkerDiedError(
                f"{own} did not finish within the deadline of {self._timed_out:g} "
                "seconds and was stopped"
            )
        if self._closed:
            raise WorkerDiedError(f"{own} was closed")
        status = self._process.poll()
        if status is not None:
            raise WorkerDiedError(
                f"{own} ended with status {status}; a status of -9 often means that "
                "the memory ran out"
            )


def start(
    *,
    concurrency: Optional[int] = None,
    groups: bool = False,
    isolation: str = "socket",
    log_path: Optional[Union[str, pathlib.Path]] = None,
) -> Worker:
    """Starts a worker and makes its context TFF's default.

    Args:
      concurrency: Clients, or groups, that run concurrently; default: the number of
        processors that this process may use.
      groups: Whether `concurrency` counts groups of clients, as in dpfl's own federated
        averaging, all of which begin at once. If a computation has more groups, up to
        four times `concurrency` run at a time.
      isolation: The worker's isolation, one of `engine.ISOLATIONS`; with
        `anyone_can_connect` anyone who reaches the worker's port can read and write
        files as you.
      log_path: File to which the worker's output is appended; None to discard it.

    Raises:
      RuntimeError: If it is not called on the main thread, since the kernel ends the
        worker together with the thread that started it.
      IsolationError: If the system does not allow the isolation.
      WorkerDiedError: If the worker does not come up.
    """
    thread = threading.current_thread()
    if thread is not threading.main_thread():
        raise RuntimeError(
            f"a worker must be started on the main thread, found {thread.name!r}"
        )
    concurrency = machine.processors() if concurrency is None else concurrency
    concurrency = checks.integer("concurrency", concurrency)
    # With one thread within an operation results have the same bits on every run, and
    # several clients at a time are the fastest.
    environment = {
        **os.environ,
        "TF_NUM_INTRAOP_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1"),
    }
    calls = concurrency * (_CALLS_OF_A_GROUP if groups else 1)

    command = [
        str(_worker_binary()),
        f"--max_concurrent_computation_calls={calls}",
    ]
    with isolation_lib.started(command, environment, isolation, log_path) as isolated:
        worker = Worker(isolated)
        try:
            worker.wait_until_ready()
        except BaseException:
            worker.close()
            raise
    atexit.register(worker.close)
    tff.framework.set_default_context(worker.context())
    return worker


def _worker_binary() -> pathlib.Path:
    return pathlib.Path(tff.__file__).parent / "data" / "worker_binary"
