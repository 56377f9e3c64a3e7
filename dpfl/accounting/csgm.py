# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Renyi differential privacy of coordinate-subsampled Gaussian mechanisms.

    settings = {"keep_fraction": 0.1, "linf_ratio": 0.05, "dimension": 7850}
    csgm.sparsified_rdp([2, 8], noise_multiplier=1.0, **settings)

Source: 'Improved Communication-Privacy Trade-offs in L2 Mean Estimation under
Streaming Differential Privacy' (2024), Theorems 4.1 and 5.1, with the misprints
listed in docs/privacy/misprints.md corrected and the bound sharpened; the baseline
without an L2 bound is Chen, Song, Ozgur, Kairouz (2023). The proofs are in
docs/privacy.

With P the release with a client and Q the release without it, x = dP/dQ, everything
here is a bound on the log-moment log E_Q[x^a], which is (a - 1) times the Renyi
divergence of order a, and bounds both directions.

One coordinate, shift v, noise std s, kept with probability g, integer a >= 2:
  f_a(v^2) = log sum_l C(a, l) (1-g)^(a-l) g^l exp(l (l-1) v^2 / (2 s^2))
A release, v in the box |v_j| <= Dinf and the ball ||v||_2 <= D2, K = (D2/Dinf)^2:
  L(a) = floor(K) f_a(Dinf^2) + f_a((K - floor(K)) Dinf^2),  K = min(K, dimension)
Clients join independently with probability q:
  L_q(a) = log sum_l C(a, l) (1-q)^(a-l) q^l exp(L(l)),      L(0) = L(1) = 0
Between two integer orders L(a)/a is bounded by its chord, with L(1) = 0: it is convex
in a for mixtures of Gaussians, and f itself is no bound at other than integer orders.

Both sums are log(1 + sum_{l>=2} Binomial(l) expm1(e_l)), taken in log space: no term
is negative, so a log-moment of 1e-20 is as accurate as one of 1e20.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attr
import dp_accounting
import numpy as np

from dpfl import checks
from dpfl.accounting import events, log_space, sampled_rdp
from dpfl.fields import said

# Up to this order every log-moment that is sampled is computed, beyond it a subset.
_DENSE_ORDERS = 1024


@np.errstate(under="ignore")
def coordinate_log_moment(
    orders: log_space.IntegerOrders, keep_fraction: Any, shift_squared: Any
) -> np.ndarray:
    """f, the log-moment of one subsampled coordinate; float64 of shape S + [m].

    Args:
      orders: Integers of at least 1 (at 1 the log-moment is 0); shape [m].
      keep_fraction: Probability with which the coordinate is kept, in (0, 1];
        broadcasts with `shift_squared` to a shape S.
      shift_squared: (coordinate's size / noise std)^2, at least 0.

    Raises:
      ValueError: an order is not an integer, for which the formula does not hold.
    """
    alphas = log_space.check_integer_orders(orders)
    keep, shift = np.broadcast_arrays(
        np.asarray(keep_fraction, np.float64), np.asarray(shift_squared, np.float64)
    )
    shape = keep.shape + (alphas.size,)
    pairs = 0.5 * np.arange(alphas.max() + 1.0) * (np.arange(alphas.max() + 1.0) - 1)
    keep, shift = keep.ravel(), np.minimum(shift.ravel(), log_space.HUGE)
    result = np.empty((keep.size, alphas.size))
    rows = log_space.block_rows(pairs.size)
    for start in range(0, keep.size, rows):
        block = slice(start, start + rows)
        with np.errstate(over="ignore"):
            exponents = shift[block, None] * pairs
        result[block] = log_space.sampled_log_moment(alphas, keep[block], exponents)
    return result.reshape(shape)


