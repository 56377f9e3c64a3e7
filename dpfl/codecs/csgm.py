# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The sparsified Gaussian mechanism (CSGM), for a trusted server.

    mechanism = mechanisms.L2Csgm(100, 1.0, 1.0, keep_fraction=0.1)
    codec = CsgmCodec(mechanism, dimension, in_numpy)
    shared = codec.decode_broadcast(codec.broadcast(state, round_seed))
    message = codec.encode(update, shared, client_seed).message

The accountings by the L2 and by the L-inf bound share this release.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Union

import numpy as np

from dpfl import mechanisms
from dpfl.arrays import Array
from dpfl.codecs import measurements
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, Received, Seed
from dpfl.codecs.integer_sums import IntegerSum
from dpfl.mechanisms.mechanism import COUNT_BITS
from dpfl.vectors import clipping, masks, rotation

Config = Union[mechanisms.L2Csgm, mechanisms.Sgmf]
# Bits of a value, and of a message's seed and the number of its values.
_VALUE_BITS, _HEAD_BITS = 32, 128 + COUNT_BITS


class SparsifiedSumCodec(Codec):
    """The mean of sparsified updates without noise, for codecs that add their own.

    Client: clip to Delta_2, rotate, keep coordinates with probability gamma, round them
    to integers, clip those to +-Delta_inf; send them and the mask's seed. (Rounding and
    clipping coordinates before or after choosing them is the same, and later is
    cheaper: all of them, kept or not, are within the bounds.) Server: add the integers
    up, rotate the sum back, drop the padding, divide by n gamma.

    A message with a wrong number of values, or integers beyond the bounds, adds nothing
    and is counted.

    Measurements: `clip_norm`, `linf_clip`. Exact: `l2_clipped_fraction` (of the
    clients), `linf_clipped_fraction` (of the coordinates, estimated from those kept),
    `malformed_clients` (int32).
    """

    has_private_randomness = True
    counted: Mapping[str, str] = MappingProxyType({"values": "number"})

    def __init__(self, config: Config, dimension: int, nx: Any):
        super().__init__(config, dimension, nx)
        self._divisor = config.cohort_size * config.keep_fraction
        self._linf_clip = config.linf_clip(dimension)
        self.input_length = config.rotated_dimension(dimension)
        self._rotation = rotation.ROTATIONS[config.rotation](self.input_length)
        self._mask = masks.build_mask(self.input_length, config.keep_fraction)
        self._sum = IntegerSum(
            self.input_length,
            config.stddev / config.clip_norm,
            config.cohort_size,
            config.resolved_linf_ratio(dimension),
        )

    def broadcast(self, state: Fields, round_seed: Seed) -> Fields:
        """The seed of the rotation."""
        return Fields(round_seed=round_seed)

    def decode_broadcast(self, broadcast: Fields) -> Fields:
        """The random signs or phases of the rotation."""
        rotation = self._rotation.expand(self._rotation_seed(broadcast))
        return Fields(rotation=rotation)

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The kept values, int32[None], and the mask's seed.

        Passes over the D-vector: one for the norm, one for signs, the rotation's own,
        one for the norm as exactly as the bound wants it, one to gather. Rounding and
        coordinate clipping see the kept values alone.

        See base class for the arguments.
        """
        nx, clip = self.nx, self._config.clip_norm
        normed = clipping.safe_norm(update)
        rotated = self._rotation.rotate(normed.direction, shared["rotation"])
        factor = self._sum.hidden_factor(rotated, normed.unit, clip)
        kept, number = self._mask.gather(rotated, client_seed)
        kept = nx.round(nx.multiply_no_nan(kept, factor))
        limit = float(self._sum.grid.max_size)
        is_outside = nx.abs(kept) > limit
        values = nx.asarray(nx.clip(kept, -limit, limit), np.int32)
        message = Fields(values=values, seed=client_seed)
        if nx.FIXES_SHAPES:
            message["number"] = number
        return Encoded(
            message,
            normed,
            Fields(
                l2_clipped=normed.norm > clip,
                linf_clipped=nx.count_nonzero(is_outside),
                kept=number,
            ),
        )

    def message_bits(self, message: Any) -> Array:
        """The bits of the values, their number and the seed."""
        number = message.get("number", self.nx.size(message["values"]))
        return _VALUE_BITS * self.nx.asarray(number, np.float64) + _HEAD_BITS

    def zero(self) -> Any:
        """The zero sum of masked and rotated updates, and of malformed messages."""
        nx = self.nx
        return Fields(total=self._sum.zero(nx), malformed=nx.zeros([], np.int32))

    def accumulate(self, total: Any, message: Any) -> Any:
        """Adds the values at the coordinates that the seed selects, in O(gamma D).

        TFF passes the total by value, which costs another copy of D integers.
        """
        nx, values = self.nx, message["values"]
        is_possible = self._sum.is_possible(values)
        values = nx.where(is_possible, values, nx.zeros_like(values))
        added, has_right_size = self._mask.scatter_add(
            total["total"], nx.asarray(values, self._sum.dtype), message["seed"]
        )
        is_malformed = ~(is_possible & has_right_size)
        return Fields(
            total=added,
            malformed=total["malformed"] + nx.asarray(is_malformed, np.int32),
        )

    def malformed(self, total: Any) -> Array:
        """The number of messages that added nothing."""
        return total["malformed"]

    def decode(self, received: Received) -> Decoded:
        """The mean: the sum over n gamma, rotated back, without the padding."""
        total, rotation = received.total["total"], received.shared["rotation"]
        rotated = self._sum.to_float(total, self._config.clip_norm) / self._divisor
        mean = self._rotation.invert(rotated, rotation)[: self.dimension]
        measured = Fields(
            clip_norm=self.nx.asarray(self._config.clip_norm, np.float32),
            linf_clip=self.nx.asarray(self._linf_clip, np.float32),
        )
        return Decoded(mean, received.state, measured)

    def exact_metrics(self, received: Received) -> Fields:
        """The clipped fractions, and the number of malformed messages."""
        measured = super().exact_metrics(received)
        sums = received.sums
        fraction = measurements.ratio(sums["linf_clipped"], sums["kept"])
        measured["linf_clipped_fraction"] = fraction
        measured["malformed_clients"] = received.total["malformed"]
        return measured


class CsgmCodec(SparsifiedSumCodec):
    """CSGM (Chen et al. 2024, Algorithm 1).

    Clients and their messages are those of `SparsifiedSumCodec`. Server: add
    N(0, sigma^2 I) to the sum, divide by n gamma, rotate back.

    Measurements: those of `SparsifiedSumCodec` and `noise_stddev` (of the mean).
    """

    def release(self, received: Received) -> Array:
        """The noised sum of the masked and rotated updates, in steps."""
        return self._sum.noised(received.total["total"], received.noise_seed)

    def decode(self, received: Received) -> Decoded:
        """The mean (sum + noise) / (n gamma), rotated back, without the padding."""
        noised = {"total": self.release(received)}
        decoded = super().decode(received._replace(total=noised))
        stddev = self._config.stddev / self._divisor
        decoded.measurements["noise_stddev"] = self.nx.asarray(stddev, np.float32)
        return decoded
