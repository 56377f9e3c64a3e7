# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The interface between a run and an engine, which trains; and the table of engines.

    with engine.opened("jax", plan, setup) as trainer:
        state = trainer.initialize()
        output = trainer.round(state, clients=[3, 8])

A run plans, selects, accounts and records; it does not know its engine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import pathlib
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Protocol

import numpy as np

from dpfl import checks, files

# Modules by the name of their engine; each has a function `opened` of a plan and a
# `Setup`, to a context of an `Engine`; and modules with a function `about` of a plan.
ENGINES = {"tff": "dpfl.engines.tff.engine", "jax": "dpfl.engines.jax.engine"}
# Modules with a function `logits_of` of a task.
_LOGITS = {
    "tff": "dpfl.engines.tff.keras_models",
    "jax": "dpfl.engines.jax.evaluation",
}
_FACTS = {"tff": "dpfl.engines.tff.facts", "jax": "dpfl.engines.jax.engine"}
# Settings that one engine alone has.
OWN_SETTINGS = {
    "tff": ("round_deadline", "concurrency", "worker_isolation"),
    "jax": (
        *("precision", "clients_at_once", "profile"),
        *("coordinator_address", "num_processes", "process_id"),
    ),
}
# Precisions of products of matrices in local training, with JAX's names of them.
PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "default"}
# Isolations of TFF's worker; `dpfl.engines.tff.isolation` says what each is.
ISOLATIONS = ("socket", "anyone_can_connect")
State = Any
# Name of the file with the model's weights, of any engine.
MODEL = "model.npz"


class EngineLostError(RuntimeError):
    """The engine ended or failed; the same command goes on from the checkpoint."""


class NotEnoughMemoryError(ValueError):
    """A round does not fit in the memory of the device."""


def check_memory(needed: int, free: Optional[int], what: str, mend: str) -> None:
    """Raises NotEnoughMemoryError if more bytes are needed than are free.

    Args:
      needed: Bytes.
      free: Bytes; None if it is not known.
      what: Words on who needs them.
      mend: Words on what needs less.
    """
    if free is not None and needed > free:
        raise NotEnoughMemoryError(
            f"not enough memory: {what} needs {needed / 1e9:.1f} GB, and "
            f"{free / 1e9:.1f} GB are free; {mend}"
        )


class About(NamedTuple):
    """Facts of an engine, before a run.

    Attributes:
      facts: Facts that a round's bits depend on, by name; they stay when a run resumes.
      repeats_rounds: Whether a round that is executed again from the same state has the
        same bits.
      last_bits: Facts that move the last bits of sums alone; they stay too, and no seed
        depends on them.
      memory: Upper bound on the bytes of a run's vectors.
    """

    facts: Mapping[str, Any]
    repeats_rounds: bool
    last_bits: Mapping[str, Any] = types.MappingProxyType({})
    memory: int = 0


class RoundOutput(NamedTuple):
    """The result of a round.

    Attributes:
      state: The state after it.
      train: Metrics of the clients on their batches, each before its step, by name.
        They are exact, so outside of the privacy guarantee.
      aggregator: The aggregator's measurements, which may be nested.
      released: The aggregate in the order of the trainable weights, if the run has
        canaries; else nothing.
    """

    state: State
    train: Mapping[str, Any]
    aggregator: Mapping[str, Any]
    released: Sequence[Any] = ()


class Engine(Protocol):
    """An engine of a plan; a state is the engine's own."""

    def initialize(self) -> State:
        """The state before the first round."""

    def round(self, state: State, clients: Sequence[int]) -> RoundOutput:
        """Executes a round with the clients of these indices.

        Raises:
          EngineLostError: If the engine ends or fails, or takes too long.
        """

    def evaluate(self, state: State, is_due: bool) -> Mapping[str, Any]:
        """Metrics on the evaluation set by name; each is None if none is due."""

    def weights(self, state: State) -> list[np.ndarray]:
        """The model's weights, in Keras's order."""

    def leaves(self, state: State) -> list[np.ndarray]:
        """The arrays of a state."""

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> State:
        """Restores a state; raises ValueError for arrays of another run."""

    def save_model(self, state: State, directory: pathlib.Path) -> None:
        """Writes the model's files in a folder."""


class LastProcess:
    """The newest process of this Python process, with the key that it was built for."""

    def __init__(self) -> None:
        self._key: Optional[Hashable] = None
        self._process: Any = None

    def get(
        self,
        key: Hashable,
        build: Callable[[], Any],
        with_other_seeds: Callable[[Any], Any],
    ) -> Any:
        """The process for a key: built now, or the last one if its key is the same.

        Args:
          key: Everything that the process depends on, except seeds.
          build: Builds a process.
          with_other_seeds: Derives one with other seeds from an old process.
        """
        process = with_other_seeds(self._process) if key == self._key else build()
        self._key, self._process = key, process
        return process


