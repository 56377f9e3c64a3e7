# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A file that only grows, and goes back to where it was when a checkpoint was made.

A checkpoint keeps the file's `Mark`: its length, and the SHA-256 of what it held. What
stands behind the mark is rows that the checkpoint itself holds, so that nothing is lost
if the process ends in the middle of an append: a resumed run rewinds the file to the
mark and appends those rows again. The content is on the disk (fsync) when `append`
returns, so before the next checkpoint can say that it is there.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import NamedTuple

from dpfl import files

_BLOCK_BYTES = 1 << 20


class DamagedRecordError(ValueError):
    """A file does not begin with what was written to it."""


class Mark(NamedTuple):
    """A place in a file.

    Attributes:
      length: Bytes before it.
      digest: Their SHA-256 in hex.
    """

    length: int
    digest: str


BEGINNING = Mark(0, hashlib.sha256().hexdigest())


class AppendedFile:
    """A file that one process at a time appends to; an append costs what it adds.

    Attributes:
      path: The file's.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._length = 0
        self._digest = hashlib.sha256()

    @property
    def mark(self) -> Mark:
        """Returns the file's end as far as it is on the disk."""
        return Mark(self._length, self._digest.hexdigest())

    def rewind(self, mark: Mark) -> None:
        """Takes the file back to a mark.

        Args:
          mark: From `mark`, of this process or of an earlier one.

        Raises:
          DamagedRecordError: If the file does not begin with what the mark says; it is
            then left as it is.
          OSError: If it cannot be read or cut.
        """
        digest = hashlib.sha256()
        if mark.length:
            left = mark.length
            try:
                files.check_regular(self.path.name, self.path)
                with self.path.open("rb") as file:
                    while block := file.read(min(left, _BLOCK_BYTES)):
                        digest.update(block)
                        left -= len(block)
            except FileNotFoundError:
                pass
            if left or digest.hexdigest() != mark.digest:
                raise DamagedRecordError(
                    f"{self.path} must begin with the {mark.length} bytes that the run "
                    "wrote, as its checkpoint says, found it changed; put it back or "
                    "choose another output_dir"
                )
            os.truncate(self.path, mark.length)
        else:
            self.path.unlink(missing_ok=True)
        self._length, self._digest = mark.length, digest

    def append(self, content: bytes) -> None:
        """Appends to the file.

        Args:
          content: What is added.

        Raises:
          OSError: If it cannot be written; a part may stand behind the mark.
        """
        if self._length:
            with self.path.open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        else:
            # Its name is on the disk then, too.
            files.write_atomically(self.path, content)
        self._length += len(content)
        self._digest.update(content)
