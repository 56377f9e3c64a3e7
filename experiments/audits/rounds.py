# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds of real aggregators, with everything that an adversary sees.

    through = rounds.AGGREGATOR(mechanism, dimension, seed)
    composed = rounds.ComposedRounds(mechanism, dimension, images)
    updates = composed.updates(through.seed, 0)
    release = through.run(updates, keys).release

`AGGREGATOR` is `FactoryRounds` beside TFF, the registry's factory in its worker, and
else `JaxRounds`, of `dpfl.jax_aggregator`; both have the release of `Codec.release`
among the measurements. `ComposedRounds` calls the same codec's functions in the order
in which the aggregator does: many more rounds in the same time. With equal seeds both
give the same integers.
"""

from __future__ import annotations

import collections
import operator
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import codecs, mechanisms, seed_domains
from dpfl.arrays import Array
from dpfl.codecs import measurements
from dpfl.codecs.base import Codec, Decoded, Fields, Received
from dpfl.mechanisms.integer import CLIP_COUNT_BITS
from dpfl.vectors import integers, randomness

from . import adversary, library
from .library import NX

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

    def decode(received: Received) -> Decoded:
        decoded = own_decode(received)
        measured = collections.OrderedDict(decoded.measurements)
        # A release may be what decoding gives.
        codec.decode = own_decode  # type: ignore[method-assign]
        measured[_RELEASE] = _named(codec.release(received))
        codec.decode = decode  # type: ignore[method-assign]
        return decoded._replace(measurements=measured)

    codec.released_measurements += (_RELEASE,)
    codec.decode = decode  # type: ignore[method-assign]
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
        import tensorflow_federated as tff

        from dpfl.aggregators import registry

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
    def seed(self) -> Array:
        """The seed in the state, int64[2]."""
        return library.seed(*self.state["seed"])

    @property
    def number(self) -> int:
        """The index of the next round, from 0 on."""
        return int(self.state["round"])

    def forget(self) -> None:
        """Resets to the first state, but never to an earlier round."""
        self.state = collections.OrderedDict(self._initial, round=self.state["round"])

    def run(
        self, updates: np.ndarray, keys: np.ndarray, here: Optional[np.ndarray] = None
    ) -> AdversaryView:
        """Runs the next round and returns the adversary's view.

        Args:
          updates: The clients' updates, float32[n, d].
          keys: Their keys, int64[n, 2].
          here: bool[n], the clients that take part; None for all.
        """
        if here is not None:
            updates, keys = updates[here], keys[here]
        values: list[Any] = list(updates)
        if self._is_keyed:
            values = [
                collections.OrderedDict(update=update, client_key=key)
                for update, key in zip(updates, keys)
            ]
        output = self._process.next(self.state, values)
        self.state = output.state
        return AdversaryView.of(output.measurements[_RELEASE])


class JaxRounds(FactoryRounds):
    """Rounds of a mechanism's aggregator in JAX."""

    def __init__(
        self, mechanism: Any, dimension: int, seed: int, *, is_keyed: bool = True
    ):
        """See base class; the clients' draws then follow from their places."""
        import jax

        from dpfl.engines.jax import aggregator, layout

        self._is_keyed = is_keyed
        template = jax.ShapeDtypeStruct([dimension], np.float32)
        made = aggregator.JaxAggregator(
            witnessed(codecs.make_codec(mechanism, dimension, library.NAME)),
            layout.TreeLayout(template),
            identity=mechanism.identity,
            released_measurements=mechanism.released_measurements,
        )
        self._update = jax.jit(made.update)
        self._initial = self.state = made.init(seed)

    @property
    def seed(self) -> Array:
        """See base class."""
        return library.seed(*np.asarray(self.state["seed"]).view(np.int64).ravel())

    def run(
        self, updates: np.ndarray, keys: np.ndarray, here: Optional[np.ndarray] = None
    ) -> AdversaryView:
        """See base class."""
        here = np.ones(len(updates), bool) if here is None else here
        own = keys if self._is_keyed else None
        output = self._update(self.state, updates, own, None, here)
        self.state = output.state
        return AdversaryView.of(output.measured[_RELEASE])


AGGREGATOR = FactoryRounds if library.HAS_TFF else JaxRounds


