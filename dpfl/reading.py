# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Reading of files that dpfl expects.

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
import json
import os
import pathlib
import stat
from collections.abc import Iterator, Mapping
from typing import IO, Any, Optional, Union

import numpy as np

PathLike = Union[str, "os.PathLike[str]"]

# Sizes, in bytes, beyond any table, header or summary, and beyond any archive, of
# dpfl's.
MOST_TEXT = 1 << 30
MOST_ARRAYS = 1 << 34
# Name of the header in an archive of arrays.
HEADER = "header"


def check_regular(name: str, path: PathLike) -> None:
    """Raises ValueError for a pipe, a device or a folder, since a reader may wait."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{name} must be a regular file, found {path}")


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
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > at_most:
            raise ValueError(
                f"{name} must be a file of at most {at_most} bytes, found {size} in "
                f"{path}"
            )
        yield file


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
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = str(error)
    # Raised outside of the block: the error of JSON holds the text.
    raise ValueError(f"{name} must be JSON, found {fault}")


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
      OSError: If there is no such file, or it cannot be read.
      ValueError: If it is none of these, or has another checksum.
    """
    with opened(path, at_most) as file:
        arrays = arrays_in(file)
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


def arrays_in(file: IO[bytes]) -> dict[str, np.ndarray]:
    """The arrays of an archive that `numpy.savez` wrote, in their order.

    Raises:
      ValueError: If it is damaged, or holds Python objects.
    """
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    # A damaged archive raises all kinds of errors, and some show its content.
    except Exception as error:
        kind = type(error).__name__
    raise ValueError(f"it is not a readable archive of arrays ({kind})")
