# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The event of the matrix factorization mechanism.

    event = MatrixFactorizationDpEvent(noise_multiplier=1.0)
    release = dp_accounting.GaussianDpEvent(1.0)
    run = banded_stream_event(release, rounds=64, bands=4, separation=4)

Source: Denisov, McMahan, Rush, Smith, Thakurta, 'Improved Differential Privacy for
SGD via Optimal Private Linear Operators on Adaptive Streams' (2022), Theorem 2.1.
"""

from __future__ import annotations

from typing import Any, ClassVar, Optional

import attr
import dp_accounting
import numpy as np

from dpfl import checks
from dpfl.accounting import csgm, events, gaussian, trees
from dpfl.fields import said


@attr.s(frozen=True, slots=True, auto_attribs=True)
class MatrixFactorizationDpEvent(events.RdpDpEvent):
    """One stream of the matrix factorization mechanism A G + B Z, A = B C.

    G is [rounds, dimension], its row t the sum of the round's client updates, each
    of L2 norm at most Delta2. Z is [rounds, dimension] of independent N(0, stddev^2).
    The whole stream of A G + B Z is released, row by row; an update may depend on
    the rows released before it. A is lower triangular and invertible; B and C are
    square and need not be triangular.

    Assumptions: each client contributes to at most one row of the stream. A stream
    that is restarted, with each client contributing at most once between restarts,
    is this event composed once for each restart.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.

    Attributes:
      noise_multiplier: stddev / (Delta2 max_j ||C[:, j]||_2); at least 0. This is
        noise std over the L2 sensitivity of C G. If B has a null space, C may be
        L^-1 A, with B = L Q and Q of orthonormal rows, since no more of C G + Z is
        released; and if only the first rows are released, those rows and columns of it.
    """

    noise_multiplier: float = attr.ib(metadata=said(check=events.noise))

    pages: ClassVar[tuple[str, ...]] = ("matrix_factorization.md",)
    is_one_round: ClassVar[bool] = False

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class. The stream is one Gaussian mechanism."""
        return gaussian.gaussian_rdp(self.noise_multiplier, orders)

    def as_gaussian(self) -> dp_accounting.GaussianDpEvent:
        """The Gaussian event that this one is equivalent to."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)


_RELEASES = (dp_accounting.GaussianDpEvent, csgm.SparsifiedGaussianDpEvent)


def banded_stream_event(
    release: dp_accounting.DpEvent,
    *,
    rounds: int,
    bands: int,
    separation: int,
    sampling_probability: float = 1.0,
    participations: Optional[int] = None,
    last_release: Optional[dp_accounting.DpEvent] = None,
    independent_groups: bool = False,
) -> events.RunDpEvent:
    """The event of a stream A G + B Z, A = B C, over all rounds of a run.

    Assumptions: A is lower triangular and invertible, C lower triangular with `bands`
    diagonals; a client may take part in rounds that are at least `separation` apart,
    which do not depend on any release. With `sampling_probability` below 1 it joins
    each of them independently with that probability, and nobody who sees the release
    sees whether it did. Its update is a function of its data and of the rows before,
    and of no secret of its own, such as whether it joined. Clients that are dealt into
    `separation` groups, of which round t takes its clients from group t modulo
    `separation`, are the usual way ('cyclic Poisson sampling').

    Adjacency: one client is replaced by one that sends zeros. Adding and removing are
    covered if the other clients' groups do not depend on whether it is there, as where
    each client draws its group by itself; not where groups have a fixed size.

    Args:
      release: The event of one round, its noise multiplier being stddev / (Delta2 max_j
        ||C[:, j]||_2), over the keep fraction too for a sparsified one: a
        `GaussianDpEvent`, or a sparsified event without client sampling.
      rounds: T, at least 1.
      bands: h, from 1 on.
      separation: b, at least `bands`.
      sampling_probability: q', in [0, 1].
      participations: k, the most rounds that a client may be in, whether it joins them
        or not: with reshuffled epochs, their number. None is the most that fit, ceil(T
        / b), and larger numbers are cut to that.
      last_release: The event of a round from (ceil(T / b) - 1) b on, where columns of C
        do not get longer from round to round, and their part within the run is shorter
        there. It counts where a client may be in ceil(T / b) rounds, of which the last
        is one of these.
      independent_groups: Whether each client's rounds were chosen without regard to the
        other clients.

    Raises:
      TypeError: a release is none of these events.
      ValueError: a number is out of range, or a release is sampled already.
    """
    rounds = checks.integer("rounds", rounds)
    bands = checks.integer("bands", bands)
    limit = "the number of bands"
    separation = checks.integer("separation", separation, bands, limit=limit)
    q = checks.probability("sampling_probability", sampling_probability)
    neighboring_relations = (
        events.TRUSTED_RELATIONS if independent_groups else events.ZERO_OUT_ONLY
    )
    most = count = -(-rounds // separation)
    if participations is not None:
        count = min(count, checks.integer("participations", participations))
    sampled = _sampled("release", release, q)
    if last_release is None or count < most:
        composed = dp_accounting.SelfComposedDpEvent(sampled, count)
        return events.RunDpEvent(composed, neighboring_relations)
    last = _sampled("last_release", last_release, q)
    whole = dp_accounting.SelfComposedDpEvent(sampled, count - 1)
    both = dp_accounting.ComposedDpEvent([whole, last])
    return events.RunDpEvent(both if count > 1 else last, neighboring_relations)


def _sampled(name: str, release: dp_accounting.DpEvent, q: float) -> Any:
    """A release of clients that join with probability q."""
    bare = trees.bare(release)
    if not isinstance(bare, _RELEASES):
        raise TypeError(
            f"{name} must be a Gaussian or a sparsified Gaussian event, found "
            f"{type(bare).__name__}"
        )
    is_whole = getattr(bare, "sampling_probability", 1.0) == 1
    checks.require(is_whole, name, "without client sampling", bare)
    return dp_accounting.PoissonSampledDpEvent(q, release) if q < 1 else release
