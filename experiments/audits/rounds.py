# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds of real aggregators, with everything that an adversary sees.

    through = rounds.FactoryRounds(mechanism, dimension, seed)
    composed = rounds.ComposedRounds(mechanism, dimension, images)
    updates = composed.updates(through.seed, 0)
    release = through.run(updates, keys).release

`FactoryRounds` runs them through TFF: the registry's factory, with the release of
`Codec.release` among the measurements. `ComposedRounds` calls the same codec's
functions in the order in which the factory does, without TFF: many more rounds in the
same time. With equal seeds both give the same integers.
"""

from __future__ import annotations

import collections
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import codecs, mechanisms, seed_domains
from dpfl.aggregators import registry
from dpfl.codecs import measurements
from dpfl.codecs.base import Codec, Decoded, Fields
from dpfl.mechanisms.integer import CLIP_COUNT_BITS
from dpfl.vectors import integers, randomness

from . import adversary

_RELEASE = "release"


class AdversaryView(NamedTuple):
    """The adversary's view of one round, or of several, along the first axis.

    Attributes:
      release: int32, int64 or float32[m]: the release before post-processing, or the
        opened secure sum.
      within: The count of an adaptive clip, noised or opened; None without.
    """

    release: np.ndarray
    within: Optional[np.ndarray]

    @classmethod
    def of(cls, released: Any) -> AdversaryView:
        """The view of a release of `_named` parts."""
        within = released.get("within")
        count = None if within is None else np.asarray(within)
        return cls(np.asarray(released["update"]), count)


def witnessed(codec: Codec) -> Codec:
    """Adds the release of a codec to its measurements, and returns the codec."""
    own_decode = codec.decode

    def decode(*arguments: Any) -> Decoded:
        decoded = own_decode(*arguments)
        measured = collections.OrderedDict(decoded.measurements)
        # A release may be what decoding gives.
        codec.decode = own_decode  # type: ignore[method-assign]
        measured[_RELEASE] = _named(codec.release(*arguments))
        codec.decode = decode  # type: ignore[assignment, method-assign]
        return decoded._replace(measurements=measured)

    codec.released_measurements += (_RELEASE,)
    codec.decode = decode  # type: ignore[assignment, method-assign]
    return codec


class FactoryRounds:
    """Rounds of a mechanism's factory in TFF's worker.

    Attributes:
      state: A state of the process.
    """

    def __init__(
        self, mechanism: Any, dimension: int, seed: int, *, is_keyed: bool = True
    ):
        """Initializes the process; clients without keys draw the system's entropy."""
        self._is_keyed = is_keyed
        factory = registry.build(mechanism, seed=seed, around=witnessed)
        value_type = tff.TensorType(np.float32, [dimension])
        if is_keyed:
            key_type = tff.TensorType(np.int64, [2])
            value_type = tff.to_type(
                collections.OrderedDict(update=value_type, client_key=key_type)
            )
        self._process = factory.create(value_type)
        self._initial = self.state = self._process.initialize()

    @property
    def seed(self) -> tf.Tensor:
        """The seed in the state, int64[2]."""
        return tf.constant(self.state["seed"], tf.int64)

    @property
    def number(self) -> int:
        """The index of the next round, from 0 on."""
        return int(self.state["round"])

    def forget(self) -> None:
        """Resets to the first state, but never to an earlier round."""
        self.state = collections.OrderedDict(self._initial, round=self.state["round"])

    def run(self, updates: np.ndarray, keys: np.ndarray) -> AdversaryView:
        """Runs the next round and returns the adversary's view.

        The clients that take part have updates, float32[n, d], and keys, int64[n, 2].
        """
        values: list[Any] = list(updates)
        if self._is_keyed:
            values = [
                collections.OrderedDict(update=update, client_key=key)
                for update, key in zip(updates, keys)
            ]
        output = self._process.next(self.state, values)
        self.state = output.state
        return AdversaryView.of(output.measurements[_RELEASE])


