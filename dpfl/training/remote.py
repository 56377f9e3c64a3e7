# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A worker of TFF that another program started, as `dpfl-worker` does."""

from __future__ import annotations

import socket
import time
from typing import Any, Optional

import grpc
import tensorflow_federated as tff

from dpfl.training import patience
from dpfl.training.addresses import Address
from dpfl.training.connection import Connection, WorkerDiedError

# How long TCP may take to say whether anybody listens: kernels do, however busy.
_KNOCK_SECONDS = 2.0
# How long a worker may take to say hello before others go first.
_GREETING_SECONDS = 60.0
_POLL_SECONDS = 0.02
# What a call fails with when the worker, or the way to it, is gone.
_LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.FAILED_PRECONDITION,
)


class RemoteWorker:
    """A worker that is used as long as it answers, and may come back.

    Attributes:
      address: Where it listens.
      is_slow: Whether it took the last connection and did not say a word: it may be
        busy, or gone behind a tunnel that is not.
    """

    def __init__(self, place: Address):
        self.address = place
        self.is_slow = False
        self._connection: Optional[Connection] = None
        self._context: Any = None
        self._lateness: Optional[float] = None

    @property
    def is_connected(self) -> bool:
        """Whether it is in use, and is still the process that was connected to."""
        return self._connection is not None and not self._connection.was_lost

    def connect(self) -> bool:
        """Tries to reach the worker, and returns whether it answers."""
        self.close()
        self.is_slow = False
        if not self._is_listened_to():
            return False
        connection = Connection(str(self.address), self._check)
        clock = patience.Clock()
        while not connection.is_ready:
            self.is_slow = clock.seconds() > _GREETING_SECONDS
            if self.is_slow or connection.was_refused:
                connection.close()
                return False
            time.sleep(_POLL_SECONDS)
        self._lateness = None
        self._connection = connection
        self._context = connection.context(secure_sums=True)
        return True

    def call(
        self, computation: tff.Computation, *arguments: Any, seconds: Optional[float]
    ) -> Any:
        """Returns what a computation gives on this worker.

        Args:
          computation: Any; secure sums are simulated.
          *arguments: Its own.
          seconds: Time allowed, None for no limit.

        Raises:
          WorkerDiedError: If the worker is lost, or takes longer.
        """
        stack = tff.framework.get_context_stack()
        try:
            with (
                patience.time_limit(seconds, self._expire),
                stack.install(self._context),
            ):
                return computation(*arguments)
        except Exception as error:
            if self._lateness is not None:
                raise WorkerDiedError(
                    f"the worker at {self.address} did not finish within the deadline "
                    f"of {self._lateness:g} seconds"
                ) from error
            if self._connection is None or _is_lost(error):
                raise WorkerDiedError(
                    f"the worker at {self.address} does not answer any more"
                ) from error
            raise

    def close(self) -> None:
        """Stops using the worker, which goes on by itself."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _expire(self, seconds: float) -> None:
        self._lateness = seconds
        self.close()

    def _check(self) -> None:
        """Raises if the connection that TFF is about to use is not one any more."""
        while True:
            connection = self._connection
            # One that came back in the meantime is to be greeted first.
            if connection is None or connection.was_lost:
                raise WorkerDiedError(f"the worker at {self.address} does not answer")
            if connection.is_ready:
                return
            # It hears of its end in a moment.
            time.sleep(_POLL_SECONDS)

    def _is_listened_to(self) -> bool:
        try:
            with socket.create_connection(self.address, _KNOCK_SECONDS):
                return True
        except (OSError, UnicodeError):
            # The second: no name of a host.
            return False


def _is_lost(error: Exception) -> bool:
    if isinstance(error, WorkerDiedError):
        return True
    return isinstance(error, grpc.Call) and error.code() in _LOST