def l2_log_moment(
    orders: log_space.IntegerOrders,
    keep_fraction: Any,
    shift_squared: Any,
    full_coordinates: Any,
) -> np.ndarray:
    """L, the log-moment of one release under an L2 and an L-infinity bound; S + [m].

    Args:
      orders: Integers of at least 1, or ValueError is raised; shape [m].
      keep_fraction: In (0, 1]; broadcasts with the next two to a shape S.
      shift_squared: (L-infinity bound / noise std)^2.
      full_coordinates: K, the number of coordinates (not always whole) that the L2
        bound lets stand at the L-infinity bound, at most the dimension.
    """
    keep, shift, full = np.broadcast_arrays(
        np.asarray(keep_fraction, np.float64),
        np.asarray(shift_squared, np.float64),
        np.asarray(full_coordinates, np.float64),
    )
    whole = np.floor(full)
    shifts = np.stack([shift, shift * (full - whole)])
    at_bound, remainder = coordinate_log_moment(orders, keep[None], shifts)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        # Without a whole coordinate its infinite log-moment is not counted.
        return np.where(whole[..., None] > 0, whole[..., None] * at_bound, 0) + (
            remainder
        )


@np.errstate(under="ignore")
def sparsified_rdp(
    orders: events.Orders,
    *,
    noise_multiplier: Any,
    keep_fraction: Any,
    linf_ratio: Any,
    dimension: Any,
    sampling_probability: Any = 1.0,
    use_l2: bool = True,
) -> np.ndarray:
    """The RDP of sparsified Gaussian mechanisms, vectorised; float64 S + [m].

    The parameters broadcast to a shape S and are not checked.

    Args:
      orders: Renyi orders, finite and greater than 1; shape [m].
      noise_multiplier: stddev / (keep_fraction * Delta2), greater than 0.
      keep_fraction: Probability of keeping a coordinate, in (0, 1].
      linf_ratio: DeltaInf / Delta2, greater than 0.
      dimension: Length of the rotated, padded vector.
      sampling_probability: Probability with which a client joins, in (0, 1].
      use_l2: Whether the L2 bound is used; otherwise every coordinate is taken to be at
        the L-infinity bound.

    Raises:
      ValueError: an order is not a finite number greater than 1.
    """
    alphas = checks.orders(orders)
    given = noise_multiplier, keep_fraction, linf_ratio, dimension, sampling_probability
    z, keep, ratio, dim, q = np.broadcast_arrays(
        *(np.asarray(x, np.float64) for x in given)
    )
    with np.errstate(over="ignore", divide="ignore"):
        exact_shift = np.square(ratio / (z * keep))
        full = np.minimum(ratio**-2.0, dim) if use_l2 else dim
    shift = np.minimum(exact_shift, log_space.HUGE)
    result = log_space.up_to_most_order(
        alphas, lambda near: _by_binomials(near, keep, shift, full, q)
    )
    # The Gaussian mechanism, at every order, if nothing is dropped and nobody left out.
    with np.errstate(over="ignore", invalid="ignore"):
        gaussian = 0.5 * (full * shift)[..., None] * alphas
    plain = ((keep == 1) & (q == 1))[..., None]
    result = np.where(plain, gaussian, result)
    # Sampling never increases the RDP (Renyi divergence is quasi-convex), but a chord
    # might.
    result = np.where((keep == 1)[..., None], np.minimum(result, gaussian), result)
    return np.where((exact_shift >= log_space.HUGE)[..., None], np.inf, result)


def _by_binomials(
    alphas: np.ndarray,
    keep: np.ndarray,
    shift: np.ndarray,
    full: np.ndarray,
    q: np.ndarray,
) -> np.ndarray:
    """The RDP by the module's sums, and chords between whole orders; S + [m]."""
    integers = log_space.whole_orders(alphas)
    if (q < 1).any():
        moments = _every_log_moment(int(integers[-1]), keep, shift, full)
        moments = log_space.sampled_log_moment(integers, q, moments)
    else:
        moments = l2_log_moment(integers, keep, shift, full)
    return log_space.mixture_chord(alphas, integers, moments) / (alphas - 1)


