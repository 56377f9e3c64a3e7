# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The user's cache: a folder of entries that nobody else can have written.

    key = hashlib.sha256(...).hexdigest()
    parts = cache_folder.read(key)      # None if there is none to be trusted
    cache_folder.write(key, {"epsilon": 1.0}, {})

An entry answers for a computation, so it counts only if the user alone could write it:
file and folder are the user's own and no other's to write, nobody else can put another
folder in its place, and the file is a regular one under no other name. Whatever is
checked is what was opened. Windows does not tell owners by number: there, the folder
in the user's profile is as safe as the profile is.

The environment variable `DPFL_CACHE` names the folder, or is empty or "off" for none;
without it, it is `dpfl` in the user's folder of caches, if the user has one. Other
files in it are never opened, replaced or removed.
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
"""Its value for no folder; as is an empty one."""

MOST_BYTES = 2**31
"""The entries that were used last are kept, up to so much in all."""

# An entry that takes more than this part of the folder is not kept.
_SHARE = 4
Header = dict[str, Any]
Arrays = dict[str, np.ndarray]

# An entry is this line, its key, the SHA-256 of the rest, and an uncompressed npz of
# arrays and of a JSON header.
_MAGIC = b"dpfl cache entry 1\n"
_HEAD_BYTES = len(_MAGIC) + 65 + 65
# The second is the name until the entry is whole, which a kill may leave.
_NAME = re.compile(r"dpfl-[0-9a-f]{64}\.cache|\.dpfl-[0-9a-f]{64}\.[0-9a-f]{16}")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Owner of what belongs to users that a container does not know, as its host's root.
_UNMAPPED = 65534
# A pipe is not waited for, and on Windows an ending of a line is not changed.
_SAFELY = sum(
    getattr(os, name, 0)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)


def folder() -> Optional[Path]:
    """The folder of entries; None if there is to be none, or no home to have it in."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        is_off = given.strip().lower() in ("", OFF)
        named = None if is_off else files.expanded(given)
        return None if named is None else Path(os.path.abspath(named))
    caches: Optional[str] = os.environ.get("XDG_CACHE_HOME", "")
    # Relative ones are to be ignored, says the XDG Base Directory Specification.
    if not caches or not os.path.isabs(caches):
        caches = files.expanded(os.path.join("~", ".cache"))
    return None if caches is None else Path(caches) / "dpfl"


def read(key: str) -> Optional[tuple[Header, Arrays]]:
    """The entry of a key, 64 hexadecimal digits; None if there is none to trust."""
    place = folder()
    if place is None:
        return None
    try:
        with _held(place) as held:
            parts = _decoded(held.content(key), key)
            held.touch(key)
    # What is damaged raises all kinds of errors.
    except Exception:
        return None
    return parts


def write(key: str, header: Header, arrays: Arrays) -> None:
    """Keeps JSON values and arrays for a key, if there is room and they may be."""
    place = folder()
    size = sum(array.nbytes for array in arrays.values())
    if place is None or size > MOST_BYTES // _SHARE:
        return
    # A folder that cannot be written is no error, and infinity is no JSON.
    with contextlib.suppress(OSError, ValueError):
        # None is made that would not be trusted, as in a home that is another's.
        if _is_guarded(place, Path(os.path.realpath(place))):
            files.private_folder(place)
        with _held(place) as held:
            held.put(key, _encoded(key, header, arrays))
            held.make_room()


def _encoded(key: str, header: Header, arrays: Arrays) -> tuple[bytes, memoryview]:
    """The bytes of an entry, in two parts, since it may be large."""
    text = np.array(json.dumps(header, allow_nan=False))
    buffer = io.BytesIO()
    np.savez(buffer, **{reading.HEADER: text}, **arrays)
    body = buffer.getbuffer()
    digest = hashlib.sha256(body).hexdigest()
    return _MAGIC + f"{key}\n{digest}\n".encode(), body


def _decoded(content: bytes, key: str) -> tuple[Header, Arrays]:
    """The inverse of `_encoded`; ValueError for what it would not give."""
    digest = hashlib.sha256(memoryview(content)[_HEAD_BYTES:]).hexdigest()
    if content[:_HEAD_BYTES] != _MAGIC + f"{key}\n{digest}\n".encode():
        raise ValueError("it is no entry of this key, or damaged")
    body = io.BytesIO(content)
    arrays = reading.arrays_in(body)
    header = reading.parsed("header", str(arrays.pop(reading.HEADER)[()]))
    numbers = (array for array in arrays.values() if array.dtype.kind in "fc")
    are_finite = all(np.isfinite(array).all() for array in numbers)
    if not (are_finite and isinstance(header, dict)):
        raise ValueError("it has a number that is none, or no header")
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
            raise PermissionError(f"others may write to {place}, or replace it")
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

    Whoever may write to a folder above it, or to one that has a link on the way, can;
    but not in a sticky one, such as /tmp, where everybody has what is theirs.
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
            # The user's own group, of a system where each user has one.
            others = stat.S_IWOTH
        is_open = about.st_mode & others and not about.st_mode & stat.S_ISVTX
        if is_open and not stat.S_ISLNK(about.st_mode):
            return False
    return True


class _Held:
    """A folder by its descriptor, so that what was checked is what is used."""

    def __init__(self, place: str, descriptor: Optional[int]):
        """Initializes it; without a descriptor the folder is found by its path."""
        self._place, self._descriptor = place, descriptor

    def content(self, key: str) -> bytes:
        """The bytes of an entry's file; OSError if it is not to be trusted."""
        with self._opened(f"dpfl-{key}.cache") as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES:
                raise PermissionError(f"the entry {key} is none that would be kept")
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
        """Removes entries, those used the longest ago first, until there is room.

        What has the name of one, but was not written by this module, is left alone.
        """
        found = []
        for name in self._names():
            if _NAME.fullmatch(name):
                # Another process may have removed it.
                with contextlib.suppress(OSError):
                    about = self._about(name)
                    found.append((about.st_mtime_ns, about.st_size, name))
        total = sum(size for _, size, _ in found)
        for _, size, name in sorted(found):
            if total <= MOST_BYTES:
                return
            if self._is_entry(name):
                self._remove(name)
                total -= size

    def _is_entry(self, name: str) -> bool:
        """Whether a file begins as the entry, or the part of it, that its name says."""
        key = name.lstrip(".")[len("dpfl-") :][:64]
        head = _MAGIC + f"{key}\n".encode()
        with contextlib.suppress(OSError), self._opened(name) as file:
            return file.read(len(head)) == head
        return False

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file that this user wrote; OSError if it is none."""
        path = self._path(name)
        if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):
            raise PermissionError(f"{name} is a link")
        descriptor = os.open(path, os.O_RDONLY | _SAFELY, dir_fd=self._descriptor)
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            is_alone = stat.S_ISREG(about.st_mode) and about.st_nlink == 1
            if not (is_alone and _is_own(about)):
                raise PermissionError(f"{name} is no file of this user's alone")
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
