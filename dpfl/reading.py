# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Reading of files that dpfl expects, whatever stands in their places.

    with reading.opened(path) as file:
        arrays = reading.arrays_in(file)
    entry = reading.parsed("a round", line)

A pipe or a device is refused rather than waited for, and a file that is too large is
refused before it is read. No error shows the content of a file, which may be a secret.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import itertools
import json
import os
import pathlib
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Optional, Union

import numpy as np

PathLike = Union[str, "os.PathLike[str]"]

# Sizes, in bytes, beyond any table, header or summary, and beyond any archive, of
# dpfl's.
MOST_TEXT = 1 << 30
MOST_ARRAYS = 1 << 34
# More levels than any file that dpfl writes; readers descend by recursion.
_MOST_LEVELS = 100
# Members of archives that unpack no more at a time than is read.
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Name of the header in an archive of arrays.
HEADER = "header"


def check_regular(name: str, path: PathLike) -> None:
    """Raises ValueError for a pipe, a device or a folder, since a reader may wait."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = _kind(mode)
        raise ValueError(f"{name} must be a regular file, found the {kind} {path}")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    kinds.update(dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "device"))
    return kinds.get(stat.S_IFMT(mode), "special file")


@contextlib.contextmanager
def opened(
    path: PathLike, at_most: int = MOST_ARRAYS, name: Optional[str] = None
) -> Iterator[IO[bytes]]:
    """Opens a file for reading; every file that dpfl expects is read through it.

    Args:
      path: The file's path.
      at_most: The most bytes that it may have.
      name: Its name in errors; None for the file's own.

    Raises:
      OSError: If it does not exist, or cannot be read.
      ValueError: If it is no regular file, or is larger.
    """
    path = pathlib.Path(path)
    name = path.name if name is None else name
    check_regular(name, path)
    # A pipe that has taken its place by now is not waited for either.
    with open(path, "rb", opener=_without_waiting) as file:
        size = os.fstat(file.fileno()).st_size
        if size > at_most:
            raise ValueError(
                f"{name} must be a file of at most {at_most} bytes, found {size} in "
                f"{path}"
            )
        yield file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_bytes(path: PathLike, at_most: int = MOST_ARRAYS) -> bytes:
    """The content of a file; see `opened` for its errors."""
    with opened(path, at_most) as file:
        return file.read()


def read_text(
    path: PathLike, at_most: int = MOST_TEXT, name: Optional[str] = None
) -> str:
    """The text of a file in UTF-8.

    Args:
      path: The file's path.
      at_most: The most bytes that it may have.
      name: Its name in errors; None for the file's own.

    Raises:
      OSError: If it does not exist, or cannot be read.
      ValueError: If it is no regular file, is larger, or is not UTF-8.
    """
    with opened(path, at_most, name) as file:
        content = file.read()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        place = error.start
    # Raised outside of the block: the error of decoding holds the content.
    raise ValueError(
        f"{name or pathlib.Path(path).name} must be UTF-8 text, found {path} "
        f"with an invalid byte at {place}"
    )


def read_json(path: PathLike, at_most: int = MOST_TEXT) -> Any:
    """The content of a JSON file; ValueError for any other file."""
    return parsed(str(path), read_text(path, at_most))


def parsed(name: str, text: str) -> Any:
    """The content of JSON; else ValueError, in which the text is called `name`."""
    content, fault = None, ""
    try:
        content = json.loads(text, object_pairs_hook=_each_once)
    except RecursionError:
        fault = "more"
    except json.JSONDecodeError as error:
        fault = f"a syntax error in line {error.lineno}, column {error.colno}"
    except ValueError:
        fault = "a duplicate key or a number that is too long"
    if fault or _levels(content) > _MOST_LEVELS:
        limit = f"JSON of at most {_MOST_LEVELS} levels"
        raise ValueError(f"{name} must be {limit}, found {fault or 'more'}")
    return content


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a duplicate key")
    return mapping


def _levels(content: Any) -> int:
    """The depth of nested lists and mappings, counted to one past the limit."""
    level, depth = [content], 0
    while level and depth <= _MOST_LEVELS:
        mappings = [part.values() for part in level if isinstance(part, dict)]
        lists = [part for part in level if isinstance(part, list)]
        level = list(itertools.chain(*mappings, *lists))
        depth += 1
    return depth


def read_csv(path: PathLike, *, cut: bool = False) -> list[dict[str, str]]:
    """The rows of a CSV file with a head.

    Args:
      path: The file's path.
      cut: Whether a kill may have cut the last row short, which is then left out.

    Raises:
      ValueError: If it is no such file: a column occurs twice, or rows differ in
        length.
    """
    lines, is_csv = [], True
    try:
        lines = list(filter(None, csv.reader(io.StringIO(read_text(path), newline=""))))
    except csv.Error:
        is_csv = False
    head, rows = (lines[0], lines[1:]) if lines else ([], [])
    is_csv = is_csv and len(set(head)) == len(head)
    whole = [row for row in rows if len(row) == len(head)]
    if not is_csv or (len(whole) < len(rows) and not cut):
        raise ValueError(
            f"{path} is not a CSV file with distinct column names and rows of equal "
            "length"
        )
    return [dict(zip(head, row)) for row in whole]


def read_arrays(
    path: PathLike, at_most: int = MOST_ARRAYS
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of `files.write_arrays`, without its checksum.

    Raises:
      FileNotFoundError: If there is no such file.
      ValueError: If it cannot be read as one, or has another checksum.
    """
    try:
        with opened(path, at_most) as file:
            arrays = arrays_in(file)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(str(error)) from error
    header = parsed("its header", str(arrays.pop(HEADER, np.array(""))[()]))
    if not isinstance(header, dict):
        raise ValueError("its header is not a mapping")
    if header.pop("checksum", None) != arrays_checksum(header, arrays):
        raise ValueError("its checksum does not match")
    return header, arrays


def arrays_checksum(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of a JSON header and every array's name, type, shape and bytes."""
    hasher = hashlib.sha256()
    hasher.update(canonical(header).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()


def canonical(value: Any) -> str:
    """JSON with one text for equal values, without NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def arrays_in(file: IO[bytes], at_most: int = 0) -> dict[str, np.ndarray]:
    """The arrays of an archive that `numpy.savez` wrote, in their order.

    Args:
      at_most: The bytes that it may unpack to, where those are more than it has.

    Raises:
      ValueError: If it is damaged, has a name twice, unpacks to more bytes, or holds
        Python objects.
    """
    size = file.seek(0, os.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [member.filename.rpartition(".npy")[0] for member in members]
            is_plain = all(m.compress_type in _PACKINGS for m in members)
            if not is_plain or sum(m.file_size for m in members) > max(size, at_most):
                raise ValueError("it is too large when unpacked")
            if len(set(names)) < len(names):
                raise ValueError("it has a duplicate name")
            return dict(zip(names, (_array_in(archive, m) for m in members)))
    # A damaged archive raises all kinds of errors, and some show its content.
    except Exception as error:
        kind = type(error).__name__
    raise ValueError(f"it is not a readable archive of arrays ({kind})")


def _array_in(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as content:
        return np.lib.format.read_array(content, allow_pickle=False)