def _every_log_moment(
    top: int, keep: np.ndarray, shift: np.ndarray, full: np.ndarray
) -> np.ndarray:
    """L at 0, 1, ..., top, by chords where orders are large; S + [top + 1]."""
    every = np.arange(top + 1)
    moments = np.zeros(keep.shape + (every.size,))
    if (keep == 1).all():
        # A Gaussian, if nothing is dropped.
        with np.errstate(over="ignore"):
            pairs = 0.5 * every * (every - 1.0)
            return np.minimum((full * shift)[..., None] * pairs, log_space.HUGE)
    if top <= _DENSE_ORDERS:
        moments[..., 2:] = l2_log_moment(every[2:], keep, shift, full)
        return moments
    nodes = log_space.integer_nodes(top, _DENSE_ORDERS)
    known = l2_log_moment(nodes, keep, shift, full)
    high = np.searchsorted(nodes, every[2:])
    low = np.maximum(high - 1, 0)
    share = (every[2:] - nodes[low]) / np.maximum(nodes[high] - nodes[low], 1)
    moments[..., 2:] = known[..., low] * (1 - share) + known[..., high] * share
    return moments


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SparsifiedDpEvent(events.RdpDpEvent):
    """Common parameters of the sparsified mechanisms' events.

    Attributes:
      noise_multiplier: stddev / (keep_fraction * Delta2), at least 0.
      keep_fraction: Probability of keeping a coordinate, in (0, 1].
      linf_ratio: DeltaInf / Delta2, greater than 0.
      dimension: Length of the rotated, padded vector, at least 1.
    """

    noise_multiplier: float = attr.ib(metadata=said(check=events.noise))
    keep_fraction: float = attr.ib(metadata=said(check=checks.fraction))
    linf_ratio: float = attr.ib(metadata=said(check=checks.positive))
    dimension: int = attr.ib(metadata=said(check=events.whole))

    pages: ClassVar[tuple[str, ...]] = ("sparsified_gaussian.md",)
    sampling_pages: ClassVar[tuple[str, ...]] = ("client_sampling.md",)
    dominating_pages: ClassVar[tuple[str, ...]] = ("gaussian_domination.md",)

    # Whether the L2 bound is used; otherwise only |v_j| <= DeltaInf is.
    _use_l2: ClassVar[bool] = True

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        alphas, q = checks.orders(orders), self._sampled
        if q == 0:
            return np.zeros(alphas.shape)
        if self.noise_multiplier == 0:
            return np.full(alphas.shape, np.inf)
        result = sparsified_rdp(
            alphas,
            noise_multiplier=self.noise_multiplier,
            keep_fraction=self.keep_fraction,
            linf_ratio=self.linf_ratio,
            dimension=self.dimension,
            sampling_probability=q,
            use_l2=self._use_l2,
        )
        fractional = alphas != np.floor(alphas)
        if self.keep_fraction == 1 and q < 1 and fractional.any():
            # The sampled Gaussian, which needs no chord, if nothing is dropped.
            result[fractional] = np.minimum(
                result[fractional],
                sampled_rdp.sampled_gaussian_rdp(
                    alphas[fractional], q, self.noise_multiplier / self._norm
                ),
            )
        return result

    @property
    def full_coordinates(self) -> float:
        """K, the number of coordinates at their bound in the longest vector."""
        if self._use_l2 and self.linf_ratio * math.sqrt(self.dimension) >= 1:
            return self.linf_ratio**-2.0
        return float(self.dimension)

    @property
    def _norm(self) -> float:
        """The largest L2 norm of a vector, over Delta2."""
        norm = self.linf_ratio * math.sqrt(self.dimension)
        return min(norm, 1.0) if self._use_l2 else norm

    @property
    def _sampled(self) -> float:
        """q; 1 for a mechanism that ignores client sampling."""
        return getattr(self, "sampling_probability", 1.0)

    def as_gaussian(self) -> dp_accounting.DpEvent:
        """The equivalent (sampled) Gaussian if nothing is dropped, else this event.

        The exact curve and privacy loss distributions of Gaussians then apply.
        """
        if self.keep_fraction < 1:
            return self
        event = dp_accounting.GaussianDpEvent(self.noise_multiplier / self._norm)
        if self._sampled == 1:
            return event
        return dp_accounting.PoissonSampledDpEvent(self._sampled, event)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SparsifiedGaussianDpEvent(SparsifiedDpEvent):
    """One round of the coordinate-subsampled Gaussian mechanism with an L2 bound.

    Each client that joins has a vector v of length `dimension` (after rotation and
    padding) with ||v||_2 <= Delta2 and |v_j| <= DeltaInf for every j, and sends
    v * s, where the s_j are independent Bernoulli(keep_fraction), drawn afresh for
    every client and every round. The sum over clients plus N(0, stddev^2 I) is
    released, and nothing else that depends on the masks: an observer of the release
    does not see them. Dividing by a constant and rotating back are post-processing.

    Assumptions: the rotation is chosen without looking at the clients' vectors; both
    bounds hold for every client (clip to Delta2 first, rotate, clip coordinates);
    the divisor does not depend on who joined.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.

    Attributes:
      noise_multiplier: stddev / (keep_fraction * Delta2); at least 0. At equal noise
        multiplier the noise on the decoded mean is that of the Gaussian mechanism.
      keep_fraction: Probability of keeping a coordinate, in (0, 1].
      linf_ratio: DeltaInf / Delta2, greater than 0.
      dimension: Length of the rotated, padded vector, at least 1.
      sampling_probability: Each client joins the round independently with this
        probability, in [0, 1]; 1 if the clients of a round are not chosen at random.
    """

    sampling_probability: float = attr.ib(
        default=1.0, metadata=said(check=checks.probability)
    )

    def poisson_sampled(self, sampling_probability: float) -> SparsifiedGaussianDpEvent:
        """See base class. Sampling a sample multiplies the probabilities."""
        q = self.sampling_probability * sampling_probability
        return attr.evolve(self, sampling_probability=q)


