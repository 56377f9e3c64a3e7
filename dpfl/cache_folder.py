# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The user's cache: a folder of entries that nobody else can have written.

    key = hashlib.sha256(...).hexdigest()
    parts = cache_folder.read(key)      # None without a trusted entry
    cache_folder.write(key, {"epsilon": 1.0}, {})

An entry stands in for a computation, so it is trusted only if no other user could have
written it: file and folder belong to the user and are not writable by others, nobody
else can put another folder in its place, and the file is a regular one without further
hard links. Nobody else can change any of this between a check and a use. Windows does
not tell owners by number: there, the folder in the user's profile is as safe as the
profile is.

The environment variable `DPFL_CACHE` names the folder; an empty value or "off" turns
the cache off. Without the variable the folder is `dpfl` in the user's cache folder, if
there is one. Files in it of another name than an entry's are left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import Any, Optional

import numpy as np

from dpfl import files

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

# Names of entries, also of one that a kill left half written.
_NAME = re.compile(r"\.?dpfl-[0-9a-f]{64}(\.[0-9]+\.dpfl-part)?\.cache")
_ANY_NAME = re.compile(".*")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# User id that a container shows for files of unmapped users, such as its host's root.
_UNMAPPED = 65534


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
    place = _trusted()
    if place is None:
        return None
    path = place / f"dpfl-{key}.cache"
    try:
        about = os.lstat(path)
        if not (_is_own(about) and stat.S_ISREG(about.st_mode) and about.st_nlink == 1):
            return None
        content, arrays = files.read_arrays(path, MOST_BYTES)
        if content["key"] != key:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content["header"], arrays
    # A damaged entry may raise any kind of error.
    except Exception:
        return None


def write(key: str, header: Header, arrays: Arrays) -> None:
    """Caches JSON values and arrays under a key, if the cache is on and has room.

    An entry that cannot be written is no error.

    Args:
      key: 64 hexadecimal digits.
      header: JSON values by name; an entry with NaN or infinity is not written.
      arrays: Numeric arrays by name; as for the header.
    """
    size = sum(array.nbytes for array in arrays.values())
    are_finite = all(np.isfinite(array).all() for array in arrays.values())
    if size > MOST_BYTES // _SHARE or not are_finite:
        return
    # A folder that cannot be written is no error, and infinity is no JSON.
    with contextlib.suppress(OSError, ValueError):
        real = _made()
        if real is None:
            return
        path = real / f"dpfl-{key}.cache"
        if not os.path.lexists(path) or _is_replaceable(path):
            content = {"key": key, "header": header}
            files.write_arrays(path, content, arrays, private=True)
            _make_room(real)


def subfolder(name: str) -> Optional[Path]:
    """A private folder in the cache for files of another library.

    The oldest files beyond the cache's limit are removed.

    Args:
      name: Name of the folder.

    Returns:
      Its path; None if the cache is off, or the folder or a file in it is not trusted.
    """
    with contextlib.suppress(OSError):
        real = _made()
        if real is not None:
            own = files.private_folder(real / name)
            if all(_is_own(os.lstat(path)) for path in (own, *own.iterdir())):
                _make_room(own, _ANY_NAME)
                return own
    return None


def _made() -> Optional[Path]:
    """The folder of `_trusted`, which is made unless it would not be trusted.

    It would not be in a home that belongs to another user.
    """
    place = folder()
    if place is not None and _is_guarded(place):
        files.private_folder(place)
    return _trusted()


def _trusted() -> Optional[Path]:
    """The folder of entries without links on the way; None if it is not trusted."""
    place = folder()
    with contextlib.suppress(OSError):
        if place is not None and _is_own(os.stat(place)) and _is_guarded(place):
            return Path(os.path.realpath(place))
    return None


def _is_own(about: os.stat_result) -> bool:
    """Whether a file or a folder is this user's, and no other's to write."""
    is_others = about.st_mode & _OTHERS_WRITE
    return os.name == "nt" or about.st_uid == os.geteuid() and not is_others


def _is_replaceable(path: Path) -> bool:
    """Whether a regular file of this user, and nothing else, has an entry's name."""
    about = os.lstat(path)
    is_users = os.name == "nt" or about.st_uid == os.geteuid()
    return is_users and stat.S_ISREG(about.st_mode)


def _is_guarded(place: Path) -> bool:
    """Whether nobody else can put another folder in the place of this one.

    Anybody who may write to a folder above it, or above a link on the way, can; but not
    in a sticky folder, such as /tmp, where only owners rename files.
    """
    if os.name == "nt":
        return True
    user, real = os.geteuid(), Path(os.path.realpath(place))
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


def _make_room(place: Path, names: re.Pattern[str] = _NAME) -> None:
    """Removes the least recently used files of a name until the rest fit."""
    entries = []
    for path in filter(lambda path: names.fullmatch(path.name), place.iterdir()):
        # Another process may have removed it.
        with contextlib.suppress(FileNotFoundError):
            if _is_replaceable(path):
                about = os.lstat(path)
                entries.append((about.st_mtime_ns, about.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
