# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A clip that follows the norms of the updates (Andrew et al. 2021), or a fixed one.

    clip = AdaptiveClip(mechanism, nx)
    vote = clip.vote(normed, is_clipped)        # a client's
    state = clip.next_state(clip.in_force(state), votes)

The votes are summed and noised before the clip depends on them.
"""

from __future__ import annotations

from typing import Any, Union

import numpy as np

from dpfl import mechanisms
from dpfl.arrays import Array
from dpfl.codecs.base import Fields
from dpfl.mechanisms.mechanism import CLIP_RANGE
from dpfl.vectors import clipping


class AdaptiveClip:
    """The current clip, the clients' votes on it, and the next clip.

    Attributes:
      adapts: Whether the clip changes; a fixed clip has neither state nor votes.
    """

    def __init__(
        self,
        config: Union[mechanisms.Gaussian, mechanisms.IntegerMechanism],
        nx: Any,
    ):
        self._config = config
        self._nx = nx
        self.adapts = config.adaptive_clipping

    def initial_state(self) -> Fields:
        """The state `clip_norm`, float32, if the clip adapts; it is also broadcast."""
        if not self.adapts:
            return Fields()
        return Fields(clip_norm=self._initial())

    def in_force(self, state: Fields) -> Array:
        """The current clip, float32, from a state or from a broadcast."""
        return state["clip_norm"] if self.adapts else self._initial()

    def vote(self, normed: clipping.NormedVector, is_clipped: Array) -> Array:
        """A client's vote, int32: 1 within the clip, -1 if clipped.

        An update of norm zero has no vote, since zeros in its place must not count.
        """
        return self._nx.where(
            is_clipped, np.int32(-1), self._nx.asarray(normed.norm > 0, np.int32)
        )

    def next_state(self, clip: Array, votes: Array) -> Fields:
        """The next `clip_norm`, C exp(-rate (noised fraction within - target)).

        The `votes`, float32, are half the noised sum of the votes.
        """
        config = self._config
        fraction = votes / config.cohort_size + 0.5
        step = config.clip_learning_rate * (fraction - config.target_quantile)
        clip = self._nx.clip(clip * self._nx.exp(-step), *CLIP_RANGE)
        return Fields(clip_norm=self._nx.asarray(clip, np.float32))

    def _initial(self) -> Array:
        return self._nx.asarray(self._config.clip_norm, np.float32)
