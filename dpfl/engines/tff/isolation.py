# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Isolation of a server that accepts anyone's connections, for this process alone.

    with isolation.started(command, os.environ) as worker:
        while not answers(worker.target):
            worker.attend(0.02)

TFF's worker listens on every address of the machine without authentication: anyone who
reaches it computes, reads and writes files as its user, and only its port can be
chosen. It is isolated from outside:

- `socket`: the worker's bind() is intercepted (seccomp user notification, Linux 5.9),
  and this process replaces the worker's socket by a listening socket of its own. It is
  a unix socket whose file is removed as soon as this process has opened it, so that it
  has neither an address nor a path: it is reached through a descriptor of this process.
- `anyone_can_connect`: the worker as TFF starts it.

Nothing here needs privileges, and an isolation that the system does not allow is
refused. Behind `socket` a worker is checked once it runs, and killed if it listens
anywhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import select
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Optional, Union

from dpfl import checks, launcher
from dpfl.training.engine import ISOLATIONS, EngineLostError

# The port of a worker that is not reached by TCP.
_UNUSED_PORT = 8000

# From linux/seccomp.h: struct seccomp_notif, seccomp_notif_resp, seccomp_notif_addfd.
_NOTIFICATION_RECEIVE = 0xC0502100
_NOTIFICATION_SEND = 0xC0182101
_NOTIFICATION_ADD_DESCRIPTOR = 0x40182103
_NOTIFICATION = struct.Struct("@QII iIQ 6Q")
_RESPONSE = struct.Struct("@QqiI")
_ADD_DESCRIPTOR = struct.Struct("@QIIII")
_ADD_AT_NUMBER = 1


class IsolationError(EngineLostError):
    """The system does not allow the requested isolation of the worker."""


class Isolated:
    """A running worker and its isolation from other processes.

    Attributes:
      target: gRPC's name of the worker; valid in this process only, unless it is TCP.
      isolation: One of `engine.ISOLATIONS`.
      port: TCP port that the worker listens on; None if there is none.
      process: The worker, once `launch` was called.
    """

    process: subprocess.Popen

    def __init__(self, isolation: str):
        self.isolation = isolation
        self.port: Optional[int] = None
        # Closed in the opposite order.
        self._resources = contextlib.ExitStack()
        self._notifications: Optional[int] = None
        if isolation == "anyone_can_connect":
            self.port = _free_port()
            self.target = f"127.0.0.1:{self.port}"
            return
        self._listener, path_descriptor = anonymous()
        self._resources.callback(os.close, path_descriptor)
        self._resources.callback(self._listener.close)
        self.target = f"unix:/proc/self/fd/{path_descriptor}"

    def attend(self, seconds: float) -> None:
        """Answers the worker's calls of bind(), for at most `seconds`."""
        # Unlike select(), for any descriptor.
        poll = select.poll()
        if self._notifications is not None:
            poll.register(self._notifications, select.POLLIN)
        for descriptor, _ in poll.poll(seconds * 1000):
            self._answer(descriptor)

    def settle(self) -> None:
        """Ends the start of a worker that answers: later calls of bind() fail in it."""
        if self.isolation == "anyone_can_connect":
            return
        self._forget_notifications()
        # Then only the worker holds it, and it ends with the worker.
        self._listener.close()
        addresses = listening(self.process.pid)
        if addresses:
            raise IsolationError(
                f"TFF's worker {self.process.pid} listens on {addresses}, and may not"
            )

    def close(self) -> None:
        """Kills the worker and closes every descriptor."""
        self._resources.close()
        self._forget_notifications()

    def _forget_notifications(self) -> None:
        if self._notifications is not None:
            os.close(self._notifications)
            self._notifications = None

    def launch(
        self, command: Sequence[str], environment: dict[str, str], log: Any
    ) -> None:
        """Starts the worker behind its barrier; raises IsolationError if that fails.

        Args:
          command: The program and its arguments, to which `--port` is added.
          environment: Environment variables of the worker.
          log: File for the worker's output.
        """
        port = _UNUSED_PORT if self.port is None else self.port
        program = [*command, f"--port={port}"]
        if self.isolation == "anyone_can_connect":
            self._start(launcher.ends_with_parent(program), environment, log)
            return
        # gRPC accepts until no connection is left.
        self._listener.setblocking(False)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                program = launcher.ends_with_parent(program, theirs.fileno())
                self._start(program, environment, log, theirs.fileno())
            self._hear_launcher(ours)

    def _start(
        self,
        program: Sequence[str],
        environment: dict[str, str],
        log: Any,
        *passed: int,
    ) -> None:
        self.process = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            pass_fds=passed,
        )
        self._resources.callback(self.process.wait)
        self._resources.callback(self.process.kill)

    def _hear_launcher(self, control: socket.socket) -> None:
        answer, descriptors, _, _ = socket.recv_fds(
            control, 4096, 1, socket.MSG_CMSG_CLOEXEC
        )
        if answer != b"ok":
            raise IsolationError(answer.decode() or "its launcher ended")
        self._notifications = descriptors[0]

    def _answer(self, notifications: int) -> None:
        """Replaces the socket that the worker binds with this process's socket."""
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(notifications, _NOTIFICATION_RECEIVE, notification)
            fields = _NOTIFICATION.unpack(notification)
            identifier, descriptor = fields[0], fields[6]
            ours, flags = self._listener.fileno(), os.O_CLOEXEC
            replacement = _ADD_DESCRIPTOR.pack(
                identifier, _ADD_AT_NUMBER, ours, descriptor, flags
            )
            fcntl.ioctl(notifications, _NOTIFICATION_ADD_DESCRIPTOR, replacement)
            response = _RESPONSE.pack(identifier, 0, 0, 0)
            fcntl.ioctl(notifications, _NOTIFICATION_SEND, response)
        except FileNotFoundError:
            # The call was interrupted, or the worker ended.
            return
        except OSError as error:
            raise IsolationError(
                f"no socket can be passed into the worker ({error.strerror}; "
                "it needs Linux 5.9 or later)"
            ) from error


