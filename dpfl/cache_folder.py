# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The user's cache: a folder of entries that nobody else can have written.

    key = hashlib.sha256(...).hexdigest()
    parts = cache_folder.read(key)      # None without a trusted entry
    cache_folder.write(key, {"epsilon": 1.0}, {})

An entry stands in for a computation, so it is trusted only in a folder that belongs to
the user and that others cannot write to. Windows does not tell owners by number: there,
the folder in the user's profile is as safe as the profile is.

The environment variable `DPFL_CACHE` names the folder; an empty value or "off" turns
the cache off. Without the variable the folder is `dpfl` in the user's cache folder, if
there is one. Files in it of another name than an entry's are left alone.
"""

from __future__ import annotations

import contextlib
import os
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
_NAMES = "*dpfl-*.cache"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


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
    # A damaged entry may raise any kind of error.
    with contextlib.suppress(Exception):
        if place is not None and _is_own(place):
            path = _path(place, key)
            content, arrays = files.read_arrays(path, MOST_BYTES)
            if content["key"] == key:
                os.utime(path)
                return content["header"], arrays
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
        place = _made()
        if place is not None:
            content = {"key": key, "header": header}
            files.write_arrays(_path(place, key), content, arrays, private=True)
            _make_room(place, _NAMES)


def subfolder(name: str) -> Optional[Path]:
    """A private folder in the cache for files of another library.

    The oldest files beyond the cache's limit are removed.

    Args:
      name: Name of the folder.

    Returns:
      Its path; None if the cache is off, or others can write to its folder.
    """
    with contextlib.suppress(OSError):
        place = _made()
        if place is not None:
            own = files.private_folder(place / name)
            _make_room(own, "*")
            return own
    return None


def _path(place: Path, key: str) -> Path:
    return place / f"dpfl-{key}.cache"


def _made() -> Optional[Path]:
    """The folder of entries, made if needed; None if it is off or others can write."""
    place = folder()
    if place is not None and _is_own(files.private_folder(place)):
        return place
    return None


def _is_own(place: Path) -> bool:
    """Whether a folder is this user's, and no other's to write."""
    about = os.stat(place)
    is_others = about.st_mode & _OTHERS_WRITE
    return os.name == "nt" or about.st_uid == os.geteuid() and not is_others


def _make_room(place: Path, names: str) -> None:
    """Removes the least recently used files of a name until the rest fit."""
    entries = [(path.stat(), path) for path in place.glob(names) if path.is_file()]
    total = sum(about.st_size for about, _ in entries)
    for about, path in sorted(entries, key=lambda entry: entry[0].st_mtime_ns):
        if total <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= about.st_size
