# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""The event of sketched updates, whatever releases the sum of their sketches.

Source: Chen, Choquette-Choo, Kairouz, Suresh, 'The Fundamental Price of Secure
Aggregation in Differentially Private Federated Learning' (2022), sections 4 and 5.
"""

from __future__ import annotations

from typing import Any

import attr
import dp_accounting
import numpy as np

from dpfl import checks
from dpfl.accounting import csgm, events
from dpfl.accounting.integer import noise_events


@attr.s(frozen=True, auto_attribs=True)
class SketchedDpEvent(events.RdpDpEvent):
    """Updates are sketched, the sketches clipped, and their sum released with noise.

    Chen et al. 2022, section 4 (count-mean sketch, then distributed noise) and
    section 5 (project and perturb: Gaussian noise at the server).

    Assumptions. The sketch is a linear map S drawn from a seed that does not depend on
    any data and may be public. Each client clips S g_i itself, in sketch space (the
    clip in `release` is that one: 1.1 times the clip of g_i in the paper's theory),
    and only then is the sum released by `release`. Decoding is a post-processing. So
    the privacy is that of `release` in sketch_length * sketch_width dimensions, and
    does not use that S keeps norms.

    Adjacency: that of `release`; for a Gaussian one, one client is added, removed, or
    replaced by one that sends zeros.

    Attributes:
      sketch_length: l >= 1, the number of hash rows; 1 for a dense projection.
      sketch_width: w >= 1, the number of buckets in a row.
      release: How the sum of clipped sketches is released: a
        `DistributedDiscreteGaussianDpEvent` or `DistributedSkellamDpEvent` whose
        dimension is at least l * w (rotation may pad), or dp_accounting's
        `GaussianDpEvent` (noise over the clip in sketch space), alone or inside its
        `PoissonSampledDpEvent`.
    """

    sketch_length: int = attr.ib(validator=checks.validator(checks.integer))
    sketch_width: int = attr.ib(validator=checks.validator(checks.integer))
    release: dp_accounting.DpEvent = attr.ib()

    @release.validator
    def _check_release(self, attribute: attr.Attribute, value: Any) -> None:
        if isinstance(value, noise_events.DistributedNoiseDpEvent):
            if value.dimension < self.sketch_dimension:
                raise ValueError(
                    f"{attribute.name}.dimension must be at least sketch_length *"
                    f" sketch_width = {self.sketch_dimension},"
                    f" found {value.dimension}"
                )
        elif not _is_gaussian(value):
            raise TypeError(
                f"{attribute.name} must be a distributed discrete Gaussian, a"
                " distributed Skellam or a (Poisson-sampled) Gaussian event, found"
                f" {type(value).__name__}"
            )

    @classmethod
    def project_and_perturb(
        cls,
        sketch_length: int,
        sketch_width: int,
        noise_multiplier: float,
        sampling_probability: float = 1.0,
    ) -> SketchedDpEvent:
        """The event of project-and-perturb: the server's Gaussian noise.

        The noise multiplier is over the clip in sketch space.
        """
        z = checks.nonnegative("noise_multiplier", noise_multiplier)
        q = checks.probability("sampling_probability", sampling_probability)
        release: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(z)
        if q != 1:
            release = dp_accounting.PoissonSampledDpEvent(q, release)
        return cls(sketch_length, sketch_width, release)

    @property
    def _known(self) -> events.RdpDpEvent:
        """The release as an event that knows its Renyi differential privacy."""
        event, q = self.release, 1.0
        if isinstance(event, events.RdpDpEvent):
            return event
        if isinstance(event, dp_accounting.PoissonSampledDpEvent):
            event, q = event.event, event.sampling_probability
        return csgm.sampled_gaussian_event(event.noise_multiplier, q)

    @property
    def relations(self) -> events.Relations:
        """See base class: those of the release."""
        return self._known.relations

    @property
    def sketch_dimension(self) -> int:
        """Length of a sketch, m = l w."""
        return self.sketch_length * self.sketch_width

    def as_gaussian(self) -> dp_accounting.DpEvent:
        """The release if it is a (sampled) Gaussian, and else this event.

        What is true of the release is true of this event, so that the exact curve
        and privacy loss distributions of Gaussians apply.
        """
        return self.release if _is_gaussian(self.release) else self

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        return self._known.rdp(orders)

    def rdp_before_sampling(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        return self._known.rdp_before_sampling(orders)

    def rdp_beside_sampling(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        return self._known.rdp_beside_sampling(orders)

    def poisson_sampled(self, sampling_probability: float) -> SketchedDpEvent:
        """See base class. Independent samplings multiply."""
        q = checks.probability("sampling_probability", sampling_probability)
        release = self.release
        if isinstance(release, events.RdpDpEvent):
            return attr.evolve(self, release=release.poisson_sampled(q))
        if isinstance(release, dp_accounting.PoissonSampledDpEvent):
            q, release = q * release.sampling_probability, release.event
        return attr.evolve(
            self, release=dp_accounting.PoissonSampledDpEvent(q, release)
        )


def _is_gaussian(event: Any) -> bool:
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        event = event.event
    return isinstance(event, dp_accounting.GaussianDpEvent)
