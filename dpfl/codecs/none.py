# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The mean without a mechanism.

    codec = MeanCodec(mechanisms.NoMechanism(100), dimension, in_numpy)
    message = codec.encode(update, {}, client_seed).message   # the update itself

An update that is not finite is left out of the mean. With weights, a client's weight
stands behind its update.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl import arrays, mechanisms
from dpfl.arrays import Array
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, Received, Seed
from dpfl.vectors import clipping

_LARGEST = float(np.finfo(np.float32).max)


def weighted(normed: clipping.NormedVector, weight: Array) -> clipping.NormedVector:
    """A normed vector that is not finite if its weight, or their product, is not."""
    nx = arrays.of(normed.direction_norm)
    wide = nx.asarray(weight, np.float64)
    product = wide * nx.maximum(normed.norm, 1.0)
    # No comparison with NaN is true.
    is_good = normed.is_finite & (wide >= 0) & (product <= _LARGEST)
    unit = nx.where(is_good, normed.unit, 0.0)
    return normed._replace(unit=unit, is_finite=is_good)


class MeanCodec(Codec):
    """The mean of the finite updates; zero if there are none.

    With weights, an update whose weight is negative or not finite counts as one that is
    not finite, and messages are the products and the weights.
    """

    needed_sums = ("clients", "nonfinite_clients")

    def __init__(
        self,
        config: mechanisms.NoMechanism,
        dimension: int,
        nx: Any,
        weighted: bool = False,
    ):
        """Initializes the codec.

        Args:
          config: The mechanism.
          dimension: d, the length of an update.
          nx: The module of an array library.
          weighted: Whether `encode` is given float32[d + 1], with a weight at the end.
        """
        super().__init__(config, dimension, nx)
        self.takes_weights = weighted
        self.input_length = dimension + weighted

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The update itself, or zeros if it is not finite.

        See base class for the arguments.
        """
        vector = update[: self.dimension]
        normed = clipping.safe_norm(vector)
        if self.takes_weights:
            weight = update[-1]
            normed = weighted(normed, weight)
            vector = self.nx.concatenate([vector, self.nx.ones([1], np.float32)])
            vector = vector * weight
        return Encoded(clipping.finite(vector, normed), normed, Fields())

    def is_possible(self, message: Array) -> Array:
        """Whether all numbers are finite."""
        return self.nx.all(self.nx.isfinite(message))

    def zero(self) -> Any:
        """Zeros, float32[input_length]."""
        return self.nx.zeros([self.input_length], np.float32)

    def decode(self, received: Received) -> Decoded:
        """The mean over the clients with a finite update."""
        total = received.total
        below = total[-1] if self.takes_weights else self.divisor(received.sums)
        mean = self.nx.divide_no_nan(total[: self.dimension], below)
        return Decoded(mean, received.state, Fields())

    def divisor(self, sums: Fields) -> Array:
        """The number of clients with a finite update."""
        return self.nx.asarray(sums["clients"] - sums["nonfinite_clients"], np.float32)
