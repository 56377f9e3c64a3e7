# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random numbers as functions of a seed, and seeds as functions of other seeds.

A seed is an int64[2] array of any library of `dpfl.arrays`. The generator is always
Philox4x32-10 (Salmon et al. 2011), so that the same seed gives the same numbers on
client and server whatever their library and hardware.

Philox is a family of permutations of 128 bits, one for each key of 64 bits. It is used
in two ways, with the following guarantees:

  * Numbers: the seed is enciphered, under a key that never changes, to a key and
    the upper half of a counter; the lower half counts blocks of 128 bits. So no two
    seeds, and no two places under one seed, ever encipher the same counter under the
    same key.
  * Seeds from seeds: `fold_in` enciphers (value, second word) under the first word, 192
    bits in and none of them lost. So seeds made from one first word never coincide,
    whatever the second words and the values are, unless both are equal.

The assumption is that Philox cannot be told from random permutations, and that the
first seed is itself as good as random: `philox.seed_from_int` makes it by SHA-256, so
that nobody can choose two whose seeds meet. Philox is a statistical generator and has
not been examined as a cipher; with fewer than 2**64 seeds in all, two that are random
meet by chance with a probability below one half.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl import arrays
from dpfl.arrays import Array


def fold_in(seed: Array, *data: Any) -> Array:
    """Derives a new seed, int64[2], from a seed and integers.

    Integers, or scalar arrays, are folded in one after the other. For one seed, or for
    seeds with the same first word, the results differ whenever the pairs (value, second
    word) differ.
    """
    nx = arrays.of(seed)
    for value in data:
        seed = nx.fold_in(seed, value)
    return seed


def rademacher(seed: Array, length: int) -> Array:
    """Independent signs, float32[length], +1 or -1 with equal probability."""
    nx, one = arrays.of(seed), np.float32(1)
    return nx.where(nx.random_words(seed, length, np.int32) < 0, -one, one)
