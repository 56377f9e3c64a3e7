# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Downloads with timeouts, identified by their digests.

    downloads.fetch(path, url, check, sha256)
    digest = downloads.remembered_digest(path)

A connection that is silent for a minute is given up.
"""

from __future__ import annotations

import hashlib
import http.client
import lzma
import os
import re
import urllib.request
from collections.abc import Callable
from typing import Any, Optional

from dpfl import cache_folder, files

# Seconds without a byte after which a connection is given up.
_SILENCE = 60.0
_CHUNK = 2**20
# Exceptions of a failed download.
_ERRORS = (OSError, EOFError, http.client.HTTPException, lzma.LZMAError)


class DataFileError(ValueError):
    """A data file is missing, incomplete, damaged or not the published one."""


def fetch(
    path: str, url: str, check: Callable[[str], Any], sha256: Optional[str] = None
) -> None:
    """Downloads to a temporary name, checks, and then renames the file.

    Args:
      path: Path of the file; its folder is made.
      url: Address of the file; one that ends in .lzma is unpacked.
      check: Called with the temporary name; an exception ends the download.
      sha256: Hexadecimal digest of the file at the address; None if it is not known.

    Raises:
      DataFileError: If the download fails, or its digest differs from the one asked
        for.
    """
    try:
        files.public_folder(os.path.dirname(path) or ".")
        with urllib.request.urlopen(url, timeout=_SILENCE) as source:
            with files.atomically(path) as file:
                reads = _unpack if url.endswith(".lzma") else _read
                received = reads(source, file.write)
                if sha256 is not None and received != sha256:
                    raise DataFileError(
                        "The download is not the published file (the file at "
                        f"{url} has the SHA-256 {received}, not {sha256}): fetch it "
                        "again, or set allow_partial_data=True "
                        "(--allow_partial_data) if another file is meant"
                    )
                file.flush()
                check(file.name)
    except _ERRORS as error:
        folder, name = os.path.split(path)
        raise DataFileError(
            f"The data file {name} could not be downloaded from {url} ({error}): fetch"
            f" it on a machine with a network and put it, unpacked, in {folder}"
        ) from error


def digest(path: str) -> str:
    """The SHA-256 of a file, in hex."""
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            hasher.update(chunk)
    return hasher.hexdigest()


def remembered_digest(path: str) -> str:
    """The SHA-256 of a file, cached until the file changes.

    It is stored in the user's cache by the file's path, device, inode, size and times
    of content and inode, which change with any of its bytes.
    """
    name, known = os.path.realpath(path), _facts(path)
    key = hashlib.sha256(b"digest of " + os.fsencode(name)).hexdigest()
    header, _ = cache_folder.read(key) or ({}, {})
    kept = header.get("sha256")
    if header.get("facts") == known and re.fullmatch("[0-9a-f]{64}", str(kept)):
        return str(kept)
    sha256 = digest(path)
    if _facts(path) == known:
        cache_folder.write(key, {"facts": known, "sha256": sha256}, {})
    return sha256


def _facts(path: str) -> list[int]:
    """Facts of a file that change with its content."""
    about = os.stat(path)
    identity = [about.st_dev, about.st_ino, about.st_size]
    return [*identity, about.st_mtime_ns, about.st_ctime_ns]


def _unpack(source: Any, sink: Callable[[bytes], Any]) -> str:
    """Unpacks a response to its end; returns the digest of the packed bytes."""
    unpacker = lzma.LZMADecompressor()
    received = _read(source, lambda chunk: sink(unpacker.decompress(chunk)))
    if not unpacker.eof:
        raise EOFError("the compressed data end too early")
    return received


def _read(source: Any, sink: Callable[[bytes], Any]) -> str:
    """Reads a response, and returns its digest; refuses a short one."""
    expected = source.headers.get("content-length")
    copied, received = 0, hashlib.sha256()
    for chunk in iter(lambda: source.read(_CHUNK), b""):
        copied += len(chunk)
        received.update(chunk)
        sink(chunk)
    if expected is not None and copied != int(expected):
        raise EOFError(f"only {copied} of {expected} bytes came")
    return received.hexdigest()
