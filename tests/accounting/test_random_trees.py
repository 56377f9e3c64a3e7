# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random trees of events against numerical integration."""

import fractions
import functools
import math
import random
from collections import Counter

import dp_accounting
import numpy as np
import pytest

from dpfl import accounting
from tests.accounting.event_names import (
    ADD,
    COMPOSED,
    GAUSSIAN,
    L2,
    POISSON,
    SELF,
    ZEROS,
)

NOTHING = dp_accounting.NoOpDpEvent()

# Releases are (share, shift): (1 - share) N(0, 1) + share N(shift, 1) against N(0, 1).
# What a few hundred trees cost is integrated numerically, without a formula that dpfl or
# dp_accounting has.
ORDERS = (1.5, 2.0, 3.25, 8.0, 32.0)
NOISES = (1, 2, 3, 5, 0.7, 1.5, 2.25, 40)
KINDS = (int, float, np.float64, np.int64, np.uint8, fractions.Fraction)


def number(rng, value):
    """The value as a number of some kind that has it."""
    return rng.choice([kind for kind in KINDS if kind(value) == value])(value)


def whole(rng, value):
    return rng.choice([int, np.int64, np.uint8])(value)


def gaussians(rng, depth):
    """A tree of Gaussians alone, and the sum of their squared shifts."""
    z = rng.choice(NOISES)
    kind = rng.randrange(5) if depth else rng.randrange(2)
    if kind == 0:
        return GAUSSIAN(number(rng, z)), z**-2
    if kind == 1:
        return L2(number(rng, z), 1, 1.0, 1), z**-2
    if kind == 2:
        inside, square = gaussians(rng, depth - 1)
        return SELF(inside, whole(rng, kind)), 2 * square
    if kind == 3:
        inside, square = gaussians(rng, depth - 1)
        return accounting.RunDpEvent(inside, (ADD, ZEROS)), square
    parts = [gaussians(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    events_of_parts = rng.choice([list, tuple])(event for event, _ in parts)
    return COMPOSED(events_of_parts), sum(square for _, square in parts)


def tree(rng, depth):
    """A tree for adding and removing, and how often each release is in it."""
    kind = rng.randrange(6) if depth else rng.randrange(4)
    share = rng.choice([0.01, 0.25, 0.5])
    if kind < 2:
        inside, square = gaussians(rng, 2)
        return POISSON(number(rng, share), inside), Counter({(share, square**0.5): 1})
    if kind == 2:
        inside, square = gaussians(rng, 1)
        return inside, Counter({(1.0, square**0.5): 1})
    if kind == 3:
        # One coordinate that is kept at random, of clients that join at random.
        z, keep = rng.choice(NOISES), rng.choice([0.25, 0.5])
        masked = L2(number(rng, z), keep, 1, 1, 0.5)
        shift = 1 / (z * keep)
        return POISSON(number(rng, share), masked), Counter(
            {(share * keep / 2, shift): 1}
        )
    if kind == 4:
        inside, found = tree(rng, depth - 1)
        count = rng.randrange(1, 4)
        return SELF(inside, whole(rng, count)), Counter(
            {r: n * count for r, n in found.items()}
        )
    parts = [tree(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    total = sum((found for _, found in parts), Counter())
    return COMPOSED([event for event, _ in parts] + [NOTHING]), total


def log_mixture(x, weights_and_means):
    logs = [math.log(w) - (x - m) ** 2 / 2 for w, m in weights_and_means if w]
    return np.logaddexp.reduce(logs) - 0.5 * math.log(2 * math.pi)


@functools.cache
def moments(first, second):
    """log E_second (first / second)^order, by equal steps."""
    means = [m for _, m in (*first, *second)]
    far = ORDERS[-1] * (max(means) - min(means)) + 14
    x = np.arange(min(means) - far, max(means) + far, 0.02)
    p, q = (log_mixture(x, law) for law in (first, second))
    logs = [order * p + (1 - order) * q for order in ORDERS]
    return np.array([np.logaddexp.reduce(log) + math.log(0.02) for log in logs])


def pair(share, shift):
    return ((1 - share, 0.0), (share, shift)), ((1.0, 0.0),)


def exact_rdp(releases, make=pair):
    """The larger one of both directions, of all releases together."""
    both = np.zeros((2, len(ORDERS)))
    for release, count in releases.items():
        laws = make(*release)
        both += count * np.array([moments(*laws), moments(*laws[::-1])])
    return both.max(axis=0) / (np.array(ORDERS) - 1)


@pytest.mark.parametrize("seed", range(100))
def test_trees_against_integration(seed):
    event, releases = tree(random.Random(seed), 2)
    exact = exact_rdp(releases)
    found = accounting.DpflAccountant(ORDERS).compose(event).rdp
    assert np.all(found >= exact * (1 - 1e-9) - 1e-12)
    is_whole = np.array(ORDERS) % 1 == 0
    if "keep_fraction=0" not in repr(event):
        is_whole[:] = True
    # Between whole orders chords bound what is masked.
    np.testing.assert_allclose(found[is_whole], exact[is_whole], rtol=1e-7, atol=1e-11)
    assert np.all(np.diff(found) >= 0)
