# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Events of integer noise that clients add under secure aggregation.

Each client clips its vector to L2 norm c, rotates, clips coordinates to a size X,
divides by the granularity g, rounds every coordinate up or down at random, without a
condition, and adds its own share of integer noise; the server sees the sum modulo M
only. Rounding is a part of the random mechanism: with F_a(x) the Renyi divergence of a
coordinate of x steps, rounded and noised (`rounding`),

  RDP(a) <= (c/g)^2 sup F_a(x)/x^2 over 0 < x <= X/g.

No such bound is proved where noise has few steps and coordinates have many. There the
bound of the longest integer vector that rounding makes is used, as it is where it is
the smaller one, for whole numbers or a few coordinates:

  RDP(a) <= (c/g + sqrt(m))^2 max D_a(v)/v^2 over whole v up to X/g, rounded up.

The papers (Kairouz et al. 2021; Chen et al. 2022, Algorithm 6; Agarwal et al. 2021)
repeat the rounding until the norm is small. `docs/privacy/distributed.md` has their
bounds, and the proofs.
"""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar, Optional

import attr
import numpy as np

from dpfl import checks
from dpfl.accounting import events, log_space
from dpfl.accounting.integer import rounding, whole_shifts
from dpfl.accounting.integer import summed_noise as noises
from dpfl.fields import said

# Least noise: a discrete Gaussian of this many steps is not 0 with probability
# exp(-5e7), and Skellam noise of this variance, in squared steps, with that
# probability.
_LEAST_STDDEV_STEPS = 1e-4
_LEAST_VARIANCE = 1e-12
# Clipping is done in float32: a clipped coordinate may exceed the clip by this part.
_FLOAT32_SLACK = 1e-6
# Least and largest clip in steps: a finer grid gains nothing, and on a coarser one
# every integer is 0 or 1.
_CLIP_STEPS = (1e-30, 1e15)
# Allowance for the rounding of float64: norms of integer vectors are compared as whole
# numbers.
_FLOAT64_SLACK = 1e-9
# Shares of noise up to which the bound of whole shifts is worth its cost.
_MOST_SHARES = 1000


@attr.s(frozen=True, auto_attribs=True)
class DistributedNoiseDpEvent(events.RdpDpEvent):
    """Integer noise added by each client of a secure sum; the base of its two kinds.

    Assumptions. Client i has a vector x_i with ||x_i||_2 <= clip_norm; it sends
    round(R x_i / granularity) + noise_i, where R is orthogonal and does not depend on
    the data (fresh signs, then Hadamard); coordinates of R x_i are clipped to
    `max_coordinate`; the noise is fresh, independent over clients and coordinates. The
    server sees the sum over clients only, possibly modulo M (a post-processing), and
    functions of it. `round` rounds every coordinate up or down independently, up with a
    probability that is its fractional part, and nothing else is assumed.

    Number of shares. `noise_clients` is the number of clients whose noise is in the sum
    and unknown to the adversary, whatever one client does: survivors of drop-out,
    without the adversary's accomplices.

    Adjacency: one client is replaced by one that sends zeros, and adds its noise either
    way, so that its share may be counted. With `noise_of_helpers`, and with clients
    that join by sampling, `noise_clients` must be a number of shares that is in the sum
    whoever joins (helpers or the server supply them), and then adding and removing one
    holds too.

    Attributes:
      noise_clients: n >= 1, see above.
      local_stddev: sigma, standard deviation of one client's noise (for a discrete
        Gaussian its parameter), in the units of `clip_norm`.
      granularity: g, the grid step, in the units of `clip_norm`.
      clip_norm: c, the L2 clip before rounding.
      dimension: m, length of the rotated (padded) vector.
      max_coordinate: X, the clip of coordinates before they are rounded, in the units
        of `clip_norm`; None if they are not clipped, and `clip_norm` bounds them.
      sampling_probability: q, the probability with which each client joins,
        independently (Poisson); 1 means that all do.
      noise_of_helpers: Whether helpers, not the clients, add the noise; implied where
        clients are sampled.
    """

    noise_clients: int = attr.ib(metadata=said(check=events.whole))
    local_stddev: float = attr.ib(metadata=said(check=checks.positive))
    granularity: float = attr.ib(metadata=said(check=checks.positive))
    clip_norm: float = attr.ib(metadata=said(check=checks.positive))
    dimension: int = attr.ib(metadata=said(check=events.whole))
    max_coordinate: Optional[float] = attr.ib(
        default=None, metadata=said(check=checks.positive)
    )
    sampling_probability: float = attr.ib(
        default=1.0, metadata=said(check=checks.probability)
    )
    noise_of_helpers: bool = False

    samples_clients: ClassVar[bool] = True
    pages: ClassVar[tuple[str, ...]] = (
        *("distributed.md", "rounding.md", "integer_noise.md"),
    )
    dominating_pages: ClassVar[tuple[str, ...]] = ("rounding.md",)

    def __attrs_post_init__(self) -> None:
        """Raises ValueError if the numbers are too far apart for the squares of floats.

        NoiseTooLargeError is raised for more noise than the accountant handles.
        """
        super().__attrs_post_init__()
        least, most = _CLIP_STEPS
        if not least <= self.clip_norm / self.granularity <= most:
            steps = f"the granularity of {self.granularity!r}"
            wanted = f"from {least:g} to {most:g} times {steps}"
            raise ValueError(checks.message("clip_norm", wanted, self.clip_norm))
        if self.noise_multiplier > events.LARGEST_NOISE_MULTIPLIER:
            most = events.LARGEST_NOISE_MULTIPLIER
            wanted = f"at most {most:g} * clip_norm / sqrt(noise_clients)"
            message = checks.message("local_stddev", wanted, self.local_stddev)
            raise events.NoiseTooLargeError(message)

    @property
    def neighboring_relations(self) -> events.Relations:
        """See base class: a sampled client has no noise of its own in the sum."""
        if self.noise_of_helpers or self.sampling_probability < 1:
            return events.TRUSTED_RELATIONS
        return events.ZERO_OUT_ONLY

    @property
    def noise_multiplier(self) -> float:
        """sqrt(n) sigma / c: the summed noise over the clip."""
        return math.sqrt(self.noise_clients) * self.local_stddev / self.clip_norm

    @property
    def max_steps(self) -> float:
        """Bound on the size of a coordinate before it is rounded, in grid steps."""
        largest = self.max_coordinate or math.inf
        return min(self.clip_norm, largest) / self.granularity

    @property
    def l2_squared_steps(self) -> float:
        """Bound on the squared norm of any rounded vector, in squared grid steps."""
        g = self.granularity
        return (self.clip_norm + g * math.sqrt(self.dimension)) ** 2 / g**2

    @property
    def max_shift(self) -> int:
        """Bound on the size of a rounded coordinate, in grid steps, at least 1."""
        by_norm = math.floor(math.sqrt(self.l2_squared_steps) * (1 + _FLOAT64_SLACK))
        # A clip to a whole number of steps is enforced on the integers.
        by_clip = math.ceil(self.clip_norm / self.granularity * (1 + _FLOAT32_SLACK))
        by_size = math.ceil(self.max_steps * (1 - _FLOAT64_SLACK))
        if self.max_coordinate is None:
            by_size = by_clip
        return max(min(by_norm, by_clip, by_size), 1)

    @property
    def shift_budget(self) -> int:
        """Bound on the sum of squared coordinates; whole, in squared grid steps."""
        whole = math.floor(self.l2_squared_steps * (1 + _FLOAT64_SLACK))
        return min(whole, self.dimension * self.max_shift**2)

    @property
    @abc.abstractmethod
    def summed_noise(self) -> noises.Noise:
        """The noise of the sum, in grid steps."""

    @property
    @abc.abstractmethod
    def is_always_zero(self) -> bool:
        """Whether the noise is so small that its integers are practically always 0."""

    def shifts_rdp(self, orders: events.Orders) -> np.ndarray:
        """The bound of the longest vector that rounding makes, unsampled; [m]."""
        # A float, since more than 63 bits would make an array of objects.
        return float(self.shift_budget) * whole_shifts.shift_rate(
            orders, self.summed_noise, self.max_shift
        )

    def exact_rdp(self, orders: events.Orders, *, sampled: bool = False) -> np.ndarray:
        """The bound that counts rounding as noise, without client sampling; [m], nats.

        It is infinite if the integers drawn are practically always zero, which hides
        nothing and cannot be computed with.

        Args:
          orders: Renyi orders, shape [m].
          sampled: Whether it goes into the binomial sum for clients that join at
            random; see `rounding.rounded_rate`.
        """
        if self.is_always_zero:
            return np.full(checks.orders(orders).shape, np.inf)
        if self.route(sampled=sampled) == "shifts":
            return self.shifts_rdp(orders)
        squared, noise = (self.clip_norm / self.granularity) ** 2, self.summed_noise

        def bound(alphas: events.Orders) -> np.ndarray:
            return squared * rounding.rounded_rate(
                alphas, noise, self.max_steps, sampled=sampled
            )

        rdp = bound(orders)
        # Whole shifts give no bound for a Gaussian that dominates the noise: the
        # moments of the smaller of both bounds would be those of no law. distributed.md
        # has the proofs.
        if self.noise_clients > _MOST_SHARES or (sampled and self.max_steps > 1):
            return rdp
        # The longest vector's RDP at order 2 is about its squared length over the
        # variance.
        if self.shift_budget / noise.variance < float(bound([2.0])[0]):
            rdp = np.minimum(rdp, self.shifts_rdp(orders))
        return rdp

    def route(self, *, sampled: bool = False) -> str:
        """The source of the privacy: 'rounding' or 'shifts'."""
        if self.is_always_zero:
            # The variance of such noise may be 0 in float64, and has no law.
            return "shifts"
        dimension = self.dimension if sampled else 0
        covered = rounding.is_covered(self.summed_noise, self.max_steps, dimension)
        return "rounding" if covered else "shifts"

    def rdp_before_sampling(self, orders: events.Orders) -> np.ndarray:
        """The RDP that goes into the proof for client sampling; [m].

        With sampling, the log-moments (l-1) RDP(l) at whole orders l go into a binomial
        sum.
        """
        if self._stands_for_gaussian:
            orders = np.maximum(checks.orders(orders), 2.0)
        return self.exact_rdp(orders, sampled=True)

    def rdp_beside_sampling(self, orders: events.Orders) -> np.ndarray:
        """A term beside the binomial sum: the noise's distance from a Gaussian; [m].

        (2a-1)/(a-1) <= 3 times the distance at orders from 2 on, and as at 2 below,
        where the binomial sum gives a chord from order 1.
        """
        alphas = checks.orders(orders)
        if not self._stands_for_gaussian:
            return np.zeros_like(alphas)
        distance = self.dimension * rounding.distance_from_gaussian(self.summed_noise)
        return np.full(alphas.shape, 3 * distance)

    @property
    def _stands_for_gaussian(self) -> bool:
        """Whether client sampling is accounted for by Gaussian noise."""
        return self.max_steps > 1 and self.route(sampled=True) == "rounding"

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        if self.sampling_probability == 1:
            return self.exact_rdp(orders)
        sampled = log_space.poisson_sampled_rdp(
            orders, self.sampling_probability, self.rdp_before_sampling
        )
        sampled += self.rdp_beside_sampling(orders)
        if self.route(sampled=True) == self.route():
            return sampled
        # Sampling never increases the RDP (Renyi divergence is quasi-convex).
        return np.minimum(sampled, self.exact_rdp(orders))


@attr.s(frozen=True, auto_attribs=True)
class DistributedDiscreteGaussianDpEvent(DistributedNoiseDpEvent):
    """Each client adds N_Z(0, (sigma/g)^2) to every coordinate; see the base class.

    Kairouz et al. 2021; Chen et al. 2022, Algorithm 6. A sum of discrete Gaussians is
    not a discrete Gaussian, and the accounting is for the sum's own law. Assumptions,
    adjacency and attributes are the base class's.
    """

    @property
    def summed_noise(self) -> noises.Noise:
        """See base class."""
        return noises.DiscreteGaussianNoise(
            self.noise_clients, self.local_stddev / self.granularity
        )

    @property
    def is_always_zero(self) -> bool:
        """See base class."""
        return self.local_stddev / self.granularity < _LEAST_STDDEV_STEPS


@attr.s(frozen=True, auto_attribs=True)
class DistributedSkellamDpEvent(DistributedNoiseDpEvent):
    """Each client adds Skellam noise of variance (sigma/g)^2; see the base class.

    Agarwal et al. 2021. The sum is Skellam of total variance mu = n (sigma/g)^2.
    Assumptions, adjacency and attributes are the base class's.
    """

    @property
    def total_variance_steps(self) -> float:
        """Variance of the summed noise: mu = n (sigma / g)^2."""
        return self.noise_clients * (self.local_stddev / self.granularity) ** 2

    @property
    def summed_noise(self) -> noises.Noise:
        """See base class."""
        return noises.SkellamNoise(self.total_variance_steps)

    @property
    def is_always_zero(self) -> bool:
        """See base class."""
        return self.total_variance_steps < _LEAST_VARIANCE


@attr.s(frozen=True, auto_attribs=True)
class WithClipCountDpEvent(events.RdpDpEvent):
    """Two simultaneous releases of the same clients: an update, and the clip's count.

    Both carry noise of their own. A client that joins by sampling joins both, so that
    sampling applies to the two together: composing two sampled events would be wrong.
    The pair is exchanged by an involution since each of the two is.

    Adjacency: that of the two releases, see `DistributedNoiseDpEvent`.

    Attributes:
      update: The release of the updates, without client sampling.
      count: The release of the +-1, without client sampling.
      sampling_probability: q, with which each client joins (Poisson); 1 for all.
    """

    update: DistributedNoiseDpEvent
    count: DistributedNoiseDpEvent
    sampling_probability: float = attr.ib(
        default=1.0, metadata=said(check=checks.probability)
    )

    samples_clients: ClassVar[bool] = True
    pages: ClassVar[tuple[str, ...]] = ("distributed.md",)

    @property
    def neighboring_relations(self) -> events.Relations:
        """See base class: those of both, on the sample of clients."""
        both = [
            release.poisson_sampled(self.sampling_probability) or release
            for release in (self.update, self.count)
        ]
        return tuple(
            r
            for r in both[0].neighboring_relations
            if r in both[1].neighboring_relations
        )

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        if self.sampling_probability == 1:
            return self.update.rdp(orders) + self.count.rdp(orders)

        def before_sampling(alphas: Any) -> np.ndarray:
            update = self.update.rdp_before_sampling(alphas)
            return update + self.count.rdp_before_sampling(alphas)

        sampled = log_space.poisson_sampled_rdp(
            orders, self.sampling_probability, before_sampling
        )
        return sampled + sum(
            release.rdp_beside_sampling(orders) for release in (self.update, self.count)
        )
