# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Renyi differential privacy of coordinate-subsampled Gaussian mechanisms.

    event = csgm.SparsifiedGaussianDpEvent(1.0, 0.1, linf_ratio=0.05, dimension=7850)
    event.rdp([2, 8])

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
from collections.abc import Sequence
from typing import ClassVar

import attr
import dp_accounting
import numpy as np

from dpfl import checks
from dpfl.accounting import events, log_space, sampled_rdp
from dpfl.fields import said

# Up to this order every log-moment that is sampled is computed, beyond it a subset.
_DENSE_ORDERS = 1024


def coordinate_log_moment(
    orders: Sequence[int] | np.ndarray, keep_fraction: float, shift_squared: float
) -> np.ndarray:
    """f, the log-moment of one subsampled coordinate; float64 [m].

    Args:
      orders: Integers of at least 1 (at 1 the log-moment is 0); shape [m]. The formula
        holds at no others.
      keep_fraction: Probability with which the coordinate is kept, in (0, 1].
      shift_squared: (coordinate's size / noise std)^2, at least 0.
    """
    every = np.arange(max(orders) + 1.0)
    with np.errstate(over="ignore", under="ignore"):
        exponents = min(shift_squared, log_space.HUGE) * (0.5 * every * (every - 1))
    return log_space.sampled_log_moment(orders, keep_fraction, exponents)


def l2_log_moment(
    orders: Sequence[int] | np.ndarray,
    keep_fraction: float,
    shift_squared: float,
    full_coordinates: float,
) -> np.ndarray:
    """L, the log-moment of one release under an L2 and an L-infinity bound; [m].

    Args:
      orders: Integers of at least 1; shape [m].
      keep_fraction: In (0, 1].
      shift_squared: (L-infinity bound / noise std)^2.
      full_coordinates: K, the number of coordinates (not always whole) that the L2
        bound lets stand at the L-infinity bound, at most the dimension.
    """
    whole = math.floor(full_coordinates)
    rest = shift_squared * (full_coordinates - whole)
    result = coordinate_log_moment(orders, keep_fraction, rest)
    # Without a whole coordinate its infinite log-moment is not counted.
    if whole:
        at_bound = coordinate_log_moment(orders, keep_fraction, shift_squared)
        with np.errstate(over="ignore", under="ignore"):
            result = whole * at_bound + result
    return result


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
        alphas, q, keep = checks.orders(orders), self._sampled, self.keep_fraction
        if q == 0:
            return np.zeros(alphas.shape)
        if self.noise_multiplier == 0:
            return np.full(alphas.shape, np.inf)
        with np.errstate(over="ignore", divide="ignore", under="ignore"):
            bound = np.float64(self.linf_ratio)
            shift = float(np.square(bound / (self.noise_multiplier * keep)))
        if shift >= log_space.HUGE:
            return np.full(alphas.shape, np.inf)
        with np.errstate(over="ignore"):
            gaussian = 0.5 * (self.full_coordinates * shift) * alphas
        if keep == 1 and q == 1:
            return gaussian
        result = log_space.up_to_most_order(
            alphas, lambda near: self._by_binomials(near, shift)
        )
        if keep < 1:
            return result
        # The sampled Gaussian. Sampling never increases the RDP (Renyi divergence is
        # quasi-convex), but a chord might; fractional orders need none.
        result = np.minimum(result, gaussian)
        fractional = alphas != np.floor(alphas)
        if fractional.any():
            result[fractional] = np.minimum(
                result[fractional],
                sampled_rdp.sampled_gaussian_rdp(
                    alphas[fractional], q, self.noise_multiplier / self._norm
                ),
            )
        return result

    def _by_binomials(self, alphas: np.ndarray, shift: float) -> np.ndarray:
        """The RDP by the module's sums, and chords between whole orders; [m]."""
        keep, full = self.keep_fraction, self.full_coordinates
        integers = log_space.whole_orders(alphas)
        if self._sampled == 1:
            moments = l2_log_moment(integers, keep, shift, full)
        else:
            nodes = log_space.integer_nodes(int(integers[-1]), _DENSE_ORDERS)
            if keep == 1:
                with np.errstate(over="ignore"):
                    known = full * shift * (0.5 * nodes * (nodes - 1.0))
            else:
                known = l2_log_moment(nodes, keep, shift, full)
            every = log_space.every_log_moment(nodes, known)
            moments = log_space.sampled_log_moment(integers, self._sampled, every)
        return log_space.mixture_chord(alphas, integers, moments) / (alphas - 1)

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

    samples_clients: ClassVar[bool] = True


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
    is_one_round: ClassVar[bool] = False
