# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Files that are whole or not there, private folders, outputs that can be written.

files.output_path("--output", path)         # before any work is done
files.write_atomically(path, content)       # after it
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import zipfile
from collections.abc import Collection, Iterator, Mapping
from typing import IO, Any, Optional, Union

import numpy as np

from dpfl import checks
from dpfl.reading import (
    HEADER,
    PathLike,
    arrays_checksum,
    canonical,
    check_regular,
)
from dpfl.reading import read_arrays as read_arrays
from dpfl.reading import read_bytes as read_bytes
from dpfl.reading import read_csv as read_csv
from dpfl.reading import read_json as read_json
from dpfl.reading import read_text as read_text
from dpfl.texts import csv_text as csv_text
from dpfl.texts import digest as digest
from dpfl.texts import plain as plain

# Ending of partial files; other programs have files that end in .part.
_PARTIAL = ".dpfl-part"
# Modes of what is made; the umask may allow less. It alone decides for folders above.
_PRIVATE_FILE, _PUBLIC_FILE = 0o600, 0o644
_PRIVATE_FOLDER, _PUBLIC_FOLDER = 0o700, 0o755


def expanded(path: PathLike) -> Optional[str]:
    """A path with its ~ expanded; None if there is no such home.

    The user of a container may have none: neither HOME nor a line among the users.
    """
    result = os.path.expanduser(os.fspath(path))
    return None if result.startswith("~") else result


def private_folder(path: PathLike) -> pathlib.Path:
    """Makes a folder that nobody but its owner can read, and those above it.

    A folder that is there already keeps its mode: it may hold more than dpfl's files.
    """
    folder = pathlib.Path(path)
    folder.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
    return folder