@contextlib.contextmanager
def started(
    command: Sequence[str],
    environment: dict[str, str],
    isolation: str = "socket",
    log_path: Optional[Union[str, pathlib.Path]] = None,
) -> Iterator[Isolated]:
    """A worker behind an isolation; the block waits until it answers.

    The block calls `attend` until then. If it fails, the worker is killed.

    Args:
      command: The program and its arguments, to which `--port` is added.
      environment: Environment variables of the worker.
      isolation: One of `engine.ISOLATIONS`.
      log_path: File to which the worker's output is appended; None to discard it.

    Raises:
      ValueError: If the isolation is not one of these.
      IsolationError: If the system does not allow the isolation.
    """
    isolation = checks.choice("isolation", isolation, ISOLATIONS)
    log_file = os.devnull if log_path is None else log_path
    with open(log_file, "ab") as log, contextlib.ExitStack() as stack:
        try:
            isolated = Isolated(isolation)
            stack.callback(isolated.close)
            isolated.launch(command, environment, log)
            yield isolated
            isolated.settle()
        except IsolationError as error:
            raise IsolationError(
                "TFF's worker accepts every connection, and this system cannot isolate "
                f"it (isolation={isolation!r}: {error}); the isolation "
                "'anyone_can_connect' starts it unprotected, so that whoever reaches "
                "its port can read and write files as you, unless the program runs in "
                "a network of its own"
            ) from error
        stack.pop_all()


def listening(pid: int) -> list[tuple[str, int]]:
    """The TCP addresses, in this network, on which a process of this user listens."""
    # Settings are checked without it, where JAX trains.
    import psutil

    sockets = psutil.Process(pid).net_connections("tcp")
    return sorted(tuple(s.laddr) for s in sockets if s.status == psutil.CONN_LISTEN)


def anonymous() -> tuple[socket.socket, int]:
    """A listening unix socket, and a descriptor that leads to it.

    Its file exists for a moment in a private folder, and is opened and removed. Then
    /proc/self/fd leads this process to it, and no path leads anyone else.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with tempfile.TemporaryDirectory(prefix="dpfl-") as folder:
            # Bound through a descriptor, since a path may have 107 bytes only.
            entrance = os.open(folder, os.O_PATH | os.O_DIRECTORY)
            try:
                path = f"/proc/self/fd/{entrance}/worker"
                listener.bind(path)
                os.chmod(path, 0o600)
                listener.listen(socket.SOMAXCONN)
                return listener, os.open(path, os.O_PATH | os.O_CLOEXEC)
            finally:
                os.close(entrance)
    except BaseException:
        listener.close()
        raise


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("", 0))
        return trial.getsockname()[1]
