# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The canaries of an audit: the cases of each mechanism and their numbers.

    for case in cases.of("l2_csgm"):
        print(case.setting, case.claim().epsilon)

Noise, masks and dimensions are small, so that an optimal test finds most of the claimed
epsilon from some thousand releases. A quick audit has the first case of each mechanism.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from dpfl import mechanisms

from .canaries import Block, Case

_ONE = (1.0,)
_FOUR = (0.5,) * 4
_SIXTEEN = (0.25,) * 16
# A delta below 1e-3 would show little in some ten thousand trials.
_DELTA, _LARGE_DELTA = 1e-3, 1e-2
# Dimension so small that the clip of coordinates is that of the vector.
_FEW = 8
_ADAPTS: Mapping[str, Any] = {"adaptive_clipping": True, "count_stddev": 1.0}


def _poisson(cohort: int, population: int = 0) -> mechanisms.Participation:
    return mechanisms.PoissonSampling(population or cohort, cohort, 1)


def _fixed(cohort: int) -> mechanisms.Participation:
    return mechanisms.FixedSize(cohort, cohort, 1)


def _gaussian() -> list[Case]:
    def case(
        z: float, block: Block = _ONE, q: float = 1.0, delta: float = _DELTA
    ) -> Case:
        config = mechanisms.Gaussian(round(64 * q), 1.0, z)
        cohort = _poisson(round(64 * q), 64)
        return Case(config, 64 * len(block), cohort, block, 64, delta)

    adaptive = mechanisms.Gaussian(8, 1.0, 1.0, adaptive_clipping=True, count_stddev=1)
    sampled = dataclasses.replace(adaptive, noise_multiplier=0.7)
    return [
        case(1.0),
        case(0.6),
        case(1.0, delta=1e-4),
        case(1.0, _FOUR, delta=_LARGE_DELTA),
        case(0.5, q=0.25),
        Case(adaptive, 1, _poisson(8), _ONE, 1),
        Case(sampled, 1, _poisson(8, 16), _ONE, 1),
    ]


def _csgm() -> list[Case]:
    def case(
        z: float, keep: float, block: Block, vector: str = "", **more: Any
    ) -> Case:
        q, bound = more.get("q", 1.0), more.get("bound", block[0])
        config = mechanisms.L2Csgm(
            *(round(64 * q), 1.0, z), keep_fraction=keep, linf_ratio=bound
        )
        cohort, count = _poisson(round(64 * q), 64), 64 // len(block)
        return Case(config, 64, cohort, block, count, vector=vector)

    return [
        case(1.5, 0.3, _ONE),
        case(1.5, 0.5, _ONE, q=0.5),
        case(1.5, 0.3, _FOUR, "4 at their bound"),
        case(1.0, 0.5, _FOUR, "4 at their bound"),
        case(0.6, 0.5, _SIXTEEN, "16 at their bound"),
        case(1.0, 0.5, _SIXTEEN, "16 at half their bound", bound=0.5),
    ]


def _linf_csgm() -> list[Case]:
    """A canary with all coordinates at their bound, which is charged; one a round."""

    def case(z: float, keep: float, length: int, q: float = 1.0) -> Case:
        block = (length**-0.5,) * length
        config = mechanisms.LinfCsgm(
            *(4, 1.0, z), keep_fraction=keep, linf_ratio=block[0]
        )
        vector = f"all {length} at their bound"
        return Case(config, length, _poisson(4, round(4 / q)), block, 1, vector=vector)

    return [
        case(1.5, 0.5, 1),
        case(1.5, 0.3, 1),
        case(1.0, 0.5, 4),
        case(1.0, 0.5, 4, q=0.5),
    ]


def _project_and_perturb() -> list[Case]:
    def case(z: float, block: Block = _ONE, q: float = 1.0, rate: float = 2.0) -> Case:
        config = mechanisms.ProjectAndPerturb(
            *(round(32 * q), 1.0, z), compression_rate=rate, sketch_clip=0.5
        )
        config = dataclasses.replace(config, sketch_length=4)
        cohort, count = _poisson(round(32 * q), 32), 32 // len(block)
        return Case(config, round(32 * rate), cohort, block, count, _DELTA)

    return [case(1.0), case(1.0, _FOUR), case(0.6, rate=4.0), case(0.5, q=0.25)]


