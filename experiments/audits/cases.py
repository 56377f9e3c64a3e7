# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The canaries of an audit: the cases of each mechanism and their numbers.

    for case in cases.of("l2_csgm"):
        print(case.setting, case.claim().epsilon)

Noise, masks and dimensions are small, so that an optimal test finds most of the claimed
epsilon from some thousand releases. A quick audit has the first case of each mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

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
_EPOCH = mechanisms.OncePerEpoch(512, 128, 4)


def _case(
    kind: Any,
    clients: int,
    dimension: int,
    z: float,
    block: Block = _ONE,
    *,
    q: float = 1.0,
    chosen: Optional[mechanisms.Participation] = None,
    canaries: Optional[int] = None,
    delta: float = _LARGE_DELTA,
    vector: str = "",
    **options: Any,
) -> Case:
    """A case of one round in which all clients are canaries, unless said otherwise.

    Clients join with probability q, or all do if each adds a share of the noise.
    """
    cohort = round(clients * q)
    config = kind(cohort_size=cohort, clip_norm=1.0, noise_multiplier=z, **options)
    if chosen is None and kind.sums_securely and "noise_source" not in options:
        chosen = mechanisms.FixedSize(clients, cohort, 1)
    chosen = chosen or mechanisms.PoissonSampling(clients, cohort, 1)
    count = clients // len(block) if canaries is None else canaries
    return Case(config, dimension, chosen, block, count, delta, vector)


def _csgm(
    z: float, keep: float, block: Block = _ONE, bound: float = 0.0, **more: Any
) -> Case:
    options: Any = {"keep_fraction": keep, "linf_ratio": bound or block[0], **more}
    return _case(mechanisms.L2Csgm, 64, 64, z, block, **options)


def _linf_csgm(z: float, keep: float, length: int, q: float = 1.0) -> Case:
    """A canary with all coordinates at their bound, which is charged; one a round."""
    block = (length**-0.5,) * length
    options: Any = {"keep_fraction": keep, "linf_ratio": block[0]}
    options |= {"canaries": 1, "vector": f"all {length} at their bound"}
    return _case(mechanisms.LinfCsgm, round(4 / q), length, z, block, q=q, **options)


def _projected(z: float, block: Block = _ONE, q: float = 1.0, rate: float = 2) -> Case:
    sketch: Any = {"compression_rate": rate, "sketch_clip": 0.5, "sketch_length": 4}
    sizes = 32, round(32 * rate)
    kind = mechanisms.ProjectAndPerturb
    return _case(kind, *sizes, z, block, q=q, delta=_DELTA, **sketch)


def _stream(kind: Any, z: float, block: Block = _ONE, **options: Any) -> Case:
    options |= {"chosen": _EPOCH, "rounds_per_epoch": 4}
    return _case(kind, 128, 128, z, block, **options)


def _sgmf(z: float, keep: float, block: Block = _ONE) -> Case:
    csgm: Any = {"keep_fraction": keep, "linf_ratio": block[0]}
    return _stream(mechanisms.Sgmf, z, block, matrix_method="toeplitz", **csgm)


def _dome(z: float, block: Block = _ONE) -> Case:
    return _case(mechanisms.Dome, 32, 64, z, block, delta=_DELTA, sketch_size=32)


def _dome_ddg(z: float, bits: int, block: Block = _ONE) -> Case:
    size = _FEW * len(block)
    options: Any = {"canaries": _FEW, "sketch_size": size, "bits": bits}
    return _case(mechanisms.DomeDdg, _FEW, 8 * size, z, block, **options)


def _shares(kind: Any) -> list[Case]:
    helped: Any = {"noise_source": "helpers"}
    return [
        _case(kind, _FEW, _FEW, 1.0, bits=16),
        _case(kind, _FEW, _FEW, 0.6, bits=8),
        _case(kind, _FEW, _FEW, 1.0, bits=5),
        _case(kind, 32, 32, 1.0, _FOUR, bits=16),
        _case(kind, _FEW, _FEW, 0.7, q=0.5, bits=16, **helped),
        _case(kind, _FEW, _FEW, 1.0, q=0.75, bits=8, **helped),
        _case(kind, _FEW, _FEW, 1.0, canaries=6, bits=16, expected_dropout=0.25),
        _case(kind, 4, 1, 1.0, canaries=1, bits=16, **_ADAPTS),
        _case(kind, 5, 1, 1.0, q=0.8, canaries=1, bits=16, **_ADAPTS, **helped),
    ]


