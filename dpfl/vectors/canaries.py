# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The updates of canaries, which audit a run, as functions of their keys.

    vector = canaries.update(key, dimension, length=8.0)

A canary that is in sends a random direction, one of 2^d by fair signs; its own fair
coin says whether it is in, and otherwise it sends zeros. Nothing is stored: from its
key any library makes both.
"""

from __future__ import annotations

import math

import numpy as np

from dpfl import arrays, seed_domains
from dpfl.arrays import Array
from dpfl.vectors import randomness

_BITS = np.arange(32, dtype=np.int32)


def update(key: Array, dimension: int, length: float) -> Array:
    """A canary's update, float32[d].

    Args:
      key: int64[2], the canary's key as a client.
      dimension: d.
      length: The L2 norm of a canary that is in.
    """
    nx, each = arrays.of(key), np.float32(length / math.sqrt(dimension))
    coin = nx.bitwise_and(_words(key, 1)[0], 1)
    return signs(key, dimension) * nx.asarray(coin, np.float32) * each


def signs(key: Array, dimension: int) -> Array:
    """A canary's direction, float32[d], each of +1 or -1."""
    nx, words = arrays.of(key), _words(key, 1 - -dimension // len(_BITS))
    shifted = nx.right_shift(nx.reshape(words[1:], [-1, 1]), _BITS)
    bits = nx.reshape(nx.bitwise_and(shifted, 1), [-1])[:dimension]
    return nx.asarray(1 - 2 * bits, np.float32)


def is_in(key: Array) -> bool:
    """The coin of a canary."""
    return bool(_words(key, 1)[0] & 1)


def _words(key: Array, count: int) -> Array:
    """int32[count], the first for the coin."""
    seed = randomness.fold_in(key, seed_domains.ClientKeyDomain.CANARY)
    return arrays.of(seed).random_words(seed, count, np.int32)
