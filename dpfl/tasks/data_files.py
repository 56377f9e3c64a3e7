# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated data in TFF's SQLite format.

path = data_files.find_sql_file(file, config)
pieces = data_files.sql_pieces(path, file, record, config)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import sqlite3
import tarfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional, Protocol

import numpy as np

from dpfl import files
from dpfl.tasks import downloads, records
from dpfl.tasks.configs import SqlConfig
from dpfl.tasks.downloads import DataFileError as DataFileError

# Evaluation examples come from at most this many clients when they are capped.
_EVALUATION_CLIENTS = 1000
_EXAMPLES_OF_CLIENT = (
    "SELECT serialized_example_proto FROM examples"
    " WHERE client_id = ? AND split_name = ?"
)


class Record(Protocol):
    """A kind of records, which each engine knows how to parse."""

    def parse(self, records: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and labels of records."""


@dataclasses.dataclass(frozen=True, eq=False)
class SqlClients:
    """Clients whose examples are read from a checked file in every round.

    Attributes:
      path: Path of the file.
      split: Name of the clients' split.
      client_ids: Identifiers of the clients, sorted.
      sizes: int64[clients], the number of examples of each.
      record: The kind of the records.
    """

    path: str
    split: str
    client_ids: tuple[str, ...]
    sizes: np.ndarray
    record: Record

    def read(self, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and labels of some clients, in the order of their indices."""
        found: list[bytes] = []
        with _opened(self.path) as connection:
            for client in clients:
                own = (self.client_ids[client], self.split)
                rows = connection.execute(_EXAMPLES_OF_CLIENT, own)
                found.extend(bytes(row[0]) for row in rows)
        try:
            return self.record.parse(found)
        except records.DamagedExampleError as error:
            raise damaged(self.path, str(error)) from error


def sql_pieces(
    path: str, file: SqlFile, record: Record, config: SqlConfig
) -> dict[str, Any]:
    """The arguments of `Task` for the examples in a checked file.

    The file's first split is the clients', the second the test set.

    Args:
      path: Path of the file.
      file: The published file.
      record: The kind of the records.
      config: Options of the task.
    """
    training, testing = file.splits
    query = (
        "SELECT client_id, SUM(num_examples) FROM client_metadata"
        " WHERE split_name = ? GROUP BY client_id ORDER BY client_id"
    )
    with _opened(path) as connection:
        rows = connection.execute(query, (training,)).fetchall()
    client_ids = tuple(name for name, _ in rows)
    if not all(isinstance(name, str) for name in client_ids):
        # Those of bytes would find no examples.
        raise damaged(path, "a client's name is not a string")
    sizes = np.array([size for _, size in rows], np.int64)
    sample = functools.partial(_sample_records, path, testing, config.max_test_examples)
    return dict(
        client_ids=client_ids,
        clients=SqlClients(path, training, client_ids, sizes, record),
        test_examples=lambda: record.parse([one for one, _ in sample()]),
        test_owners=lambda: np.array([str(owner) for _, owner in sample()]),
    )


def _sample_records(
    path: str, split: str, limit: Optional[int]
) -> list[tuple[bytes, Any]]:
    """Up to `limit` examples with their clients, who are in a fixed random order.

    They are spread over up to 1000 clients; without a limit they are all examples, in
    the file's order.
    """
    with _opened(path) as connection:
        if limit is None:
            query = (
                "SELECT serialized_example_proto, client_id FROM examples"
                " WHERE split_name = ?"
            )
            rows = connection.execute(query, (split,))
            return [(bytes(record), client) for record, client in rows]
        clients = connection.execute(
            "SELECT DISTINCT client_id FROM client_metadata WHERE split_name = ?"
            " ORDER BY client_id",
            (split,),
        ).fetchall()
        each = -(-limit // min(len(clients), _EVALUATION_CLIENTS))
        found: list[tuple[bytes, Any]] = []
        for i in np.random.RandomState(0).permutation(len(clients)):
            if len(found) >= limit:
                break
            own = (clients[i][0], split, each)
            rows = connection.execute(f"{_EXAMPLES_OF_CLIENT} LIMIT ?", own)
            found.extend((bytes(row[0]), own[0]) for row in rows)
    return found[:limit]


@dataclasses.dataclass(frozen=True)
class SqlFile:
    """A published SQLite file.

    Attributes:
      name: Name of the file in the data folder.
      url: Address of the LZMA-compressed file.
      splits: Numbers of clients and examples of the training split, then of the test
        split, by their names.
      packed_sha256: Hexadecimal digest of the compressed form; None if none is known.
    """

    name: str
    url: str
    splits: Mapping[str, tuple[int, int]]
    packed_sha256: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class PackedText:
    """A published tar.bz2 file with one text file in it.

    Attributes:
      name: Path of the file in the data folder, as Keras names it.
      url: Address of the file.
      member: Name of the text file inside.
      sha256: Hexadecimal digest of the packed file.
    """

    name: str
    url: str
    member: str
    sha256: str


def data_folder(config: Any) -> str:
    """The absolute path of the folder that the options name, for workers too."""
    return os.path.abspath(os.path.expanduser(config.data_dir or "~/.tff"))


def damaged(path: str, fault: str) -> DataFileError:
    """The error for a file that is damaged or incomplete."""
    return DataFileError(
        f"The data file {path} is damaged or only part of a download ({fault}): delete"
        " it and fetch it again"
    )


def _check_counts(
    path: str, connection: sqlite3.Connection, file: SqlFile, partial: bool
) -> None:
    query = (
        "SELECT COUNT(DISTINCT client_id), COALESCE(SUM(num_examples), 0)"
        " FROM client_metadata WHERE split_name = ?"
    )
    for split, expected in file.splits.items():
        counts = connection.execute(query, (split,)).fetchone()
        if not counts[0] or (counts != expected and not partial):
            raise DataFileError(
                f"The data file {path} has {counts[0]} clients with {counts[1]}"
                f" examples in the split {split}, not {expected[0]} with {expected[1]}:"
                " fetch it again; allow_partial_data=True (--allow_partial_data)"
                " accepts a smaller file with clients in each split"
            )


@contextlib.contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    """Opens a SQLite file for reading; DataFileError for a damaged one."""
    url = f"file:{urllib.request.pathname2url(os.path.abspath(path))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(url, uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise damaged(path, f"SQLite reports: {error}") from error


def _check_sql_file(path: str, file: SqlFile, config: SqlConfig) -> None:
    """Refuses a file that is not the complete published one.

    Its length and client table are checked. Every split must have clients, even in
    partial data.
    """
    with _opened(path) as connection:
        numbers = (connection.execute(f"PRAGMA page_{n}") for n in ("size", "count"))
        expected = math.prod(number.fetchone()[0] for number in numbers)
        if os.path.getsize(path) < expected:
            raise damaged(path, f"it has not all of its {expected} bytes")
        _check_counts(path, connection, file, config.allow_partial_data)


def find_sql_file(file: SqlFile, config: SqlConfig) -> str:
    """The path of a complete SQLite file, which is downloaded if asked for.

    Raises:
      DataFileError: If it is missing or refused, or the download fails.
    """
    path = os.path.join(data_folder(config), file.name)
    packed = None if config.allow_partial_data else file.packed_sha256
    check = functools.partial(_check_sql_file, file=file, config=config)
    _ensure(path, file.url, check, config.download, packed)
    return path


def _ensure(
    path: str,
    url: str,
    check: Callable[[str], None],
    download: bool,
    sha256: Optional[str] = None,
) -> None:
    """Checks a file, or downloads it if it is missing and that is asked for."""
    if os.path.exists(path):
        files.check_regular("data_dir's file", path)
        check(path)
    elif not download:
        folder, name = os.path.split(path)
        unpacked = " (unpacked)" if url.endswith(".lzma") else ""
        raise DataFileError(
            f"data_dir must have the file {name}, fetched from {url}{unpacked} on a"
            f" machine with a network, found none in {folder}; --download fetches it"
        )
    else:
        downloads.fetch(path, url, check, sha256)


def read_packed_text(file: PackedText, config: SqlConfig) -> list[str]:
    """The lines of a published text file, which is downloaded if asked for.

    `config.allow_partial_data` accepts a file with another digest.

    Raises:
      DataFileError: If it is missing or refused, or the download fails.
    """
    path = os.path.join(data_folder(config), file.name)

    def check(where: str) -> None:
        digest = downloads.digest(where)
        if digest != file.sha256 and not config.allow_partial_data:
            raise damaged(path, f"SHA-256 {digest}, not {file.sha256}")

    _ensure(path, file.url, check, config.download)
    try:
        with tarfile.open(path) as archive:
            members = {os.path.basename(m.name): m for m in archive if m.isreg()}
            inside = archive.extractfile(members[file.member])
            assert inside is not None
            # Other separators than newlines, such as U+2028, may be part of a line.
            lines = inside.read().decode().split("\n")
            return lines if lines[-1] else lines[:-1]
    except (OSError, EOFError, KeyError, tarfile.TarError, ValueError) as error:
        raise damaged(path, str(error)) from error


def fingerprint(path: str, file: SqlFile, *extra: str) -> str:
    """The SHA-256 of a file's name and content, and of more that the data depend on.

    The whole file is read once.
    """
    parts = [file.name, downloads.remembered_digest(path), *extra]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
