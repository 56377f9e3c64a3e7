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
and at exit. `protect_tff` does the same for the contexts that TFF itself makes. Only
public API of TFF is used, apart from the path of the binary.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pathlib
import sys
import threading
import weakref
from typing import Any, NamedTuple, Optional, Union

import psutil
import tensorflow_federated as tff

from dpfl import checks, machine
from dpfl.engines.tff import connection
from dpfl.engines.tff import isolation as isolation_lib
from dpfl.engines.tff.connection import Connection, WorkerDiedError
from dpfl.training import deadlines

_POLL_SECONDS = 0.02
_TFF_NO_LIMIT = -1
# Threads of TFF for each group. A TensorFlow call occupies one also while it waits for
# its arguments, so that with one thread a group, calls that wait for one group may
# block another. Four sufficed in all trials.
_CALLS_OF_A_GROUP = 4
# The factory with which TFF's contexts start their worker.
_TFF_FACTORY = tff.framework.local_cpp_executor_factory


class PeakMemory(NamedTuple):
    """Peak resident memory so far, in bytes, of this process and of the worker."""

    python: int
    worker: int


class Worker:
    """A running worker and the TFF execution contexts that talk to it.

    Attributes:
      isolation: The worker's isolation: one of `engine.ISOLATIONS`.
      target: gRPC's name of the worker; valid in this process only, unless it is TCP.
      port: TCP port that the worker listens on; None if it has none.
    """

    def __init__(self, isolated: isolation_lib.Isolated):
        self._isolated = isolated
        self._process = isolated.process
        self.pid = isolated.process.pid
        self.isolation = isolated.isolation
        self.target = isolated.target
        self.port = isolated.port
        self._closed = False
        self._timed_out: Optional[float] = None
        self._connection = Connection(self.target, self.wait_until_ready)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def meaning(self) -> str:
        """The end of a sentence about the worker, on the meaning of its isolation."""
        return self._isolated.meaning

    def wait(self) -> int:
        """Waits for the worker to end, and returns its exit status."""
        return self._process.wait()

    def context(self, *, secure_sums: bool = False) -> tff.framework.SyncContext:
        """A synchronous context; with `secure_sums` plain sums simulate secure ones."""
        return self._connection.context(secure_sums=secure_sums)

    def executor_factory(
        self, *, default_num_clients: int = 0, stream_structs: bool = False
    ) -> tff.framework.ExecutorFactory:
        """The executor factory for TFF's contexts of every kind."""
        return self._connection.executor_factory(
            default_num_clients=default_num_clients, stream_structs=stream_structs
        )

    def deadline(
        self, seconds: Optional[float]
    ) -> contextlib.AbstractContextManager[None]:
        """Kills the worker if the block takes longer; the pending call then fails."""
        return deadlines.time_limit(seconds, self._expire)

    def peak_memory(self) -> PeakMemory:
        """The peak resident memory so far of both processes."""
        return PeakMemory(peak_bytes(os.getpid()), peak_bytes(self.pid))

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
    intra_op_threads: Optional[int] = None,
    isolation: str = "socket",
    port: Optional[int] = None,
    log_path: Optional[Union[str, pathlib.Path]] = None,
) -> Worker:
    """Starts a worker and makes its context TFF's default.

    Args:
      concurrency: Clients, or groups, that run concurrently; default: the number of
        processors that this process may use.
      groups: Whether `concurrency` counts groups of clients, as in dpfl's own federated
        averaging, all of which begin at once. If a computation has more groups, up to
        four times `concurrency` run at a time.
      intra_op_threads: Threads within one TensorFlow operation; default: one, with
        which results have the same bits on every run, and which is also the fastest for
        several concurrent clients.
      isolation: The worker's isolation, one of `engine.ISOLATIONS`; with
        `anyone_can_connect` anyone who reaches the worker's port can read and write
        files as you.
      port: TCP port, for isolations that have one; default: a free one.
      log_path: File to which the worker's output and its isolation are appended; None
        to discard them.

    Raises:
      RuntimeError: If it is not called on the main thread, since the kernel ends the
        worker together with the thread that started it.
      IsolationError: If the system does not allow the isolation.
      WorkerDiedError: If the worker does not come up.
    """
    concurrency = machine.processors() if concurrency is None else concurrency
    intra_op_threads = 1 if intra_op_threads is None else intra_op_threads
    concurrency = checks.integer("concurrency", concurrency)
    intra_op_threads = checks.integer("intra_op_threads", intra_op_threads)
    environment = {
        **os.environ,
        "TF_NUM_INTRAOP_THREADS": str(intra_op_threads),
        "OMP_NUM_THREADS": str(intra_op_threads),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1"),
        connection.VARIABLE: connection.versions_text(),
    }
    calls = concurrency * (_CALLS_OF_A_GROUP if groups else 1)
    place = {"isolation": isolation, "port": port, "log_path": log_path}
    worker = _start(calls, environment, **place)
    atexit.register(worker.close)
    tff.framework.set_default_context(worker.context())
    return worker


