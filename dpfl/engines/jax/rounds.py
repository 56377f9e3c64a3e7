# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A round of federated averaging as one program of JAX, whatever the cohort's size.

    rounds = Rounds(plan, model, aggregator, clients_at_once, clients, options)
    state = rounds.first_state(model_seed, aggregator_seed)
    output = rounds.next(state, examples, cohort)

A cohort is sorted by size and padded with absent clients to a number of chunks. A chunk
trains together, as many steps as its largest client has; a chunk of absent clients is
skipped. So cohorts of any size are executed by one compiled program, until one has more
clients or examples than there is room for.

Chunks are dealt to all devices of all processes in turn, and the rest of a round is
done by each of them. A chunk is the same for any number of devices, and messages are
added as integers, or in the order of the chunks, so that the bits are the same too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import sharding

from dpfl import arrays, machine
from dpfl.arrays import Array
from dpfl.engines.jax import local_training
from dpfl.engines.jax.aggregator import JaxAggregator
from dpfl.engines.jax.local_training import Batch, Sums
from dpfl.tasks.task import JaxParts
from dpfl.training import plan as plan_lib
from dpfl.training import server_optimizers
from dpfl.training.engine import RoundOutput, check_memory
from dpfl.vectors import canaries

# Growth of the space for a cohort's examples, so that few programs are compiled.
_GROWTH = 1.25
# Name of the axis of devices.
AXIS = "devices"


class State(NamedTuple):
    """The state between rounds.

    Attributes:
      round_index: int32[], rounds done.
      params: The model's parameters.
      aggregator: State of the aggregator.
      optimizer: State of the server's optimizer.
    """

    round_index: Array
    params: Any
    aggregator: Any
    optimizer: Any


class CohortArrays(NamedTuple):
    """The clients of a round in the order of their sizes, and absent ones.

    Attributes:
      rows: int32[rows], places of the clients' examples, in the order of training,
        client after client.
      starts: int32[clients], the place in `rows` of a client's first example.
      sizes: int32[clients], the number of a client's examples in the round.
      keys: uint32[clients, 4], a client's secret.
      is_there: bool[clients], False for absent clients.
      is_canary: bool[clients], whether a client is a canary.
    """

    rows: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    keys: np.ndarray
    is_there: np.ndarray
    is_canary: np.ndarray


# Examples on the device, of all clients or of a cohort: inputs as they are stored,
# [examples, ...], and labels, int32[examples, ...].
Examples = tuple[Array, Array]


def padded(part: np.ndarray, length: int) -> np.ndarray:
    """An array with zeros behind it, so that few programs are compiled."""
    rest = np.zeros([length - len(part), *part.shape[1:]], part.dtype)
    return np.concatenate([part, rest])


