# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Folders, and files, that one process holds at a time.

with locks.locked(folder):
    files.remove_partials(folder)

A lock ends with its process. Windows has none.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
from collections.abc import Iterator

from dpfl import files
from dpfl.reading import PathLike

try:
    import fcntl
except ImportError:  # Windows has no flock.
    fcntl = None  # type: ignore[assignment]


class InUseError(ValueError):
    """The folder is locked by another process."""


@contextlib.contextmanager
def locked(folder: PathLike) -> Iterator[None]:
    """Locks a folder for this process; the lock ends with the process.

    Raises:
      InUseError: If another process holds it.
      ValueError: If it is no folder that can be written to.
    """
    must = "output_dir must be a writable folder"
    with files.refused(must, pathlib.Path(folder)):
        opened = open(pathlib.Path(folder) / ".lock", "a+")
    with opened as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise InUseError(
                    f"output_dir {folder} is in use by process {file.read().strip()}"
                ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextlib.contextmanager
def held(file: io.RawIOBase) -> Iterator[None]:
    """Holds an open file; waits until no other process does in such a block."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)