def local_executor_factory(
    *,
    default_num_clients: int = 0,
    max_concurrent_computation_calls: int = _TFF_NO_LIMIT,
    stream_structs: bool = False,
    isolation: str = "socket",
) -> tff.framework.ExecutorFactory:
    """Replaces `tff.framework.local_cpp_executor_factory`, with an isolated worker.

    The worker starts now and not with the first computation, is not restarted when it
    dies, and ends with the factory or with this process.

    Args:
      default_num_clients: As in TFF.
      max_concurrent_computation_calls: As in TFF.
      stream_structs: As in TFF.
      isolation: As for `start`.
    """
    calls, environment = max_concurrent_computation_calls, dict(os.environ)
    worker = _start(calls, environment, isolation=isolation)
    factory = worker.executor_factory(
        default_num_clients=default_num_clients, stream_structs=stream_structs
    )
    weakref.finalize(factory, worker.close)
    return factory


def protect_tff(*, isolation: str = "socket") -> None:
    """Isolates the workers of the contexts that TFF itself makes.

    Importing TFF sets a default context that starts an unprotected worker with the
    first computation. It is replaced now, and from now on those of
    `tff.backends.native.set_sync_local_cpp_execution_context` and its like, also of
    `tff.backends.test`, start theirs with `local_executor_factory`. Earlier contexts,
    and workers that already run, are unchanged.

    Raises:
      RuntimeError: If this version of TFF does not start its worker in a known way, or
        it is not called on the main thread.
    """
    name = _TFF_FACTORY.__name__
    owners = [tff.framework, sys.modules[_TFF_FACTORY.__module__]]
    for owner in owners:
        current = getattr(owner, name, None)
        if getattr(current, "func", current) not in (
            _TFF_FACTORY,
            local_executor_factory,
        ):
            place = f"{owner.__name__}.{name}"
            raise RuntimeError(f"{place} is not TFF's own function, but {current!r}")
    factory = functools.partial(local_executor_factory, isolation=isolation)
    for owner in owners:
        setattr(owner, name, factory)
    tff.backends.native.set_sync_local_cpp_execution_context()


def _start(
    calls: int, environment: dict[str, str], **isolation_arguments: Any
) -> Worker:
    thread = threading.current_thread()
    if thread is not threading.main_thread():
        raise RuntimeError(
            f"a worker must be started on the main thread, found {thread.name!r}"
        )

    def until_ready(isolated: isolation_lib.Isolated) -> Worker:
        worker = Worker(isolated)
        try:
            worker.wait_until_ready()
        except BaseException:
            worker.close()
            raise
        return worker

    return isolation_lib.start(
        lambda port: [
            str(_worker_binary()),
            f"--port={port}",
            f"--max_concurrent_computation_calls={calls}",
        ],
        environment,
        until_ready=until_ready,
        **isolation_arguments,
    )[1]


def _worker_binary() -> pathlib.Path:
    path = pathlib.Path(tff.__file__).parent / "data" / "worker_binary"
    if not path.is_file():
        raise RuntimeError(f"TFF's worker binary {path} does not exist")
    return path


def peak_bytes(pid: int) -> int:
    """A process's peak memory in bytes; the current one if the kernel keeps none."""
    return machine.peak_bytes(pid) or psutil.Process(pid).memory_info().rss
