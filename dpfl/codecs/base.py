# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Codecs: mechanisms as plain functions of arrays, whatever the array library.

    codec = dpfl.make_codec(mechanism, dimension, arrays="numpy")
    shared = codec.decode_broadcast(codec.broadcast(state, round_seed))
    message = codec.encode(update, shared, client_seed).message

A `Codec` defines the server's broadcast, the encoding of a client's update, the sum of
messages, and the decoding of the sum. `aggregators.CodecFactory` makes a process of
TFF of it.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import seed_domains
from dpfl.arrays import Array
from dpfl.codecs import measurements
from dpfl.codecs.measurements import Fields as Fields
from dpfl.vectors import clipping, integers, randomness

# Arrays, or mappings and sequences of them.
Structure = Any
# int64[2]; a client's is None where its codec has no private randomness.
Seed = Optional[Array]


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


class Received(NamedTuple):
    """A round as the server opens it, from which it decodes the release.

    Attributes:
      state: The mechanism's own state.
      total: The sum of the messages.
      sums: OrderedDict of float64 scalars summed over clients: `Codec.needed_sums` at
        the least, and for exact metrics all of `Encoded.sums` and
        `measurements.client_sums`.
      shared: The result of `Codec.decode_broadcast`.
      noise_seed: int64[2], a secret seed of this round; exact metrics need none.
    """

    state: Fields
    total: Structure
    sums: Fields
    shared: Fields
    noise_seed: Seed = None


class Decoded(NamedTuple):
    """The decoded sum of a round.

    Attributes:
      mean: float32[d], the mean update.
      state: The mechanism's new state, in the structure of `Codec.initial_state`.
      measurements: OrderedDict of scalars, which are public or follow from the release.
    """

    mean: Array
    state: Fields
    measurements: Fields


