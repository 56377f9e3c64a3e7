# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sparsified Gaussian matrix factorization (SGMF), for a trusted server."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf

from dpfl.aggregators import base, csgm, matrix_factorization
from dpfl.mechanisms import sgmf


class SgmfCodec(csgm.CsgmCodec):
    """SGMF (Chen et al. 2024, Algorithms 2 and 3).

    Clients and their messages are CSGM's. The server rotates the sum of a round back,
    drops the padding, and only then adds the noise of `matrix_factorization.Release`:
    each round has a rotation of its own, and the noise must telescope in one basis. See
    docs/noise.md for why that costs no privacy.

    Measurements: those of CSGM and of `Release`.
    """

    def __init__(self, config: sgmf.Sgmf, dimension: int, **options: Any):
        super().__init__(config, dimension)
        self._release = matrix_factorization.Release(config, dimension, **options)

    def initial_state(self):
        """That of the release."""
        return self._release.initial_state()

    def decode(self, state, total, sums, shared, noise_seed):
        """The increment of (A G + B Z) / (n gamma)."""
        config = self._config
        rotated_back = self._rotation.invert(total["total"], shared["rotation"])
        mean = rotated_back[: self.dimension] / config.noise_divisor
        released = self._release(state, mean, noise_seed)
        measurements = collections.OrderedDict(
            clip_norm=tf.constant(config.clip_norm, tf.float32),
            linf_clip=tf.constant(self._linf_clip, tf.float32),
            l2_clipped_fraction=base.ratio(sums["l2_clipped"], sums["clients"]),
            linf_clipped_fraction=base.ratio(sums["linf_clipped"], sums["kept"]),
            malformed_clients=total["malformed"],
            **released.measurements,
        )
        return released._replace(measurements=measurements)


def build(config: sgmf.Sgmf, **options: Any) -> base.CodecFactory:
    """The aggregation factory of SGMF.

    Args:
      config: Its numbers.
      **options: Those of `matrix_factorization.build`.

    Raises:
      ValueError: If the matrix has fewer rounds than an epoch.
    """
    return matrix_factorization.build(config, codec_class=SgmfCodec, **options)
