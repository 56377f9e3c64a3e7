# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a mechanism is to an aggregator: plain TensorFlow functions, without placements.

A `Codec` says what the server sends, what a client makes of its update, how messages
add up, and what the server makes of the sum. `factory.CodecFactory` does the rest.
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
# int64[2]; that of a client is None where its codec has no private randomness.
Seed = Optional[tf.Tensor]


class Encoded(NamedTuple):
    """What a client makes of its update.

    Attributes:
      message: What it sends.
      normed: The update before clipping, as `safe_norm` sees it.
      sums: OrderedDict of scalars that `Codec.measure` wants summed over clients.
    """

    message: Structure
    normed: clipping.NormedVector
    sums: Fields


class Decoded(NamedTuple):
    """What the server makes of the sum of a round.

    Attributes:
      mean: float32[d].
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
      input_length: Length of the vector handed to `encode`, at least d; the rest is
        zeros. A mechanism that pads says so here, and padding then costs nothing.
      cohort_size: n, by which the mean divides.
      has_private_randomness: Whether `encode` uses its `client_seed`.
      sums_securely: Whether `reduction` needs a context that can sum securely.
      needed_sums: The sums over clients that `decode` itself needs; all that there are
        where nothing is measured exactly. Beside a secure sum they are opened as secure
        sums too, and must be the same for neighbours.
      gives_mean: Whether it releases a mean, so that there is a sum of it too.
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
        """The server's message to every client, by default nothing; its bits count.

        The clients may know the `round_seed`; it is sent if they need it.
        """
        return collections.OrderedDict()

    def expand(self, broadcast: Fields) -> Fields:
        """The broadcast as each client uses it, the same for all.

        A simulation does it once a round, on the server, and shares the result, or
        once in each of a few groups of clients; a real client does it itself, from what
        it received. Its bits are not counted.
        """
        return broadcast

    @abc.abstractmethod
    def encode(self, update: tf.Tensor, shared: Fields, client_seed: Seed) -> Encoded:
        """A client's message, made of its update.

        Args:
          update: float32[input_length].
          shared: The result of `expand`.
          client_seed: This client's own in this round.
        """

    def message_bits(self, message: Structure) -> tf.Tensor:
        """The bits of a message, float64: by default those of its tensors."""
        return measurements.structure_bits(message)

    def reduction(
        self, message_type: tff.Type, sums_type: tff.Type
    ) -> reductions.Reduction:
        """The sum of what clients send.

        By default in the open, with `zero`, `accumulate` and `merge`; a mechanism for
        secure aggregation returns `reductions.secure_sums`.

        Args:
          message_type: TFF type of `Encoded.message`.
          sums_type: TFF type of the float64 scalars to be summed beside it.

        Returns:
          A function, called inside a federated computation, from the pair of both at
          the clients to the pair of their totals at the server.
        """
        return reductions.open_sums(self, message_type, sums_type)

    def group_reduction(self, total_type: tff.Type) -> reductions.GroupReduction:
        """The sum of totals of groups of clients, as `reduction` is that of messages.

        Args:
          total_type: TFF type of what `residues` gives.

        Returns:
          A function, called inside a federated computation, from the totals at TFF's
          clients, each of which stands for a group, to that of all at the server.
        """
        return reductions.open_group_sums(self, total_type)

    def residues(self, total: Structure) -> Structure:
        """The part of a sum that the reduction opens, such as the sum modulo 2^b.

        Sums of residues, and residues of sums, have the same residues.
        """
        return total

    @abc.abstractmethod
    def zero(self) -> Structure:
        """The sum of no messages."""

    def accumulate(self, total: Structure, message: Structure) -> Structure:
        """The sum with one more message; a malformed one must not break it."""
        return tf.nest.map_structure(
            lambda part, more: part + tf.cast(more, part.dtype), total, message
        )

    def merge(self, total: Structure, other: Structure) -> Structure:
        """The sum of two sums, from two groups of clients or two workers."""
        return tf.nest.map_structure(tf.add, total, other)

    def release(
        self, state: Fields, total: Any, sums: Fields, shared: Fields, noise_seed: Seed
    ) -> Structure:
        """What the event's adversary sees of a round, before post-processing.

        The guarantee is about this, and `decode` computes its results from this alone
        (besides what is public, and the measurements). By default the sum itself, as
        where clients bring the noise; a server's noise is in it otherwise.

        All arguments are those of `decode`: the same seed gives the same noise.
        """
        return total

    @abc.abstractmethod
    def decode(
        self, state: Fields, total: Any, sums: Fields, shared: Fields, noise_seed: Seed
    ) -> Decoded:
        """The mean, state and measurements that the server makes of the sum.

        Args:
          state: The mechanism's own state.
          total: The sum of the messages.
          sums: Float64 scalars summed over clients, `needed_sums` at the least.
          shared: The result of `expand`.
          noise_seed: One that nobody else knows.
        """

    def measure(
        self, state: Fields, total: Any, sums: Fields, shared: Fields
    ) -> Fields:
        """Exact measurements, of clients' data without noise.

        By default the fraction of clients whose update was clipped, if the codec sums
        it as "l2_clipped". The arguments are those of `decode`; all of `Encoded.sums`
        and of `measurements.client_sums` are summed over clients.
        """
        if "l2_clipped" not in sums:
            return collections.OrderedDict()
        fraction = measurements.ratio(sums["l2_clipped"], sums["clients"])
        return collections.OrderedDict(l2_clipped_fraction=fraction)

    def divisor(self, sums: Fields) -> tf.Tensor:
        """The divisor of the mean, float32: n, whoever reported."""
        return tf.constant(self.cohort_size, tf.float32)


class SecureCodec(Codec):
    """A codec of integers of which the server learns the sum modulo 2^b, and no more.

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
        """The secure sum of residues, and that of what else is needed."""
        return reductions.secure_sums(self.modulus_bits, sums_type, self.needed_sums)

    def group_reduction(self, total_type: tff.Type) -> reductions.GroupReduction:
        """The secure sum of groups' residues."""
        return reductions.secure_group_sums(self.modulus_bits)

    def residues(self, total: Fields) -> Fields:
        """The residues modulo 2^b."""
        return collections.OrderedDict(
            (name, integers.wrap(total[name], bits))
            for name, bits in self.modulus_bits.items()
        )


def _inner(name: str) -> Any:
    """A method that asks the inner codec."""
    return lambda self, *arguments: getattr(self.inner, name)(*arguments)


class OuterCodec(Codec):
    """A codec around another that it holds.

    What it does not say for itself is what the inner codec says. How it decodes it must
    say.
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
    expand = _inner("expand")
    encode = _inner("encode")
    message_bits = _inner("message_bits")
    reduction = _inner("reduction")
    group_reduction = _inner("group_reduction")
    residues = _inner("residues")
    zero = _inner("zero")
    accumulate = _inner("accumulate")
    merge = _inner("merge")
    release = _inner("release")
    measure = _inner("measure")
    divisor = _inner("divisor")
