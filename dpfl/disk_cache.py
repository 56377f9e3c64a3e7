# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Results of long computations, cached on disk for the next process.

    @disk_cache.kept(to_parts, from_parts)
    def slow_epsilon(event, delta): ...

The key of a result is a digest of the function, its arguments, the source of dpfl's
numeric packages, the versions of libraries and the machine, so that an entry of an
earlier accountant is never used by a later one. A cached result has the bits that a
computation would give. A damaged entry, or one of another key, is computed anew.

The entries are `cache_folder`'s, which decides where they lie and which are trusted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import platform
import time
import types
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Optional, TypeVar

import attr
import numpy as np

from dpfl import cache_folder

LEAST_SECONDS = 0.25
"""Faster results are not cached. A calibration asks for about a dozen."""

# Packages of dpfl, beside the modules at its root, whose source decides a result and
# whose values arguments may hold.
_PACKAGES = ("accounting", "factorization")
_LIBRARIES = ("numpy", "scipy", "dp-accounting")
# Prefixes of the environment variables that decide in which order BLAS and numpy add:
# numbers of threads, kinds of processors, modes.
_SETTINGS = ("OPENBLAS_", "GOTO_", "OMP_", "KMP_", "MKL_", "BLIS_", "VECLIB_", "NPY_")
# Lines of /proc/cpuinfo by which they choose their code for a processor.
_KINDS = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU ")

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _UnknownError(TypeError):
    """An argument that no digest can identify."""


def kept(
    to_parts: Callable[[Any], tuple[cache_folder.Header, cache_folder.Arrays]],
    from_parts: Callable[[cache_folder.Header, cache_folder.Arrays], Any],
) -> Callable[[_Function], _Function]:
    """Decorator that caches a function's results on disk.

    Arguments are numbers, strings, arrays, lists and mappings of such, frozen values of
    dpfl's and dp_accounting's events and factorizations, and functions of these
    packages. Calls with any other argument are computed and not cached.

    Args:
      to_parts: Maps a result to JSON values by name, and arrays.
      from_parts: Maps these back to the result, to the last bit. KeyError, TypeError
        and ValueError from it mean that the parts are not a result's.
    """

    def decorated(function: _Function) -> _Function:
        @functools.wraps(function)
        def cached(*args: Any, **kwargs: Any) -> Any:
            key = _key(function, args, kwargs)
            if key is None:
                return function(*args, **kwargs)
            parts = cache_folder.read(key)
            if parts is not None:
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    return from_parts(*parts)
            begun = time.monotonic()
            result = function(*args, **kwargs)
            is_slow = time.monotonic() - begun >= LEAST_SECONDS
            # Modules are loaded when they are used, perhaps after an edit.
            if is_slow and _digest_of_source() == _SOURCE:
                cache_folder.write(key, *to_parts(result))
            return result

        return cached  # type: ignore[return-value]

    return decorated


def _key(function: Callable[..., Any], args: Any, kwargs: Any) -> Optional[str]:
    """The key of a call; None if the call is not to be cached."""
    if cache_folder.folder() is None or not _SOURCE:
        return None
    try:
        question = [_content(function), _content(args), _content(kwargs)]
    except _UnknownError:
        return None
    question.append(_surroundings())
    return hashlib.sha256(json.dumps(question).encode()).hexdigest()


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
    # The name of a nested function does not identify the variables that it closes over.
    if "<" in name or not name.startswith((*own, "dp_accounting.")):
        raise _UnknownError(name)
    return name


def _digest_of_source() -> str:
    """The SHA-256 of the files whose code decides a result; "" if none is there."""
    root, hasher = Path(__file__).parent, hashlib.sha256()
    paths = [*root.glob("*.py")]
    for package in _PACKAGES:
        paths += (root / package).rglob("*.py")
    for path in sorted(paths):
        content = path.read_bytes()
        place = path.relative_to(root).as_posix()
        hasher.update(f"{place} {len(content)}\n".encode())
        hasher.update(content)
    # An archive of modules has no such files.
    return hasher.hexdigest() if paths else ""


# A process keeps the code that it has loaded, even if the source changes.
_SOURCE = _digest_of_source()


@functools.lru_cache(maxsize=1)
def _surroundings() -> list[Any]:
    """Source, versions and machine, on which a result depends beside its arguments."""
    versions = [metadata.version(library) for library in _LIBRARIES]
    python = [platform.python_version(), platform.machine(), platform.libc_ver()]
    return [_SOURCE, versions, np.__file__, python, *ADDING_UP]


def _adding_up() -> list[Any]:
    """Settings that decide the last bits of sums, beside the code.

    They are the threads and the processor. BLAS has as many threads as there are
    processors that the process may use.
    """
    if hasattr(os, "sched_getaffinity"):
        processors: Optional[int] = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count()
    names = sorted(name for name in os.environ if name.startswith(_SETTINGS))
    return [processors, [[name, os.environ[name]] for name in names], _processor()]


def _processor() -> list[str]:
    """The kind of the processor, and its instruction sets."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        # An empty line separates the processors.
        first = itertools.takewhile(str.strip, lines)
        return [line for line in first if line.startswith(_KINDS)]
    return [platform.processor()]


# Value when numpy is loaded, which reads the number of processors, the settings of BLAS
# and the kind of the processor only once.
ADDING_UP = _adding_up()
