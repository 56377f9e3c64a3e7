# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The canaries of an audit: what is tried of each mechanism, and with which numbers.

Noise, masks and dimensions are small, so that an optimal test finds most of what is
claimed from some thousand releases. The first case of a mechanism is that of a quick
audit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpfl import mechanisms
from dpfl.audits.canaries import Case

_ONE = (1.0,)
_FOUR = (0.5,) * 4
_SIXTEEN = (0.25,) * 16
_CONCENTRATED = "all in one coordinate"
# Below 1e-3 some ten thousand trials show little.
_DELTA, _LARGE_DELTA = 1e-3, 1e-2


def _poisson(cohort: int, population: int = 0) -> mechanisms.Participation:
    return mechanisms.PoissonSampling(population or cohort, cohort, 1)


def _fixed(cohort: int) -> mechanisms.Participation:
    return mechanisms.FixedSize(cohort, cohort, 1)


def _gaussian() -> list[Case]:
    def case(z: float, vector: str, block: tuple[float, ...], **more: Any) -> Case:
        q, delta = more.get("q", 1.0), more.get("delta", _DELTA)
        config = mechanisms.Gaussian(round(64 * q), 1.0, z)
        cohort, dimension = _poisson(round(64 * q), 64), 64 * len(block)
        return Case(config, dimension, cohort, vector, block, 64, delta)

    adaptive = mechanisms.Gaussian(8, 1.0, 1.0, adaptive_clipping=True, count_stddev=1)
    return [
        case(1.0, _CONCENTRATED, _ONE),
        case(0.6, _CONCENTRATED, _ONE),
        case(1.0, _CONCENTRATED, _ONE, delta=1e-4),
        case(1.0, "spread over 4", _FOUR, delta=_LARGE_DELTA),
        case(0.5, _CONCENTRATED, _ONE, q=0.25),
        Case(adaptive, 1, _poisson(8), _CONCENTRATED, _ONE, 1, _LARGE_DELTA),
    ]


def _csgm() -> list[Case]:
    def case(
        z: float, keep: float, block: tuple[float, ...], vector: str, q: float = 1.0
    ) -> Case:
        config = mechanisms.L2Csgm(
            *(round(64 * q), 1.0, z), keep_fraction=keep, linf_ratio=block[0]
        )
        count = 64 // len(block)
        population = _poisson(round(64 * q), 64)
        return Case(config, 64, population, vector, block, count, _LARGE_DELTA)

    return [
        case(1.5, 0.3, _ONE, _CONCENTRATED),
        case(1.5, 0.5, _ONE, _CONCENTRATED, q=0.5),
        case(1.0, 0.3, _FOUR, "4 at their bound"),
        case(1.0, 0.5, _FOUR, "4 at their bound"),
        case(0.6, 0.5, _SIXTEEN, "16 at their bound"),
    ]


def _linf_csgm() -> list[Case]:
    """All coordinates at their bound, which is what is charged: one canary a round."""

    def case(z: float, keep: float, length: int) -> Case:
        block = (length**-0.5,) * length
        config = mechanisms.LinfCsgm(
            *(4, 1.0, z), keep_fraction=keep, linf_ratio=block[0]
        )
        vector = f"all {length} at their bound"
        return Case(config, length, _poisson(4), vector, block, 1, _LARGE_DELTA)

    return [case(1.5, 0.5, 1), case(1.0, 0.3, 4)]


