# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Journal of a ledger: a file that has every round before it is released.

    journal = Journal("ledger.jsonl", {"mechanism": mechanism.identity})
    rounds = dict(journal.entries())
    journal.add(len(rounds) + 1, names)

A line for each round is on the disk before `record_round` returns: a program that is
killed after a release and resumes from an older state finds it there. The clients of a
round are the secret that amplifies privacy, so the file is readable by its owner alone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from io import FileIO
from typing import Any

from dpfl import checks, files, locks, reading
from dpfl.planning.history import Names, names_of


class Journal:
    """The lines of one ledger's file, which is made if it does not exist."""

    def __init__(self, path: files.PathLike, about: Mapping[str, Any]):
        """Opens a journal; `about` identifies the run that its rounds belong to.

        A last line that a kill left unfinished is removed: its round was not released.

        Raises:
          ValueError: If the file is no journal, or that of another run.
        """
        self._path = files.output_path("path", path)
        head = json.dumps({"ledger": files.digest(about)}) + "\n"
        if not self._path.exists():
            files.write_atomically(self._path, head, private=True)
        # A line that another process is about to write is none that a kill left.
        with self._held() as file:
            # Read before the rest, which may be large in another file.
            is_own = file.read(len(head)) == head.encode()
            wanted = "new, or a ledger of this mechanism, participation and dimension"
            checks.require(is_own, "path", wanted, str(self._path))
            file.seek(0)
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            if len(whole) < len(content):
                file.truncate(len(whole))
        self._size = len(whole)

    @contextlib.contextmanager
    def _held(self) -> Iterator[FileIO]:
        """Opens the file, which no other process then holds."""
        # Without a buffer, whose rest Python would write when it closes the file.
        with open(self._path, "r+b", buffering=0) as file, locks.held(file):
            yield file

    def entries(self) -> Iterator[tuple[int, Names]]:
        """The number of each round, from 1 on, and its clients if they were named."""
        with open(self._path, "rb") as file:
            next(file)
            for line in file:
                try:
                    entry = reading.parsed("a round", line.decode())
                    number = checks.integer("round", entry["round"])
                    names = entry.get("participants")
                    if not isinstance(names, (list, type(None))):
                        raise TypeError("participants are not a list")
                    yield number, None if names is None else names_of(names)
                    continue
                except (ValueError, KeyError, TypeError):
                    pass
                # Behind the block: the errors hold the names of clients.
                raise ValueError(f"the ledger file {self._path} is damaged")

    def add(self, number: int, names: Names) -> None:
        """Appends a round; it is on the disk, or an exception says that it is not.

        Raises:
          TypeError: If JSON would not restore the names.
          ValueError: If another process has written to the file.
        """
        entry: dict[str, Any] = {"round": number}
        if names is not None:
            entry["participants"] = _as_json(names)
        line = json.dumps(entry).encode() + b"\n"
        with self._held() as file:
            if file.seek(0, os.SEEK_END) != self._size:
                raise ValueError(
                    f"another process has written to the ledger file {self._path}"
                )
            try:
                left = memoryview(line)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(self._size)
                raise
        self._size += len(line)


def _as_json(names: Sequence[Hashable]) -> list[Any]:
    listed = list(names)
    try:
        if json.loads(json.dumps(listed)) == listed:
            return listed
    except (TypeError, ValueError):
        pass
    raise TypeError(
        "participants must be numbers or strings for a ledger with a path, "
        f"found {listed!r:.80}"
    )