def public_folder(path: PathLike) -> pathlib.Path:
    """Makes a folder, and those above it, unless they are there."""
    folder = pathlib.Path(path)
    folder.mkdir(_PUBLIC_FOLDER, parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def atomically(path: PathLike, private: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file for writing that takes its name only once it is whole.

    The content is on the disk before the name is; after an exception, or a kill, the
    file is as it was before.

    Args:
      path: The file's path.
      private: Whether only its owner can read it.
    """
    with replacing(path, private) as partial, open(partial, "wb") as file:
        yield file


@contextlib.contextmanager
def replacing(path: PathLike, private: bool = False) -> Iterator[pathlib.Path]:
    """As `atomically`, for writers that take a path and not an open file.

    Args:
      path: The file's path.
      private: As for `atomically`. The writer must open the existing file, and not put
        another in its place.
    """
    # The target of a link is replaced, not the link.
    path = pathlib.Path(os.path.realpath(path))
    _check_replaceable(path)
    partial = _partial(path)
    # A leftover of a kill.
    partial.unlink(missing_ok=True)
    try:
        mode = _PRIVATE_FILE if private else _PUBLIC_FILE
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL, mode))
        yield partial
        with open(partial, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        # As of write() to a full disk.
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = os.fspath(path)
        raise
    _sync_directory(path.parent)


def _check_replaceable(path: pathlib.Path) -> None:
    """Raises PermissionError for a file that its folder would let be replaced."""
    if path.exists() and not os.access(path, os.W_OK):
        error = errno.EACCES
        raise PermissionError(error, os.strerror(error), os.fspath(path))


def write_atomically(
    path: PathLike, content: Union[bytes, str], private: bool = False
) -> None:
    """Writes a file that is there whole, or as it was before.

    Args:
      path: The file's path.
      content: Its bytes, or a text to be encoded in UTF-8.
      private: Whether only its owner can read it; see `atomically`.
    """
    if isinstance(content, str):
        # The name of a folder in the text may not be valid UTF-8.
        content = content.encode(errors="backslashreplace")
    with atomically(path, private) as file:
        file.write(content)


def write_json(
    path: PathLike, content: Mapping[str, Any], private: bool = False
) -> None:
    """Writes JSON atomically; NaN and infinity become the strings 'nan' and 'inf'.

    Args:
      path: The file's path.
      content: The mapping to write; see `plain` for its values.
      private: Whether only its owner can read it; see `atomically`.
    """
    text = json.dumps(plain(content), indent=2, allow_nan=False)
    write_atomically(path, f"{text}\n", private)


def write_arrays(
    path: PathLike,
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    private: bool = False,
) -> None:
    """Writes arrays and a JSON header as an npz archive, atomically.

    The header gets a `checksum` of itself and the arrays; see `read_arrays`.

    Args:
      path: The file's path.
      header: JSON values by name, without NaN or infinity.
      arrays: The arrays by name.
      private: Whether only its owner can read it; see `atomically`.
    """
    checksum = arrays_checksum(header, arrays)
    text = canonical({**header, "checksum": checksum})
    write_npz(path, {HEADER: np.array(text), **arrays}, private)


def write_npz(
    path: PathLike, arrays: Mapping[str, np.ndarray], private: bool = False
) -> None:
    """Writes arrays as an npz archive without the time, atomically.

    Args:
      path: The file's path.
      arrays: The arrays by name, in the archive's order.
      private: Whether only its owner can read it; see `atomically`.
    """
    # As numpy.savez, whose archive is closed too late where the disk is full.
    with atomically(path, private) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)


def output_path(
    name: str, path: PathLike, endings: Collection[str] = ()
) -> pathlib.Path:
    """The path of a file to be written, refused now if it could not be.

    Args:
      name: The argument's name, for the message.
      path: The file's path.
      endings: Allowed endings, such as ".png"; any if empty.

    Raises:
      ValueError: If the path is not a regular file's, or its folder does not exist or
        cannot be written.
    """
    target = pathlib.Path(path)
    is_file = str(path) and not str(path).endswith(os.sep)
    checks.require(is_file, name, "a file's path", str(path))
    if endings and target.suffix.lower() not in endings:
        raise ValueError(
            f"{name} must end in {' or '.join(sorted(endings))}, found {target}"
        )
    with refused(f"{name} must be a writable file in a writable folder", target):
        if target.exists():
            check_regular(name, target)
            _check_replaceable(target)
        _try(pathlib.Path(os.path.realpath(target)))
    return target


def output_folder(name: str, path: PathLike) -> pathlib.Path:
    """The path of a folder to write to, made if it does not exist.

    Raises:
      ValueError: If it is not a folder, or cannot be written.
    """
    folder = pathlib.Path(path)
    checks.require(str(path), name, "a folder's path", "")
    with refused(f"{name} must be a writable folder", folder):
        public_folder(folder)
        _try(folder / "a")
    return folder


def check_folder(name: str, path: PathLike) -> None:
    """Raises ValueError if a file is in the place of a folder; creates nothing."""
    folder = pathlib.Path(path)
    with refused(f"{name} must be a writable folder", folder):
        with contextlib.suppress(FileNotFoundError):
            # With the slash a path to a file raises an error.
            os.stat(f"{folder}/")


def input_path(name: str, path: PathLike) -> pathlib.Path:
    """The path of a file to be read, refused now if it could not be.

    Raises:
      ValueError: If there is no regular file, or it cannot be read.
    """
    source = pathlib.Path(path)
    with refused(f"{name} must be a readable file", source):
        check_regular(name, source)
        with open(source, "rb"):
            return source


@contextlib.contextmanager
def refused(must: str, path: pathlib.Path) -> Iterator[None]:
    """Converts an OSError in the block to a ValueError that begins with `must`."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{must}, found {path} ({error.strerror})") from error


def _try(path: pathlib.Path) -> None:
    """Writes an empty file beside the path, and removes it."""
    partial = _partial(path)
    partial.touch()
    partial.unlink()


def remove_partials(folder: PathLike) -> None:
    """Removes the partial files that killed processes left in a folder.

    Call it where no other process writes: in a folder of `locks.locked`.
    """
    for partial in pathlib.Path(folder).glob(f".*{_PARTIAL}*"):
        partial.unlink()


def _partial(path: pathlib.Path) -> pathlib.Path:
    """The name of a file while it is being written."""
    return path.with_name(f".{path.stem}.{os.getpid()}{_PARTIAL}{path.suffix}")


def _sync_directory(folder: pathlib.Path) -> None:
    if os.name == "nt":  # A folder cannot be opened there.
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