def _project_and_perturb() -> list[Case]:
    config = mechanisms.ProjectAndPerturb(
        *(32, 1.0, 1.0), compression_rate=2.0, sketch_clip=0.5, sketch_length=4
    )
    cases = [(_CONCENTRATED, _ONE), ("spread over 4", _FOUR)]
    return [
        Case(config, 64, _poisson(32), vector, block, 32 // len(block), _DELTA)
        for vector, block in cases
    ]


def _streams() -> dict[str, Callable[[], list[Case]]]:
    def matrix_factorization() -> list[Case]:
        config = mechanisms.MatrixFactorization(
            *(4, 128, 1.0, 0.8), matrix_method="toeplitz"
        )
        epoch = mechanisms.OncePerEpoch(512, 128, 4)
        return [Case(config, 128, epoch, _CONCENTRATED, _ONE, 128, _LARGE_DELTA)]

    def sgmf() -> list[Case]:
        config = mechanisms.Sgmf(
            *(4, 128, 1.0, 1.5, 0.5), matrix_method="toeplitz", linf_ratio=1.0
        )
        epoch = mechanisms.OncePerEpoch(512, 128, 4)
        return [Case(config, 128, epoch, _CONCENTRATED, _ONE, 128, _LARGE_DELTA)]

    return {"matrix_factorization": matrix_factorization, "sgmf": sgmf}


def _dome() -> list[Case]:
    config = mechanisms.Dome(32, 1.0, 1.0, sketch_size=32)
    cases = [(_CONCENTRATED, _ONE), ("spread over 4", _FOUR)]
    return [
        Case(config, 64, _fixed(32), vector, block, 32 // len(block), _DELTA)
        for vector, block in cases
    ]


# So few coordinates that the clip of coordinates is that of the vector.
_FEW = 8


def _dome_ddg() -> list[Case]:
    config = mechanisms.DomeDdg(_FEW, 1.0, 1.0, sketch_size=_FEW, bits=16)
    fixed = _fixed(_FEW)
    return [Case(config, 64, fixed, _CONCENTRATED, _ONE, _FEW, _LARGE_DELTA)]


def _shares(kind: Any) -> list[Case]:
    def case(
        z: float, bits: int, block: tuple[float, ...] = _ONE, size: int = _FEW
    ) -> Case:
        vector = _CONCENTRATED if block == _ONE else f"spread over {len(block)}"
        config, cohort = kind(size, 1.0, z, bits), _fixed(size)
        count = size // len(block)
        return Case(config, size, cohort, vector, block, count, _LARGE_DELTA)

    helped = kind(4, 1.0, 0.7, 16, noise_source="helpers")
    sampled = _poisson(4, 8)
    adaptive = kind(4, 1.0, 1.0, 16, adaptive_clipping=True, count_stddev=1.0)
    return [
        case(1.0, 16),
        case(0.6, 8),
        case(1.0, 5),
        case(1.0, 16, _FOUR, 32),
        Case(helped, _FEW, sampled, _CONCENTRATED, _ONE, _FEW, _LARGE_DELTA),
        Case(adaptive, 1, _fixed(4), _CONCENTRATED, _ONE, 1, _LARGE_DELTA),
    ]


def _sketched_ddg() -> list[Case]:
    config = mechanisms.SketchedDdg(
        *(_FEW, 1.0, 1.0, 16), compression_rate=2.0, sketch_clip=0.5, sketch_length=2
    )
    fixed = _fixed(_FEW)
    return [Case(config, 2 * _FEW, fixed, _CONCENTRATED, _ONE, _FEW, _LARGE_DELTA)]


def _sparse_recovery() -> list[Case]:
    """No update but one fills the clip of a Gaussian sketch; these come close."""
    config = mechanisms.SparseRecovery(
        *(_FEW, 1.0, 1.0, 16), sparsity=1, measurements=1.0, solver_steps=1
    )
    fixed = _fixed(_FEW)
    return [Case(config, 2048, fixed, _CONCENTRATED, _ONE, _FEW, _LARGE_DELTA)]


CASES: dict[str, Callable[[], list[Case]]] = {
    "gaussian": _gaussian,
    "l2_csgm": _csgm,
    "linf_csgm": _linf_csgm,
    "project_and_perturb": _project_and_perturb,
    **_streams(),
    "dome": _dome,
    "distributed_discrete_gaussian": lambda: _shares(
        mechanisms.DistributedDiscreteGaussian
    ),
    "distributed_skellam": lambda: _shares(mechanisms.DistributedSkellam),
    "sketched_ddg": _sketched_ddg,
    "sparse_recovery": _sparse_recovery,
    "dome_ddg": _dome_ddg,
}
"""The cases of each mechanism that is private, by its name."""
