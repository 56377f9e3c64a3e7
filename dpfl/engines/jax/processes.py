# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Several processes of one run, on one machine or more, by `jax.distributed`.

    with joined("127.0.0.1:8476", 2, process_id):
        check_same(digest)
        first = from_first(tree)

All processes compute the same rounds; the first of them alone is a run with files.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from dpfl import checks
from dpfl.training import deadlines
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
    """
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


def check_same(digest: str) -> None:
    """Raises ValueError if another process has another digest, in hex."""
    if jax.process_count() == 1:
        return
    with failures_told():
        every = multihost_utils.process_allgather(_bytes(bytes.fromhex(digest)))
    for place, other in enumerate(every):
        if not np.array_equal(other, every[0]):
            wanted = "of the flags, data, versions and device of process 0"
            raise ValueError(checks.message("process_id", wanted, place))


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
