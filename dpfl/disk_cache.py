# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Results of long computations, kept on disk for the next process.

    @disk_cache.kept(to_parts, from_parts)
    def longest_figure(event, delta): ...

A result is found by a digest of the function, its arguments, the source of what
computes, the versions of libraries and the machine: what an earlier accountant said
never answers for this one. It has the bits that a computation would give. A file that
is damaged, or is another question's, is computed anew.

The environment variable `DPFL_CACHE` names the folder, or is empty or "off" for none;
without it, it is `dpfl` in the user's folder of caches. A folder that others may write
to is not used, and one that cannot be written is no error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import platform
import threading
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional, TypeVar

import attr
import numpy as np

from dpfl import files

VARIABLE = "DPFL_CACHE"
"""The environment variable that names the folder."""

OFF = "off"
"""Its value for no folder; as is an empty one."""

LEAST_SECONDS = 0.25
"""What takes less is not kept; a calibration asks for a dozen figures."""

MOST_BYTES = 2**31
"""The files that were used last are kept, up to so much in all."""

# A result that takes more than this part of the folder is not kept.
_SHARE = 4
# Those of dpfl, beside the modules at its root, whose source decides a result; and
# whose values arguments may hold.
_PACKAGES = ("accounting", "factorization")
_LIBRARIES = ("numpy", "scipy", "dp-accounting")
# What else the last bits of sums may depend on.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]
_Function = TypeVar("_Function", bound=Callable[..., Any])

_writing = threading.Lock()


class _UnknownError(TypeError):
    """An argument whose content, or meaning, no digest could tell."""


def kept(
    to_parts: Callable[[Any], tuple[Header, Arrays]],
    from_parts: Callable[[Header, Arrays], Any],
) -> Callable[[_Function], _Function]:
    """Decorates a function of values whose result is worth a file.

    Arguments are numbers, strings, arrays, lists and mappings of such, frozen values
    of dpfl's and dp_accounting's events and factorizations, and functions of these
    packages. With any other the function is computed.

    Args:
      to_parts: From a result to JSON values by name, and arrays.
      from_parts: The result again, to the last bit. What it raises of KeyError,
        TypeError and ValueError says that the parts are of none.
    """

    def decorated(function: _Function) -> _Function:
        @functools.wraps(function)
        def found(*args: Any, **kwargs: Any) -> Any:
            place = _place(function, args, kwargs)
            if place is None:
                return function(*args, **kwargs)
            path, key = place
            parts = _read(path, key)
            if parts is not None:
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    return from_parts(*parts)
            begun = time.monotonic()
            result = function(*args, **kwargs)
            if time.monotonic() - begun >= LEAST_SECONDS:
                _write(path, key, *to_parts(result))
            return result

        return found  # type: ignore[return-value]

    return decorated