def sampled_gaussian_event(
    noise_multiplier: float, sampling_probability: float
) -> SparsifiedGaussianDpEvent:
    """The Poisson-sampled Gaussian as a mechanism that drops no coordinate."""
    return SparsifiedGaussianDpEvent(
        noise_multiplier=noise_multiplier,
        keep_fraction=1.0,
        linf_ratio=1.0,
        dimension=1,
        sampling_probability=sampling_probability,
    )


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LinfSparsifiedGaussianDpEvent(SparsifiedGaussianDpEvent):
    """The coordinate-subsampled Gaussian mechanism, without use of its L2 bound.

    As `SparsifiedGaussianDpEvent`, but only |v_j| <= DeltaInf is assumed: every
    coordinate is accounted for as if it stood at DeltaInf (Chen et al., 2023). Delta2
    is only a unit here.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.
    """

    _use_l2: ClassVar[bool] = False


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SparsifiedMatrixFactorizationDpEvent(SparsifiedDpEvent):
    """One stream of matrix factorization on coordinate-subsampled updates.

    A G + B Z is released row by row, A = B C lower triangular and invertible, Z of
    independent N(0, stddev^2). Row t of G is the sum over the round's clients of
    v * s, with v and the masks s as in `SparsifiedGaussianDpEvent`; v may depend on
    the rows released before it.

    Assumptions: each client contributes to at most one row of the stream. A stream
    restarted each epoch is this event composed once an epoch. No use is made of
    client sampling.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.

    Attributes:
      noise_multiplier: stddev / (keep_fraction * Delta2 * max_j ||C[:, j]||_2); at
        least 0. If B has a null space, C may be L^-1 A, with B = L Q; and if only the
        first rows are released, those rows and columns of it.
      keep_fraction: As there, and so are `linf_ratio` and `dimension`.
    """

    pages: ClassVar[tuple[str, ...]] = ("matrix_factorization.md#sparsified-updates",)
