# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Normal form of trees of events, in which they are accounted for.

    event = normalised(event)
    for release, count in releases(event):
        print(count, release)

Events of dp_accounting take any number and check none, and some of its releases take an
integer for an event. So every tree is `normalised` before anything is computed of it:
its numbers are Python's and in range, at every depth, and all releases of one sample of
clients are one event.

Releases of one sample are composed before they are sampled, by one coin for all.
Gaussians of noise multipliers z_i, chosen adaptively or not, are dominated by one of
(sum_i z_i^-2)^(-1/2), and sampling keeps that order of the hockey-stick divergences in
both directions (Zhu, Dong and Wang 2022, 'Optimal Accounting of Differential Privacy
via Characteristic Function', Theorem 11). Nothing of the kind is proved for other
releases: where the second depends on the first there need be no involution that
exchanges both pairs, and no order of the coordinates. They are refused.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Iterator
from typing import Any, Optional

import attr
import dp_accounting
import numpy as np
from dp_accounting import DpEvent, dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from dpfl import checks
from dpfl.accounting import events

_THEIR_ACCOUNTANT = rdp_privacy_accountant.RdpAccountant

# Largest number of repetitions of a release: products of a few such numbers are floats.
MOST_RELEASES = 10**15
# Substitute for larger products of such numbers, which would not be floats.
MOST_PRODUCTS = 10**300


def up_to_infinity(name: str, value: Any) -> float:
    """`value` as a float, if it is at least 0; infinity is too."""
    is_infinite = isinstance(value, numbers.Real) and value == math.inf
    return math.inf if is_infinite else checks.nonnegative(name, value)


def _step_counts(name: str, value: Any) -> Any:
    """An integer, or one for each epoch, as a tuple."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        return checks.integer(name, value)
    checks.require(value, name, "a non-empty list", value)
    return tuple(checks.integer(name, item, 0) for item in value)


def _any_number(name: str, value: Any) -> Any:
    """The value of a field without a check of its own: numbers must be at least 0."""
    if isinstance(value, (list, tuple)):
        return type(value)(_any_number(name, item) for item in value)
    if isinstance(value, numbers.Integral):
        return checks.integer(name, value, 0)
    if isinstance(value, numbers.Real):
        return checks.nonnegative(name, value)
    return value


_WRAPPERS = (dp_accounting.SelfComposedDpEvent, dp_event.RepeatAndSelectDpEvent)
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "noise_multiplier": events.noise,
    "sampling_probability": checks.probability,
    "count": functools.partial(checks.integer, at_least=0, at_most=MOST_RELEASES),
    "sample_size": functools.partial(checks.integer, at_least=0),
    "source_dataset_size": checks.integer,
    "mean": functools.partial(checks.real, at_least=1),
    # Infinity is the number of repetitions that follow Poisson's law.
    "shape": up_to_infinity,
    "step_counts": _step_counts,
    "num_buckets": checks.integer,
    **dict.fromkeys(("noise_parameter", "rho", "xi"), checks.nonnegative),
}


def _with_python_numbers(event: DpEvent) -> DpEvent:
    """An event of dp_accounting whose own numbers are checked, and Python's."""
    changes = {}
    for field in attr.fields(type(event)):
        value = getattr(event, field.name)
        if isinstance(value, DpEvent) or field.name == "events":
            continue
        checked = _CHECKS.get(field.name, _any_number)(field.name, value)
        if checked is not value:
            changes[field.name] = checked
    return attr.evolve(event, **changes) if changes else event


def normalised(event: DpEvent) -> DpEvent:
    """The normal form of an event, with the same privacy.

    Numbers are Python's, sequences tuples, and releases of one sample are one release
    where a theorem allows it. An event that is not dp_accounting's stays as it is.

    Raises:
      TypeError: an event, or a number of one, is of a wrong type.
      ValueError: a number is out of range, as noise that is negative or NaN.
    """
    if not isinstance(event, DpEvent):
        raise TypeError(checks.message("event", "a DpEvent", event))
    if isinstance(event, events.RunDpEvent):
        return _with_event(event, normalised(event.event))
    if not _is_theirs(event):
        return event
    event = _with_python_numbers(event)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        if not isinstance(event.events, (list, tuple)):
            raise TypeError(checks.message("events", "a list or tuple", event.events))
        return attr.evolve(event, events=tuple(map(normalised, event.events)))
    if isinstance(getattr(event, "event", None), DpEvent):
        event = _with_event(event, normalised(event.event))
    elif hasattr(event, "event"):
        raise TypeError(checks.message("event", "a DpEvent", event.event))
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return event if event.count else dp_accounting.NoOpDpEvent()
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return _sampled(event)
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        checks.integer("sample_size", event.sample_size, 0, event.source_dataset_size)
        return _sampled(event)
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        return event if event.noise_multiplier else dp_accounting.NonPrivateDpEvent()
    return event


def _is_theirs(event: DpEvent) -> bool:
    """Whether an event is one of dp_accounting's, or a kind of one."""
    kinds = [kind for kind in type(event).__mro__ if issubclass(kind, DpEvent)]
    return any(kind.__module__.startswith("dp_accounting.") for kind in kinds[:-1])


def _with_event(event: Any, inner: DpEvent) -> DpEvent:
    return event if inner is event.event else attr.evolve(event, event=inner)


def releases(
    event: DpEvent, count: int = 1, *, splits: bool = True
) -> Iterator[tuple[DpEvent, int]]:
    """The releases of a normalised tree, without relations, with the number of each.

    A sampled release is one release.

    Args:
      event: The tree.
      count: How often it occurs.
      splits: Whether a run that costs no more than a composition, `as_composition`,
        counts as that.
    """
    if splits and hasattr(event, "as_composition"):
        event = event.as_composition() or event
    if isinstance(event, (events.RunDpEvent, dp_accounting.SelfComposedDpEvent)):
        times = min(count * getattr(event, "count", 1), MOST_PRODUCTS)
        yield from releases(event.event, times, splits=splits)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            yield from releases(part, count, splits=splits)
    elif not isinstance(event, dp_accounting.NoOpDpEvent):
        yield event, count


def bare(event: DpEvent) -> DpEvent:
    """A tree without the relations that it carries, to be wrapped in others."""
    if isinstance(event, events.RunDpEvent):
        return bare(event.event)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return attr.evolve(event, events=tuple(map(bare, event.events)))
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return _with_event(event, bare(event.event))
    return event


def carrying(event: DpEvent, own: events.Relations) -> DpEvent:
    """A mechanism's release as an event that holds for no more than its relations.

    Args:
      event: The release.
      own: The relations for which the mechanism is private.
    """
    carries = all(
        isinstance(resolve_sampling(release), events.RdpDpEvent)
        for release, _ in releases(event)
    )
    if carries and set(relations_of(event)) <= set(own):
        return event
    return events.RunDpEvent(event, own)


def _one_release(event: DpEvent) -> Optional[DpEvent]:
    """The releases of one sample as one event; None if no theorem gives one."""
    counts = list(releases(event))
    if not counts:
        return dp_accounting.NoOpDpEvent()
    if len(counts) == 1 and counts[0][1] == 1:
        [(release, _)] = counts
        if not isinstance(release, dp_accounting.NonPrivateDpEvent):
            return release
    inverse_square = 0.0
    for release, count in counts:
        z = _gaussian_noise(release)
        if z is None:
            return None
        inverse_square += count * (1 / z) * (1 / z) if z else math.inf
    return dp_accounting.GaussianDpEvent(inverse_square**-0.5)


def _gaussian_noise(release: DpEvent) -> Optional[float]:
    """The noise multiplier of a release that is a Gaussian, else None.

    An `RdpDpEvent` has one only if it can be Poisson-sampled.
    """
    if isinstance(release, dp_accounting.NonPrivateDpEvent):
        return 0.0
    if isinstance(release, events.RdpDpEvent):
        may_be_sampled = release.poisson_sampled(1.0) is not None
        if may_be_sampled and hasattr(release, "as_gaussian"):
            release = release.as_gaussian()
    # A subclass may have further parameters.
    if type(release) is dp_accounting.GaussianDpEvent:
        return events.noise("noise_multiplier", release.noise_multiplier)
    return None


def _sampled(event: Any) -> DpEvent:
    """Sampling as that of one release, for the remaining relations."""
    is_poisson = isinstance(event, dp_accounting.PoissonSampledDpEvent)
    kept = events.TRUSTED_RELATIONS if is_poisson else (events.Relation.REPLACE_ONE,)
    own, carries = neighboring_relations(event.event), bare(event.event) != event.event
    release = _one_release(event.event)
    if kept[0] not in own or release is None:
        return event
    if is_poisson and isinstance(release, dp_accounting.PoissonSampledDpEvent):
        # A sample of a sample is a sample.
        q = event.sampling_probability * release.sampling_probability
        event, release = attr.evolve(event, sampling_probability=q), release.event
    if isinstance(release, dp_accounting.NoOpDpEvent):
        return release
    result = _with_event(event, release)
    if carries:
        return events.RunDpEvent(result, tuple(r for r in kept if r in own))
    return result


def resolve_sampling(event: DpEvent) -> DpEvent:
    """The sampled form of a Poisson-sampled event that knows it, else the event.

    Noise that clients bring is not there where they do not join: such releases have
    no sampled form.
    """
    if not isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return event
    if not isinstance(event.event, events.RdpDpEvent):
        return event
    is_everybody = event.sampling_probability == 1
    if not is_everybody and events.Relation.ADD_OR_REMOVE_ONE not in (
        event.event.neighboring_relations
    ):
        return event
    return event.event.poisson_sampled(event.sampling_probability) or event


def relations_of(event: DpEvent) -> events.Relations:
    """The relations for which all parts of a tree of events are private, if any.

    The relation that reports name comes first. dp_accounting's events have the meaning
    that it gives them, which is any relation that it accounts for.
    """
    return neighboring_relations(normalised(event))


def neighboring_relations(event: DpEvent) -> events.Relations:
    """`relations_of` a normalised tree."""
    if isinstance(event, events.RunDpEvent):
        inner = neighboring_relations(event.event)
        return tuple(r for r in event.neighboring_relations if r in inner)
    event = resolve_sampling(event)
    if isinstance(event, events.RdpDpEvent):
        return tuple(event.neighboring_relations)
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        has_bound = not isinstance(event.event, events.RdpDpEvent)
        if has_bound and events.Relation.ADD_OR_REMOVE_ONE in neighboring_relations(
            event.event
        ):
            return events.TRUSTED_RELATIONS
        return ()
    if isinstance(event, _WRAPPERS):
        return neighboring_relations(event.event)
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        of_one = (events.Relation.REPLACE_ONE,)
        return of_one if of_one[0] in neighboring_relations(event.event) else ()
    common: events.Relations = tuple(events.NAMES)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            own = neighboring_relations(part)
            common = tuple(r for r in common if r in own)
        return common
    # Those under which dp_accounting accounts for a release of its own.
    theirs = (r for r in common if _THEIR_ACCOUNTANT([2.0], r).supports(event))
    return tuple(theirs) or common
