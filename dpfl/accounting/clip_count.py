# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Adaptive clipping under integer noise: an update and a count, released together."""

from __future__ import annotations

from typing import Any

import attr
import dp_accounting
import numpy as np

from dpfl import checks
from dpfl.accounting import events, mirrored


@attr.s(frozen=True, auto_attribs=True)
class WithClipCountDpEvent(events.RdpDpEvent):
    """Two releases of the same clients at a time: an update, and the clip's count.

    Both carry noise of their own. A client that joins by sampling joins both, so that
    sampling applies to the two together: composing two sampled events would be wrong.
    The pair is exchanged by an involution since each of the two is.

    Adjacency: that of the two releases, see `distributed.DistributedNoiseDpEvent`.

    Attributes:
      update: The release of the updates, without client sampling.
      count: The release of the +-1, without client sampling.
      sampling_probability: q, with which each client joins (Poisson); 1 for all.
    """

    update: events.RdpDpEvent
    count: events.RdpDpEvent
    sampling_probability: float = 1.0

    @property
    def relations(self) -> tuple[dp_accounting.NeighboringRelation, ...]:
        """See base class: those of both, on the sample of clients."""
        both = [
            release.poisson_sampled(self.sampling_probability) or release
            for release in (self.update, self.count)
        ]
        return tuple(r for r in both[0].relations if r in both[1].relations)

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        if self.sampling_probability == 1:
            return self.update.rdp(orders) + self.count.rdp(orders)

        def before_sampling(alphas: Any) -> np.ndarray:
            update = self.update.rdp_before_sampling(alphas)
            return update + self.count.rdp_before_sampling(alphas)

        sampled = mirrored.poisson_sampled_rdp(
            orders, self.sampling_probability, before_sampling
        )
        return sampled + sum(
            release.rdp_beside_sampling(orders) for release in (self.update, self.count)
        )

    def poisson_sampled(self, sampling_probability: float) -> WithClipCountDpEvent:
        """See base class. Independent samplings multiply."""
        q = checks.probability("sampling_probability", sampling_probability)
        return attr.evolve(self, sampling_probability=self.sampling_probability * q)
