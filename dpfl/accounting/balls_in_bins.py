# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Balls-in-bins sampling: clients draw one of b groups in secret, for correlated noise.

    turns = np.diag(participation.turns.astype(np.float64))
    event = BallsInBinsDpEvent(noise_multiplier, turns, participation.groups)
    accounting.epsilon(event, delta=1e-6).epsilon

A client of group g shifts the rows of C G + Z by m_g, the sum of the columns of C of
its rounds, in units of the noise, so that K of `secret_participation` has a row for
each group. delta is an integral over b numbers.

Sources: Choquette-Choo et al. (2024), 'Near Exact Privacy Amplification for Matrix
Mechanisms'; Chua et al. (2024), 'Balls-and-Bins Sampling for DP-SGD'.
"""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar, Optional

import attr
import dp_accounting
import numpy as np
from scipy import linalg, special

from dpfl import checks
from dpfl.accounting import (
    events,
    gaussian,
    log_space,
    random_allocation,
    secret_participation,
)
from dpfl.accounting.secret_participation import Draws
from dpfl.fields import said

# Normal numbers drawn for an epsilon in each direction, and the least and most draws.
_NUMBERS = 2**22
_LEAST_DRAWS, _MOST_DRAWS = 2**12, 2**17
# Numbers in a block of draws.
_BLOCK = 2**13
# A pilot with one in so many draws chooses the shift of the draws, in standard
# deviations of the noise.
_PILOT = 16
_SHIFTS = range(7)


@attr.s(frozen=True, auto_attribs=True)
class BallsInBinsDpEvent(secret_participation.SecretRunDpEvent):
    """A run in which each client is in the rounds of one group, which is its secret.

    Each client draws one of b groups with equal probability, independently of the other
    clients and of all data, once for the run, and takes part in rounds of that group
    alone; it may stay away from some. Its update is of L2 norm at most Delta2, and may
    depend on its data, its group, its earlier updates, coins of its own, and all
    earlier releases. C G + Z is released row by row, Z of independent N(0, stddev^2)
    and C lower triangular; row t of G is the sum of round t.

    Assumptions: nobody who sees the release sees who takes part when; the divisor of a
    mean is a constant; the noise is there whoever takes part.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.

    Attributes:
      noise_multiplier: stddev / Delta2, at least 0.
      gram: K, the inner products of m_g, the sum of the columns of |C| of group g's
        rounds, as far as these rows are released; float64 [r, r], of the groups that
        have had a turn or of all.
      groups: b, at least r; r by default.
    """

    noise_multiplier: float = attr.ib(metadata=said(check=events.noise))
    gram: np.ndarray = attr.ib(
        converter=secret_participation.read_only, eq=secret_participation.matrix_key
    )
    groups: int = attr.ib(metadata=said(check=events.whole))

    pages: ClassVar[tuple[str, ...]] = ("balls_in_bins.md",)

    @groups.default
    def _all(self) -> int:
        return len(self.gram)

    @groups.validator
    def _check_groups(self, attribute: attr.Attribute, value: int) -> None:
        checks.integer(attribute.name, value, len(self.gram))

    @gram.validator
    def _check(self, attribute: attr.Attribute, value: np.ndarray) -> None:
        checks.matrix(attribute.name, value)
        if value.shape[0] != value.shape[1] or np.min(value) < 0:
            raise ValueError(
                f"{attribute.name} must be a square matrix of entries of at least 0, "
                f"found shape {value.shape} and minimum {np.min(value):g}"
            )
        is_symmetric = np.allclose(value, value.T, rtol=secret_participation.ROUNDING)
        apart = float(np.max(np.abs(value - value.T)))
        wanted = "symmetric, by its distance from its transpose"
        checks.require(is_symmetric, attribute.name, wanted, apart)

    def as_composition(self) -> Optional[dp_accounting.DpEvent]:
        """See base class: a slot, if groups share nothing and are alike."""
        own = np.diag(self.gram)
        turned = own[own > 0]
        is_slot = turned.size and self.groups > 1 and np.ptp(turned) == 0
        if not is_slot or np.any(self.gram - np.diag(own)):
            return None
        return self._slot(float(turned[0]))

    def _slot(self, squared: float) -> random_allocation.RandomAllocationDpEvent:
        """One epoch of random allocation with vectors of a squared norm."""
        return random_allocation.RandomAllocationDpEvent(
            dp_accounting.GaussianDpEvent(self.noise_multiplier / math.sqrt(squared)),
            int(np.count_nonzero(np.diag(self.gram))),
            self.groups,
        )

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class.

        The smaller of two bounds: the RDP of the group with the longest shift, and that
        of a matrix K that is nowhere smaller, with equal entries off the diagonal. The
        latter is that of one Gaussian release plus that of one epoch of random
        allocation.
        """
        longest = float(np.max(self.gram))
        shared = float((self.gram - np.diag(np.diag(self.gram))).max())
        whole = _gaussian_rdp(self.noise_multiplier, longest, orders)
        own = longest - shared
        if not own or not self.noise_multiplier:
            return whole
        common = _gaussian_rdp(self.noise_multiplier, shared, orders)
        return np.minimum(whole, common + self._slot(own).rdp(orders))

    @functools.cached_property
    def _in_units(self) -> np.ndarray:
        """K in units of the noise, a little larger."""
        scale = 1 / self.noise_multiplier
        return self.gram * scale * scale * (1 + secret_participation.ROUNDING)

    def longest(self) -> float:
        """See base class."""
        return float(np.max(self._in_units)) if self.noise_multiplier else math.inf

    def draws(self) -> int:
        """The number of draws; none if there is but one group, which is no secret."""
        most = min(_MOST_DRAWS, max(_LEAST_DRAWS, _NUMBERS // len(self.gram)))
        return most if self.groups > 1 else 0

    def drawn_epsilon(self, delta: float, most: float, seed: int) -> float:
        """See base class, at the shift that a pilot chooses; none for a slot."""
        share = secret_participation.FAILURE
        goal = delta * (1 - share), share * delta, most

        def of_pilot(shift: float) -> float:
            pilot = self.removal(max(1, self.draws() // _PILOT), shift, 2 * seed + 1)
            return pilot.epsilon(*goal)

        if not self.draws() or self.as_composition() is not None:
            return math.inf
        best = min(_SHIFTS, key=of_pilot)
        return self.removal(self.draws(), best, 2 * seed).epsilon(*goal)

    def removal(self, draws: int, shift: float, seed: int) -> Draws:
        """Draws for P against Q, from P with its means a factor longer.

        Groups that have had a turn are drawn one after the other, in whole turns. With
        the factor l >= 1 a draw weighs R / mean_g exp(l W_g - l^2 K_gg / 2), the mean
        over these r groups. It is at least M^l exp(-l (l-1) K / 2) by Jensen's
        inequality, K the largest K_gg and M = 1 + (R - 1) b / r.

        Args:
          draws: The number of draws, rounded up to whole turns.
          shift: Standard deviations of the noise by which the longest mean gets longer.
          seed: The seed of the draws.
        """
        groups, gram = self.groups, _of_turns(self._in_units)
        own, turned = np.diag(gram), len(gram)
        longest = float(np.max(own))
        factor = 1 + shift / math.sqrt(longest)
        losses, weights = [], []
        for rows, turns in _blocks(gram, -(-draws // turned) * turned, seed):
            rows = rows + factor * gram[turns]
            loss = _log_mean_exp(rows - 0.5 * own, groups)
            drawn = _log_mean_exp(factor * rows - 0.5 * factor * factor * own, turned)
            losses.append(loss)
            weights.append(loss - drawn)
        more = factor - 1

        def log_bound(epsilon: float) -> float:
            # The largest of (R - e^epsilon) M^-factor, at M = least factor / more.
            top = float(special.xlogy(more, more)) - factor * math.log(factor)
            share = math.log(groups / turned)
            least = epsilon + math.log1p(
                -math.expm1(-epsilon) * (groups - turned) / turned
            )
            return top - share - more * least + 0.5 * factor * more * longest

        return Draws(np.concatenate(losses), np.concatenate(weights), log_bound)


def _gaussian_rdp(
    noise_multiplier: float, squared: float, orders: events.Orders
) -> np.ndarray:
    """The RDP of a Gaussian release that a client shifts by a vector; [m].

    `squared` is the squared norm of the vector, in units of the L2 clip.
    """
    if not squared:
        return np.zeros(np.shape(orders))
    return gaussian.gaussian_rdp(noise_multiplier / math.sqrt(squared), orders)


def _log_mean_exp(terms: np.ndarray, groups: int) -> np.ndarray:
    """The log of the mean of exponentials over all groups.

    Groups that are missing from `terms` have the term 0.
    """
    result = log_space.log_sum_exp(terms)
    if terms.shape[1] < groups:
        result = np.logaddexp(result, math.log(groups - terms.shape[1]))
    return result - math.log(groups)


def _of_turns(gram: np.ndarray) -> np.ndarray:
    """The matrix of the groups that have had a turn.

    It is a little larger than that, so that it has a Cholesky factor.
    """
    had = np.diag(gram) > 0
    part = gram[np.ix_(had, had)]
    return part + 1e-13 * len(gram) * np.max(gram) * np.eye(len(part))


def _blocks(gram: np.ndarray, draws: int, seed: int) -> Any:
    """Rows of N(0, gram) from the seed, a block at a time, with each row's group."""
    groups = len(gram)
    root = linalg.cholesky(gram, lower=True).T
    generator = np.random.default_rng(seed)
    size = max(64, _BLOCK // groups)
    for first in range(0, draws, size):
        count = min(size, draws - first)
        rows = generator.standard_normal((count, groups)) @ root
        yield rows, np.arange(first, first + count) % groups