def folder() -> Optional[Path]:
    """The folder of kept results; None if there is to be none."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return None if given.lower() in ("", OFF) else Path(given)
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(caches):
        return Path(caches) / "dpfl"
    with contextlib.suppress(RuntimeError):  # There may be no home.
        return Path.home() / ".cache" / "dpfl"
    return None


def _is_private(place: Path) -> bool:
    """Whether what is in a folder can only be what this user wrote."""
    is_own = os.name == "nt" or place.stat().st_uid == os.geteuid()
    return is_own and files.others_may_write(place) is None


def _place(
    function: Callable[..., Any], args: Any, kwargs: Any
) -> Optional[tuple[Path, str]]:
    """The file of a result and its key; None if it is not to be looked for."""
    where = folder()
    # A process goes on with what it has loaded, whatever the source is by now.
    if where is None or not _AT_IMPORT or _sources() != _AT_IMPORT:
        return None
    surroundings = _surroundings()
    if surroundings is None:
        return None
    try:
        question = [_content(function), _content(args), _content(kwargs)]
    except _UnknownError:
        return None
    key = hashlib.sha256(json.dumps([surroundings, question]).encode()).hexdigest()
    return where / f"{function.__name__.strip('_')}-{key[:32]}.npz", key


def _read(path: Path, key: str) -> Optional[tuple[Header, Arrays]]:
    """What was kept for a key; None if there is none, or if it is not to be used."""
    try:
        if not _is_private(path.parent):
            return None
        header, arrays = files.read_arrays(path)
        if header.pop("checksum") != files.arrays_checksum(header, arrays):
            return None
        if header.pop("key") != key:
            return None
    # A damaged archive raises all kinds of errors.
    except Exception:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return header, arrays


def _write(path: Path, key: str, header: Header, arrays: Arrays) -> None:
    """Keeps a result, if there is room and it may be written."""
    if sum(array.nbytes for array in arrays.values()) > MOST_BYTES // _SHARE:
        return
    # Threads of a process would write under one name.
    with _writing, contextlib.suppress(OSError, ValueError):
        files.private_folder(path.parent)
        if _is_private(path.parent):
            files.write_arrays(path, {**header, "key": key}, arrays, private=True)
            _make_room(path.parent)


def _make_room(place: Path) -> None:
    """Removes the files that were used the longest ago, until the others have room."""
    found = []
    for path in place.glob("*.npz"):
        # Another process may have removed it.
        with contextlib.suppress(OSError):
            about = path.stat()
            found.append((about.st_mtime_ns, about.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size


def _content(value: Any) -> Any:
    """JSON that differs for any two values that do not mean the same."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return [kind.__name__, value]
    if kind is float:
        return ["float", repr(value)]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        array = np.ascontiguousarray(value)
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        return [kind.__name__, array.dtype.str, list(np.shape(value)), digest]
    if kind in (tuple, list):
        return [kind.__name__, [_content(each) for each in value]]
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=repr)
        return ["mapping", [[_content(k), _content(v)] for k, v in items]]
    if isinstance(value, types.FunctionType):
        return ["function", _name(value)]
    if attr.has(kind):
        names = [field.name for field in attr.fields(kind)]
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    else:
        raise _UnknownError(kind)
    return [_name(kind), [[name, _content(getattr(value, name))] for name in names]]


def _name(definition: Any) -> str:
    """The name of a class or function whose source the digest covers."""
    name = f"{definition.__module__}.{definition.__qualname__}"
    own = tuple(f"dpfl.{package}." for package in _PACKAGES)
    # Of a function within another the name does not tell what it remembers.
    if "<" in name or not name.startswith((*own, "dp_accounting.")):
        raise _UnknownError(name)
    return name


def _sources() -> tuple[tuple[str, int, int, int], ...]:
    """The files whose code decides a result, and when each was changed."""
    root = Path(__file__).parent
    paths = [*root.glob("*.py")]
    for package in _PACKAGES:
        paths += (root / package).rglob("*.py")
    found = []
    try:
        for path in sorted(paths):
            about = path.stat()
            times = about.st_mtime_ns, about.st_ctime_ns
            found.append((str(path), about.st_size, *times))
    except OSError:  # It has just been removed.
        return ()
    return tuple(found)


_AT_IMPORT = _sources()


@functools.lru_cache(maxsize=1)
def _surroundings() -> Optional[str]:
    """A digest of source, versions and machine; None if a version is not known."""
    from importlib import metadata

    root = Path(__file__).parent
    found = hashlib.sha256()
    try:
        for name, *_ in _AT_IMPORT:
            content = Path(name).read_bytes()
            place = Path(name).relative_to(root).as_posix()
            found.update(f"{place} {len(content)}\n".encode())
            found.update(content)
        versions = [metadata.version(library) for library in _LIBRARIES]
    except (OSError, metadata.PackageNotFoundError):
        return None
    threads = [os.environ.get(name) for name in _THREADS]
    python = [platform.python_version(), platform.machine(), platform.libc_ver()]
    about = [versions, threads, python, os.cpu_count(), _processor()]
    found.update(json.dumps(about).encode())
    return found.hexdigest() if _sources() == _AT_IMPORT else None


def _processor() -> str:
    """What the processor can do, by which numpy and BLAS choose how they add up."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(("flags", "Features")):
                return line
    return ""
