# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A round of a codec in plain TensorFlow functions, for values of a TFF type.

  prepare (server) -> encode (each client) -> a sum -> finish (server)

`factory.CodecFactory` makes TFF's process of them, one client at a time;
`dpfl.engines.tff.grouped` runs a group of clients in one graph.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any, Optional

import tensorflow as tf

from dpfl import seed_domains
from dpfl.aggregators import reductions
from dpfl.aggregators.layout import Layout
from dpfl.arrays import in_tensorflow
from dpfl.codecs import round_functions
from dpfl.codecs.base import Codec, Fields, Structure
from dpfl.vectors import randomness


class GraphRoundFunctions(round_functions.RoundFunctions):
    """The server's and clients' functions of a round, for one type of value.

    Attributes:
      layout: The layout of values as vectors.
      seed: int64[2], or None; see `round_functions.RoundFunctions.first_state`.
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
          seed: int64[2], or None for fresh randomness at each execution.
          output: As for `factory.CodecFactory`.
          measure: As for `factory.CodecFactory`.
          released_measurements: As for `factory.CodecFactory`.
        """
        # The words drawn here and those drawn by the worker each suffice alone.
        own = [secrets.randbits(64) - (1 << 63) for _ in range(2)]

        def fresh_seed() -> tf.Tensor:
            words = tf.constant(own, tf.int64)
            return tf.bitwise.bitwise_xor(in_tensorflow.fresh_seed(), words)

        fresh = fresh_seed if seed is None else None
        super().__init__(codec, fresh, output, measure, released_measurements)
        self.layout = layout
        self.seed = seed

    def initial_state(self) -> Fields:
        """The state before the first round, with the functions' own seed."""
        return self.first_state(self.seed)

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

    def encode(
        self, value: Structure, shared: Fields, weight: Optional[tf.Tensor] = None
    ) -> tuple[Structure, Fields]:
        """Encodes a client's value as a message and float64 scalars to be summed.

        Args:
          value: The value.
          shared: The result of `prepare`.
          weight: float32 scalar, for a codec that takes weights.
        """
        update, own = self.layout.split(value)
        client_seed = None
        if self.codec.has_private_randomness:
            client_seed = _client_seed(own, shared["round_seed"])
        if weight is None:
            vector = self.layout.flatten(update, self.codec.input_length)
        else:
            vector = self.layout.flatten(update, self.layout.dimension)
            vector = tf.concat([vector, [weight]], 0)
        return self.encode_vector(vector, shared, client_seed)

    def finish(
        self, state: Fields, shared: Fields, total: Structure, sums: Fields
    ) -> Fields:
        """The new `state`, the `result` as a value, and the `measurements` of a round.

        See base class for the arguments.
        """
        made = super().finish(state, shared, total, sums)
        result = self.layout.restore(made["result"])
        return Fields(made, result=result)


def _client_seed(own: Optional[tf.Tensor], round_seed: tf.Tensor) -> tf.Tensor:
    """A client's seed, derived from its own key and the round's public seed."""
    if own is None:
        return in_tensorflow.fresh_seed()
    # Both words of the round's seed, so that rounds differ as much as seeds do.
    return randomness.fold_in(
        own, seed_domains.RoundDomain.CLIENT, round_seed[0], round_seed[1]
    )
