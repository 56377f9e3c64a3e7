# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A round of a codec in plain functions of arrays, without placements.

  prepare (server) -> encode (each client) -> a sum -> finish (server)

`dpfl.aggregators.round_functions` has them for values of TFF, and
`dpfl.engines.jax.aggregator` for pytrees of JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Optional

import numpy as np

from dpfl import checks, mechanisms, seed_domains
from dpfl.arrays import Array
from dpfl.codecs import measurements
from dpfl.codecs.base import Codec, Fields, Received, Seed, Structure
from dpfl.privacy_coverage import EXACT_FOR_SIMULATION
from dpfl.vectors import randomness

OUTPUTS = ("mean", "sum")
# The seed of the next round's rotation or sketch in the state of a secure sum without
# an explicit seed. Clients cannot return it, as they do to a trusted server: the sum of
# a known seed is the number of clients, which epsilon does not cover.
_PUBLIC = "public_seed"
_SEED, _ROUND = "seed", "round"


class RoundFunctions:
    """The server's and clients' functions of a round, for flat vectors.

    State and measurements are described at `aggregators.CodecFactory`.

    Attributes:
      codec: The mechanism's codec.
      measures_exactly: Whether exact sums over clients are opened, for a trusted server
        or a simulation that asks for them.
    """

    def __init__(
        self,
        codec: Codec,
        fresh_seed: Optional[Callable[[], Seed]],
        output: str = "mean",
        measure: Optional[str] = None,
        released_measurements: Collection[str] = (),
    ):
        """Initializes the functions.

        Args:
          codec: The mechanism's codec.
          fresh_seed: Function to int64[2] of the operating system's entropy, fresh at
            each execution, so that a restored state repeats nothing. None draws all
            from the seed in the state.
          output: As for `aggregators.CodecFactory`.
          measure: As for `aggregators.CodecFactory`.
          released_measurements: As for `aggregators.CodecFactory`.
        """
        self.codec = codec
        self.measures_exactly = measure == EXACT_FOR_SIMULATION or (
            measure is None and not codec.sums_securely
        )
        self._fresh_seed = fresh_seed
        self._output = output
        self._released = {*released_measurements, *codec.released_measurements}

    def first_state(self, seed: Optional[Any]) -> Fields:
        """The state before the first round.

        Args:
          seed: int64[2], of which, with the round, all randomness is a function; None
            for functions with fresh seeds.
        """
        nx, state = self.codec.nx, Fields()
        if seed is not None:
            state[_SEED] = nx.asarray(np.asarray(seed, np.int64), np.int64)
        state[_ROUND] = nx.zeros([], np.int32)
        if seed is None and self.codec.sums_securely:
            state[_PUBLIC] = self.drawn(state, seed_domains.RoundDomain.BROADCAST)
        state.update(self.codec.initial_state())
        return state

    def drawn(self, state: Fields, domain: seed_domains.RoundDomain) -> Array:
        """A seed for a domain in this execution of a round."""
        # Never drawn from the state without an explicit seed: a restored one would draw
        # the same again.
        seed = state[_SEED] if self._fresh_seed is None else self._fresh_seed()
        return randomness.fold_in(seed, state[_ROUND], domain)

    def prepare(self, state: Fields) -> Fields:
        """Computes from the state the arrays that the clients and `finish` share."""
        return self.prepared(
            state, self.drawn(state, seed_domains.RoundDomain.BROADCAST)
        )

    def prepared(self, state: Fields, round_seed: Array) -> Fields:
        """As `prepare`, with the seed that all clients of the round may know."""
        return self.prepared_by(self.broadcast(state, round_seed), round_seed)

    def broadcast(self, state: Fields, round_seed: Array) -> Fields:
        """The codec's message to every client, of `prepared`."""
        seed = state.get(_PUBLIC, round_seed)
        return self.codec.broadcast(_own_state(state), seed)

    def prepared_by(self, broadcast: Fields, round_seed: Array) -> Fields:
        """As `prepared`, with the `broadcast` of the seed."""
        return Fields(
            round_seed=round_seed,
            expanded=self.codec.decode_broadcast(broadcast),
            downlink_bits=self.codec.broadcast_bits(broadcast),
        )

    def encode_vector(
        self, vector: Array, shared: Fields, client_seed: Seed
    ) -> tuple[Structure, Fields]:
        """Encodes a client's update as a message and float64 scalars to be summed.

        Args:
          vector: The flattened update, float32[input_length].
          shared: The result of `prepare`.
          client_seed: int64[2], the client's own seed of this round; None if the codec
            has no private randomness.
        """
        encoded = self.codec.encode(vector, shared["expanded"], client_seed)
        sums = measurements.client_sums(
            encoded.normed, self.codec.message_bits(encoded.message), encoded.sums
        )
        if not self.measures_exactly:
            needed = self.codec.needed_sums
            sums = Fields((name, sums[name]) for name in needed)
        return encoded.message, sums

    def finish(
        self, state: Fields, shared: Fields, total: Structure, sums: Fields
    ) -> Fields:
        """Computes the new `state`, the `result` and the `measurements` of a round.

        Args:
          state: The state given to `prepare`.
          shared: The result of `prepare`.
          total: The total of the messages, as a sum of the codec's kind opens it.
          sums: The sums of the scalars that `encode_vector` returns.

        Raises:
          ValueError: If a measurement is not declared to be made of the release.
        """
        noise_seed = self.drawn(state, seed_domains.RoundDomain.SERVER_NOISE)
        received = Received(
            _own_state(state), total, sums, shared["expanded"], noise_seed
        )
        decoded = self.codec.decode(received)
        for name in decoded.measurements.keys() - self._released:
            wanted = (
                f"all names that {type(self.codec).__name__}.decode measures of the "
                "release, as the mechanism declares them"
            )
            raise ValueError(checks.message("released_measurements", wanted, name))
        result = decoded.mean
        if self._output == "sum":
            result = result * self.codec.divisor(sums)
        measured = Fields(
            downlink_bits=measurements.downlink_bits(
                self.codec.nx, shared["downlink_bits"], self.codec.dimension
            ),
            **decoded.measurements,
        )
        if self.measures_exactly:
            more = self.codec.exact_metrics(received)
            measured.update(measurements.exact_measurements(sums, more))
        number = self.codec.nx.asarray(state[_ROUND] + 1, np.int32)
        after = Fields(state, round=number, **decoded.state)
        if _PUBLIC in state:
            after[_PUBLIC] = self.drawn(state, seed_domains.RoundDomain.BROADCAST)
        return Fields(state=after, result=result, measurements=measured)


def check_output(output: str, codec: Codec) -> None:
    """Raises ValueError if a codec cannot give an output."""
    wanted = f"'mean' for {type(codec).__name__}, which does not release a mean"
    checks.require(output != "sum" or codec.gives_mean, "output", wanted, output)


def check_weighted(mechanism: mechanisms.Mechanism, output: str) -> None:
    """Raises ValueError if a mechanism cannot be weighted, or has no such output."""
    wanted = f"False for {mechanism.name}, which bounds a client's contribution"
    checks.require(mechanism.is_weighted, "weighted", wanted, True)
    checks.require(output == "mean", "output", "'mean' with weights", output)


def _own_state(state: Fields) -> Fields:
    return Fields(
        (name, part)
        for name, part in state.items()
        if name not in (_SEED, _ROUND, _PUBLIC)
    )
