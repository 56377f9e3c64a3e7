# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Codecs: mechanisms as plain TensorFlow functions, without TFF's placements.

A `Codec` defines the server's broadcast, the encoding of a client's update, the sum of
messages, and the decoding of the sum. `factory.CodecFactory` does the rest.
"""

from __future__ import annotations

import abc
import collections
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import tensorflow as tf
import tensorflow_federated as tff

from dpfl.aggregators import measurements, reductions
from dpfl.vectors import clipping, integers

# A structure of tensors, as tf.nest understands it.
Structure = Any
# Tensors, or structures of them, by name.
Fields = collections.OrderedDict
# int64[2]; a client's is None where its codec has no private randomness.
Seed = Optional[tf.Tensor]


class Encoded(NamedTuple):
    """A client's encoded update.

    Attributes:
      message: The message to the server.
      normed: The update before clipping, as `safe_norm` sees it.
      sums: OrderedDict of scalars that `Codec.exact_metrics` wants summed over clients.
    """

    message: Structure
    normed: clipping.NormedVector
    sums: Fields


class Decoded(NamedTuple):
    """The decoded sum of a round.

    Attributes:
      mean: float32[d], the mean update.
      state: The mechanism's new state, in the structure of `Codec.initial_state`.
      measurements: OrderedDict of scalars, which are public or follow from the release.
    """

    mean: tf.Tensor
    state: Fields
    measurements: Fields


class Codec(abc.ABC):
    """One mechanism on float32 vectors, in plain TensorFlow functions.

    All functions are traced into TFF computations, and run eagerly just as well.

    Attributes:
      dimension: Length d of a flattened update.
      input_length: Length of the vector passed to `encode`, at least d and padded with
        zeros. A mechanism that needs padding asks for it here, where it costs nothing.
      cohort_size: n, by which the mean divides.
      has_private_randomness: Whether `encode` uses its `client_seed`.
      sums_securely: Whether `reduction` needs a context that can sum securely.
      needed_sums: Names of the sums over clients that `decode` itself needs; there are
        no other sums where nothing is measured exactly. Beside a secure sum they are
        secure sums too, and must be equal for neighbours.
      gives_mean: Whether the mechanism releases a mean, from which a sum follows.
    """

    has_private_randomness = False
    sums_securely = False
    needed_sums: tuple[str, ...] = ()
    gives_mean = True

    def __init__(self, dimension: int, cohort_size: int):
        self.dimension = dimension
        self.input_length = dimension
        self.cohort_size = cohort_size

    def initial_state(self) -> Fields:
        """The mechanism's own state before the first round."""
        return collections.OrderedDict()

    def broadcast(self, state: Fields, round_seed: Seed) -> Fields:
        """The server's message to every client; empty by default. Its bits are counted.

        The clients may know the `round_seed`; it is sent if they need it.
        """
        return collections.OrderedDict()

    def decode_broadcast(self, broadcast: Fields) -> Fields:
        """Decodes the broadcast into the values that each client uses.

        A simulation calls this once a round on the server, or once for each group of
        clients, and shares the result; a real client calls it on the message that it
        received. The bits of the result are not counted.
        """
        return broadcast

    @abc.abstractmethod
    def encode(self, update: tf.Tensor, shared: Fields, client_seed: Seed) -> Encoded:
        """Encodes a client's update as a message.

        Args:
          update: float32[input_length].
          shared: The result of `decode_broadcast`.
          client_seed: int64[2], the client's own seed of this round.
        """

    def message_bits(self, message: Structure) -> tf.Tensor:
        """The bits of a message, float64; by default those of its tensors."""
        return measurements.structure_bits(message)

    def reduction(
        self, message_type: tff.Type, sums_type: tff.Type
    ) -> reductions.Reduction:
        """The sum of the clients' messages, as a function on federated values.

        By default the sum is in the open, with `zero`, `accumulate` and `merge`; a
        mechanism for secure aggregation returns `reductions.secure_sums`.

        Args:
          message_type: TFF type of `Encoded.message`.
          sums_type: TFF type of the float64 scalars to be summed beside it.

        Returns:
          A function, called inside a federated computation, from the pair of both at
          the clients to the pair of their totals at the server.
        """
        return reductions.open_sums(self, message_type, sums_type)

    def group_reduction(self, total_type: tff.Type) -> reductions.GroupReduction:
        """The sum of the totals of groups of clients, as `reduction` is of messages.

        Args:
          total_type: TFF type of the result of `reduce_modulo`.

        Returns:
          A function, called inside a federated computation, from the totals at TFF's
          clients, each of which stands for a group, to that of all at the server.
        """
        return reductions.open_group_sums(self, total_type)

    def reduce_modulo(self, total: Structure) -> Structure:
        """The part of a sum that the reduction opens, such as the sum modulo 2^b.

        Sums of residues, and residues of sums, have the same residues.
        """
        return total

    @abc.abstractmethod
    def zero(self) -> Structure:
        """The sum of zero messages."""

    def accumulate(self, total: Structure, message: Structure) -> Structure:
        """Adds a message to a sum; a malformed message must not break it."""
        return tf.nest.map_structure(
            lambda part, more: part + tf.cast(more, part.dtype), total, message
        )

    def merge(self, total: Structure, other: Structure) -> Structure:
        """The sum of two sums, from two groups of clients or two workers."""
        return tf.nest.map_structure(tf.add, total, other)

    def release(
        self, state: Fields, total: Any, sums: Fields, shared: Fields, noise_seed: Seed
    ) -> Structure:
        """The view of the event's adversary on a round, before post-processing.

        The guarantee covers this view, and `decode` computes its results from it alone
        (and from public values, measurements aside). By default it is the sum itself,
        for mechanisms whose clients add the noise; others override it to add the
        server's.

        Args:
          state: The mechanism's own state.
          total: The sum of the messages.
          sums: Float64 scalars summed over clients.
          shared: The result of `decode_broadcast`.
          noise_seed: int64[2], secret; with the seed of `decode` the noise is the same.
        """
        return total

    @abc.abstractmethod
    def decode(
        self, state: Fields, total: Any, sums: Fields, shared: Fields, noise_seed: Seed
    ) -> Decoded:
        """Decodes the sum of a round: the mean, the next state and the measurements.

        Args:
          state: The mechanism's own state.
          total: The sum of the messages.
          sums: Float64 scalars summed over clients, `needed_sums` at the least.
          shared: The result of `decode_broadcast`.
          noise_seed: int64[2], a secret seed of this round.
        """

    def exact_metrics(
        self, state: Fields, total: Any, sums: Fields, shared: Fields
    ) -> Fields:
        """Exact metrics of a round, of clients' data without noise.

        By default the fraction of clients whose update was clipped, if the codec sums
        it as "l2_clipped".

        Args:
          state: The mechanism's own state.
          total: The sum of the messages.
          sums: All of `Encoded.sums` and `measurements.client_sums`, summed over
            clients.
          shared: The result of `decode_broadcast`.
        """
        if "l2_clipped" not in sums:
            return collections.OrderedDict()
        fraction = measurements.ratio(sums["l2_clipped"], sums["clients"])
        return collections.OrderedDict(l2_clipped_fraction=fraction)

    def divisor(self, sums: Fields) -> tf.Tensor:
        """The divisor of the mean, float32: n, however many clients reported."""
        return tf.constant(self.cohort_size, tf.float32)


