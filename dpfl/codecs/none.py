# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The mean without a mechanism.

    codec = MeanCodec(mechanisms.NoMechanism(100), dimension, in_numpy)
    message = codec.encode(update, {}, client_seed).message   # the update itself

An update that is not finite is left out of the mean.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from dpfl import mechanisms
from dpfl.arrays import Array
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, Seed
from dpfl.vectors import clipping


class MeanCodec(Codec):
    """The mean of the finite updates; zero if there are none."""

    needed_sums = ("clients", "nonfinite_clients")

    def __init__(self, config: mechanisms.NoMechanism, dimension: int, nx: Any):
        super().__init__(dimension, config.cohort_size, nx)

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The update itself, or zeros if it is not finite.

        See base class for the arguments.
        """
        normed = clipping.safe_norm(update)
        return Encoded(
            clipping.finite(update, normed), normed, collections.OrderedDict()
        )

    def zero(self) -> Any:
        """Zeros, float32[d]."""
        return self.nx.zeros([self.dimension], np.float32)

    def decode(
        self, state: Fields, total: Any, sums: Fields, shared: Fields, noise_seed: Seed
    ) -> Decoded:
        """The mean over the clients with a finite update.

        See base class for the arguments.
        """
        mean = self.nx.divide_no_nan(total, self.divisor(sums))
        return Decoded(mean, state, Fields())

    def divisor(self, sums: Fields) -> Array:
        """The number of clients with a finite update."""
        return self.nx.asarray(sums["clients"] - sums["nonfinite_clients"], np.float32)
