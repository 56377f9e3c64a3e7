# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Costs of integer noise and secure sums without training, exact or measured.

    config = mechanisms.SketchedDdg(10, 1.0, 0.5, 12, compression_rate=5.0)
    error = secure_sums.expected_error(config, 512, secure_sums.PRODUCTS["similar"])
    ratio = secure_sums.error_ratio(1000, 1000, 8.0, 1e-5, 12, "exact")

The figures are on Chen et al. 2022, 'The Fundamental Price of Secure Aggregation'.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpfl import accounting, mechanisms, planning
from dpfl.mechanisms.sketch import SketchShape

from ..tables import Row, Rows, where
from ..trainings.sweep import Work
from . import mean_estimation, published_bounds


def expected_error(
    mechanism: mechanisms.Mechanism, dimension: int, product: float
) -> float:
    """The expected squared error of the mean of unit vectors that differ.

    `mean_squared_error` is for equal vectors. A sketch errs in proportion to the
    squared norm of the mean, (1 + (n - 1) product) / n, which is less if the inner
    products of any two are less than 1; noise and rounding do not depend on it.

    Args:
      mechanism: The mechanism, of clip norm 1 and n clients.
      dimension: d.
      product: Inner product of any two vectors.
    """
    error = mechanism.mean_squared_error(dimension)
    compression = getattr(mechanism, "compression_error", None)
    if compression is None:
        return error
    n = mechanism.cohort_size
    squared_norm = (1 + (n - 1) * product) / n
    return error - (1 - squared_norm) * compression(dimension)


# The mechanism that each bound of the figure is of.
BOUNDS = {
    "exact": mechanisms.DistributedDiscreteGaussian,
    "published": published_bounds.PublishedDdg,
}


def error_ratio(
    n: int, length: int, epsilon: float, delta: float, bits: int, bound: str
) -> float:
    """The squared error of DDG over that of Gaussian noise at equal epsilon.

    Args:
      n: Number of clients, all of which take part in the one release.
      length: Number of coordinates of a message, without a sketch.
      epsilon: The budget.
      delta: The budget's delta.
      bits: Bits of a coordinate of the sum.
      bound: A key of `BOUNDS`.

    Returns:
      The ratio; infinity if no noise meets the budget with so few bits.
    """
    # Both use the same method: only the Gaussian has a tighter one.
    plain = planning.calibrate(
        mechanisms.Gaussian(n, 1.0, 1.0),
        None,
        length,
        epsilon,
        delta,
        accounting_method="rdp",
    )
    try:
        config = BOUNDS[bound](n, 1.0, 1.0, bits)
        config.grid(length)
        # Any noise is allowed here, even more than `planning.calibrate` accepts.
        noise = accounting.calibrate_noise_multiplier(
            lambda z: config.with_noise_multiplier(z).round_dp_event(length, 1.0),
            *(epsilon, delta),
            accounting_method="rdp",
        )
    except ValueError:
        return math.inf
    noised = config.with_noise_multiplier(noise)
    return noised.mean_squared_error(length) / plain.mean_squared_error(length)


class HashShape(SketchShape):
    """Sizes and error of a `hash_sketch.HashSketch`."""

    def errors(self, length: int, width: int) -> float:
        """See base class: any two coordinates may collide."""
        return length * (length - 1) / (self.rows * width)


@dataclasses.dataclass(frozen=True)
class HashedDdg(mechanisms.SketchedDdg):
    """`SketchedDdg` with the paper's sketch, of 15 rows; dpfl has no codec of it."""

    def shape(self, dimension: int) -> HashShape:
        """See base class."""
        return HashShape(15, ((dimension, float(self.compression_rate)),))


# Clients, dimension and repeats; sufficient and few bits: a coordinate of the sum needs
# more with more clients; and the expected product of two vectors of a distribution.
MEAN_SIZES = {"small": (100, 2**14, 50), "paper": (1000, 2**20, 10)}
_MEAN_BITS = {"small": (16, 12), "paper": (18, 15)}
PRODUCTS = {"similar": 0.5, "independent": 0.0}
_MEAN_RATES = (1, 3, 10, 30, 100)
# Setting for hashes, which are slow, and for other vectors.
_FEW_RATES = (10, 100)


