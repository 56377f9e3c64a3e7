# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sums of clients' messages, in the open or secure, and shares of integer noise."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from dpfl.vectors import integer_noise, randomness


class IntegerShares:
    """Shares of integer noise, many of which make up the noise of a round's sum."""

    def __init__(self, kind: str, stddev: float):
        """Makes shares of a kind, "discrete_gaussian" or "skellam".

        The `stddev` of one share is in grid steps; zero means no noise.
        """
        self._sampler: Optional[integer_noise.Sampler] = None
        if stddev:
            self._sampler = integer_noise.NOISE[kind](stddev)

    def sample(
        self, seed: tf.Tensor, domain: int, number: int, length: int
    ) -> tf.Tensor:
        """The sum of `number` shares, int32[length].

        Args:
          seed: int64[2], secret.
          domain: Domain of the seed.
          number: Number of shares; zeros for 0.
          length: Length of the vector.
        """
        total, sampler = tf.zeros([length], tf.int32), self._sampler
        if sampler is None or not number:
            return total
        if number == 1:
            return sampler.sample(randomness.fold_in(seed, domain), length)

        def add_share(share: tf.Tensor, total: tf.Tensor) -> tuple[Any, Any]:
            own = randomness.fold_in(seed, domain, share)
            return share + 1, total + sampler.sample(own, length)

        return tf.while_loop(
            lambda share, _: share < number, add_share, [tf.constant(0), total]
        )[1]


