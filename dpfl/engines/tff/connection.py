# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""gRPC connections of Python to a TFF worker, and its compilers.

with failures_told():
    executor = tff.framework.RemoteExecutor(Connection(target))
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import tensorflow_federated as tff

from dpfl.training.engine import EngineLostError

# The worker's own limit of a message, such as that of a state.
MESSAGE_BYTES = 1000**3
# The largest number of milliseconds that gRPC accepts, 24 days.
_NEVER = 2**31 - 1
_CHANNEL_OPTIONS = (
    ("grpc.max_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # No proxy is used between this process and its worker, and connections share no
    # subchannel, so that an earlier worker's state does not affect a later one.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # By default an idle channel is closed after half an hour, a handshake is abandoned
    # after 20 seconds, and a reconnection waits for up to two minutes.
    ("grpc.client_idle_timeout_ms", _NEVER),
    ("grpc.min_reconnect_backoff_ms", _NEVER),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


# Part of the name of each of TFF's secure sums.
_SECURE = b"federated_secure"


class WorkerDiedError(EngineLostError):
    """The worker process ended, or took longer than the user allows."""


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Turns the worker's failures into errors of one sentence.

    Raises:
      WorkerDiedError: If gRPC gives up a call.
    """
    try:
        yield
    except grpc.RpcError as error:
        details = str(error.details() if isinstance(error, grpc.Call) else error)
        first_line = " ".join(details.splitlines()[:1])
        what = "TFF's worker did not finish a call, often for lack of memory"
        raise WorkerDiedError(f"{what}: {first_line}") from error


@functools.cache
def _kept_grpc() -> grpc.Channel:
    """A channel to nowhere, which keeps gRPC's memory until this process ends.

    When the last channel is closed, gRPC frees what its threads use, and does not wait
    for the one that polls, for up to ten seconds, after a message that filled a socket.
    That one aborts the process: "Check failed: !inspect->seen_inactive".
    """
    return grpc.insecure_channel("unix:/")


class Connection(tff.framework.RemoteExecutorGrpcStub):
    """TFF's stub of a worker, which ignores disposals once the worker is gone."""

    def __init__(self, target: str):
        """Starts to connect to gRPC's name of a worker, in the background."""
        _kept_grpc()
        self._own_channel = grpc.insecure_channel(target, _CHANNEL_OPTIONS)
        super().__init__(self._own_channel)
        self._is_closed = False

    def dispose(self, request: Any) -> Any:
        """See base class."""
        return self._unless_gone(super().dispose, request)

    def dispose_executor(self, request: Any) -> Any:
        """See base class."""
        return self._unless_gone(super().dispose_executor, request)

    def _unless_gone(self, call: Callable[[Any], Any], request: Any) -> Any:
        # Values may be dropped before anyone notices that the worker is gone. A closed
        # channel raises ValueError.
        with contextlib.suppress(grpc.RpcError, ValueError):
            return None if self._is_closed else call(request)
        return None

    def forget(self) -> None:
        """Leaves its values to the worker, which is about to end or lost."""
        self._is_closed = True

    def close(self) -> None:
        """Closes the channel; pending calls fail."""
        self.forget()
        self._own_channel.close()


def compiled(computation: Any) -> Any:
    """The computation for TFF's worker."""
    return tff.backends.native.desugar_and_transform_to_native(computation)


# Cached, since the next run's worker may be given the same computation, for seconds.
@functools.lru_cache(maxsize=8)
def compiled_with_plain_sums(computation: Any) -> Any:
    """The computation for TFF's worker, with plain sums in place of secure ones."""
    # TFF's own search for secure sums takes a sixth of the compilation.
    content = tff.framework.serialize_computation(computation).SerializeToString()
    if _SECURE in content:
        computation = tff.backends.test.replace_secure_intrinsics_with_bodies(
            computation
        )
    return compiled(computation)
