# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Seeds and random words in numpy, bit for bit those of `dpfl.vectors.randomness`.

    seed = philox.seed_from_int(7, "noise")
    words = philox.random_words(philox.fold_in(seed, 3), 4)

That module states the properties and assumptions of Philox4x32-10. Here it is written
out for programs without TensorFlow.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np

from dpfl import checks

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
ROUNDS = 10
_WORD = 0xFFFFFFFF
_SHIFT = np.uint64(32)
# The key under which TensorFlow enciphers a seed to a key and the upper half of a
# counter.
SEED_KEY = 0x02461E293EC8F720
# Blocks enciphered at a time, so that they stay in the cache.
_BLOCKS = 1 << 13


def seed_from_int(seed: int, identity: str = "") -> tuple[int, int]:
    """The two words of a seed, as int64, from an integer of at most 126 bits.

    They are a part of the SHA-256 of both arguments, so that even contrived seeds are
    unrelated. The `identity` is a text of everything else that the use of the seed
    depends on: two uses of one integer with different identities are independent.

    Raises:
      TypeError: If `seed` is not an integer.
      ValueError: If it is negative or too large.
    """
    seed = checks.integer("seed", seed, 0, 2**126 - 1)
    text = f"dpfl seed:{seed}:{identity}"
    digest = hashlib.sha256(text.encode()).digest()
    first, second = struct.unpack_from(">qq", digest)
    return first, second


def fold_in(seed: Any, *data: int) -> np.ndarray:
    """A new seed, int64[2]; see `randomness.fold_in`."""
    seed = np.asarray(seed, np.int64)
    for value in data:
        [seed] = fold_in_each(seed, np.array([int(value)], np.int64))
    return seed


def random_words(seed: Any, count: int) -> np.ndarray:
    """Fair and independent bits, uint32[count], those of `in_tensorflow`."""
    seed_key = _halves(np.array([SEED_KEY]))
    own = _encipher(_halves(np.asarray(seed, np.int64))[:, np.newaxis], seed_key)
    key, upper = own[:2, 0], own[2:, 0]
    blocks = -(-count // 4)
    words = np.empty((blocks, 4), np.uint32)
    for begin in range(0, blocks, _BLOCKS):
        part = np.arange(begin, min(begin + _BLOCKS, blocks), dtype=np.uint64)
        counter = np.zeros((4, len(part)), np.uint32)
        counter[0], counter[1] = part & np.uint64(_WORD), part >> _SHIFT
        counter[2:] = upper[:, np.newaxis]
        words[begin : begin + len(part)] = _encipher(counter, key).T
    return words.reshape(-1)[:count]


def fold_in_each(seed: Any, values: np.ndarray) -> np.ndarray:
    """The seeds `fold_in(seed, value)` of many values, int64[n, 2]."""
    seed = np.asarray(seed, np.int64)
    counters = np.stack([values, np.full(len(values), seed[1])], -1).astype(np.int64)
    words = _encipher(_halves(counters).reshape(-1, 4).T, _halves(seed[:1]))
    return np.ascontiguousarray(words.T).view("<i8").astype(np.int64)


def words_of_each(seeds: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The words `random_words(seed, count)` of many seeds, one after the other.

    Args:
      seeds: int64[n, 2].
      counts: int64[n], at least 0.

    Returns:
      uint32[sum of counts].
    """
    own = _encipher(_halves(seeds).reshape(-1, 4).T, _halves(np.array([SEED_KEY])))
    blocks = -(-counts // 4)
    owner = np.repeat(np.arange(len(counts)), blocks)
    ends = np.cumsum(blocks)
    block = np.arange(len(owner)) - np.repeat(ends - blocks, blocks)
    counter = np.zeros((4, len(owner)), np.uint32)
    counter[0], counter[2:] = block, own[2:, owner]
    words = _encipher(counter, own[:2, owner]).T.reshape(-1)
    place = np.arange(4 * len(owner)) - np.repeat(4 * (ends - blocks), 4 * blocks)
    return words[place < np.repeat(counts, 4 * blocks)]


def _halves(words: np.ndarray) -> np.ndarray:
    """Splits int64[...] into uint32[2 n], the lower half first."""
    flat = np.ascontiguousarray(words, "<i8").reshape(-1)
    return flat.view("<u4").astype(np.uint32)


def _encipher(counter: np.ndarray, key: Any) -> np.ndarray:
    """Applies Philox4x32-10 (Salmon et al. 2011) to uint32[4, n].

    Args:
      counter: uint32[4, n].
      key: uint32[2], or uint32[2, n] with a key for each.
    """
    c0, c1, c2, c3 = counter
    # 64 bits, whose lower halves do not overflow.
    k0, k1 = np.asarray(key).astype(np.uint64)
    for _ in range(ROUNDS):
        first = c0.astype(np.uint64) * MULTIPLIERS[0]
        second = c2.astype(np.uint64) * MULTIPLIERS[1]
        c0 = (second >> _SHIFT).astype(np.uint32) ^ c1 ^ k0.astype(np.uint32)
        c1 = second.astype(np.uint32)
        c2 = (first >> _SHIFT).astype(np.uint32) ^ c3 ^ k1.astype(np.uint32)
        c3 = first.astype(np.uint32)
        k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
    return np.stack([c0, c1, c2, c3])
