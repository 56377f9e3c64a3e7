# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""DOME's event, and the noise its paper prescribes.

In DOME (Nicolas et al. 2025, Algorithm 1) each of a round's B clients projects its
centred gradient on the k columns of the sketch, clips the result to L2 norm C, and
adds N(0, a^2 I_k); the server sees the secure sum, whose noise has variance B a^2.
One round that a client is in is a Gaussian mechanism of sensitivity C, that is
C^2 / (2 B a^2)-zCDP, and the sketch is computed from earlier outputs only, so that
rounds compose adaptively.

A client takes part once an epoch, and in the other rounds its data is not used:
E epochs cost rho = E C^2 / (2 B a^2). The paper charges N E rounds instead, and so
needs a^2 = (N E / B) sigma^2 C^2 for rho = 1 / (2 sigma^2).
`docs/privacy/dome.md` compares the two.
"""

from __future__ import annotations

import math

import attr
import dp_accounting
import numpy as np

from dpfl import checks
from dpfl.accounting import events, gaussian


def paper_noise_scale(epsilon: float, delta: float) -> float:
    """The paper's sigma: max( 1/sqrt(eps), (2 sqrt(2)/eps) sqrt(ln(1/delta)) ).

    1/(2 sigma^2)-zCDP gives (epsilon, delta)-DP (Nicolas et al. 2025, Theorem 3.3). An
    epsilon that is not above 0, or a delta out of (0, 1), raises ValueError.
    """
    epsilon = checks.positive("epsilon", epsilon)
    delta = checks.delta("delta", delta)
    return max(1 / math.sqrt(epsilon), 2 * math.sqrt(2 * math.log(1 / delta)) / epsilon)


def paper_local_stddev(
    epsilon: float,
    delta: float,
    *,
    clip_norm: float,
    population: int,
    epochs: int,
    clients_per_round: int,
) -> float:
    """a = sqrt(N E / B) sigma C, which the paper's Algorithm 1 has each client add.

    Args:
      epsilon: Target epsilon of the whole training.
      delta: Target delta, in (0, 1).
      clip_norm: C, the L2 clip in sketch space; a is in its units.
      population: N of the paper's line 12.
      epochs: E, the number of passes.
      clients_per_round: B.

    Raises:
      ValueError: an argument is out of its range.
    """
    c = checks.positive("clip_norm", clip_norm)
    n = checks.integer("population", population)
    e = checks.integer("epochs", epochs)
    b = checks.integer("clients_per_round", clients_per_round)
    return math.sqrt(n * e / b) * paper_noise_scale(epsilon, delta) * c


@attr.s(frozen=True, auto_attribs=True)
class DomeDpEvent(events.RdpDpEvent):
    """A whole training with DOME: every epoch of it.

    Assumptions. A client's vector in sketch space has L2 norm at most `clip_norm`
    after clipping; the noise of `clients_per_round` clients, each N(0, a^2 I_k) and
    unknown to the adversary, is in every round's sum, whatever one client sends; when
    a client takes part does not depend on anyone's data; sketch, moments and model are
    functions of earlier outputs and of independent randomness. The dimension k does
    not enter. If the secure sum uses integer noise, use a distributed event in k
    dimensions, composed `epochs` times, instead.

    Adjacency: one client is replaced by one that sends zeros and adds its noise.

    Attributes:
      clients_per_round: B >= 1, noise shares in a round's sum.
      local_stddev: a, one client's noise, in the units of `clip_norm`.
      clip_norm: C, the L2 clip in sketch space.
      epochs: E >= 1.
      charges_per_epoch: How often a client is charged in an epoch. 1 (the tight
        accounting) if each client takes part at most once an epoch. `paper` sets it
        to N, as the paper's proof does.
    """

    clients_per_round: int = attr.ib(validator=checks.validator(checks.integer))
    local_stddev: float = attr.ib(validator=checks.validator(checks.positive))
    clip_norm: float = attr.ib(validator=checks.validator(checks.positive))
    epochs: int = attr.ib(validator=checks.validator(checks.integer))
    charges_per_epoch: int = attr.ib(
        default=1, validator=checks.validator(checks.integer)
    )

    @property
    def relations(self) -> events.Relations:
        """See base class: the noise is the clients' own."""
        return events.ZEROS_ONLY

    @classmethod
    def paper(
        cls,
        *,
        clients_per_round: int,
        local_stddev: float,
        clip_norm: float,
        epochs: int,
        population: int,
    ) -> DomeDpEvent:
        """The event as the paper accounts for it: N, `population`, charges an epoch.

        With a from `paper_local_stddev` its rho is 1 / (2 sigma^2).
        """
        return cls(
            clients_per_round=clients_per_round,
            local_stddev=local_stddev,
            clip_norm=clip_norm,
            epochs=epochs,
            charges_per_epoch=population,
        )

    def as_gaussian(self) -> dp_accounting.GaussianDpEvent:
        """The one Gaussian release that the training is as private as.

        Adaptively composed Gaussian mechanisms of multiplier z, k of them, are
        exactly as private as one of multiplier z / sqrt(k) (Dong, Roth and Su 2022,
        Corollary 2), so that exact Gaussian accounting applies to it.
        """
        once = math.sqrt(self.clients_per_round) * self.local_stddev / self.clip_norm
        return dp_accounting.GaussianDpEvent(
            once / math.sqrt(self.epochs * self.charges_per_epoch)
        )

    @property
    def rho(self) -> float:
        """The zero-concentrated DP parameter of the whole training."""
        return 1 / (2 * self.as_gaussian().noise_multiplier ** 2)

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        return gaussian.gaussian_rdp(self.as_gaussian().noise_multiplier, orders)