class Rounds:
    """The compiled rounds of a run.

    Attributes:
      next: The function of a round, to be compiled.
      compilations: The number of programs that were compiled.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        model: JaxParts,
        aggregator: JaxAggregator,
        clients_at_once: int,
        clients: int,
        compiler_options: Optional[Mapping[str, Any]],
    ):
        """Initializes the rounds; nothing is compiled.

        Args:
          plan: The plan of the run.
          model: The model.
          aggregator: The aggregator, of the model's parameters.
          clients_at_once: Clients of a chunk.
          clients: Clients that a cohort has room for; one with more is compiled anew.
          compiler_options: Options of the compiler of a round.
        """
        self._plan = plan
        self._model = model
        self._aggregator = aggregator
        self._optimizer = plan.server_optimizer
        self._clients_at_once = clients_at_once
        # A cohort without clients has a chunk of absent ones.
        self._clients, self._rows = 1, 1
        self._make_room(clients)
        self.compilations, self._shapes, self._program = 0, None, None
        mesh = sharding.Mesh(np.array(jax.devices()), (AXIS,))
        everywhere = sharding.PartitionSpec()
        self._everywhere = sharding.NamedSharding(mesh, everywhere)
        self.next = jax.jit(
            jax.shard_map(
                self._next,
                mesh=mesh,
                in_specs=everywhere,
                out_specs=everywhere,
                check_vma=False,
            ),
            compiler_options=compiler_options,
        )

    def program(self, *arguments: Any) -> Any:
        """The program of `next` for arguments of these shapes, compiled once.

        Raises:
          NotEnoughMemoryError: If the first program does not fit in the memory of the
            device; later sizes follow from secret cohorts.
        """
        shapes = jax.tree.map(jnp.shape, arguments)
        if shapes != self._shapes:
            self._shapes, self._program = shapes, self.next.lower(*arguments).compile()
            self.compilations += 1
            if self.compilations == 1:
                _check_memory(self._program, self._clients_at_once)
        return self._program

    def put(self, tree: Any) -> Any:
        """A pytree of arrays of the same values in all processes, on all devices."""

        def one(part: Any) -> Array:
            part = np.asarray(part)
            return jax.make_array_from_callback(
                part.shape, self._everywhere, part.__getitem__
            )

        return jax.tree.map(one, tree)

    def first_state(self, model_seed: int, aggregator_seed: Optional[int]) -> State:
        """The state before the first round.

        Args:
          model_seed: Seed of the parameters.
          aggregator_seed: As for `JaxAggregator.init`.
        """
        params = self._model.init(model_seed)
        return State(
            jnp.zeros([], jnp.int32),
            params,
            self._aggregator.init(aggregator_seed),
            self._optimizer.initialize(
                arrays.named("jax"), [leaf.shape for leaf in jax.tree.leaves(params)]
            ),
        )

    def cohort(
        self,
        orders: Sequence[np.ndarray],
        keys: Sequence[Sequence[int]],
        canaries_last: int = 0,
    ) -> CohortArrays:
        """The cohort of clients, padded so that few programs are compiled.

        Args:
          orders: Places of each client's examples, in the order of training.
          keys: Each client's secret, two words of 64 bits.
          canaries_last: How many of the last clients are canaries.
        """
        is_canary = np.arange(len(orders)) >= len(orders) - canaries_last
        sizes = np.array([len(order) for order in orders], np.int32)
        by_size = np.argsort(-sizes, kind="stable")
        self._make_room(len(orders))
        total = int(sizes.sum())
        if total > self._rows:
            self._rows = math.ceil(_GROWTH * total / len(orders) * self._clients)
        rows = np.concatenate([sizes[:0], *(orders[i] for i in by_size)])
        own = padded(sizes[by_size], self._clients)
        words = np.reshape(np.array(keys, np.int64), [-1, 2])[by_size]
        return CohortArrays(
            padded(rows.astype(np.int32), self._rows),
            np.cumsum(own, dtype=np.int32) - own,
            own,
            padded(words, self._clients).view(np.uint32),
            np.arange(self._clients) < len(orders),
            padded(is_canary[by_size], self._clients),
        )

    def _make_room(self, clients: int) -> None:
        at_once = self._clients_at_once
        self._clients = max(self._clients, -(-clients // at_once) * at_once)

    def _next(
        self,
        state: State,
        examples: Examples,
        cohort: CohortArrays,
        entropy: Optional[Array] = None,
    ) -> RoundOutput:
        """Executes a round; `train` of its output are sums over clients.

        Args:
          state: The state before.
          examples: The examples that `cohort.rows` are places of.
          cohort: The clients.
          entropy: As for `JaxAggregator.update`.
        """
        made, sums = self._aggregator.update(
            state.aggregator,
            functools.partial(self._trained, state, examples, cohort),
            cohort.keys,
            entropy,
            cohort.is_there,
            weights=cohort.sizes if self._aggregator.takes_weights else None,
            has_aux=True,
        )
        after = self._stepped(state, made.mean)._replace(aggregator=made.state)
        released = jax.tree.leaves(made.mean) if self._plan.config.canaries else ()
        return RoundOutput(after, sums, made.measured, released)

    def _trained(
        self, state: State, examples: Examples, cohort: CohortArrays, places: Array
    ) -> tuple[Any, Sums]:
        """The updates of the clients at places, and the sums of their training."""
        task, size = self._plan.task, self._plan.task.config.batch_size
        sizes, starts, words = (
            part[places] for part in (cohort.sizes, cohort.starts, cohort.keys)
        )

        def batches(step: Array) -> Batch:
            within = step * size + jnp.arange(size, dtype=jnp.int32)
            is_there = within < sizes[:, jnp.newaxis]
            taken = jnp.where(is_there, starts[:, jnp.newaxis] + within, 0)
            rows = cohort.rows[taken]
            x, y = (part[rows] for part in examples)
            x = task.to_input(x) if task.to_input else x
            # Row 0 stands in for missing ones; it may hold anything.
            there = jnp.reshape(is_there, [*is_there.shape, *[1] * (x.ndim - 2)])
            return Batch(jnp.where(there, x, 0), y, is_there)

        keys = jax.vmap(_dropout_key, (0, None))(words, state.round_index)
        update, sums = local_training.train(
            self._model,
            task.objective,
            state.params,
            batches,
            jnp.max(-(-sizes // size), initial=0),
            client_lr=self._plan.client_lr,
            keys=keys,
            precision=self._plan.config.precision,
        )
        if (length := self._plan.canary_length) is not None:
            update = _with_canaries(update, words, cohort.is_canary[places], length)
        return update, sums

    def _stepped(self, state: State, mean: Any) -> State:
        """The state after the server's step, or the same if the mean is not finite."""
        leaves, structure = jax.tree.flatten(state.params)
        optimizer, weights = server_optimizers.stepped(
            self._optimizer, state.optimizer, leaves, jax.tree.leaves(mean)
        )
        return state._replace(
            round_index=state.round_index + 1,
            params=jax.tree.unflatten(structure, weights),
            optimizer=optimizer,
        )


