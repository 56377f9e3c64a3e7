# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""How what clients send is summed, in the open or securely, and who adds the noise."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.vectors import integer_noise, randomness


class IntegerShares:
    """Shares of integer noise, of which the sum of a round carries many."""

    def __init__(self, kind: str, stddev: float):
        """Initializes the shares.

        Args:
          kind: "discrete_gaussian" or "skellam".
          stddev: Of one share, in grid steps; zero for no noise.
        """
        self._sampler: Optional[integer_noise.Sampler] = None
        if stddev:
            self._sampler = integer_noise.NOISE[kind](stddev)

    def sample(
        self, seed: tf.Tensor, purpose: int, number: int, length: int
    ) -> tf.Tensor:
        """Returns the sum of `number` shares, int32[length].

        Args:
          seed: int64[2] that nobody else knows.
          purpose: What the noise is for.
          number: How many shares; zero for no noise.
          length: Of each.
        """
        total, sampler = tf.zeros([length], tf.int32), self._sampler
        if sampler is None or not number:
            return total
        if number == 1:
            return sampler.sample(randomness.fold_in(seed, purpose), length)

        def add_share(share: tf.Tensor, total: tf.Tensor) -> tuple[Any, Any]:
            own = randomness.fold_in(seed, purpose, share)
            return share + 1, total + sampler.sample(own, length)

        return tf.while_loop(
            lambda share, _: share < number, add_share, [tf.constant(0), total]
        )[1]


def opened(total: Any, clients: tf.Tensor, needed: int) -> Any:
    """Returns a sum once it is sure that it carries the noise that was promised.

    Args:
      total: Tensors.
      clients: Scalar, how many reported and so added their share of noise.
      needed: How many shares the promised noise needs; 0 for none.

    Raises:
      InvalidArgumentError: When it runs, if fewer clients reported.
    """
    check = tf.debugging.Assert(
        clients >= needed,
        [f"the sum is not opened: at least {needed} clients must report, found"]
        + [tf.cast(clients, tf.int32)],
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.nest.map_structure(tf.identity, total)


# From the pair of messages and scalars at the clients to that of totals at the server.
Reduction = Callable[[tff.Value], tff.Value]
# From totals of groups of clients, each at a TFF client, to that of all at the server.
GroupReduction = Callable[[tff.Value], tff.Value]
# Of the modulus of a count of clients.
_COUNT_BITS = 30


def open_sums(
    zero_message: Callable[[], Any],
    accumulate_message: Callable[[Any, Any], Any],
    merge_messages: Callable[[Any, Any], Any],
    message_type: tff.Type,
    sums_type: tff.Type,
) -> Reduction:
    """Returns sums that the server may see, by one `tff.federated_aggregate`.

    Args:
      zero_message: See `codec.Codec.zero`.
      accumulate_message: See `codec.Codec.accumulate`.
      merge_messages: See `codec.Codec.merge`.
      message_type: TFF type of a message.
      sums_type: TFF type of the float64 scalars to be summed beside it.
    """

    @tff.tensorflow.computation
    def zero() -> Any:
        no_sums = collections.OrderedDict(
            (name, tf.zeros([], tf.float64))
            for name in tff.structure.name_list(sums_type)
        )
        return zero_message(), no_sums

    total_type = zero.type_signature.result

    @tff.tensorflow.computation(total_type, tff.to_type((message_type, sums_type)))
    def accumulate(total: Any, encoded: Any) -> Any:
        message, sums = encoded
        return (
            accumulate_message(total[0], message),
            tf.nest.map_structure(tf.add, total[1], sums),
        )

    @tff.tensorflow.computation(total_type, total_type)
    def merge(total: Any, other: Any) -> Any:
        return (
            merge_messages(total[0], other[0]),
            tf.nest.map_structure(tf.add, total[1], other[1]),
        )

    @tff.tensorflow.computation(total_type)
    def report(total: Any) -> Any:
        return total

    def reduce(encoded: tff.Value) -> tff.Value:
        return tff.federated_aggregate(encoded, zero(), accumulate, merge, report)

    return reduce


def secure_sums(
    moduli_bits: Mapping[str, int], sums_type: tff.Type, counts: Sequence[str]
) -> Reduction:
    """Returns sums modulo 2^b, all that the server sees, and secure sums of counts.

    The reduction modulo 2^b is part of the secure sum. A sum over the integers would
    tell, for each coordinate, how many clients' residues wrapped.

    Scalars other than counts are exact measurements, which a simulation alone may ask
    for; they are summed in the open, and the counts with them.

    Args:
      moduli_bits: b of each part of the message, by name, in the message's order; at
        most 30 for int32, 62 for int64.
      sums_type: TFF type of the float64 scalars to be summed beside it.
      counts: The names of those that are whole numbers at least 0, and below 2^30 in
        all.
    """
    names = tff.structure.name_list(sums_type)

    @tff.tensorflow.computation(sums_type)
    def to_counts(sums: Any) -> Any:
        return tf.nest.map_structure(lambda count: tf.cast(count, tf.int32), sums)

    @tff.tensorflow.computation(to_counts.type_signature.result)
    def from_counts(sums: Any) -> Any:
        return tf.nest.map_structure(lambda count: tf.cast(count, tf.float64), sums)

    def reduce(encoded: tff.Value) -> tff.Value:
        message, sums = encoded[0], encoded[1]
        totals = _modular_sums(message, moduli_bits)
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


def open_group_sums(
    zero_total: Callable[[], Any],
    merge_totals: Callable[[Any, Any], Any],
    total_type: tff.Type,
) -> GroupReduction:
    """Returns the sum of groups' totals that the server may see.

    Args:
      zero_total: See `codec.Codec.zero`.
      merge_totals: See `codec.Codec.merge`.
      total_type: TFF type of a group's total.
    """

    @tff.tensorflow.computation
    def zero() -> Any:
        return zero_total()

    @tff.tensorflow.computation(total_type, total_type)
    def merge(total: Any, other: Any) -> Any:
        return merge_totals(total, other)

    @tff.tensorflow.computation(total_type)
    def report(total: Any) -> Any:
        return total

    return lambda totals: tff.federated_aggregate(totals, zero(), merge, merge, report)


def secure_group_sums(moduli_bits: Mapping[str, int]) -> GroupReduction:
    """Returns the sums modulo 2^b of groups' residues, all that the server sees.

    Args:
      moduli_bits: As for `secure_sums`.
    """
    return lambda totals: tff.federated_zip(_modular_sums(totals, moduli_bits))


def _modular_sums(
    parts: tff.Value, moduli_bits: Mapping[str, int]
) -> collections.OrderedDict:
    return collections.OrderedDict(
        (
            name,
            tff.backends.mapreduce.federated_secure_modular_sum(
                parts[name], _modulus(parts[name].type_signature.member, bits)
            ),
        )
        for name, bits in moduli_bits.items()
    )


def _modulus(member: tff.TensorType, bits: int) -> Any:
    """Returns 2^bits in the type of what is summed, which TFF asks for."""
    return np.dtype(member.dtype).type(1 << bits)
