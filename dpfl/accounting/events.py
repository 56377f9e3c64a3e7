# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The base class of dpfl's `DpEvent`s, and the checks they share.

    event = accounting.MatrixFactorizationDpEvent(1.0)  # an `RdpDpEvent`
    event.rdp(events.DEFAULT_ORDERS), event.neighboring_relations

An event is a frozen value with everything that an accountant must know about one use of
a mechanism. dpfl's own events also know their Renyi differential privacy:
`RdpDpEvent.rdp` returns it, so that `accountant.DpflAccountant` handles every one of
them without naming it.

Every guarantee is for a relation between neighbouring populations, and covers both
directions. Each event names the relations for which it holds.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Optional, Union

import attr
import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation as Relation

from dpfl import checks
from dpfl.fields import Checked

Orders = Union[Sequence[float], np.ndarray]
"""Renyi orders: any sequence of numbers greater than 1."""

# The tenths of dp_accounting's own orders end at 11, with integers above; tenths matter
# when Gaussians are composed at a large epsilon. The sparsified mechanisms need the
# integers up to 1024.
DEFAULT_ORDERS: tuple[float, ...] = tuple(
    [1.0 + x / 10.0 for x in range(1, 100)]
    + [float(x) for x in range(11, 64)]
    + [float(x) for x in range(64, 128, 4)]
    + [float(x) for x in range(128, 256, 16)]
    + [float(x) for x in range(256, 512, 32)]
    + [float(x) for x in range(512, 1025, 128)]
)
"""The Renyi orders used when none are given."""

Relations = tuple[Relation, ...]

TRUSTED_RELATIONS: Relations = (Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_SPECIAL)
"""Relations of a release to which clients contribute vectors and no noise."""

ZERO_OUT_ONLY: Relations = (Relation.REPLACE_SPECIAL,)
"""The only relation that holds where a removed client would take its noise with it."""


LARGEST_NOISE_MULTIPLIER = 1e12
"""Larger noise multipliers count as this one, which costs hardly any epsilon."""

LEAST_NOISE_MULTIPLIER = 1e-100
"""Smaller noise multipliers count as 0; their inverse squares could overflow."""


# Check of a whole number that float64 can represent.
whole = functools.partial(checks.integer, at_most=2**53)


def noise(name: str, value: Any) -> float:
    """A noise multiplier, with the largest capped and the smallest rounded down to 0.

    Less noise is never more private, and squares and their sums stay normal floats.
    """
    multiplier = min(checks.nonnegative(name, value), LARGEST_NOISE_MULTIPLIER)
    return multiplier if multiplier >= LEAST_NOISE_MULTIPLIER else 0.0


class NoiseTooLargeError(ValueError):
    """More noise than the mechanism can have; calibration then tries less."""


class NoiseTooSmallError(ValueError):
    """Less noise than the mechanism can have; calibration then tries more."""


@attr.s(frozen=True)
class RdpDpEvent(Checked, dp_accounting.DpEvent, metaclass=abc.ABCMeta):
    """An event that knows its own Renyi differential privacy.

    Subclasses are frozen attrs classes whose docstring states every assumption of the
    mechanism, and the adjacency relation that its privacy is for. Their numbers are
    Python's; `dpfl.fields.said` gives an attribute a check of its own. `DpflAccountant`
    composes them by adding their `rdp`.
    """

    checked_arguments: ClassVar[Mapping[str, checks.Check]] = {
        "sampling_probability": checks.probability
    }
    # Pages of docs/privacy with the theorems of `rdp`, and those that clients who join
    # at random and a Gaussian that dominates the release add.
    pages: ClassVar[tuple[str, ...]] = ()
    sampling_pages: ClassVar[tuple[str, ...]] = ()
    dominating_pages: ClassVar[tuple[str, ...]] = ()
    # Whether `sampling_probability` is an attribute, by which `rdp` samples clients.
    samples_clients: ClassVar[bool] = False
    # Whether its clients may be drawn in secret, as those of no stream may be.
    is_one_round: ClassVar[bool] = True
    # Whether an accountant may cache the RDP of the event.
    is_remembered: ClassVar[bool] = True

    @property
    def neighboring_relations(self) -> Relations:
        """The relations for which `rdp` holds, with the one that reports name first.

        They are those of this release alone: the `RunDpEvent` of a run gives those that
        its choice of clients leaves.
        """
        return TRUSTED_RELATIONS

    @abc.abstractmethod
    def rdp(self, orders: Orders) -> np.ndarray:
        """A bound on both directions' Renyi divergence of one use, in nats; [m].

        It is infinite where there is no guarantee.

        Args:
          orders: Renyi orders, shape [m].

        Raises:
          ValueError: an order is not a finite number greater than 1.
        """

    def poisson_sampled(self, sampling_probability: float) -> Optional[RdpDpEvent]:
        """This event on a Poisson sample of clients, or None if no bound is proved.

        An event that `samples_clients` has a bound; sampling a sample multiplies the
        probabilities. `dp_accounting.PoissonSampledDpEvent` around this event means the
        same, unless it is one of noise that clients bring.
        """
        own: Any = self
        if not self.samples_clients:
            return None
        q = own.sampling_probability * sampling_probability
        return attr.evolve(own, sampling_probability=q)


NAMES: dict[Relation, str] = {
    Relation.ADD_OR_REMOVE_ONE: "add_or_remove",
    Relation.REPLACE_SPECIAL: "replaced_by_zeros",
    Relation.REPLACE_ONE: "replace_one",
}
"""The name of each relation in reports, summaries and tables."""

DESCRIPTIONS: dict[Relation, str] = {
    Relation.ADD_OR_REMOVE_ONE: "one client is added or removed",
    Relation.REPLACE_SPECIAL: "one client's contributions are replaced by zeros",
    Relation.REPLACE_ONE: "one client is replaced by another",
}
"""The meaning of each relation, to continue 'private if'."""


@attr.s(frozen=True, slots=True, auto_attribs=True)
class RunDpEvent(Checked, dp_accounting.DpEvent):
    """All releases of a run, and the relations for which they are private.

    Attributes:
      event: The releases, as events that stand for any relation of
        `neighboring_relations`.
      neighboring_relations: The relations that hold; the first is the one that reports
        name.
    """

    event: dp_accounting.DpEvent
    neighboring_relations: Relations = attr.ib(converter=tuple)

    @neighboring_relations.validator
    def _check(self, attribute: attr.Attribute, value: Relations) -> None:
        is_right = value and len({*value}) == len(value) and {*value} <= NAMES.keys()
        wanted = "different values of dp_accounting.NeighboringRelation, at least one"
        checks.require(is_right, attribute.name, wanted, value)
