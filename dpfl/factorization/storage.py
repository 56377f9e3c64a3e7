# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Factorizations on disk, one self-describing file each.

    save(factorization, "matrix.npz")
    factorization = load("matrix.npz")

A file is an npz archive with a JSON `header` (workload, method, parameters, kind of
factors, loss, lower bound, gap, sensitivity, versions, checksum over the arrays) and
the arrays of the factors. It is written atomically, so that a reader sees all of it or
nothing. No pickles.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy

import dpfl
from dpfl import files
from dpfl.factorization.factorization import Factorization, from_parts, parts

FORMAT = 1


class StorageError(ValueError):
    """A file is no factorization, or is damaged."""


def save(factorization: Factorization, path: files.PathLike) -> None:
    """Writes a factorization to a file, atomically; an older file is replaced."""
    path = Path(path)
    header, arrays = parts(factorization)
    header.update(
        format=FORMAT,
        loss=factorization.loss,
        gap=factorization.gap,
        sensitivity=factorization.sensitivity().value,
        versions={
            "dpfl": dpfl.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
    )
    files.public_folder(path.parent)
    files.write_arrays(path, header, arrays)


def load(path: files.PathLike) -> Factorization:
    """Reads a factorization.

    Raises:
      FileNotFoundError: If there is no such file.
      StorageError: If it is damaged.
    """
    path = Path(path)
    try:
        header, arrays = files.read_arrays(path)
    except ValueError as error:
        raise StorageError(
            f"{path} cannot be read as a factorization: {error}"
        ) from error
    if header.get("format") != FORMAT:
        raise StorageError(
            f"{path} has format {header.get('format')!r} instead of {FORMAT}"
        )
    try:
        return from_parts(header, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} does not hold a factorization: {error}") from error
