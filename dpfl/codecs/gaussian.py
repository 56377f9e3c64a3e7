# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The Gaussian mechanism, with a fixed or an adaptive clip, for a trusted server.

    mechanism = mechanisms.Gaussian(100, 1.0, 1.0, adaptive_clipping=True)
    codec = GaussianCodec(mechanism, dimension, in_numpy)
    message = codec.encode(update, codec.initial_state(), client_seed).message

A message is integers, the steps of `codecs.integer_sums`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl import mechanisms
from dpfl.arrays import Array
from dpfl.codecs.adaptive_clip import AdaptiveClip
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, Received, Seed
from dpfl.codecs.integer_sums import CountSum, IntegerSum
from dpfl.vectors import clipping


class GaussianCodec(Codec):
    """The sum of clipped updates plus N(0, (z C)^2 I), divided by the constant n.

    Everything is integers up to the noised sum, also the count of an adaptive clip; see
    `dpfl.vectors.rounding`.

    State: `clip_norm` (float32), if the clip adapts. Measurements: `clip_norm` in
    force, `noise_stddev` (of the mean). Exact: `l2_clipped_fraction` (of the clients).
    """

    def __init__(self, config: mechanisms.Gaussian, dimension: int, nx: Any):
        super().__init__(config, dimension, nx)
        self._clip = AdaptiveClip(config, nx)
        self._sum = IntegerSum(
            dimension, config.update_noise_multiplier, config.cohort_size
        )
        self._count = CountSum(config.resolved_count_stddev, config.cohort_size)

    def initial_state(self) -> Fields:
        """The clip, if it adapts."""
        return self._clip.initial_state()

    def broadcast(self, state: Fields, round_seed: Seed) -> Fields:
        """The clip, if it adapts; clients know a fixed clip from the start."""
        return state

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The clipped update, int32[d], and two bits if the clip adapts.

        See base class for the arguments.
        """
        clip = self._clip.in_force(shared)
        normed = clipping.safe_norm(update)
        limit = self.nx.asarray(clipping.as_float32(clip), np.float64)
        is_clipped = normed.norm > limit
        message = Fields(update=self._sum.round(normed, clip))
        if self._clip.adapts:
            vote = self._clip.vote(normed, is_clipped)
            message["is_clipped"] = vote < 0
            message["is_within_clip"] = vote > 0
        sums = Fields(l2_clipped=is_clipped)
        return Encoded(message, normed, sums)

    def is_possible(self, message: Fields) -> Array:
        """Whether the update is within its bounds, and no client votes twice."""
        is_possible = self._sum.is_possible(message["update"])
        if self._clip.adapts:
            is_possible &= ~(message["is_clipped"] & message["is_within_clip"])
        return is_possible

    def zero(self) -> Fields:
        """The sum of updates, and of the votes if the clip adapts."""
        total = Fields(update=self._sum.zero(self.nx))
        if self._clip.adapts:
            total["within"] = self._count.zero(self.nx)
        return total

    def accumulate(self, total: Fields, message: Fields) -> Fields:
        """Adds the update, and the vote if the clip adapts."""
        update = self._sum.accumulate(total["update"], message["update"])
        added = Fields(update=update)
        if self._clip.adapts:
            votes = (message["is_within_clip"], message["is_clipped"])
            within, clipped = (self.nx.asarray(vote, np.int32) for vote in votes)
            added["within"] = self._count.accumulate(total["within"], within - clipped)
        return added

    def release(self, received: Received) -> Fields:
        """The noised sum in steps, and half the votes' sum if the clip adapts."""
        total, seed = received.total, received.noise_seed
        noised = self._sum.noised(total["update"], seed)
        released = Fields(update=noised)
        if self._clip.adapts:
            released["within"] = self._count.noised(total["within"], seed)
        return released

    def decode(self, received: Received) -> Decoded:
        """The noised mean, and the next clip."""
        released, state = self.release(received), received.state
        config, clip = self._config, self._clip.in_force(received.shared)
        stddev = config.update_noise_multiplier * clip
        mean = self._sum.to_float(released["update"], clip) / config.cohort_size
        measured = Fields(clip_norm=clip, noise_stddev=stddev / config.cohort_size)
        if self._clip.adapts:
            state = self._clip.next_state(clip, released["within"])
        return Decoded(mean, state, measured)
