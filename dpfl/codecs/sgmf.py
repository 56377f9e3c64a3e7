# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sparsified Gaussian matrix factorization (SGMF), for a trusted server.

    numbers = dict(cohort_size=100, clip_norm=1.0, noise_multiplier=1.0)
    mechanism = mechanisms.Sgmf(**numbers, keep_fraction=0.1, rounds_per_epoch=64)
    codec = SgmfCodec(mechanism, dimension, in_numpy)

The client's part is that of CSGM, the noise that of matrix factorization.
"""

from __future__ import annotations

from typing import Any

from dpfl.codecs.base import Decoded, Received
from dpfl.codecs.csgm import SparsifiedSumCodec
from dpfl.codecs.matrix_factorization import Release, WithRelease
from dpfl.mechanisms import sgmf


class SgmfCodec(WithRelease, SparsifiedSumCodec):
    """SGMF (Chen et al. 2024, Algorithms 2 and 3).

    Clients and their messages are CSGM's. The server rotates the sum of a round back,
    drops the padding, and only then adds the noise of `Release`: each round has a
    rotation of its own, and the noise must telescope in one basis. docs/noise.md proves
    that this costs no privacy.

    Measurements: those of `SparsifiedSumCodec` and of `Release`.
    """

    def __init__(self, config: sgmf.Sgmf, dimension: int, nx: Any, **options: Any):
        """Initializes the codec; the options are those of `Release`."""
        super().__init__(config, dimension, nx)
        self._release = Release(config, dimension, nx, **options)

    def decode(self, received: Received) -> Decoded:
        """The result of the release of the sparsified sum over n gamma."""
        return self._release(super().decode(received), received.noise_seed)
