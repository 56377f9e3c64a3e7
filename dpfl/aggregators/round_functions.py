# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A round of a codec in plain TensorFlow functions, without placements.

  prepare (server) -> encode (each client) -> a sum -> finish (server)

`factory.CodecFactory` makes TFF's process of them, one client at a time;
`dpfl.training.grouped` runs a group of clients in one graph.
"""

from __future__ import annotations

import collections
import secrets
from collections.abc import Collection
from typing import Any, Optional

import tensorflow as tf

from dpfl import checks, seed_domains
from dpfl.aggregators import reductions
from dpfl.aggregators.layout import Layout
from dpfl.arrays import in_tensorflow
from dpfl.codecs import measurements
from dpfl.codecs.base import Codec, Fields, Structure
from dpfl.privacy_coverage import EXACT_FOR_SIMULATION
from dpfl.vectors import randomness

# The seed of the next round's rotation or sketch in the state of a secure sum without
# an explicit seed. Clients cannot return it, as they do to a trusted server: the sum of
# a known seed is the number of clients, which epsilon does not cover.
_PUBLIC = "public_seed"


class RoundFunctions:
    """The server's and clients' functions of a round, for one type of value.

    State and measurements are described at `factory.CodecFactory`.

    Attributes:
      codec: The mechanism's codec.
      layout: The layout of values as vectors.
      measures_exactly: Whether exact sums over clients are opened, for a trusted server
        or a simulation that asks for them.
    """

    def __init__(
        self,
        codec: Codec,
        layout: Layout,
        seed: Optional[Any],
        output: str,
        measure: Optional[str],
        released_measurements: Collection[str] = (),
    ):
        """Initializes the functions.

        Args:
          codec: The mechanism's codec.
          layout: The layout of values as vectors.
          seed: int64[2], of which, with the round, all randomness is a function. None
            draws from the operating system's entropy at each execution, so that a
            restored state repeats nothing.
          output: As for `factory.CodecFactory`.
          measure: As for `factory.CodecFactory`.
          released_measurements: As for `factory.CodecFactory`.
        """
        self.codec = codec
        self.measures_exactly = measure == EXACT_FOR_SIMULATION or (
            measure is None and not codec.sums_securely
        )
        self.layout = layout
        self.seed = seed
        self._output = output
        self._released = {*released_measurements, *codec.released_measurements}
        # The words drawn here and those drawn by the worker each suffice alone.
        self._entropy = [secrets.randbits(64) - (1 << 63) for _ in range(2)]

    def initial_state(self) -> Fields:
        """The state before the first round."""
        state = collections.OrderedDict()
        if self.seed is not None:
            state["seed"] = tf.constant(self.seed, tf.int64)
        state["round"] = tf.constant(0, tf.int32)
        if self.seed is None and self.codec.sums_securely:
            state[_PUBLIC] = self._drawn(state, seed_domains.RoundDomain.BROADCAST)
        state.update(self.codec.initial_state())
        return state

    def _drawn(self, state: Fields, domain: seed_domains.RoundDomain) -> tf.Tensor:
        """A seed for a domain in this execution of a round."""
        if self.seed is None:
            # Never drawn from the state: a restored one would draw the same again.
            seed = tf.bitwise.bitwise_xor(
                in_tensorflow.fresh_seed(), tf.constant(self._entropy, tf.int64)
            )
        else:
            seed = state["seed"]
        return randomness.fold_in(seed, state["round"], domain)

    def prepare(self, state: Fields) -> Fields:
        """Computes from the state the tensors that the clients and `finish` share."""
        return self.prepared(
            state, self._drawn(state, seed_domains.RoundDomain.BROADCAST)
        )

    def prepared(self, state: Fields, round_seed: tf.Tensor) -> Fields:
        """As `prepare`, with the seed that all clients of the round may know."""
        seed = state.get(_PUBLIC, round_seed)
        broadcast = self.codec.broadcast(_own_state(state), seed)
        return collections.OrderedDict(
            round_seed=round_seed,
            expanded=self.codec.decode_broadcast(broadcast),
            downlink_bits=measurements.structure_bits(in_tensorflow, broadcast),
        )

    def shared_with(self, state: Fields, shared: Fields, seeds: tf.Tensor) -> Fields:
        """The tensors of `prepare` that the clients had, if others were prepared too.

        Args:
          state: The state given to `prepare`.
          shared: The tensors of some execution of `prepare`.
          seeds: The sum of `reductions.counted` of the clients' `round_seed`.
        """
        seed = reductions.common_seed(seeds)
        is_theirs = tf.reduce_all(tf.equal(seed, shared["round_seed"]))
        return tf.cond(
            is_theirs | tf.equal(seeds[4], 0),
            lambda: tf.nest.map_structure(tf.identity, shared),
            lambda: self.prepared(state, seed),
        )

    def encode(self, value: Structure, shared: Fields) -> tuple[Structure, Fields]:
        """Encodes a client's value as a message and float64 scalars to be summed."""
        update, own = self.layout.split(value)
        client_seed = None
        if self.codec.has_private_randomness:
            client_seed = _client_seed(self.layout.identity, own, shared["round_seed"])
        vector = self.layout.flatten(update, self.codec.input_length)
        encoded = self.codec.encode(vector, shared["expanded"], client_seed)
        sums = measurements.client_sums(
            encoded.normed, self.codec.message_bits(encoded.message), encoded.sums
        )
        if not self.measures_exactly:
            needed = self.codec.needed_sums
            sums = collections.OrderedDict((name, sums[name]) for name in needed)
        return encoded.message, sums

    def finish(
        self, state: Fields, shared: Fields, total: Structure, sums: Fields
    ) -> Fields:
        """Computes the new `state`, the `result` and the `measurements` of a round.

        Args:
          state: The state given to `prepare`.
          shared: The result of `prepare`.
          total: The total of the messages, as the codec's reduction opens it.
          sums: The sums of the scalars that `encode` returns.

        Raises:
          ValueError: If a measurement is not declared to be made of the release.
        """
        own = _own_state(state)
        noise_seed = self._drawn(state, seed_domains.RoundDomain.SERVER_NOISE)
        decoded = self.codec.decode(own, total, sums, shared["expanded"], noise_seed)
        for name in decoded.measurements.keys() - self._released:
            wanted = (
                f"all names that {type(self.codec).__name__}.decode measures of the "
                "release, as the mechanism declares them"
            )
            raise ValueError(checks.message("released_measurements", wanted, name))
        result = decoded.mean
        if self._output == "sum":
            result *= self.codec.divisor(sums)
        measured = collections.OrderedDict(
            downlink_bits=measurements.downlink_bits(
                in_tensorflow, shared["downlink_bits"], self.layout.dimension
            ),
            **decoded.measurements,
        )
        if self.measures_exactly:
            more = self.codec.exact_metrics(own, total, sums, shared["expanded"])
            measured.update(measurements.exact_measurements(sums, more))
        after = collections.OrderedDict(
            state, round=state["round"] + 1, **decoded.state
        )
        if _PUBLIC in state:
            after[_PUBLIC] = self._drawn(state, seed_domains.RoundDomain.BROADCAST)
        return collections.OrderedDict(
            state=after,
            result=self.layout.restore(result),
            measurements=measured,
        )


def _client_seed(identity: Optional[str], own: Any, round_seed: Any) -> tf.Tensor:
    """A client's seed, derived from its own identity and the round's public seed."""
    if identity is None:
        return in_tensorflow.fresh_seed()
    if identity == "client_id":
        return randomness.fold_in(round_seed, seed_domains.RoundDomain.CLIENT, own)
    # Both words of the round's seed, so that rounds differ as much as seeds do.
    return randomness.fold_in(
        own, seed_domains.RoundDomain.CLIENT, round_seed[0], round_seed[1]
    )


def _own_state(state: Fields) -> Fields:
    return collections.OrderedDict(
        (name, part)
        for name, part in state.items()
        if name not in ("seed", "round", _PUBLIC)
    )
