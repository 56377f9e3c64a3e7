# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""A Gaussian release that stands for masked coordinates, but for a small probability.

Coordinates are kept at random with probability gamma, and Gaussian noise is added. Run
the noise of coordinate j as a Brownian motion for the time t_j, its squared shift over
the noise's variance, and let p_j be the posterior probability that it was kept. The
likelihood ratio x of 'with the client' to 'without' is a martingale, dx = x sum_j p_j
dB_j, with the clock V = sum_j int p_j^2. Stopped where V reaches V*, x is in convex
order at most the ratio of a Gaussian of noise multiplier V*^(-1/2). Hence every
hockey-stick of the release is at most that Gaussian's plus P(V > V*), in both
directions. By Chernoff's bound

  P(V > V*) <= exp(K h_s(t) - s V*),    h_s(t) = log E_P exp(s int_0^t p^2),

K coordinates of the time t being the worst there can be, since h_s is convex in t.
docs/privacy/masked_loss.md has the proofs.

p is a martingale under P. `_log_exponential` bounds h_s from above: in each of n steps
the integral is taken to be the step times the last p^2, and functions of p, all of
them convex, are replaced by their interpolation between nodes, of which the
expectation is exact. Both only ever add.
"""

from __future__ import annotations

import functools
import math
from typing import Optional

import attr
import dp_accounting
import numpy as np
from scipy import special

from dpfl.accounting import adjacency, csgm, gaussian

# Steps in time; each adds at most 1/n of how much V grows by its own spread.
_STEPS = 64
# Nodes to a standard deviation of a step, and the range in standard deviations of all.
_NODES = 3
_BELOW, _ABOVE = 9.0, 24.0
# Exponents s of Chernoff's bound, as multiples of 1/t. float64 ends at exp(709).
_EXPONENTS = np.geomspace(0.1, 600.0, 40)
# Times outside of these are bounded by what holds at the ends.
_SHORTEST, _LONGEST = 1e-6, 1e3
# Allowance for rounding, in all steps together.
_ROUNDING = 1e-10
# The part of delta that the clocks may take, all releases together.
_SHARE = 0.01


def _nodes(keep: float, time: float) -> np.ndarray:
    """Returns nodes from 0 to 1 in equal steps of the logit, keep among them; [m]."""
    step = math.sqrt(time / _STEPS) / _NODES
    count = _STEPS**0.5 * _NODES
    below, above = math.ceil(_BELOW * count), math.ceil(_ABOVE * count)
    center = math.log(keep) - math.log1p(-keep)
    logits = center + step * np.arange(-below, above + 1)
    # Beyond these a posterior is 0 or 1 in float64, or nearly.
    logits = logits[(logits > -600) & (logits < 30)]
    return np.concatenate([[0.0], special.expit(logits), [1.0]])


def _transition(nodes: np.ndarray, time: float) -> np.ndarray:
    """Returns E of the hat function of each node, from each node, after a time; [m, m].

    From p, the posterior stays at most c with the probability of log w <= logit c -
    logit p, and E[p; p <= c] is that probability with the coordinate kept, times p.
    """
    inner = nodes[1:-1]
    logit = special.logit(inner)
    gap = np.subtract.outer(logit, logit).T
    root = math.sqrt(time)
    p = inner[:, None]
    kept = p * special.ndtr(gap / root - root / 2)
    lost = (1 - p) * special.ndtr(gap / root + root / 2)
    zero = np.zeros((inner.size, 1))
    kept = np.hstack([zero, kept, p])
    mass = np.diff(kept + np.hstack([zero, lost, 1 - p]), axis=1)
    mean = np.diff(kept, axis=1)
    widths = np.diff(nodes)
    upper = np.clip(mean - nodes[:-1] * mass, 0, None) / widths
    upper = np.minimum(upper, mass)
    lower = mass - upper
    result = np.zeros((nodes.size, nodes.size))
    result[1:-1, 1:] += upper
    result[1:-1, :-1] += lower
    result[0, 0] = result[-1, -1] = 1.0
    return result


@functools.lru_cache(maxsize=256)
def _log_exponential(keep: float, time: float) -> np.ndarray:
    """Returns bounds on h_s(time) from above at s = _EXPONENTS / time."""
    nodes = _nodes(keep, time)
    transition = _transition(nodes, time / _STEPS)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        growth = np.exp(np.square(nodes)[:, None] * _EXPONENTS / _STEPS)
        values = np.ones_like(growth)
        for _ in range(_STEPS):
            values = transition @ (growth * values)
        # The node of keep, or if rounding has moved it the one above: values rise in p.
        found = values[np.searchsorted(nodes, keep * (1 - 1e-12))]
        result = np.log(found) + _ROUNDING
    return np.where(np.isfinite(result), result, np.inf)


def clock_bound(
    keep_fraction: float, time: float, full_coordinates: float, delta: float
) -> float:
    """Returns a V* with P(V > V*) <= delta.

    Args:
      keep_fraction: gamma, in (0, 1).
      time: t, (a coordinate's bound / noise std)^2, greater than 0.
      full_coordinates: K, how many coordinates the L2 bound lets stand at their bound.
      delta: Greater than 0.

    Returns:
      V*, at most the K t of a release that keeps everything.
    """
    everything = full_coordinates * time
    if not time < _LONGEST:
        return everything
    # Convex in the time and 0 at 0: below the shortest it is at most its share.
    base = max(time, _SHORTEST)
    share = full_coordinates * (time / base)
    bounds = share * _log_exponential(keep_fraction, base) - math.log(delta)
    return min(float(np.min(bounds / (_EXPONENTS / base))), everything)


def _sampled(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    """Returns the event that Poisson sampling around one of dpfl's means."""
    if not isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return event
    if not isinstance(event.event, csgm.SparsifiedDpEvent):
        return event
    return event.event.poisson_sampled(event.sampling_probability) or event


def _masked_releases(event: dp_accounting.DpEvent) -> int:
    """Returns how many releases of a tree drop coordinates."""
    event = _sampled(event)
    if isinstance(event, adjacency.RunDpEvent):
        return _masked_releases(event.event)
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return event.count * _masked_releases(event.event)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return sum(_masked_releases(part) for part in event.events)
    return int(isinstance(event, csgm.SparsifiedDpEvent) and event.keep_fraction < 1)


def _stand_in(event: dp_accounting.DpEvent, delta: float) -> dp_accounting.DpEvent:
    """Returns the tree with a (sampled) Gaussian for each release that drops some.

    Args:
      event: A tree of events.
      delta: What each of these releases may be off, as a probability.
    """
    if isinstance(event, adjacency.RunDpEvent):
        return attr.evolve(event, event=_stand_in(event.event, delta))
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return attr.evolve(event, event=_stand_in(event.event, delta))
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return attr.evolve(event, events=[_stand_in(e, delta) for e in event.events])
    event = _sampled(event)
    if not _masked_releases(event):
        return event
    if not isinstance(event, csgm.SparsifiedDpEvent) or not event.noise_multiplier:
        return dp_accounting.NonPrivateDpEvent()
    time = (event.linf_ratio / (event.noise_multiplier * event.keep_fraction)) ** 2
    clock = clock_bound(event.keep_fraction, time, event.full_coordinates, delta)
    plain = dp_accounting.GaussianDpEvent(clock**-0.5)
    q = getattr(event, "sampling_probability", 1.0)
    return plain if q == 1 else dp_accounting.PoissonSampledDpEvent(q, plain)


def masked_epsilon(
    event: dp_accounting.DpEvent, delta: float
) -> Optional[tuple[float, str]]:
    """Returns an epsilon of a tree in which some releases drop coordinates.

    Args:
      event: Any event.
      delta: In (0, 1).

    Returns:
      As `gaussian.tight_epsilon` of the Gaussians that stand for them, at what of
      `delta` their clocks leave, with 'stopped-' before the method; None if nothing is
      dropped, or the tree holds any event that is not a (masked) Gaussian.
    """
    count = _masked_releases(event)
    if not count:
        return None
    found = gaussian.tight_epsilon(
        _stand_in(event, _SHARE * delta / count), (1 - _SHARE) * delta
    )
    return None if found is None else (found[0], f"stopped-{found[1]}")
