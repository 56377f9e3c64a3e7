# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Libraries that an environment has, and rounds of a codec in each of them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
from typing import Any, NamedTuple

import numpy as np

import dpfl
from dpfl.codecs import measurements
from dpfl.codecs.base import Received
from dpfl.vectors import randomness

HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
NAMES = ("numpy", "tensorflow" if HAS_TENSORFLOW else "jax")
# The domains of a round's seeds.
BROADCAST, CLIENT, NOISE = range(3)


def wide(name: str) -> Any:
    """A context in which a library has 64-bit types."""
    if name != "jax":
        return contextlib.nullcontext()
    import jax

    return jax.enable_x64(True)


def traced(nx: Any, function: Any) -> Any:
    """A function compiled by TensorFlow or JAX; in numpy the function itself."""
    if nx.__name__.endswith("jax"):
        import jax

        return jax.jit(function)
    if nx.__name__.endswith("tensorflow"):
        import tensorflow as tf

        return tf.function(function, autograph=False)
    return function


class Round(NamedTuple):
    """Everything that a round sends, sums, releases and decodes, as arrays of numpy.

    Attributes:
      messages: The message of each client.
      shared: The decoded broadcast.
      sums: Sums over clients.
      total: The sum of messages.
      released: The release.
      decoded: The decoded release.
      exact: Exact metrics.
    """

    messages: list[Any]
    shared: Any
    sums: Any
    total: Any
    released: Any
    decoded: Any
    exact: Any


class Rounds:
    """First rounds of a mechanism for given updates, computed in several ways."""

    def __init__(self, mechanism: Any, updates: np.ndarray, nx: Any):
        """Makes the codec, and what the server shares with all clients."""
        name = nx.__name__.rpartition("in_")[2]
        self.nx = nx
        self.codec = dpfl.make_codec(mechanism, updates.shape[1], arrays=name)
        padding = [[0, 0], [0, self.codec.input_length - updates.shape[1]]]
        self.updates = nx.asarray(np.pad(updates, padding), np.float32)
        self.seed = nx.asarray(np.array([5, -7]), np.int64)
        self.state = self.codec.initial_state()
        self._functions: dict[str, Any] = {}
        self._opened: dict[tuple[bool, str], Any] = {}

    def shared(self, seed: Any) -> Any:
        """The decoded broadcast."""
        own = randomness.fold_in(seed, BROADCAST)
        return self.codec.decode_broadcast(self.codec.broadcast(self.state, own))

    def sent(self, update: Any, shared: Any, seed: Any, client: Any) -> Any:
        """A client's message, its part of the total, and its sums."""
        own = randomness.fold_in(seed, CLIENT, client)
        encoded = self.codec.encode(update, shared, own)
        bits = self.codec.message_bits(encoded.message)
        sums = measurements.client_sums(encoded.normed, bits, encoded.sums)
        part = self.codec.accumulate(self.codec.zero(), encoded.message)
        return encoded.message, part, sums

    def opened(self, total: Any, sums: Any, shared: Any, seed: Any) -> Any:
        """The release, its decoding, and exact metrics."""
        own = randomness.fold_in(seed, NOISE)
        received = Received(self.state, total, sums, shared, own)
        return (
            self.codec.release(received),
            self.codec.decode(received),
            self.codec.exact_metrics(received),
        )

    @property
    def ways(self) -> list[str]:
        """The ways in which the library can compute a round."""
        if self.nx.__name__.endswith("numpy"):
            return ["eager"]
        last = [] if self.nx.__name__.endswith("tensorflow") else ["vmapped"]
        return ["eager", "traced", *last]

    def run(self, way: str, compiles_release: bool = True) -> Round:
        """A round in one of the `ways`.

        Equal sums are opened once by each function, since its compilation takes long.
        """
        compiled = (lambda f: f) if way == "eager" else self.compiled
        shared = compiled(self.shared)(self.seed)
        messages, total, sums = getattr(self, f"_{way}")(compiled, shared)
        total = self.codec.reduce_modulo(total)
        key = way != "eager" and compiles_release, digest(plain((total, sums, shared)))
        if key not in self._opened:
            opened = self.compiled(self.opened) if key[0] else self.opened
            self._opened[key] = opened(total, sums, shared, self.seed)
        messages = [plain(message) for message in messages]
        return Round(messages, *map(plain, (shared, sums, total, *self._opened[key])))

    def compiled(self, function: Any) -> Any:
        """A function of its name compiled once."""
        if function.__name__ not in self._functions:
            self._functions[function.__name__] = traced(self.nx, function)
        return self._functions[function.__name__]

    def _eager(self, compiled: Any, shared: Any) -> Any:
        """One client after the other."""
        sent = compiled(self.sent)
        each = [
            sent(self.updates[i], shared, self.seed, self.nx.asarray(i, np.int64))
            for i in range(self.updates.shape[0])
        ]
        total, sums = each[0][1:]
        for _, part, own in each[1:]:
            total, sums = self.codec.merge(total, part), self._add(sums, own)
        return [message for message, _, _ in each], total, sums

    _traced = _eager

    def _vmapped(self, compiled: Any, shared: Any) -> Any:
        """In two chunks of equal size, all clients of a chunk at a time; JAX only."""
        import jax
        import jax.numpy as jnp

        def chunk(updates: Any, shared: Any, seed: Any, clients: Any) -> Any:
            sent = jax.vmap(self.sent, (0, None, None, 0))
            messages, parts, sums = sent(updates, shared, seed, clients)
            added = jax.tree.map(lambda x: x.sum(0, dtype=x.dtype), (parts, sums))
            return messages, *added

        count = self.updates.shape[0]
        half, run = count // 2, compiled(chunk)
        clients = jnp.arange(count)
        first, second = (
            run(self.updates[part], shared, self.seed, clients[part])
            for part in (slice(half), slice(half, None))
        )
        messages = [
            jax.tree.map(lambda x, i=i: x[i], each[0])
            for each in (first, second)
            for i in range(half)
        ]
        total = self.codec.merge(first[1], second[1])
        return messages, total, self._add(first[2], second[2])

    def _add(self, sums: Any, more: Any) -> Any:
        return self.nx.tree_map(lambda one, two: one + two, sums, more)


def plain(tree: Any) -> Any:
    """A tree with arrays of numpy; values that fixed shapes add are cut off."""
    if isinstance(tree, dict):
        tree = {name: plain(part) for name, part in tree.items()}
        if "number" in tree:
            number = tree.pop("number")
            assert not tree["values"][number:].any()
            tree["values"] = tree["values"][:number]
        return tree
    if isinstance(tree, (list, tuple)):
        parts = [plain(part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return np.asarray(tree)


def digest(tree: Any) -> str:
    """64 bits of SHA-256 of the dtypes, shapes and bytes of a tree."""
    text = hashlib.sha256()
    for name, array in leaves(tree):
        kind = array.dtype.newbyteorder("<")
        text.update(f"{name}:{kind.str}:{array.shape}:".encode())
        text.update(array.astype(kind).tobytes())
    return text.hexdigest()[:16]


def leaves(tree: Any, name: str = "") -> Any:
    """The arrays of a plain tree with their names, in order."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from leaves(tree[key], f"{name}.{key}")
    elif isinstance(tree, (list, tuple)):
        for index, part in enumerate(tree):
            yield from leaves(part, f"{name}.{index}")
    else:
        yield name, np.asarray(tree)