class SecureCodec(Codec):
    """A codec of integers whose server learns only the sum modulo 2^b.

    Attributes:
      modulus_bits: b of each part of a message, by name.
    """

    sums_securely = True

    def __init__(
        self, dimension: int, cohort_size: int, modulus_bits: Mapping[str, int]
    ):
        super().__init__(dimension, cohort_size)
        self.modulus_bits = modulus_bits

    def reduction(
        self, message_type: tff.Type, sums_type: tff.Type
    ) -> reductions.Reduction:
        """The secure sum of residues, and of the scalars that `decode` needs."""
        return reductions.secure_sums(self.modulus_bits, sums_type, self.needed_sums)

    def group_reduction(self, total_type: tff.Type) -> reductions.GroupReduction:
        """The secure sum of groups' residues."""
        return reductions.secure_group_sums(self.modulus_bits)

    def reduce_modulo(self, total: Fields) -> Fields:
        """The residues modulo 2^b."""
        return collections.OrderedDict(
            (name, integers.wrap(total[name], bits))
            for name, bits in self.modulus_bits.items()
        )


def _inner(name: str) -> Any:
    """Makes a method that delegates to the inner codec."""
    return lambda self, *arguments: getattr(self.inner, name)(*arguments)


class OuterCodec(Codec):
    """A codec that wraps another one.

    Everything but the decoding is delegated to the inner codec unless overridden.
    """

    def __init__(self, inner: Codec):
        super().__init__(inner.dimension, inner.cohort_size)
        self.inner = inner
        self.input_length = inner.input_length
        self.has_private_randomness = inner.has_private_randomness
        self.sums_securely = inner.sums_securely
        self.needed_sums = inner.needed_sums
        self.gives_mean = inner.gives_mean

    initial_state = _inner("initial_state")
    broadcast = _inner("broadcast")
    decode_broadcast = _inner("decode_broadcast")
    encode = _inner("encode")
    message_bits = _inner("message_bits")
    reduction = _inner("reduction")
    group_reduction = _inner("group_reduction")
    reduce_modulo = _inner("reduce_modulo")
    zero = _inner("zero")
    accumulate = _inner("accumulate")
    merge = _inner("merge")
    release = _inner("release")
    exact_metrics = _inner("exact_metrics")
    divisor = _inner("divisor")
