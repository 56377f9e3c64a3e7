# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The user's cache: a folder of entries that nobody else can have written.

    key = hashlib.sha256(...).hexdigest()
    parts = cache_folder.read(key)      # None without a trusted entry
    cache_folder.write(key, {"epsilon": 1.0}, {})

An entry stands in for a computation, so it is trusted only if no other user could have
written it: file and folder belong to the user and are not writable by others, nobody
else can put another folder in its place, and the file is a regular one without further
hard links. All checks are made on the opened descriptors. Windows does not tell owners
by number: there, the folder in the user's profile is as safe as the profile is.

The environment variable `DPFL_CACHE` names the folder; an empty value or "off" turns
the cache off. Without the variable the folder is `dpfl` in the user's cache folder, if
there is one. Other files in it are never opened, replaced or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Optional

import numpy as np

from dpfl import files, reading

VARIABLE = "DPFL_CACHE"
"""The environment variable that names the folder."""

OFF = "off"
"""The value of `VARIABLE` that turns the cache off, as an empty one does."""

MOST_BYTES = 2**31
"""Size limit of the cache; the least recently used entries beyond it are removed."""

# Entries larger than the limit over this number are not cached.
_SHARE = 4
Header = dict[str, Any]
Arrays = dict[str, np.ndarray]

# An entry is this line, its key, the SHA-256 of the rest, and an uncompressed npz of
# arrays and of a JSON header.
_MAGIC = b"dpfl cache entry 1\n"
_HEAD_BYTES = len(_MAGIC) + 65 + 65
# Names of entries; the second form is that of a partial one, which a kill may leave.
_NAME = re.compile(r"dpfl-[0-9a-f]{64}\.cache|\.dpfl-[0-9a-f]{64}\.[0-9a-f]{16}")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# User id that a container shows for files of unmapped users, such as its host's root.
_UNMAPPED = 65534
# Flags to open a file without waiting for a pipe, and on Windows without translating
# line endings.
_SAFELY = sum(
    getattr(os, name, 0)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)