class Codec(abc.ABC):
    """One mechanism on float32 vectors, in plain functions of arrays.

    All functions may be traced, by TFF and by `jax.jit`, and run eagerly just as well.
    Subclasses have the mechanism as `_config`.

    Attributes:
      nx: The module of the array library, of `dpfl.arrays`.
      dimension: Length d of a flattened update.
      input_length: Length of the vector passed to `encode`, at least d and padded with
        zeros. A mechanism that needs padding asks for it here, where it costs nothing.
      cohort_size: n, by which the mean divides.
      has_private_randomness: Whether `encode` uses its `client_seed`.
      counted: Names of the parts of messages and of the broadcast whose first axis has
        no fixed length, each with the name of the part that says its length.
      modulus_bits: b of each part of a message that is summed modulo 2^b in a secure
        sum, by name; the parts of a message that are not named are summed in the open.
        Empty if the server is trusted with each message.
      needed_sums: Names of the sums over clients that `decode` itself needs; there are
        no other sums where nothing is measured exactly. Beside a secure sum they are
        secure sums too, and must be equal for neighbours.
      released_measurements: Names of measurements that `decode` makes of the release
        and public values alone, besides those that its mechanism declares.
      needed_clients: The least number of clients with which a sum is opened, where the
        noise is theirs; 0 where any number will do.
      gives_mean: Whether the mechanism releases a mean, from which a sum follows.
      takes_weights: Whether the last number given to `encode` is the client's weight.
    """

    has_private_randomness = False
    counted: Mapping[str, str] = MappingProxyType({})
    modulus_bits: Mapping[str, int] = MappingProxyType({})
    needed_sums: tuple[str, ...] = ()
    released_measurements: tuple[str, ...] = ()
    needed_clients = 0
    gives_mean = True
    takes_weights = False

    def __init__(self, config: Any, dimension: int, nx: Any):
        self._config = config
        self.dimension = dimension
        self.input_length = dimension
        self.cohort_size = config.cohort_size
        self.nx = nx

    @property
    def sums_securely(self) -> bool:
        """Whether the server learns only the sum of messages modulo 2^b."""
        return bool(self.modulus_bits)

    def initial_state(self) -> Fields:
        """The mechanism's own state before the first round."""
        return Fields()

    def broadcast(self, state: Fields, round_seed: Seed) -> Fields:
        """The server's message to every client; empty by default. Its bits are counted.

        The clients may know the `round_seed`; it is sent if they need it.
        """
        return Fields()

    def broadcast_bits(self, broadcast: Fields) -> Array:
        """The bits of a broadcast, float64; by default those of its arrays."""
        return measurements.structure_bits(self.nx, broadcast)

    def decode_broadcast(self, broadcast: Fields) -> Fields:
        """Decodes the broadcast into the values that each client uses.

        A simulation calls this once a round on the server, or once for each group of
        clients, and shares the result; a real client calls it on the message that it
        received. The bits of the result are not counted.
        """
        return broadcast

    def _rotation_seed(self, broadcast: Fields, *domains: int) -> Array:
        """The seed of the round's rotation or, in a domain of that, of its sketch."""
        rotation = seed_domains.RoundDomain.ROTATION
        return randomness.fold_in(broadcast["round_seed"], rotation, *domains)

    @abc.abstractmethod
    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """Encodes a client's update as a message.

        Args:
          update: float32[input_length].
          shared: The result of `decode_broadcast`.
          client_seed: int64[2], the client's own seed of this round.
        """

    def message_bits(self, message: Structure) -> Array:
        """The bits of a message, float64; by default those of its tensors."""
        return measurements.structure_bits(self.nx, message)

    def is_possible(self, message: Structure) -> Array:
        """Whether a client can send a message of the right types, a bool scalar.

        All residues are possible, and by default so is anything. A codec whose
        `accumulate` finds this out itself says so by `malformed`.
        """
        return self.nx.asarray(True, np.bool_)

    def malformed(self, total: Structure) -> Array:
        """The number of messages that `accumulate` has left out of a sum, int32."""
        return self.nx.zeros([], np.int32)

    def reduce_modulo(self, total: Structure) -> Structure:
        """The sum modulo 2^b, which is all that a secure sum opens.

        Sums of residues, and residues of sums, have the same residues.
        """
        if not self.sums_securely:
            return total
        reduced = Fields(total)
        for name, bits in self.modulus_bits.items():
            reduced[name] = integers.wrap(total[name], bits)
        return reduced

    @abc.abstractmethod
    def zero(self) -> Structure:
        """The sum of zero messages."""

    def accumulate(self, total: Structure, message: Structure) -> Structure:
        """Adds a message to a sum; a malformed message must not break it."""
        return self.nx.tree_map(
            lambda part, more: part + self.nx.asarray(more, part.dtype), total, message
        )

    def merge(self, total: Structure, other: Structure) -> Structure:
        """The sum of two sums, from two groups of clients or two workers."""
        return self.nx.tree_map(operator.add, total, other)

    def release(self, received: Received) -> Structure:
        """The view of the event's adversary on a round, before post-processing.

        The guarantee covers this view, and `decode` computes its results from it alone
        (and from public values, measurements aside). By default it is the sum itself,
        for mechanisms whose clients add the noise; others override it to add the
        server's. With the seed of `decode` the noise is the same.
        """
        return received.total

    @abc.abstractmethod
    def decode(self, received: Received) -> Decoded:
        """Decodes the sum of a round: the mean, the next state and the measurements."""

    def exact_metrics(self, received: Received) -> Fields:
        """Exact metrics of a round, of clients' data without noise.

        By default the fraction of clients whose update was clipped, if the codec sums
        it as "l2_clipped".
        """
        sums = received.sums
        if "l2_clipped" not in sums:
            return Fields()
        fraction = measurements.ratio(sums["l2_clipped"], sums["clients"])
        return Fields(l2_clipped_fraction=fraction)

    def divisor(self, sums: Fields) -> Array:
        """The divisor of the mean, float32: n, however many clients reported."""
        return self.nx.asarray(self.cohort_size, np.float32)