def _check_memory(program: Any, clients_at_once: int) -> None:
    """Raises NotEnoughMemoryError if a program's buffers exceed the free memory."""
    used, devices = program.memory_analysis(), jax.local_devices()
    if used is None:
        return
    # Examples, test set and state are there.
    needed = used.temp_size_in_bytes + used.output_size_in_bytes
    stats = devices[0].memory_stats()
    if stats is not None and "bytes_limit" in stats:
        free: Optional[int] = stats["bytes_limit"] - stats["bytes_in_use"]
    else:
        # Devices of a processor have one memory.
        needed, free = needed * len(devices), machine.free_memory()
    what = f"a round with {clients_at_once} clients at once"
    mend = "a smaller --clients_at_once needs less, in another output_dir"
    check_memory(needed, free, what, mend)


def _with_canaries(update: Any, words: Array, is_canary: Array, length: float) -> Any:
    """Updates of clients, [m, ...], with those of canaries in their places.

    Args:
      update: The updates of training.
      words: uint32[m, 4], the clients' keys.
      is_canary: bool[m].
      length: The L2 norm of a canary's update.
    """
    leaves, structure = jax.tree.flatten(update)
    sizes = [math.prod(leaf.shape[1:]) for leaf in leaves]
    with jax.enable_x64(True):
        keys = jax.lax.bitcast_convert_type(words.reshape([-1, 2, 2]), jnp.int64)
        own = jax.vmap(lambda key: canaries.update(key, sum(sizes), length))(keys)

    def chosen(part: Array, leaf: Array) -> Array:
        is_own = is_canary.reshape([-1, *[1] * (leaf.ndim - 1)])
        return jnp.where(is_own, part.reshape(leaf.shape), leaf)

    parts = jnp.split(own, np.cumsum(sizes)[:-1], axis=1)
    return jax.tree.unflatten(structure, list(map(chosen, parts, leaves)))


def _dropout_key(words: Array, round_index: Array) -> Array:
    key = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
    for more in (words[2], words[3], round_index):
        key = jax.random.fold_in(key, more)
    return key
