# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The engine of JAX: many clients at once, on all devices.

with engine.opened(plan, setup) as trainer:
output = trainer.round(trainer.initialize(), clients=[3, 8])
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dpfl import checks, disk_cache, seed_domains
from dpfl.engines.jax import evaluation, networks, processes
from dpfl.engines.jax import rounds as rounds_lib
from dpfl.engines.jax.aggregator import jax_aggregator
from dpfl.engines.jax.rounds import State
from dpfl.tasks import clients as clients_lib
from dpfl.training import canaries, provenance, selection
from dpfl.training import plan as plan_lib
from dpfl.training.engine import (
    About,
    RoundOutput,
    Setup,
    check_leaves,
    write_weights,
)

# Most bytes of examples that stay on the device.
_RESIDENT_BYTES = 8 << 30
# Numbers of the parameters of clients at once, by platform.
_NUMBERS_AT_ONCE = {"cpu": 1 << 19}
_NUMBERS_ON_A_CARD = 1 << 27
# Bytes of a card for each of these: weights, gradient, update, the codec's vectors and
# activations. A hundred recurrent networks took some 50.
_BYTES_A_NUMBER = 128
_TRACED_ROUNDS = 3
_KEY_BYTES = 32
# Standard deviations of a cohort's size for which there is room, and for which the
# usual number of chunks suffices.
_DEVIATIONS, _USUAL_DEVIATIONS = 5, 2
# Beginnings of the environment's settings of JAX, its threads and oneDNN, and of those
# that no sum depends on.
_SETTINGS = ("JAX_", "NPROC=", "PJRT_NPROC=", "DNNL_", "ONEDNN_")
_FREE = ("JAX_PLATFORMS", "JAX_COMPILATION", "JAX_PERSISTENT", "JAX_LOG")
# Options of the compiler that make a program repeat its bits, by platform; they cost
# time.
_SAME_BITS = {"gpu": {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0}}


def about(plan: plan_lib.Plan) -> About:
    """The facts of a plan's engine.

    On processors a round repeats its bits, with as many threads: they divide products
    among them. A card may add in another order after a restart.
    """
    at_once = _most_at_once(plan)
    facts = {"device": jax.devices()[0].device_kind, "clients_at_once": at_once}
    is_of_processors = jax.default_backend() == "cpu"
    last_bits: dict[str, Any] = {}
    if is_of_processors:
        processors, *_ = disk_cache.ADDING_UP
        threads = max(processors, jax.local_device_count())
        last_bits = {**provenance.processors(), "threads": threads, **_settings()}
    needed = _BYTES_A_NUMBER * at_once + 4 * plan.mechanism.run_vectors(plan.dimension)
    memory = round(needed * plan.dimension)
    return About(facts, is_of_processors, last_bits, memory)


def _settings() -> dict[str, str]:
    """The environment's settings of JAX by name, without what no sum depends on.

    Facts of the engine have the number of devices, as far as it matters.
    """
    settings = provenance.environment(_SETTINGS)
    for name in provenance.environment(_FREE):
        del settings[name]
    words = os.environ.get("XLA_FLAGS", "").split()
    kept = sorted(word for word in words if "device_count" not in word)
    return {**settings, "XLA_FLAGS": " ".join(kept)}


@contextlib.contextmanager
def opened(plan: plan_lib.Plan, setup: Setup) -> Iterator[JaxEngine]:
    """The engine of a plan; programs are the last plan's if seeds alone differ."""
    config = plan.config
    key = provenance.digest(plan), config.measure, config.task_config
    if config.precision == "tf32" and jax.default_backend() == "cpu":
        setup.say("precision: processors have no tf32 and compute in float32")
    trainer = setup.last.get(
        (*key, config.seed is None),
        lambda: JaxEngine(plan, setup),
        lambda last: last.with_other_seeds(plan, setup),
    )
    with trainer.trace:
        yield trainer
    if config.profile and not config.process_id and trainer.trace.rounds < 2:
        setup.say("profile: no trace, since there was no second round to begin it with")


def follow(plan: plan_lib.Plan, setup: Setup) -> None:
    """Computes the rounds of a run with its first process.

    Args:
      plan: The plan of the run.
      setup: Everything else; key and seed are those of the first process.
    """
    with opened(plan, setup) as trainer:
        state = trainer.initialize()
        for index in range(int(state.round_index), plan.last_round):
            chosen = selection.select_cohort(plan.participation, trainer.key, index)
            clients = canaries.present(plan, trainer.key, chosen.tolist())
            state = trainer.round(state, clients).state