def _means(scale: str) -> Iterator[Work]:
    """Sketches of both kinds, and no sketch, over rates and bits."""
    n, dimension, repeats = MEAN_SIZES[scale]
    enough, few = ({"bits": bits} for bits in _MEAN_BITS[scale])
    many, fewer = (f"{own['bits']} bits" for own in (enough, few))
    ddg, sketched = mechanisms.DistributedDiscreteGaussian, mechanisms.SketchedDdg
    perturbed = mechanisms.ProjectAndPerturb
    curves: list[tuple[str, Any, Mapping[str, Any], tuple[int, ...], str]] = [
        ("Gaussian", mechanisms.Gaussian, {}, (1,), "similar"),
        (f"DDG, {many}", ddg, enough, (1,), "similar"),
        (f"DDG, {fewer}", ddg, few, (1,), "similar"),
        (f"shifts, {many}", sketched, enough, _MEAN_RATES, "similar"),
        (f"shifts, {fewer}", sketched, few, _MEAN_RATES, "similar"),
        ("project and perturb", perturbed, {}, _MEAN_RATES, "similar"),
        (f"hashes, {many}", HashedDdg, enough, _FEW_RATES, "similar"),
        (f"shifts, {many}", sketched, enough, _FEW_RATES, "independent"),
    ]
    for series, kind, own, rates, vectors in curves:
        for rate in rates:
            is_sketch = kind in (sketched, perturbed, HashedDdg)
            more = {"compression_rate": float(rate)} if is_sketch else {}
            yield mean_estimation.work(
                {"series": series, "compression_rate": rate, "vectors": vectors},
                kind(n, 1.0, 1.0, **own, **more),
                dimension=dimension,
                repeats=repeats,
                epsilon=1.0,
                vectors=vectors,
                theory=functools.partial(
                    expected_error, dimension=dimension, product=PRODUCTS[vectors]
                ),
                bits=own.get("bits", 0),
            )


# Clients, dimension, repeats and numbers of coordinates that are not zero.
SPARSE_SIZES: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "small": (200, 2**12, 20, (1, 2, 5, 10, 20)),
    "paper": (1000, 2**14, 20, (1, 3, 10, 30, 100)),
}
_SPARSE_BITS = 16
_SPARSE_NAMES = ("distributed_discrete_gaussian", "sketched_ddg", "sparse_recovery")


def sparse_config(
    name: str, n: int, dimension: int, sparsity: int
) -> mechanisms.Mechanism:
    """The mechanism for a mean of sparse vectors.

    Sketches have the length of the LASSO's; that of a count-mean sketch is rounded up
    to a multiple of its rows.

    Args:
      name: Name of the mechanism.
      n: Number of clients.
      dimension: d.
      sparsity: Number of nonzero coordinates.
    """
    common = (n, 1.0, 1.0, _SPARSE_BITS)
    recovery = mechanisms.SparseRecovery(*common, sparsity=sparsity)
    if name == "sparse_recovery":
        return recovery
    if name == "distributed_discrete_gaussian":
        return mechanisms.DistributedDiscreteGaussian(*common)
    rate = dimension / recovery.vector_dimension(dimension)
    return mechanisms.SketchedDdg(*common, compression_rate=rate)


def _sparse_means(scale: str) -> Iterator[Work]:
    """Errors of LASSO, of a sketch of equal length and without sketch, by sparsity."""
    n, dimension, repeats, sparsities = SPARSE_SIZES[scale]
    for name, sparsity in itertools.product(_SPARSE_NAMES, sparsities):
        yield mean_estimation.work(
            {"mechanism": name, "sparsity": sparsity},
            sparse_config(name, n, dimension, sparsity),
            dimension=dimension,
            repeats=repeats,
            epsilon=8.0,
            sparsity=sparsity,
            bits=_SPARSE_BITS,
        )


# Clients and length of a message, and epsilon, of each curve over the bits.
_BITS_SIZES = ((100, 100), (1000, 1000), (1000, 10_000), (1000, 100_000))
_BITS_EPSILONS = (1.0, 2.0, 4.0, 16.0)
_BITS_DELTA = 1e-5


def _ratio(n: int, length: int, epsilon: float, bits: int, bound: str) -> Work:
    def compute(_: Path) -> Mapping[str, Any]:
        ratio = error_ratio(n, length, epsilon, _BITS_DELTA, bits, bound)
        return {"error_ratio": ratio}

    labels = {"clients": n, "length": length, "epsilon": epsilon}
    return Work(
        {**labels, "bits": bits, "bound": bound}, {"delta": _BITS_DELTA}, compute
    )


def _bits(scale: str) -> Iterator[Work]:
    """Error ratios over bits: sizes at epsilon 8, and epsilons at one size."""
    is_small = scale == "small"
    curves = [(*size, 8.0) for size in _BITS_SIZES[: 3 if is_small else 4]]
    curves += [(1000, 1000, epsilon) for epsilon in _BITS_EPSILONS]
    for curve, bound in itertools.product(curves, BOUNDS):
        for bits in range(6, 19 if is_small else 21):
            yield _ratio(*curve, bits, bound)


def _at_epsilon_8(rows: Rows) -> list[Row]:
    """The rows that are drawn: all sizes, at one budget."""
    return where(rows, epsilon=8.0)


ROWS = {"secagg_bits": _at_epsilon_8}
WORK = {"secagg_mean": _means, "secagg_sparse": _sparse_means, "secagg_bits": _bits}
