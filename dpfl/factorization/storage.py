# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Factorizations on disk, one self-describing file each.

    save(factorization, "matrix.npz")
    load("matrix.npz", workload=factorization.workload)

A file is an npz archive with a JSON `header` (workload, method, parameters, kind of
factors, loss, lower bound, gap, sensitivity, versions, checksum over the arrays) and
the arrays of the factors. It is written atomically, so that a reader sees all of it or
nothing. No pickles.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Union

import numpy as np
import scipy

import dpfl
from dpfl import checks, files
from dpfl.factorization.factorization import Factorization, from_parts, parts
from dpfl.factorization.workloads import Workload

FORMAT = 1
PathLike = Union[str, "os.PathLike[str]"]


class StorageError(ValueError):
    """A file is no factorization, is damaged, or does not fit the run."""


def save(factorization: Factorization, path: PathLike) -> None:
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


def load(path: PathLike, *, workload: Workload | None = None) -> Factorization:
    """Reads a factorization.

    Args:
      path: The file's path.
      workload: The workload that it must be for; None for any.

    Raises:
      FileNotFoundError: If there is no such file.
      StorageError: If it is damaged or is for another workload.
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
    checksum = header.pop("checksum", None)
    if checksum != files.arrays_checksum(header, arrays):
        raise StorageError(
            f"{path} is damaged: its contents do not match its checksum {checksum}"
        )
    try:
        if header["lower_bound"] is not None:
            checks.real("lower_bound", header["lower_bound"])
        factorization = from_parts(header, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} does not hold a factorization: {error}") from error
    if workload is not None:
        check_fits(factorization, workload, name=str(path))
    return factorization


def check_fits(
    factorization: Factorization, workload: Workload, *, name: str = "factorization"
) -> None:
    """Refuses a factorization of another workload.

    Args:
      factorization: The factorization.
      workload: The run's workload.
      name: The factorization's name in the message.

    Raises:
      StorageError: If rounds, momentum or rates differ from the run's.
    """
    same_rates = np.array_equal(factorization.workload.rates, workload.rates)
    if factorization.workload.momentum != workload.momentum or not same_rates:
        raise StorageError(
            f"{name} must be for the workload ({workload}), found "
            f"({factorization.workload})"
        )
