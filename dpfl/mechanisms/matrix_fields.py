# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fields that choose the factorization of correlated noise.

    fields = MatrixFields(matrix_method="banded", matrix_bands=8)
    fields.check_matrix(rounds)
    factorization = fields.find_factorization(rounds, "rounds_per_epoch")

Mechanisms with correlated noise inherit the fields.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Optional

from dpfl import checks, files
from dpfl import factorization as fact
from dpfl.fields import option

SCHEDULES: Mapping[str, type[fact.Schedule]] = {
    "constant": fact.ConstantRate,
    "drop": fact.DropRate,
    "cooldown": fact.LinearCooldown,
}

# The fields of each method, with the names of the method's own parameters.
_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "band-low-rank": {"matrix_bands": "band", "matrix_rank": "rank"},
    "toeplitz": {"matrix_bands": "bands"},
    "banded": {"matrix_bands": "bands"},
    "banded-inverse-root": {"matrix_bands": "bands"},
    "banded-inverse": {"matrix_bands": "bands"},
    "blt-rational": {"matrix_buffers": "buffers"},
    "blt": {"matrix_buffers": "buffers"},
}
_OPTIONAL = frozenset({("toeplitz", "matrix_bands")})
_SIZES = ("matrix_bands", "matrix_rank", "matrix_buffers")


@dataclasses.dataclass(frozen=True)
class MatrixFields:
    """Source of the factorization A = B C: a method and its parameters, or a file.

    The fields' own sentences describe them, and besides:

    Attributes:
      matrix_momentum: beta of the workload; the server's optimizer must then have none.
      matrix_schedule: Rates of the workload relative to the server's: "constant",
        "drop" (a tenth in the last quarter) or "cooldown" (linear to 0.05 in the last
        quarter).
      matrix_file: A file made by `dpfl.factorization.save`; its matrix may have more
        rounds than the epoch, or the run.
    """

    matrix_method: str = option(
        "optimal", "Factorization of A", choices=sorted(fact.METHODS)
    )
    matrix_momentum: float = option(
        0.0,
        "Momentum of the workload, which the aggregator applies.",
        at_least=0,
        below=1,
    )
    matrix_schedule: str = option(
        "constant", "Learning rates of the workload", choices=SCHEDULES
    )
    matrix_bands: Optional[int] = option(
        None,
        "Diagonals of C (banded, toeplitz), of its inverse (banded-inverse, "
        "banded-inverse-root) or of B (band-low-rank).",
        at_least=1,
    )
    matrix_rank: Optional[int] = option(
        None, "Rank of the low-rank part of B (band-low-rank).", at_least=0
    )
    matrix_buffers: Optional[int] = option(
        None, "Buffers of the noise stream (blt, blt-rational).", at_least=1
    )
    matrix_file: Optional[str] = option(
        None,
        "Path of a saved factorization, instead of the other matrix fields.",
        check=checks.path,
    )
    # See `Mechanism.gone_fields`.
    former_fields: ClassVar[Mapping[str, Any]] = {"matrix_cache": None}

    def check_matrix(self, rounds: int) -> None:
        """Raises ValueError for a field that a stream cannot have."""
        if self.matrix_file is not None:
            self._check_nothing_beside_the_file()
        else:
            self._check_sizes(rounds)

    def _check_nothing_beside_the_file(self) -> None:
        for field in dataclasses.fields(MatrixFields):
            value = getattr(self, field.name)
            is_left_out = field.name == "matrix_file" or value == field.default
            wanted = "left out with a matrix_file"
            checks.require(is_left_out, field.name, wanted, value)

    def _check_sizes(self, rounds: int) -> None:
        """Raises ValueError unless the method has its sizes, and no others."""
        wanted = _PARAMETERS.get(self.matrix_method, {})
        for name in _SIZES:
            value = getattr(self, name)
            out = f"left out for matrix_method {self.matrix_method!r}"
            checks.require(value is None or name in wanted, name, out, value)
            is_free = name not in wanted or (self.matrix_method, name) in _OPTIONAL
            if value is None and not is_free:
                raise ValueError(
                    f"{name} must be given for matrix_method {self.matrix_method!r}"
                )
            if value is not None and name != "matrix_buffers":
                checks.integer(name, value, 0, rounds, "the rounds of a stream")

    @property
    def file_digest(self) -> Optional[str]:
        """SHA-256 of the matrix_file, None if there is none; see `Mechanism`."""
        if self.matrix_file is None:
            return None
        path = files.input_path("matrix_file", self.matrix_file)
        return hashlib.sha256(files.read_bytes(path)).hexdigest()

    def find_factorization(self, rounds: int, called: str) -> fact.Factorization:
        """The factorization of streams of `rounds`, loaded or computed at first use.

        Errors call the rounds `called`.

        Raises:
          ValueError: If the matrix has fewer rounds than a stream, or the file is
            damaged or missing.
        """
        if self.matrix_file is not None:
            files.input_path("matrix_file", self.matrix_file)
            changed = os.stat(self.matrix_file).st_mtime_ns
            return _load(self.matrix_file, changed, rounds)
        names = [field.name for field in dataclasses.fields(MatrixFields)]
        request = MatrixFields(**{name: getattr(self, name) for name in names})
        return _compute(rounds, called, request)


@functools.lru_cache(maxsize=8)
def _load(path: str, changed: int, rounds: int) -> fact.Factorization:
    factorization = fact.load(path)
    own, wanted = factorization.rounds, f"of at least the {rounds} rounds of a stream"
    checks.require(own >= rounds, f"matrix_file {path}", wanted, own)
    return factorization


@functools.lru_cache(maxsize=8)
def _compute(rounds: int, called: str, fields: MatrixFields) -> fact.Factorization:
    workload = fact.Workload(
        rounds, fields.matrix_momentum, SCHEDULES[fields.matrix_schedule]()
    )
    sizes = _PARAMETERS.get(fields.matrix_method, {})
    params: dict[str, Any] = {
        parameter: getattr(fields, name)
        for name, parameter in sizes.items()
        if getattr(fields, name) is not None
    }
    names = {parameter: name for name, parameter in sizes.items()}
    with checks.renaming({"rounds": called, **names}):
        return fact.compute(workload, fields.matrix_method, **params)