class ComposedRounds:
    """Rounds of a mechanism's codec, composed as the aggregator does.

    Clients are given by images, the vectors that appear in the release; see
    `adversary.directions`.

    Attributes:
      codec: The mechanism's codec.
    """

    def __init__(
        self, mechanism: mechanisms.Mechanism, dimension: int, images: np.ndarray
    ):
        """Initializes the rounds, with images of the clients, float32[n, m]."""
        self.codec = codecs.make_codec(mechanism, dimension, arrays=library.NAME)
        self._mechanism = mechanism
        self._images = np.asarray(images, np.float32)
        self._bits = modulus_bits(mechanism)
        self._padding = self.codec.input_length - dimension
        clients = len(self._images)
        specs: tuple[Any, ...] = (
            *(([2], np.int64), ([], np.int32)),
            *(([clients, dimension], np.float32), ([clients, 2], np.int64)),
        )
        self._updates = library.compiled(self._aimed, *specs[:2])
        self._axes = library.compiled(self._directed, *specs[:2])
        self._one = library.compiled(self._summed, *specs)
        self._run = library.compiled(self._several)
        self._next = library.compiled(self._decoded)

    def updates(self, seed: Array, number: int) -> np.ndarray:
        """The updates whose images appear in a round, float32[n, d]."""
        return np.asarray(self._updates(seed, _number(number)))

    def axes(self, seed: Array, number: int) -> np.ndarray:
        """The updates that appear in one coordinate each, float32[m, d]."""
        return np.asarray(self._axes(seed, _number(number)))

    def one(
        self, seed: Array, number: int, updates: np.ndarray, keys: np.ndarray
    ) -> AdversaryView:
        """The adversary's view of a round of the first state.

        Args:
          seed: int64[2], the process's seed.
          number: Index of the round.
          updates: float32[n, d].
          keys: int64[n, 2].
        """
        return AdversaryView.of(self._one(seed, _number(number), updates, keys))

    def run(
        self, seed: Array, first: int, joined: np.ndarray, keys: np.ndarray
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
            self._run(seed, _number(first), *map(NX.asarray, (joined, keys), _KINDS))
        )

    def _several(self, seed: Any, first: Any, joined: Any, keys: Any) -> Any:
        def one(arguments: Any) -> Any:
            number, coins, own_keys = arguments
            updates = self._updates(seed, number) * coins[:, np.newaxis]
            return self._one(seed, number, updates, own_keys)

        numbers = first + NX.arange(NX.shape(joined)[0], dtype=np.int32)
        return library.mapped(one, (numbers, joined, keys))

    def _shared(self, seed: Any, number: Any) -> tuple[Any, Fields]:
        """The round's seed and the expanded broadcast, both public."""
        round_seed = randomness.fold_in(
            seed, number, seed_domains.RoundDomain.BROADCAST
        )
        broadcast = self.codec.broadcast(self.codec.initial_state(), round_seed)
        return round_seed, self.codec.decode_broadcast(broadcast)

    def _aimed(self, seed: Any, number: Any) -> Array:
        return NX.asarray(self._images, np.float32) @ self._directed(seed, number)

    def _directed(self, seed: Any, number: Any) -> Array:
        shared = self._shared(seed, number)[1]
        aims = adversary.directions(self._mechanism, self.codec.dimension, shared)
        units = NX.eye(self.codec.dimension, dtype=np.float32)
        return units if aims is None else aims

    def stream(
        self, seed: Array, first: int, joined: np.ndarray, keys: np.ndarray
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
            number = _number(first + i)
            updates = self._updates(seed, number) * coins[:, np.newaxis]
            result, state = self._next(seed, number, updates, own_keys, state)
            results.append(np.asarray(result))
        return np.stack(results)

    def _summed(self, seed: Any, number: Any, updates: Any, keys: Any) -> Any:
        """The release of a round of the first state."""
        state = self.codec.initial_state()
        received = self._received(seed, number, updates, keys, state)
        return _named(self.codec.release(received))

    def _decoded(
        self, seed: Any, number: Any, updates: Any, keys: Any, state: Fields
    ) -> Any:
        """The result of a round, and the state after it."""
        received = self._received(seed, number, updates, keys, state)
        decoded = self.codec.decode(received)
        return decoded.mean, decoded.state

    def _received(
        self, seed: Any, number: Any, updates: Any, keys: Any, state: Fields
    ) -> Received:
        """A round as the server opens it."""
        codec = self.codec
        round_seed, shared = self._shared(seed, number)
        padded = NX.pad(NX.asarray(updates, np.float32), [[0, 0], [0, self._padding]])
        keys = NX.asarray(keys, np.int64)

        def encode(client: Any) -> tuple[Any, Any]:
            own = self._client_seed(seed, number, client, keys[client], round_seed)
            encoded = codec.encode(padded[client], shared, own)
            bits = codec.message_bits(encoded.message)
            sums = measurements.client_sums(encoded.normed, bits, encoded.sums)
            return encoded.message, sums

        def add(client: Any, total: Any, sums: Any) -> tuple[Any, Any, Any]:
            message, mine = encode(client)
            summed = NX.tree_map(operator.add, sums, mine)
            return client + 1, codec.accumulate(total, message), summed

        message, first = encode(0)
        _, total, sums = NX.while_loop(
            lambda client, *_: client < NX.shape(padded)[0],
            add,
            [_number(1), codec.accumulate(codec.zero(), message), first],
        )
        total = _wrapped(total, self._bits)
        noise_seed = randomness.fold_in(
            seed, number, seed_domains.RoundDomain.SERVER_NOISE
        )
        return Received(state, total, sums, shared, noise_seed)

    def _client_seed(
        self, seed: Any, number: Any, client: Any, key: Any, round_seed: Any
    ) -> Array:
        """A client's own seed of a round, as the aggregator derives it."""
        domain = seed_domains.RoundDomain.CLIENT
        if library.HAS_TFF:
            return randomness.fold_in(key, domain, round_seed[0], round_seed[1])
        secret = randomness.fold_in(seed, number, domain)
        return randomness.fold_in(secret, client, key[0], key[1])


# Dtypes of the clients that join, and of their keys.
_KINDS = (np.float32, np.int64)


def _number(value: int) -> Array:
    return NX.asarray(value, np.int32)


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