@dataclasses.dataclass(frozen=True)
class Setup:
    """Everything that an engine needs besides the plan.

    Attributes:
      directory: The run's folder.
      key: The run's key, from which seeds are derived.
      model_seed: Seed of the initial weights.
      say: Called with sentences for the user.
      last: The newest computations of this Python process, which may be reused.
    """

    directory: pathlib.Path
    key: int
    model_seed: int
    say: Callable[[str], None]
    last: LastProcess


def write_weights(
    directory: pathlib.Path, names: Iterable[str], weights: Iterable[np.ndarray]
) -> None:
    """Writes a model's weights to `MODEL`, each under its number and name.

    Args:
      directory: The run's folder.
      names: A name of each weight; several may have the same.
      weights: The weights.
    """
    named = {f"{i}_{n}": each for i, (n, each) in enumerate(zip(names, weights))}
    files.write_npz(directory / MODEL, named)


def check_leaves(leaves: Sequence[np.ndarray], specs: Sequence[Any]) -> None:
    """Raises ValueError for the arrays of another run's state.

    Args:
      leaves: The arrays of a state.
      specs: The shape and dtype of each that this run's state has.
    """
    wanted = [(tuple(spec.shape), np.dtype(spec.dtype)) for spec in specs]
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != wanted:
        raise ValueError(
            "the checkpoint's arrays differ in shape or type from this run's state"
        )


def opened(
    name: str, plan: Any, setup: Setup
) -> contextlib.AbstractContextManager[Engine]:
    """The engine of a name as a context.

    Args:
      name: A key of `ENGINES`.
      plan: The plan of the run.
      setup: Everything else.
    """
    return importlib.import_module(ENGINES[name]).opened(plan, setup)


def logits_of(
    name: str, task: Any
) -> Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]:
    """The function of a model's weights and a task's inputs to logits.

    Args:
      name: A key of `ENGINES`.
      task: The task.

    Raises:
      ValueError: If the engine does not have the task's model.
    """
    wanted = f"of a task whose model is one of the engine {name}"
    checks.require(name in task.engines, "RUN", wanted, task.name)
    return importlib.import_module(_LOGITS[name]).logits_of(task)


def check_settings(config: Any, name: str) -> None:
    """Raises ValueError for a setting of another engine.

    Args:
      config: The settings of the run.
      name: The engine's.
    """
    defaults = {each.name: each.default for each in dataclasses.fields(config)}
    for other, owned in OWN_SETTINGS.items():
        for setting in owned if other != name else ():
            given = getattr(config, setting)
            wanted = f"left out with the engine {name}"
            checks.require(given == defaults[setting], setting, wanted, given)


def joined(config: Any) -> contextlib.AbstractContextManager[None]:
    """The processes of a run as a context, before its plan; none without settings.

    Args:
      config: The settings of the run.
    """
    if config.coordinator_address is None:
        return contextlib.nullcontext()
    check_settings(config, of(config.engine))
    processes = importlib.import_module("dpfl.engines.jax.processes")
    places = config.coordinator_address, config.num_processes, config.process_id
    return processes.joined(*places)


def check_same(plan: Any, facts: Mapping[str, Any]) -> None:
    """Raises ValueError if a process of the run has another manifest.

    Args:
      plan: The plan of the run.
      facts: The manifest.
    """
    if plan.config.coordinator_address is not None:
        importlib.import_module("dpfl.engines.jax.processes").check_same(facts)


def follow(plan: Any, setup: Setup) -> None:
    """Computes the rounds of a run with its first process, which has its files.

    Args:
      plan: The plan of the run.
      setup: Everything else; key and seed are those of the first process.
    """
    importlib.import_module(ENGINES[plan.config.engine]).follow(plan, setup)


def about(plan: Any) -> About:
    """The facts of a plan's engine."""
    return importlib.import_module(_FACTS[plan.config.engine]).about(plan)


def of(name: str) -> str:
    """The name of an engine that is installed; 'auto' is TFF's where it is, else JAX's.

    Raises:
      ValueError: If the engine is not installed, or JAX is asked for beside TFF, whose
        JAX is of an older release.
    """
    has_tff, has_jax = (
        importlib.util.find_spec(module) is not None
        for module in ("tensorflow_federated", "jax")
    )
    if name == "auto":
        return "tff" if has_tff or not has_jax else "jax"
    wanted = "'jax' here" if has_jax else "installed, as by pip install -e '.[jax]'"
    checks.require(name != "tff" or has_tff, "engine", wanted, name)
    if has_tff:
        wanted = "'tff' in the environment of TensorFlow Federated, whose JAX is old"
    checks.require(name != "jax" or has_jax and not has_tff, "engine", wanted, name)
    return name