class ComposedRounds:
    """Rounds of a mechanism's codec, composed as the factory does, without TFF.

    Clients are given by images, the vectors that appear in the release; see
    `adversary.directions`.

    Attributes:
      codec: The mechanism's codec.
    """

    def __init__(
        self, mechanism: mechanisms.Mechanism, dimension: int, images: np.ndarray
    ):
        """Initializes the rounds, with images of the clients, float32[n, m]."""
        self.codec = codecs.make_codec(mechanism, dimension, arrays="tensorflow")
        self._mechanism = mechanism
        self._images = np.asarray(images, np.float32)
        self._bits = modulus_bits(mechanism)
        self._padding = self.codec.input_length - dimension
        clients = len(self._images)
        self._specs = (
            tf.TensorSpec([2], tf.int64),
            tf.TensorSpec([], tf.int32),
            tf.TensorSpec([clients, dimension], tf.float32),
            tf.TensorSpec([clients, 2], tf.int64),
        )
        self._updates = tf.function(self._aimed, self._specs[:2], autograph=False)
        self._axes = tf.function(self._directed, self._specs[:2], autograph=False)
        self._one = tf.function(self._summed, self._specs, autograph=False)
        self._run = tf.function(self._several, autograph=False)
        self._next = tf.function(self._decoded, autograph=False)

    def updates(self, seed: tf.Tensor, number: int) -> np.ndarray:
        """The updates whose images appear in a round, float32[n, d]."""
        return self._updates(seed, tf.constant(number, tf.int32)).numpy()

    def axes(self, seed: tf.Tensor, number: int) -> np.ndarray:
        """The updates that appear in one coordinate each, float32[m, d]."""
        return self._axes(seed, tf.constant(number, tf.int32)).numpy()

    def one(
        self, seed: tf.Tensor, number: int, updates: np.ndarray, keys: np.ndarray
    ) -> AdversaryView:
        """The adversary's view of a round of the first state.

        Args:
          seed: int64[2], the process's seed.
          number: Index of the round.
          updates: float32[n, d].
          keys: int64[n, 2].
        """
        return AdversaryView.of(
            self._one(seed, tf.constant(number, tf.int32), updates, keys)
        )

    def run(
        self, seed: tf.Tensor, first: int, joined: np.ndarray, keys: np.ndarray
    ) -> AdversaryView:
        """The adversary's view of several rounds, each of the first state.

        Args:
          seed: int64[2], the process's seed.
          first: Index of the first round.
          joined: float32[rounds, n], 1 for clients that join, 0 for others and for
            clients that send zeros.
          keys: int64[rounds, n, 2].
        """
        return AdversaryView.of(
            self._run(seed, tf.constant(first, tf.int32), joined, keys)
        )

    def _several(self, seed: Any, first: Any, joined: Any, keys: Any) -> Any:
        one_round = self._one.get_concrete_function()
        kind = tf.nest.map_structure(
            lambda out: tf.TensorSpec(out.shape, out.dtype),
            one_round.structured_outputs,
        )

        def one(arguments: Any) -> Any:
            number, coins, own_keys = arguments
            updates = self._updates(seed, number) * coins[:, tf.newaxis]
            return one_round(seed, number, updates, own_keys)

        numbers = first + tf.range(tf.shape(joined)[0])
        return tf.map_fn(one, (numbers, joined, keys), fn_output_signature=kind)

    def _shared(self, seed: Any, number: Any) -> tuple[Any, Fields]:
        """The round's seed and the expanded broadcast, both public."""
        round_seed = randomness.fold_in(
            seed, number, seed_domains.RoundDomain.BROADCAST
        )
        broadcast = self.codec.broadcast(self.codec.initial_state(), round_seed)
        return round_seed, self.codec.decode_broadcast(broadcast)

    def _aimed(self, seed: Any, number: Any) -> tf.Tensor:
        return tf.constant(self._images) @ self._directed(seed, number)

    def _directed(self, seed: Any, number: Any) -> tf.Tensor:
        shared = self._shared(seed, number)[1]
        aims = adversary.directions(self._mechanism, self.codec.dimension, shared)
        return tf.eye(self.codec.dimension) if aims is None else aims

    def stream(
        self, seed: tf.Tensor, first: int, joined: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """The results of consecutive rounds, float32[rounds, d].

        The first round has the first state.

        Args:
          seed: int64[2], the process's seed.
          first: Index of the first round.
          joined: float32[rounds, n], as for `run`.
          keys: int64[rounds, n, 2].
        """
        state, results = self.codec.initial_state(), []
        for i, (coins, own_keys) in enumerate(zip(joined, keys)):
            number = tf.constant(first + i, tf.int32)
            updates = self._updates(seed, number) * coins[:, np.newaxis]
            result, state = self._next(seed, number, updates, own_keys, state)
            results.append(result.numpy())
        return np.stack(results)

    def _summed(self, seed: Any, number: Any, updates: Any, keys: Any) -> Any:
        """The release of a round of the first state."""
        state = self.codec.initial_state()
        arguments = self._arguments(seed, number, updates, keys, state)
        return _named(self.codec.release(*arguments))

    def _decoded(
        self, seed: Any, number: Any, updates: Any, keys: Any, state: Fields
    ) -> Any:
        """The result of a round, and the state after it."""
        arguments = self._arguments(seed, number, updates, keys, state)
        decoded = self.codec.decode(*arguments)
        return decoded.mean, decoded.state

    def _arguments(
        self, seed: Any, number: Any, updates: Any, keys: Any, state: Fields
    ) -> Any:
        """The arguments of the codec's `decode` of a round."""
        codec = self.codec
        round_seed, shared = self._shared(seed, number)
        padded = tf.pad(tf.convert_to_tensor(updates), [[0, 0], [0, self._padding]])

        def encode(client: Any) -> tuple[Any, Any]:
            own = randomness.fold_in(
                keys[client],
                seed_domains.RoundDomain.CLIENT,
                round_seed[0],
                round_seed[1],
            )
            encoded = codec.encode(padded[client], shared, own)
            bits = codec.message_bits(encoded.message)
            sums = measurements.client_sums(encoded.normed, bits, encoded.sums)
            return encoded.message, sums

        def add(client: Any, total: Any, sums: Any) -> tuple[Any, Any, Any]:
            message, mine = encode(client)
            summed = tf.nest.map_structure(tf.add, sums, mine)
            return client + 1, codec.accumulate(total, message), summed

        message, first = encode(0)
        _, total, sums = tf.while_loop(
            lambda client, *_: client < tf.shape(padded)[0],
            add,
            [tf.constant(1), codec.accumulate(codec.zero(), message), first],
        )
        total = _wrapped(total, self._bits)
        noise_seed = randomness.fold_in(
            seed, number, seed_domains.RoundDomain.SERVER_NOISE
        )
        return state, total, sums, shared, noise_seed


def _named(released: Any) -> Fields:
    """A release as a vector "update", and "within" if there is a count."""
    if isinstance(released, dict):
        return collections.OrderedDict(released)
    return collections.OrderedDict(update=released)


def modulus_bits(mechanism: Any) -> dict[str, int]:
    """The bits b of each part of an opened secure sum; empty for other mechanisms."""
    if not mechanism.sums_securely:
        return {}
    return {"update": mechanism.modulus_bits, "within": CLIP_COUNT_BITS}


def _wrapped(total: Any, bits: dict[str, int]) -> Any:
    """A sum as the secure sum opens it."""
    if not bits:
        return total
    return collections.OrderedDict(
        (name, integers.wrap(part, bits[name])) for name, part in total.items()
    )
