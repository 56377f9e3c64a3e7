# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random numbers as functions of a seed, and seeds as functions of other seeds.

A seed is an int64[2] tensor. The generator is named in every call (Philox4x32-10,
Salmon et al. 2011), so that the same seed gives the same numbers on client and server
whatever their hardware.

Philox is a family of permutations of 128 bits, one for each key of 64 bits. It is used
in two ways, with the following guarantees:

  * Numbers: TensorFlow enciphers the seed, under a key that never changes, to a key and
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

import tensorflow as tf

from dpfl.vectors import philox

# Philox, as TensorFlow's operations number it.
_ALGORITHM = 1
# A file that has another 122 bits of Linux's random generator at each read.
_KERNEL_ENTROPY = "/proc/sys/kernel/random/uuid"
# Positions of 16 hexadecimal digits of a line, none of them fixed: 64 bits.
_RANDOM_DIGITS = (*range(4), *range(24, 36))
# Length of a line without its end.
_LINE_LENGTH = 36


def fold_in(seed: tf.Tensor, *data: Any) -> tf.Tensor:
    """Derives a new seed, int64[2], from a seed and integers.

    Integers, or scalar tensors, are folded in one after the other. For one seed, or for
    seeds with the same first word, the results differ whenever the pairs (value, second
    word) differ.
    """
    seed = tf.convert_to_tensor(seed, tf.int64)
    for value in data:
        first, second = tf.unstack(seed)
        counter = tf.stack([tf.cast(value, tf.int64), second])
        key = tf.bitcast(tf.stack([first]), tf.uint64)
        seed = _enciphered(counter, key, tf.int64)
    return seed


def _enciphered(counter: tf.Tensor, key: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Enciphers a counter of int64[2] under a key of uint64[1] to two words."""
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[2],
        key=key,
        counter=tf.bitcast(counter, tf.uint64),
        alg=_ALGORITHM,
        dtype=dtype,
    )


def _drawn(operation: Any, shape: Any, seed: tf.Tensor, **more: Any) -> tf.Tensor:
    """Draws as `tf.random.stateless_*` does, which takes far longer to be traced.

    `StatelessRandomGetKeyCounter`, TensorFlow's shorter way from a seed to a key, is
    not used: compiled by XLA, it gives another key.
    """
    seed_key = tf.constant([philox.SEED_KEY], tf.uint64)
    mixed = _enciphered(tf.convert_to_tensor(seed, tf.int64), seed_key, tf.uint64)
    key, upper = tf.unstack(mixed)
    counter = tf.stack([tf.constant(0, tf.uint64), upper])
    key = tf.stack([key])
    return operation(shape=shape, key=key, counter=counter, alg=_ALGORITHM, **more)


def fresh_seed() -> tf.Tensor:
    """Reads 128 bits of the kernel's entropy, int64[2], fresh at each execution.

    An operation of tf.data reads Linux's random generator, since TFF's worker has no
    Python. `NonDeterministicInts` and every other operation of TensorFlow that draws a
    seed are unsuitable: they take numbers from one Mersenne Twister a process (or a
    thread), which is seeded with 32 bits, so that all clients of a worker share 32
    bits.

    Raises:
      tf.errors.NotFoundError: When it runs, if the system has no such file.
    """
    lines = tf.data.TextLineDataset([_KERNEL_ENTROPY, _KERNEL_ENTROPY])
    both = lines.batch(2, drop_remainder=True).get_single_element()
    codes = tf.cast(tf.io.decode_raw(both, tf.uint8), tf.int64)
    codes = tf.ensure_shape(codes, [2, _LINE_LENGTH])
    digits = tf.gather(codes, _RANDOM_DIGITS, axis=1)
    digits = tf.where(digits < ord("a"), digits - ord("0"), digits - ord("a") + 10)
    shifts = tf.range(0, 64, 4, tf.int64)
    return tf.reduce_sum(tf.bitwise.left_shift(digits, shifts), axis=1)


def standard_normal(seed: tf.Tensor, length: int) -> tf.Tensor:
    """Independent N(0, 1), float32[length]."""
    return _drawn(tf.raw_ops.StatelessRandomNormalV2, [length], seed)


def rademacher(seed: tf.Tensor, length: int) -> tf.Tensor:
    """Independent signs, float32[length], +1 or -1 with equal probability."""
    return tf.where(random_bits(seed, [length], tf.int32) < 0, -1.0, 1.0)


def uniform(seed: tf.Tensor, length: int, dtype: tf.DType = tf.float64) -> tf.Tensor:
    """Floats uniform over the multiples of 2**-52 in [0, 1); of 2**-23 for float32.

    Args:
      seed: int64[2].
      length: Number of floats.
      dtype: tf.float64 or tf.float32.
    """
    return _drawn(tf.raw_ops.StatelessRandomUniformV2, [length], seed, dtype=dtype)


def below(seed: tf.Tensor, length: int, bound: int) -> tf.Tensor:
    """Independent integers, int64[length], uniform from 0 to before a bound.

    Args:
      seed: int64[2].
      length: Number of integers.
      bound: The exclusive bound.
    """
    limits = {"minval": tf.constant(0, tf.int64), "maxval": tf.cast(bound, tf.int64)}
    return _drawn(tf.raw_ops.StatelessRandomUniformIntV2, [length], seed, **limits)


def random_bits(seed: tf.Tensor, shape: Any, dtype: tf.DType) -> tf.Tensor:
    """Integers whose bits are fair and independent.

    Args:
      seed: int64[2].
      shape: Shape of the result.
      dtype: Integer dtype of the result.
    """
    operation = tf.raw_ops.StatelessRandomUniformFullIntV2
    return _drawn(operation, shape, seed, dtype=dtype)