class _Trace(contextlib.ExitStack):
    """A trace of some rounds of a process, without the first, which compiles."""

    def __init__(self, directory: pathlib.Path):
        super().__init__()
        self._directory, self.rounds = directory, 0

    def begin_round(self) -> None:
        """Begins the trace before the second round, and ends it some rounds later."""
        if self.rounds == 1:
            self.enter_context(jax.profiler.trace(str(self._directory)))
        if self.rounds == 1 + _TRACED_ROUNDS:
            self.close()
        self.rounds += 1


def clients_at_once(dimension: int, cohort_size: int, varies: bool = False) -> int:
    """Clients that train at once by default, on the default device.

    As many as keep the device busy and its memory suffices for, in chunks of equal
    size; a larger cohort than usual needs another chunk.

    Args:
      dimension: d.
      cohort_size: Expected clients in a round.
      varies: Whether clients join independently of each other.
    """
    numbers = _NUMBERS_AT_ONCE.get(jax.default_backend(), _NUMBERS_ON_A_CARD)
    memory = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if memory is not None:
        numbers = min(numbers, memory // _BYTES_A_NUMBER)
    most = max(1, numbers // dimension)
    spread = _USUAL_DEVIATIONS * math.sqrt(cohort_size) if varies else 0
    usual = cohort_size + int(spread)
    return -(-usual // -(-usual // most))


def _most_clients(cohort_size: int) -> int:
    """Clients of the largest cohort that is expected of independent draws."""
    return cohort_size + math.ceil(_DEVIATIONS * math.sqrt(cohort_size))


def _most_at_once(plan: plan_lib.Plan) -> int:
    cohort_size, given = plan.mechanism.cohort_size, plan.config.clients_at_once
    if given:
        return min(given, _most_clients(cohort_size))
    return clients_at_once(
        plan.dimension, cohort_size, plan.participation.varies_cohorts
    )


class JaxEngine:
    """A plan's training in JAX; see `dpfl.training.engine.Engine`."""

    def __init__(self, plan: plan_lib.Plan, setup: Setup):
        """Initializes the engine; nothing is compiled.

        Args:
          plan: The plan of the run.
          setup: Everything else.

        Raises:
          ValueError: If the processes of the run have not joined.
        """
        wanted = plan.config.num_processes or 1
        if jax.process_count() != wanted:
            processes_here = f"{jax.process_count()}, those of `engine.joined`"
            raise ValueError(checks.message("num_processes", processes_here, wanted))
        self._begin(plan, setup)
        task, config = plan.task, plan.config
        if task.jax is None:
            model, self._names = networks.model(task.network), task.network.weight_names
            shapes = task.network.weight_shapes
            template = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
        else:
            model, template = task.jax, networks.template(task.jax)
            self._names = networks.names(template)
        most = _most_at_once(plan)
        self._aggregator = jax_aggregator(
            plan.mechanism,
            template,
            measure=config.measure,
            weighted=config.weighted,
            axis_name=rounds_lib.AXIS,
            clients_at_once=most,
        )
        self._rounds = rounds_lib.Rounds(
            plan,
            model,
            self._aggregator,
            most,
            _most_clients(plan.mechanism.cohort_size),
            # Whoever gives a seed wants the same run again.
            None if config.seed is None else _SAME_BITS.get(jax.default_backend()),
        )
        self._evaluator = evaluation.JaxEvaluator(task, model)
        self._resident, self._space = self._put_examples(), 1

    def _begin(self, plan: plan_lib.Plan, setup: Setup) -> None:
        key = np.frombuffer(setup.key.to_bytes(_KEY_BYTES, "big"), np.uint8)
        self.key = int.from_bytes(processes.from_first(key).tobytes(), "big")
        self._plan, self._setup = plan, setup
        self.trace = _Trace(setup.directory / "profile")
        # The next round, prepared: its index with its clients, and what it is given.
        self._ahead: tuple[Any, Any] = (None, None)

    def with_other_seeds(self, plan: plan_lib.Plan, setup: Setup) -> JaxEngine:
        """The engine, with its programs, of a plan that differs in seeds alone.

        Args:
          plan: The other plan.
          setup: Its setup.
        """
        other = copy.copy(self)
        other._begin(plan, setup)
        return other

    def _put_examples(self) -> Any:
        """All examples on the device; None if they are too many."""
        own = self._plan.task.clients
        if not isinstance(own, clients_lib.ArrayClients):
            return None
        if own.x.nbytes + own.y.nbytes > _RESIDENT_BYTES:
            return None
        return self._rounds.put((own.x, own.y))

    def _padded(self, part: np.ndarray, clients: int) -> np.ndarray:
        """Examples of a cohort with zeros behind them, so that few are compiled."""
        if len(part) > self._space:
            most = max(clients, _most_clients(self._plan.mechanism.cohort_size))
            self._space = math.ceil(len(part) / clients * most)
        return rounds_lib.padded(part, self._space)

    def initialize(self) -> State:
        """See base class."""
        return self._rounds.put(processes.from_first(self._first_state()))

    def _first_state(self) -> State:
        seed = None
        if not self._plan.draws_noise_anew:
            seed = selection.derive_seed(self.key, seed_domains.RunDomain.MECHANISM)
        return self._rounds.first_state(self._setup.model_seed, seed)

    def round(self, state: State, clients: Sequence[int]) -> RoundOutput:
        """See base class."""
        if self._plan.config.profile and not self._plan.config.process_id:
            self.trace.begin_round()
        plan, index = self._plan, int(state.round_index)
        (known, given), self._ahead = self._ahead, (None, None)
        if known != (index, *clients):
            given = self._given(index, clients)
        is_anew = plan.draws_noise_anew
        entropy = processes.from_first(self._aggregator.entropy()) if is_anew else None
        arguments = state, *given, entropy
        with processes.failures_told():
            output = self._rounds.program(*arguments)(*arguments)
        if index + 1 < plan.last_round:
            # While the device computes, what the run is to ask for next.
            chosen = selection.select_cohort(plan.participation, self.key, index + 1)
            guess = canaries.present(plan, self.key, chosen.tolist())
            self._ahead = (index + 1, *guess), self._given(index + 1, guess)
        with processes.failures_told():
            measured, released = jax.device_get((output.aggregator, output.released))
        train = {}
        if self._aggregator.measures_exactly:
            train = evaluation.metrics(plan.task.objective, output.train)
        return RoundOutput(output.state, train, measured, released)

    def _given(self, index: int, clients: Sequence[int]) -> tuple[Any, Any]:
        """The examples and the cohort of a round, which are copied to the devices."""
        task = self._plan.task
        # Canaries are behind them, and have no examples.
        chosen = np.array([c for c in clients if c < task.population], np.int64)
        canaries_here = len(clients) - len(chosen)
        orders = clients_lib.local_orders(
            task.clients.sizes, chosen, index, task.config
        )
        examples = self._resident
        if examples is None:
            read = task.clients.read(chosen)
            examples = self._rounds.put(
                tuple(self._padded(part, len(chosen)) for part in read)
            )
            sizes = task.clients.sizes[chosen]
            starts = np.cumsum(sizes) - sizes
        else:
            starts = task.clients.starts[chosen]
        orders = [start + order for start, order in zip(starts, orders)]
        orders += [np.zeros(0, np.int64)] * canaries_here
        keys = [selection.client_key(self.key, client) for client in clients]
        return examples, self._rounds.cohort(orders, keys, canaries_here)

    def evaluate(self, state: State, is_due: bool) -> Mapping[str, Any]:
        """See base class."""
        if not is_due:
            return dict.fromkeys(self._plan.task.metric_names)
        return self._evaluator(_here(state.params))

    def weights(self, state: State) -> list[np.ndarray]:
        """See base class."""
        return jax.tree.leaves(jax.device_get(state.params))

    def leaves(self, state: State) -> list[np.ndarray]:
        """See base class."""
        return jax.tree.leaves(jax.device_get(state))

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> State:
        """See base class."""
        specs, structure = jax.tree.flatten(jax.eval_shape(self._first_state))
        check_leaves(leaves, specs)
        restored = processes.from_first(jax.tree.unflatten(structure, leaves))
        return self._rounds.put(restored)

    def save_model(self, state: State, directory: pathlib.Path) -> None:
        """See base class."""
        write_weights(directory, self._names, self.weights(state))


def _here(tree: Any) -> Any:
    """The part on one device of arrays that are on all."""
    return jax.tree.map(lambda part: part.addressable_data(0), tree)
