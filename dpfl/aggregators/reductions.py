# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sums of clients' messages in TFF, in the open or secure.

    reduce = reduction(codec, message_type, sums_type)
    sums = reduce(messages)  # of clients, at the server

The codec says which parts are summed securely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from dpfl.codecs.base import Codec, Fields

# Function from values at the clients to their total at the server.
Reduction = Callable[[tff.Value], tff.Value]
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
    return aggregation(
        lambda: tf.zeros([5], tf.int64),
        lambda total, seed: total + counted(seed),
        lambda total, other: total + other,
        seeds.type_signature.member,
    )(seeds)


def reduction(codec: Codec, message_type: tff.Type, sums_type: tff.Type) -> Reduction:
    """The sum of the clients' messages, as a function on federated values.

    Parts of a message that the codec sums securely are summed modulo 2^b; the others
    are summed in the open.

    Args:
      codec: The mechanism's codec.
      message_type: TFF type of `Encoded.message`.
      sums_type: TFF type of the float64 scalars to be summed beside it.

    Returns:
      A function, called inside a federated computation, from the pair of both at the
      clients to the pair of their totals at the server.
    """
    if codec.sums_securely:
        return secure_sums(codec.modulus_bits, sums_type, codec.needed_sums)
    return open_sums(codec, message_type, sums_type)


def group_reduction(codec: Codec, total_type: tff.Type) -> Reduction:
    """The sum of the totals of groups of clients, as `reduction` is of messages.

    Args:
      codec: The mechanism's codec.
      total_type: TFF type of the result of `Codec.reduce_modulo`.

    Returns:
      A function, called inside a federated computation, from the totals at TFF's
      clients, each of which stands for a group, to that of all at the server.
    """
    if codec.sums_securely:
        bits = codec.modulus_bits
        return lambda totals: tff.federated_zip(_modular_sums(totals, bits))

    # TFF takes no function of any number of arguments, as a wrapper's methods are.
    def zero() -> Any:
        return codec.zero()

    def merge(total: Any, other: Any) -> Any:
        return codec.merge(total, other)

    return aggregation(zero, merge, merge, total_type)


def open_sums(codec: Codec, message_type: tff.Type, sums_type: tff.Type) -> Reduction:
    """A reduction by one `tff.federated_aggregate`, which the server may see.

    Args:
      codec: The codec that adds messages up.
      message_type: TFF type of a message.
      sums_type: TFF type of the float64 scalars to be summed beside it.
    """
    names = tff.structure.name_list(sums_type)

    def zero() -> Any:
        no_sums = [(name, tf.zeros([], tf.float64)) for name in names]
        return codec.zero(), Fields(no_sums)

    def accumulate(total: Any, encoded: Any) -> Any:
        sums = tf.nest.map_structure(tf.add, total[1], encoded[1])
        return codec.accumulate(total[0], encoded[0]), sums

    def merge(total: Any, other: Any) -> Any:
        sums = tf.nest.map_structure(tf.add, total[1], other[1])
        return codec.merge(total[0], other[0]), sums

    return aggregation(zero, accumulate, merge, tff.to_type((message_type, sums_type)))


def aggregation(
    zero: Callable[[], Any],
    accumulate: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any],
    value_type: tff.Type,
    total_type: Optional[tff.Type] = None,
) -> Reduction:
    """A reduction by one `tff.federated_aggregate`.

    Args:
      zero: Function to the first total.
      accumulate: Function from a total and a value to a total.
      merge: Function from two totals to one.
      value_type: TFF type of a value.
      total_type: TFF type of a total; None for that of `zero`.
    """
    first = tff.tensorflow.computation(zero)
    total_type = total_type or first.type_signature.result
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
      modulus_bits: b of the parts of a message that are summed securely, by name; at
        most 30 for int32, 62 for int64. The others are summed in the open.
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
            beside = tff.federated_value(Fields(), tff.SERVER)
        elif set(names) <= set(counts):
            residues = tff.federated_map(to_counts, sums)
            opened = _modular_sums(residues, dict.fromkeys(names, _COUNT_BITS))
            beside = tff.federated_map(from_counts, tff.federated_zip(opened))
        else:
            beside = tff.federated_sum(sums)
        return tff.federated_zip((totals, beside))

    return reduce


def _modular_sums(parts: tff.Value, modulus_bits: Mapping[str, int]) -> Fields:
    summed = Fields()
    for name in tff.structure.name_list(parts.type_signature.member):
        if name not in modulus_bits:
            summed[name] = tff.federated_sum(parts[name])
            continue
        # TFF asks for the modulus in the type of the sum.
        modulus = parts[name].type_signature.member.dtype.type(1 << modulus_bits[name])
        summed[name] = tff.backends.mapreduce.federated_secure_modular_sum(
            parts[name], modulus
        )
    return summed
