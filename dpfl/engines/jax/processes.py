# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Several processes of one run, on one machine or more, by `jax.distributed`.

    with joined("127.0.0.1:8476", 2, process_id):
        check_same(facts)
        first = from_first(tree)

All processes compute the same rounds; the first of them alone is a run with files.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from dpfl import checks, files
from dpfl.training import checkpoint, deadlines
from dpfl.training.engine import EngineLostError, NotEnoughMemoryError

# A process that was silent for longer is lost, and JAX ends the others.
_SILENT_SECONDS = 20


@contextlib.contextmanager
def joined(address: str, number: int, own: int) -> Iterator[None]:
    """Joins the processes of a run for a block.

    Whoever leaves by an exception ends its process without JAX's farewell, which would
    wait for the others; they end when they miss it.

    Args:
      address: HOST:PORT of the first process, which listens there.
      number: The number of processes.
      own: The index of this process.

    Raises:
      EngineLostError: If not all processes come.
      ValueError: If the address is of no host, or the first process cannot have it.
    """
    _check_address(address, own)
    logging.getLogger("jax._src.distributed").setLevel(logging.WARNING)
    # That of processors; cards have their own.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    with failures_told(), deadlines.waiting_for(f"{number} processes at {address}"):
        jax.distributed.initialize(
            *(address, number, own),
            coordinator_bind_address=address,
            heartbeat_timeout_seconds=_SILENT_SECONDS,
        )
    try:
        yield
    except BaseException as error:
        atexit.register(_leave, _exit_code(error))
        raise


def _check_address(address: str, own: int) -> None:
    """Raises ValueError for an address without a host, or one that is in use."""
    host, _, port = address.rpartition(":")
    wanted = "HOST:PORT of a host that this one finds"
    try:
        [(family, *_, place), *_] = socket.getaddrinfo(
            *(host.strip("[]"), int(port)), type=socket.SOCK_STREAM
        )
        if not own:
            wanted = "HOST:PORT of this host, with a port that is free"
            with socket.socket(family) as listener:
                # As if it were free while connections of the last run go.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(place)
    except (OSError, UnicodeError) as error:
        message = checks.message("coordinator_address", wanted, address)
        raise ValueError(f"{message} ({error})") from error


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(bool(error.code))
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, (OSError, TypeError, ValueError)) else 1


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Turns JAX's failures into EngineLostError."""
    # Lost connections of processors are errors of values.
    others = (ValueError,) if jax.distributed.is_initialized() else ()
    try:
        yield
    except NotEnoughMemoryError:
        raise
    except (jax.errors.JaxRuntimeError, *others) as error:
        first, *_ = str(error).splitlines()
        raise EngineLostError(f"JAX failed: {first}") from error


def check_same(facts: Mapping[str, Any]) -> None:
    """Raises ChangedFlagsError if a process has other facts than the first."""
    if jax.process_count() == 1:
        return
    own = json.dumps(files.plain(facts)).encode()
    with failures_told():
        longest = multihost_utils.process_allgather(np.array(len(own))).max()
        padded = _bytes(own.ljust(int(longest)))
        every = multihost_utils.process_allgather(padded)
    first, *others = (json.loads(bytes(each)) for each in every)
    for place, other in enumerate(others, 1):
        what = f"process {place} can only join process 0"
        checkpoint.check_unchanged(first, other, what, "start both with the same flags")


def from_first(tree: Any) -> Any:
    """A pytree of arrays as the first process has it; the others have its shapes."""
    if jax.process_count() == 1:
        return tree
    parts, structure = jax.tree.flatten(jax.tree.map(np.asarray, tree))
    # As bytes, since a sum with zeros loses the sign of zero.
    with failures_told():
        given = multihost_utils.broadcast_one_to_all(
            [_bytes(part.tobytes()) for part in parts]
        )
    made = [
        np.asarray(whole, np.uint8).view(part.dtype).reshape(part.shape)
        for whole, part in zip(given, parts)
    ]
    return jax.tree.unflatten(structure, made)


def _bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)
