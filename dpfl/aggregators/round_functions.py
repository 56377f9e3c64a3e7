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
from typing import Any, Optional

import tensorflow as tf

from dpfl import purposes
from dpfl.aggregators import measurements
from dpfl.aggregators.codec import Codec, Fields, Structure
from dpfl.aggregators.layout import Layout
from dpfl.covered import EXACT_FOR_SIMULATION
from dpfl.vectors import randomness


class RoundFunctions:
    """What server and clients do in a round, for one type of value.

    State and measurements are those that `factory.CodecFactory` describes.

    Attributes:
      codec: The mechanism's.
      layout: How values become vectors.
      measures_exactly: Whether exact sums over clients are opened, as for a server that
        is trusted, or in a simulation that asks for them.
    """

    def __init__(
        self,
        codec: Codec,
        layout: Layout,
        seed: Optional[Any],
        output: str,
        measure: Optional[str],
    ):
        """Takes `output` and `measure` of `factory.CodecFactory`, and a seed, int64[2].

        What is drawn is then a function of the seed and the round. None draws from the
        operating system's entropy at each execution, so that a state that is restored
        repeats nothing.
        """
        self.codec = codec
        self.measures_exactly = measure == EXACT_FOR_SIMULATION or (
            measure is None and not codec.sums_securely
        )
        self.layout = layout
        self.seed = seed
        self._output = output
        # The words drawn here and those drawn by the worker are each enough alone.
        self._entropy = [secrets.randbits(64) - (1 << 63) for _ in range(2)]

    def initial_state(self) -> Fields:
        """The state before the first round."""
        state = collections.OrderedDict()
        if self.seed is not None:
            state["seed"] = tf.constant(self.seed, tf.int64)
        state["round"] = tf.constant(0, tf.int32)
        state.update(self.codec.initial_state())
        return state

    def _drawn(self, state: Fields, purpose: purposes.Round) -> tf.Tensor:
        """A seed for a purpose in this execution of a round."""
        if self.seed is None:
            # Never of the state: one that is restored would draw the same again.
            seed = tf.bitwise.bitwise_xor(
                randomness.fresh_seed(), tf.constant(self._entropy, tf.int64)
            )
        else:
            seed = state["seed"]
        return randomness.fold_in(seed, state["round"], purpose)

    def prepare(self, state: Fields) -> Fields:
        """The tensors that the clients and `finish` share, from the state."""
        return self.prepared(state, self._drawn(state, purposes.Round.BROADCAST))

    def prepared(self, state: Fields, round_seed: tf.Tensor) -> Fields:
        """As `prepare`, with the seed that all clients of the round may know."""
        broadcast = self.codec.broadcast(_own_state(state), round_seed)
        return collections.OrderedDict(
            round_seed=round_seed,
            expanded=self.codec.expand(broadcast),
            downlink_bits=measurements.structure_bits(broadcast),
        )

    def encode(self, value: Structure, shared: Fields) -> tuple[Structure, Fields]:
        """A client's message, and float64 scalars to sum, from its value."""
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
        """The new `state`, the `result` and the `measurements`.

        From what `prepare` was given and gave, the total of the messages as the codec's
        reduction opens it, and the sums of the scalars that `encode` gave.
        """
        own = _own_state(state)
        noise_seed = self._drawn(state, purposes.Round.SERVER_NOISE)
        decoded = self.codec.decode(own, total, sums, shared["expanded"], noise_seed)
        result = decoded.mean
        if self._output == "sum":
            result *= self.codec.divisor(sums)
        measured = collections.OrderedDict(
            downlink_bits=measurements.downlink_bits(
                shared["downlink_bits"], self.layout.dimension
            ),
            **decoded.measurements,
        )
        if self.measures_exactly:
            more = self.codec.measure(own, total, sums, shared["expanded"])
            measured.update(measurements.exact_measurements(sums, more))
        return collections.OrderedDict(
            state=collections.OrderedDict(
                state, round=state["round"] + 1, **decoded.state
            ),
            result=self.layout.restore(result),
            measurements=measured,
        )


def _client_seed(identity: Optional[str], own: Any, round_seed: Any) -> tf.Tensor:
    """The seed of a client, of what it was given and what everyone knows of a round."""
    if identity is None:
        return randomness.fresh_seed()
    if identity == "client_id":
        return randomness.fold_in(round_seed, purposes.Round.CLIENT, own)
    # Both words of the round, so that rounds have as little in common as seeds do.
    return randomness.fold_in(own, purposes.Round.CLIENT, round_seed[0], round_seed[1])


def _own_state(state: Fields) -> Fields:
    return collections.OrderedDict(
        (name, part) for name, part in state.items() if name not in ("seed", "round")
    )
