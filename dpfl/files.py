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
import re
import stat
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

# Mark in the name of a partial file, before its ending; other programs have files that
# end in .part.
_PARTIAL = ".dpfl-part"
_PARTIALS = re.compile(rf"\..*\.[0-9]+{re.escape(_PARTIAL)}(\.[^.]*)?")
_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700
# Greatest mode, whatever the umask: nobody else may write.
_PUBLIC_FILE = 0o644
_PUBLIC_FOLDER = 0o755
_OTHERS_WRITE = 0o022


def expanded(path: PathLike) -> Optional[str]:
    """A path with its ~ expanded; None if there is no such home.

    The user of a container may have none: neither HOME nor a line among the users.
    """
    given = os.fspath(path)
    result = os.path.expanduser(given)
    # An empty HOME would expand to the root folder.
    is_lost = not os.path.isabs(result) or os.environ.get("HOME") == ""
    return None if given.startswith("~") and is_lost else result


def private_folder(path: PathLike) -> pathlib.Path:
    """Makes a folder that nobody but its owner can read, whatever the umask.

    A folder that is there already keeps its mode: it may hold more than dpfl's files.
    The ones above it are made as by `public_folder`.
    """
    folder = pathlib.Path(path)
    public_folder(folder.parent)
    if _is_made(folder, _PRIVATE_FOLDER):
        folder.chmod(_PRIVATE_FOLDER)
    return folder


def public_folder(path: PathLike) -> pathlib.Path:
    """Makes a folder, and those above it, that nobody but its owner can write to.

    Folders that exist already keep their modes.
    """
    folder = pathlib.Path(path)
    if not folder.is_dir():
        if folder.parent != folder:
            public_folder(folder.parent)
        _is_made(folder, _PUBLIC_FOLDER)
    return folder


def _is_made(folder: pathlib.Path, mode: int) -> bool:
    """Makes a folder unless it is there, and returns whether it was not."""
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    return True


def others_may_write(folder: PathLike) -> Optional[str]:
    """A sentence about a folder that others may write to; None if they may not."""
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    if os.name == "nt" or not mode & _OTHERS_WRITE:
        return None
    return (
        f"{folder} already existed with the mode {mode:04o}: other users can write to "
        "it and replace its files"
    )


@contextlib.contextmanager
def atomically(path: PathLike, private: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file for writing that takes its name only once it is whole.

    The content is on the disk before the name is; after an exception, or a kill, the
    file is as it was before.

    Args:
      path: The file's path.
      private: Whether only its owner can read it, whatever the umask and the mode of a
        file that it replaces. Otherwise others may read it as the umask, or the old
        file's mode, allows, and nobody but the owner can write.
    """
    with replacing(path, private) as partial, open(partial, "wb") as file:
        yield file


@contextlib.contextmanager
def _naming(path: PathLike) -> Iterator[None]:
    """Adds the path to an OSError without one, as of write() to a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


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
    # A leftover of a kill, or a file that somebody put there to be written to.
    partial.unlink(missing_ok=True)
    try:
        # The mode is set while the file is empty, so that nobody else has it open.
        mode, is_known = (_PRIVATE_FILE, True) if private else (_PUBLIC_FILE, False)
        if not private and path.exists():
            mode, is_known = mode & stat.S_IMODE(path.stat().st_mode), True
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL, mode))
        # A new public file has the mode that the umask leaves.
        if is_known:
            partial.chmod(mode)
        with _naming(path):
            yield partial
            with open(partial, "r+b") as file:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _check_replaceable(path: pathlib.Path) -> None:
    """Raises PermissionError for a file that this user may not write to.

    Its folder may let it be replaced all the same: another's file in a folder that is
    shared, or one that is the user's own and read-only.
    """
    with contextlib.suppress(FileNotFoundError):
        about, around = os.stat(path), os.stat(path.parent)
        is_effective = os.access in os.supports_effective_ids
        is_allowed = os.access(path, os.W_OK, effective_ids=is_effective)
        if os.name != "nt" and around.st_mode & stat.S_ISVTX:
            # As in /tmp, where it could be written to and not replaced.
            is_allowed &= os.geteuid() in (0, about.st_uid, around.st_uid)
        if not is_allowed:
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
    with atomically(path, private) as file:
        write_archive(file, arrays)


def write_archive(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name as an npz archive without the time; see `write_npz`."""
    # As numpy.savez, whose archive is closed too late where the disk is full.
    with zipfile.ZipFile(file, "w") as archive:
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
    with refused(f"{name} must be a writable file", target):
        # Links are followed: a link to a device is refused as the device is.
        with contextlib.suppress(FileNotFoundError):
            check_regular(name, target)
    with refused(f"{name} must be a file in a writable folder", target):
        real = pathlib.Path(os.path.realpath(target))
        _check_replaceable(real)
        _try(real)
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
    if "\0" in str(path):
        raise ValueError(f"{must}, found {str(path)!r}")
    try:
        yield
    except OSError as error:
        raise ValueError(f"{must}, found {path} ({error.strerror})") from error


def _try(path: pathlib.Path) -> None:
    """Writes an empty file beside the path, and removes it."""
    partial = _partial(path)
    partial.touch()
    partial.unlink()


@contextlib.contextmanager
def appended(name: str, path: PathLike) -> Iterator[IO[bytes]]:
    """Opens a log to be added to, unless something else than a file is in its place.

    Raises:
      OSError: If it cannot be written, or is a link.
      ValueError: If it is a pipe, a device or a folder; none is waited for.
    """
    with contextlib.suppress(FileNotFoundError):
        check_regular(name, path)
    with open(path, "ab", opener=public_opener) as file:
        yield file


def public_opener(path: str, flags: int) -> int:
    """Opener for `open` that follows no link; new files only their owner can write."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), _PUBLIC_FILE)


def remove_partials(folder: PathLike) -> None:
    """Removes the partial files that killed processes left in a folder.

    Call it where no other process writes: in a folder of `locks.locked`. Folders
    of such a name are kept.
    """
    for partial in pathlib.Path(folder).iterdir():
        if _PARTIALS.fullmatch(partial.name) and not partial.is_dir():
            partial.unlink(missing_ok=True)


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