def opened(total: Any, clients: tf.Tensor, needed: int) -> Any:
    """Opens a sum once it is certain to carry the promised noise.

    Args:
      total: Structure of tensors, the sum.
      clients: Integer scalar, the clients that reported, each with a share of noise.
      needed: Shares that the promised noise needs; 0 for none.

    Raises:
      InvalidArgumentError: When it runs, if fewer clients reported.
    """
    check = tf.debugging.Assert(
        clients >= needed,
        [f"the sum needs reports of at least {needed} clients, but their number is"]
        + [tf.cast(clients, tf.int32)],
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.nest.map_structure(tf.identity, total)


# Function from the pair of messages and scalars at the clients to the pair of totals at
# the server.
Reduction = Callable[[tff.Value], tff.Value]
# Function from totals of groups of clients, each at a TFF client, to the total at the
# server.
GroupReduction = Callable[[tff.Value], tff.Value]
# Bits of the modulus of a count of clients.
_COUNT_BITS = 30
_HALF = 0xFFFFFFFF


def counted(seed: tf.Tensor) -> tf.Tensor:
    """The halves of a seed's words, and 1: int64[5] of which sums are exact."""
    low = tf.bitwise.bitwise_and(seed, tf.constant(_HALF, tf.int64))
    high = tf.bitwise.right_shift(seed, tf.constant(32, tf.int64))
    high = tf.bitwise.bitwise_and(high, tf.constant(_HALF, tf.int64))
    return tf.concat([low, high, [1]], 0)


def common_seed(total: tf.Tensor) -> tf.Tensor:
    """The seed that clients have in common, from the sum of `counted`; 0 for none."""
    low, high = tf.split(total[:4] // tf.maximum(total[4], 1), 2)
    high = tf.bitwise.left_shift(high, tf.constant(32, tf.int64))
    return tf.bitwise.bitwise_or(high, low)


def sum_seeds(seeds: tff.Value) -> tff.Value:
    """The sum of `counted` of the clients' seeds, int64[2], at a trusted server."""
    return _aggregation(
        lambda: tf.zeros([5], tf.int64),
        lambda total, seed: total + counted(seed),
        lambda total, other: total + other,
        seeds.type_signature.member,
    )(seeds)


def open_sums(codec: Any, message_type: tff.Type, sums_type: tff.Type) -> Reduction:
    """A reduction by one `tff.federated_aggregate`, which the server may see.

    Args:
      codec: The `codec.Codec` that adds messages up.
      message_type: TFF type of a message.
      sums_type: TFF type of the float64 scalars to be summed beside it.
    """
    names = tff.structure.name_list(sums_type)

    def zero() -> Any:
        no_sums = [(name, tf.zeros([], tf.float64)) for name in names]
        return codec.zero(), collections.OrderedDict(no_sums)

    def accumulate(total: Any, encoded: Any) -> Any:
        sums = tf.nest.map_structure(tf.add, total[1], encoded[1])
        return codec.accumulate(total[0], encoded[0]), sums

    def merge(total: Any, other: Any) -> Any:
        sums = tf.nest.map_structure(tf.add, total[1], other[1])
        return codec.merge(total[0], other[0]), sums

    return _aggregation(zero, accumulate, merge, tff.to_type((message_type, sums_type)))


def open_group_sums(codec: Any, total_type: tff.Type) -> GroupReduction:
    """A reduction of groups' totals, of a TFF type, which the server may see."""

    def merge(total: Any, other: Any) -> Any:
        return codec.merge(total, other)

    return _aggregation(codec.zero, merge, merge, total_type)


def _aggregation(
    zero: Callable[[], Any],
    accumulate: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any],
    value_type: tff.Type,
) -> Callable[[tff.Value], tff.Value]:
    first = tff.tensorflow.computation(zero)
    total_type = first.type_signature.result
    add = tff.tensorflow.computation(accumulate, total_type, value_type)
    join = tff.tensorflow.computation(merge, total_type, total_type)
    report = tff.tensorflow.computation(lambda total: total, total_type)
    return lambda values: tff.federated_aggregate(values, first(), add, join, report)


def secure_sums(
    modulus_bits: Mapping[str, int], sums_type: tff.Type, counts: Sequence[str]
) -> Reduction:
    """Secure sums modulo 2^b, all that the server sees, and secure sums of counts.

    The reduction modulo 2^b is part of the secure sum. A sum over the integers would
    tell, for each coordinate, how many clients' residues wrapped.

    Scalars other than counts are exact measurements, which only a simulation may ask
    for; they are summed in the open, and the counts with them.

    Args:
      modulus_bits: b of each part of the message, by name, in the message's order; at
        most 30 for int32, 62 for int64.
      sums_type: TFF type of the float64 scalars to be summed beside it.
      counts: The names of those that are whole numbers at least 0, and below 2^30 in
        all.
    """
    names = tff.structure.name_list(sums_type)

    def as_type(dtype: tf.DType, kind: tff.Type) -> Any:
        return tff.tensorflow.computation(
            lambda sums: tf.nest.map_structure(lambda s: tf.cast(s, dtype), sums), kind
        )

    to_counts = as_type(tf.int32, sums_type)
    from_counts = as_type(tf.float64, to_counts.type_signature.result)

    def reduce(encoded: tff.Value) -> tff.Value:
        message, sums = encoded[0], encoded[1]
        totals = _modular_sums(message, modulus_bits)
        if not names:
            beside = tff.federated_value(collections.OrderedDict(), tff.SERVER)
        elif set(names) <= set(counts):
            residues = tff.federated_map(to_counts, sums)
            opened = _modular_sums(residues, dict.fromkeys(names, _COUNT_BITS))
            beside = tff.federated_map(from_counts, tff.federated_zip(opened))
        else:
            beside = tff.federated_sum(sums)
        return tff.federated_zip((totals, beside))

    return reduce


def secure_group_sums(modulus_bits: Mapping[str, int]) -> GroupReduction:
    """A secure reduction of groups' residues modulo 2^b; see `secure_sums`."""
    return lambda totals: tff.federated_zip(_modular_sums(totals, modulus_bits))


def _modular_sums(
    parts: tff.Value, modulus_bits: Mapping[str, int]
) -> collections.OrderedDict:
    summed = collections.OrderedDict()
    for name, bits in modulus_bits.items():
        # TFF asks for the modulus in the type of what is summed.
        modulus = parts[name].type_signature.member.dtype.type(1 << bits)
        summed[name] = tff.backends.mapreduce.federated_secure_modular_sum(
            parts[name], modulus
        )
    return summed