def _epoch(config: Any, block: Block = _ONE) -> Case:
    epoch = mechanisms.OncePerEpoch(512, 128, 4)
    return Case(config, 128, epoch, block, 128 // len(block))


def _matrix_factorization() -> list[Case]:
    return [
        _epoch(mechanisms.MatrixFactorization(4, 128, 1.0, z, matrix_method=method))
        for z, method in ((0.8, "toeplitz"), (0.6, "optimal"))
    ]


def _sgmf() -> list[Case]:
    def config(z: float, keep: float, ratio: float) -> Any:
        return mechanisms.Sgmf(
            *(4, 128, 1.0, z, keep), matrix_method="toeplitz", linf_ratio=ratio
        )

    return [_epoch(config(1.5, 0.5, 1.0)), _epoch(config(1.0, 0.7, 0.5), _FOUR)]


def _dome() -> list[Case]:
    def case(z: float, block: Block = _ONE) -> Case:
        config = mechanisms.Dome(32, 1.0, z, sketch_size=32)
        return Case(config, 64, _fixed(32), block, 32 // len(block), _DELTA)

    return [case(1.0), case(1.0, _FOUR), case(0.6)]


def _dome_ddg() -> list[Case]:
    def case(z: float, bits: int, block: Block = _ONE) -> Case:
        size = _FEW * len(block)
        config = mechanisms.DomeDdg(_FEW, 1.0, z, sketch_size=size, bits=bits)
        return Case(config, 8 * size, _fixed(_FEW), block, _FEW)

    return [case(1.0, 16), case(0.6, 8), case(1.0, 16, _FOUR)]


def _shares(kind: Any) -> list[Case]:
    def case(z: float, bits: int, block: Block = _ONE, size: int = _FEW) -> Case:
        config = kind(size, 1.0, z, bits)
        return Case(config, size, _fixed(size), block, size // len(block))

    helped = kind(4, 1.0, 0.7, 16, noise_source="helpers")
    often = kind(6, 1.0, 1.0, 8, noise_source="helpers")
    missing = kind(_FEW, 1.0, 1.0, 16, expected_dropout=0.25)
    adaptive = kind(4, 1.0, 1.0, 16, **_ADAPTS)
    both = dataclasses.replace(adaptive, noise_source="helpers")
    return [
        case(1.0, 16),
        case(0.6, 8),
        case(1.0, 5),
        case(1.0, 16, _FOUR, 32),
        Case(helped, _FEW, _poisson(4, 8), _ONE, _FEW),
        Case(often, _FEW, _poisson(6, 8), _ONE, _FEW),
        Case(missing, _FEW, _fixed(_FEW), _ONE, missing.shares_summed),
        Case(adaptive, 1, _fixed(4), _ONE, 1),
        Case(both, 1, _poisson(4, 5), _ONE, 1),
    ]


def _sketched_ddg() -> list[Case]:
    def case(z: float, bits: int, block: Block = _ONE, **more: Any) -> Case:
        config = mechanisms.SketchedDdg(
            *(_FEW, 1.0, z, bits), compression_rate=2.0, sketch_clip=0.5
        )
        config = dataclasses.replace(config, sketch_length=2, **more)
        count = 1 if more else _FEW
        return Case(config, 2 * _FEW * len(block), _fixed(_FEW), block, count)

    return [case(1.0, 16), case(0.6, 8), case(1.0, 16, _FOUR), case(1.0, 16, **_ADAPTS)]


def _sparse_recovery() -> list[Case]:
    """Canaries that nearly fill the clip of a Gaussian sketch, which only one does."""

    def case(z: float, bits: int, **more: Any) -> Case:
        config = mechanisms.SparseRecovery(
            *(_FEW, 1.0, z, bits), sparsity=1, measurements=1.0, solver_steps=1
        )
        config = dataclasses.replace(config, **more)
        return Case(config, 2048, _fixed(_FEW), _ONE, 1 if more else _FEW)

    return [case(1.0, 16), case(0.6, 8), case(1.0, 16, **_ADAPTS)]


CASES: dict[str, Callable[[], list[Case]]] = {
    "gaussian": _gaussian,
    "l2_csgm": _csgm,
    "linf_csgm": _linf_csgm,
    "project_and_perturb": _project_and_perturb,
    "matrix_factorization": _matrix_factorization,
    "sgmf": _sgmf,
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


def of(name: str) -> list[Case]:
    """The cases of a mechanism.

    A mechanism of another package is audited in its example: a canary in one
    coordinate, and noise that is claimed to be Gaussian.

    Raises:
      ValueError: If a mechanism of another package has no example.
    """
    if name in CASES:
        return CASES[name]()
    if name not in mechanisms.TEST_CONFIGS:
        raise ValueError(f"mechanisms must be registered with an example, found {name}")
    example = mechanisms.TEST_CONFIGS[name].with_noise_multiplier(1.0)
    cohort = _poisson(example.cohort_size)
    return [Case(example, 64, cohort, _ONE, 1)]


def names() -> list[str]:
    """The names of all private mechanisms."""
    others = set(mechanisms.TEST_CONFIGS) - set(CASES)
    private = (name for name in others if mechanisms.MECHANISMS[name].is_private)
    return [*CASES, *sorted(private)]