def folder() -> Optional[Path]:
    """The folder of entries; None if the cache is off or the user has no home."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        is_off = given.strip().lower() in ("", OFF)
        named = None if is_off else files.expanded(given)
        return None if named is None else Path(os.path.abspath(named))
    caches: Optional[str] = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG Base Directory Specification says to ignore relative paths.
    if not caches or not os.path.isabs(caches):
        caches = files.expanded(os.path.join("~", ".cache"))
    return None if caches is None else Path(caches) / "dpfl"


def read(key: str) -> Optional[tuple[Header, Arrays]]:
    """The header and arrays of an entry; None if there is no trusted entry.

    Args:
      key: 64 hexadecimal digits.
    """
    place = folder()
    if place is None:
        return None
    try:
        with _held(place) as held:
            parts = _decoded(held.content(key), key)
            held.touch(key)
    # A damaged entry may raise any kind of error.
    except Exception:
        return None
    return parts


def write(key: str, header: Header, arrays: Arrays) -> None:
    """Caches JSON values and arrays under a key, if the cache is on and has room.

    An entry that cannot be written is no error.

    Args:
      key: 64 hexadecimal digits.
      header: JSON values by name; an entry with NaN or infinity is not written.
      arrays: Numeric arrays by name.
    """
    place = folder()
    size = sum(array.nbytes for array in arrays.values())
    if place is None or size > MOST_BYTES // _SHARE:
        return
    # A folder that cannot be written is no error, and infinity is no JSON.
    with contextlib.suppress(OSError, ValueError):
        # No folder is made that would not be trusted, as in a home that belongs to
        # another user.
        if _is_guarded(place, Path(os.path.realpath(place))):
            files.private_folder(place)
        with _held(place) as held:
            held.put(key, _encoded(key, header, arrays))
            held.make_room()


def _encoded(key: str, header: Header, arrays: Arrays) -> tuple[bytes, memoryview]:
    """The header and the arrays of an entry as bytes."""
    text = np.array(json.dumps(header, allow_nan=False))
    buffer = io.BytesIO()
    np.savez(buffer, **{reading.HEADER: text}, **arrays)
    body = buffer.getbuffer()
    digest = hashlib.sha256(body).hexdigest()
    return _MAGIC + f"{key}\n{digest}\n".encode(), body


def _decoded(content: bytes, key: str) -> tuple[Header, Arrays]:
    """The inverse of `_encoded`; ValueError for bytes that it would not give."""
    digest = hashlib.sha256(memoryview(content)[_HEAD_BYTES:]).hexdigest()
    if content[:_HEAD_BYTES] != _MAGIC + f"{key}\n{digest}\n".encode():
        raise ValueError("the entry belongs to another key or is damaged")
    body = io.BytesIO(content)
    arrays = reading.arrays_in(body)
    header = reading.parsed("header", str(arrays.pop(reading.HEADER)[()]))
    numbers = (array for array in arrays.values() if array.dtype.kind in "fc")
    are_finite = all(np.isfinite(array).all() for array in numbers)
    if not (are_finite and isinstance(header, dict)):
        raise ValueError("the entry has NaN, infinity or no header")
    return header, arrays


@contextlib.contextmanager
def _held(place: Path) -> Iterator[_Held]:
    """Opens a folder that is trusted; PermissionError if it is not."""
    real = os.path.realpath(place)
    if os.name == "nt":  # A folder cannot be opened there.
        yield _Held(real, None)
        return
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    try:
        if not (_is_own(os.fstat(descriptor)) and _is_guarded(place, Path(real))):
            raise PermissionError(f"other users can write to {place} or replace it")
        yield _Held(real, descriptor)
    finally:
        os.close(descriptor)


def _is_own(about: os.stat_result) -> bool:
    """Whether a file or a folder is this user's, and no other's to write."""
    if os.name == "nt":
        return True
    return _is_users(about) and not about.st_mode & _OTHERS_WRITE


def _is_users(about: os.stat_result) -> bool:
    return os.name == "nt" or about.st_uid == os.geteuid()


def _is_guarded(place: Path, real: Path) -> bool:
    """Whether nobody else can put another folder in the place of this one.

    Anybody who may write to a folder above it, or above a link on the way, can; but not
    in a sticky folder, such as /tmp, where only owners rename files.
    """
    if os.name == "nt":
        return True
    user = os.geteuid()
    for above in filter(os.path.lexists, {place, *place.parents, *real.parents}):
        if above == real:
            continue
        about = os.lstat(above)
        if about.st_uid not in (user, 0, _UNMAPPED):
            return False
        others = _OTHERS_WRITE
        if about.st_gid == user == os.getegid():
            # The user's own group, on a system where each user has one.
            others = stat.S_IWOTH
        is_open = about.st_mode & others and not about.st_mode & stat.S_ISVTX
        if is_open and not stat.S_ISLNK(about.st_mode):
            return False
    return True


class _Held:
    """An open folder, by its descriptor, so that the checked folder is the one used."""

    def __init__(self, place: str, descriptor: Optional[int]):
        """Initializes it; without a descriptor the folder is found by its path."""
        self._place, self._descriptor = place, descriptor

    def content(self, key: str) -> bytes:
        """The bytes of an entry's file; OSError if it is not to be trusted."""
        with self._opened(f"dpfl-{key}.cache") as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES:
                raise PermissionError(f"the entry {key} is larger than the whole cache")
            return file.read(MOST_BYTES)

    def touch(self, key: str) -> None:
        """Notes that an entry was used just now."""
        with contextlib.suppress(OSError):
            os.utime(self._path(f"dpfl-{key}.cache"), dir_fd=self._descriptor)

    def put(self, key: str, parts: tuple[bytes, memoryview]) -> None:
        """Writes an entry, whole or not at all, unless something else has its name."""
        name, at = f"dpfl-{key}.cache", self._descriptor
        with contextlib.suppress(FileNotFoundError):
            about = self._about(name)
            if not (stat.S_ISREG(about.st_mode) and _is_users(about)):
                return
        partial = f".dpfl-{key}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY
        descriptor = os.open(self._path(partial), flags, 0o600, dir_fd=at)
        try:
            with open(descriptor, "wb") as file:
                file.writelines(parts)
            new, old = self._path(partial), self._path(name)
            os.replace(new, old, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            self._remove(partial)
            raise

    def make_room(self) -> None:
        """Removes the least recently used entries until the rest fit `MOST_BYTES`.

        Files with an entry's name that this module did not write are left alone.
        """
        entries = []
        for name in self._names():
            if _NAME.fullmatch(name):
                # Another process may have removed it.
                with contextlib.suppress(OSError):
                    about = self._about(name)
                    entries.append((about.st_mtime_ns, about.st_size, name))
        total = sum(size for _, size, _ in entries)
        for _, size, name in sorted(entries):
            if total <= MOST_BYTES:
                return
            if self._is_entry(name):
                self._remove(name)
                total -= size

    def _is_entry(self, name: str) -> bool:
        """Whether a file begins as the entry, or partial entry, that its name says."""
        key = name.lstrip(".")[len("dpfl-") :][:64]
        head = _MAGIC + f"{key}\n".encode()
        with contextlib.suppress(OSError), self._opened(name) as file:
            return file.read(len(head)) == head
        return False

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file that this user wrote; OSError for any other."""
        path = self._path(name)
        if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):
            raise PermissionError(f"{name} is a link")
        descriptor = os.open(path, os.O_RDONLY | _SAFELY, dir_fd=self._descriptor)
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            is_alone = stat.S_ISREG(about.st_mode) and about.st_nlink == 1
            if not (is_alone and _is_own(about)):
                raise PermissionError(
                    f"{name} is not a regular file of this user alone"
                )
            yield file

    def _names(self) -> list[str]:
        if self._descriptor is None:
            return os.listdir(self._place)
        return os.listdir(self._descriptor)

    def _path(self, name: str) -> str:
        return name if self._descriptor is not None else os.path.join(self._place, name)

    def _about(self, name: str) -> os.stat_result:
        path = self._path(name)
        return os.stat(path, dir_fd=self._descriptor, follow_symlinks=False)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path(name), dir_fd=self._descriptor)