def _sketched_ddg(z: float, bits: int, block: Block = _ONE, **more: Any) -> Case:
    sketch: Any = {"compression_rate": 2.0, "sketch_clip": 0.5, "sketch_length": 2}
    options: Any = {"canaries": _FEW, "bits": bits, **sketch, **more}
    length = 2 * _FEW * len(block)
    return _case(mechanisms.SketchedDdg, _FEW, length, z, block, **options)


def _sparse_recovery(z: float, bits: int, **more: Any) -> Case:
    """A canary that nearly fills the clip of a Gaussian sketch, which only one does."""
    solver: Any = {"sparsity": 1, "measurements": 1.0, "solver_steps": 1}
    return _case(mechanisms.SparseRecovery, _FEW, 2048, z, bits=bits, **solver, **more)


CASES: dict[str, list[Case]] = {
    "gaussian": [
        _case(mechanisms.Gaussian, 64, 64, 1.0, delta=_DELTA),
        _case(mechanisms.Gaussian, 64, 64, 0.6, delta=_DELTA),
        _case(mechanisms.Gaussian, 64, 64, 1.0, delta=1e-4),
        _case(mechanisms.Gaussian, 64, 256, 1.0, _FOUR, canaries=64),
        _case(mechanisms.Gaussian, 64, 64, 0.5, q=0.25, delta=_DELTA),
        _case(mechanisms.Gaussian, 8, 1, 1.0, canaries=1, **_ADAPTS),
        _case(mechanisms.Gaussian, 16, 1, 0.7, q=0.5, canaries=1, **_ADAPTS),
    ],
    "l2_csgm": [
        _csgm(1.5, 0.3),
        _csgm(1.5, 0.5, q=0.5),
        _csgm(1.5, 0.3, _FOUR, vector="4 at their bound"),
        _csgm(1.0, 0.5, _FOUR, vector="4 at their bound"),
        _csgm(0.6, 0.5, _SIXTEEN, vector="16 at their bound"),
        _csgm(1.0, 0.5, _SIXTEEN, 0.5, vector="16 at half their bound"),
    ],
    "linf_csgm": [
        _linf_csgm(1.5, 0.5, 1),
        _linf_csgm(1.5, 0.3, 1),
        _linf_csgm(1.0, 0.5, 4),
        _linf_csgm(1.0, 0.5, 4, q=0.5),
    ],
    "project_and_perturb": [
        _projected(1.0),
        _projected(1.0, _FOUR),
        _projected(0.6, rate=4.0),
        _projected(0.5, q=0.25),
    ],
    "matrix_factorization": [
        _stream(mechanisms.MatrixFactorization, 0.8, matrix_method="toeplitz"),
        _stream(mechanisms.MatrixFactorization, 0.6, matrix_method="optimal"),
    ],
    "sgmf": [_sgmf(1.5, 0.5), _sgmf(1.0, 0.7, _FOUR)],
    "dome": [_dome(1.0), _dome(1.0, _FOUR), _dome(0.6)],
    "distributed_discrete_gaussian": _shares(mechanisms.DistributedDiscreteGaussian),
    "distributed_skellam": _shares(mechanisms.DistributedSkellam),
    "sketched_ddg": [
        _sketched_ddg(1.0, 16),
        _sketched_ddg(0.6, 8),
        _sketched_ddg(1.0, 16, _FOUR),
        _sketched_ddg(1.0, 16, canaries=1, **_ADAPTS),
    ],
    "sparse_recovery": [
        _sparse_recovery(1.0, 16),
        _sparse_recovery(0.6, 8),
        _sparse_recovery(1.0, 16, canaries=1, **_ADAPTS),
    ],
    "dome_ddg": [
        _dome_ddg(1.0, 16),
        _dome_ddg(0.6, 8),
        _dome_ddg(1.0, 16, _FOUR),
    ],
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
        return CASES[name]
    if name not in mechanisms.TEST_CONFIGS:
        raise ValueError(f"mechanisms must be registered with an example, found {name}")
    example = mechanisms.TEST_CONFIGS[name].with_noise_multiplier(1.0)
    n = example.cohort_size
    return [Case(example, 64, mechanisms.PoissonSampling(n, n, 1), _ONE, 1)]


def names() -> list[str]:
    """The names of all private mechanisms."""
    others = set(mechanisms.TEST_CONFIGS) - set(CASES)
    private = (name for name in others if mechanisms.MECHANISMS[name].is_private)
    return [*CASES, *sorted(private)]
