# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Downloads that end, and that are known by their digest.

A connection that says nothing for a minute is given up, and so is one that is slower
than any network. Beside an unpacked file stands its SHA-256, as `sha256sum -c` reads
it, so that what happens to the file later can be noticed.
"""

from __future__ import annotations

import hashlib
import http.client
import lzma
import os
import re
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import IO, Any, Optional

from dpfl import cache_folder, files

# Seconds without a byte after which a connection is given up.
_SILENCE = 60.0
# Bytes a second, on average, that the slowest connection brings.
_LEAST_RATE = 1024.0
_CHUNK = 2**20
_ENDING = ".sha256"
# Beyond the bytes of a digest and a path.
_MOST_RECORD = 1 << 16
# Of a file that takes some seconds to read.
_LONG = 2**31
# Of the clock that files are dated with, in nanoseconds, and more.
_TICK_NS = 2 * 10**9
# What a download that does not come to its end raises.
ERRORS = (OSError, EOFError, http.client.HTTPException, lzma.LZMAError)


class OtherFileError(ValueError):
    """What came is not what was published."""


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def fetch(
    path: str, url: str, check: Callable[[str], Any], sha256: Optional[str] = None
) -> None:
    """Downloads to a temporary name, checks, and only then gives the file its name.

    Args:
      path: Where it goes; its folder is made.
      url: Where it is; one that ends in .lzma is unpacked, and the digest of what was
        unpacked is written beside it.
      check: Called with the temporary name; what it raises ends the download.
      sha256: Hexadecimal digest of what the address gives; None if it is not known.

    Raises:
      OtherFileError: If the digest is another than asked for, or than the one that
        stands beside the path already, which is not replaced.
      OSError, EOFError, http.client.HTTPException or lzma.LZMAError: If it does not
        come to its end; they are `ERRORS`.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    is_packed = url.endswith(".lzma")
    with urllib.request.urlopen(url, timeout=_SILENCE) as source:
        with files.atomically(path) as file:
            received = _unpack(source, file) if is_packed else _read(source, file.write)
            if sha256 is not None and received != sha256:
                raise OtherFileError(
                    f"{url} must have the SHA-256 {sha256}, found {received}"
                )
            file.flush()
            check(file.name)
            unpacked = digest(file.name) if is_packed else None
            is_recorded = unpacked is not None and os.path.lexists(path + _ENDING)
            if is_recorded and recorded_digest(path) != unpacked:
                raise OtherFileError(
                    f"{url} must have, unpacked, the SHA-256 in {path}{_ENDING} unless "
                    f"that is removed, found {unpacked}"
                )
    if unpacked is not None and not is_recorded:
        line = f"{unpacked}  {os.path.basename(path)}\n"
        files.write_atomically(path + _ENDING, line)


def digest(path: str) -> str:
    """The SHA-256 of a file, in hex."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            found.update(chunk)
    return found.hexdigest()


def remembered_digest(path: str, say: Callable[[str], None] = _say) -> str:
    """The SHA-256 of a file, read only if it is not the one read before.

    What was found is remembered in the user's cache by the file's path, device, inode,
    size and times of content and inode, which change with any of its bytes.
    Before a file is read for which that takes long `say` is called with a sentence.
    """
    name, known = os.path.realpath(path), _facts(path)
    key = hashlib.sha256(b"digest of " + os.fsencode(name)).hexdigest()
    header, _ = cache_folder.read(key) or ({}, {})
    kept = header.get("sha256")
    if header.get("facts") == known and re.fullmatch("[0-9a-f]{64}", str(kept)):
        return str(kept)
    if os.path.getsize(path) > _LONG:
        say(f"reading all of {path} once, to know it again")
    found = digest(path)
    # A clock's last tick may still come to a file that was just written.
    is_settled = time.time_ns() - max(known[-2:]) > _TICK_NS
    if is_settled and _facts(path) == known:
        cache_folder.write(key, {"facts": known, "sha256": found}, {})
    return found


def _facts(path: str) -> list[int]:
    """Numbers of a file of which another content has others, the last two its times."""
    about = os.stat(path)
    identity = [about.st_dev, about.st_ino, about.st_size]
    return [*identity, about.st_mtime_ns, about.st_ctime_ns]


def recorded_digest(path: str) -> Optional[str]:
    """The digest that stands beside a file, None if there is none."""
    try:
        text = files.read_text(path + _ENDING, _MOST_RECORD)
    except (OSError, ValueError):
        return None
    return (text.split() or [""])[0].lower()


def _unpack(source: Any, file: IO[bytes]) -> str:
    """Unpacks a response to its end; the digest of what came."""
    unpacker = lzma.LZMADecompressor()
    received = _read(source, lambda chunk: file.write(unpacker.decompress(chunk)))
    if not unpacker.eof:
        raise EOFError("the compressed data end too early")
    return received


def _read(source: Any, sink: Callable[[bytes], Any]) -> str:
    """Reads a response, refuses one that is short or hardly moves; its digest."""
    expected = source.headers.get("content-length")
    begun, copied, received = time.monotonic(), 0, hashlib.sha256()
    # read1 gives what is there: a response of a byte a minute cannot hold it up.
    for chunk in iter(lambda: source.read1(_CHUNK), b""):
        copied += len(chunk)
        received.update(chunk)
        sink(chunk)
        seconds = time.monotonic() - begun
        if seconds > _SILENCE and copied < _LEAST_RATE * seconds:
            raise TimeoutError(f"{copied} bytes in {seconds:.0f} seconds")
    if expected is not None and copied != int(expected):
        raise EOFError(f"{copied} bytes of {expected}")
    return received.hexdigest()
