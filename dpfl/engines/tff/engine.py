# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The engine of TFF: groups of clients in a worker on this machine.

with engine.opened(plan, setup) as trainer:
output = trainer.round(trainer.initialize(), clients=[3, 8])
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from dpfl import aggregators, machine, seed_domains
from dpfl.engines.tff import (
    connection,
    federated_averaging,
    grouped,
    keras_models,
    local_worker,
)
from dpfl.training import plan as plan_lib
from dpfl.training import provenance, selection
from dpfl.training.engine import (
    RoundOutput,
    Setup,
    State,
    check_memory,
    write_weights,
)


@contextlib.contextmanager
def opened(plan: plan_lib.Plan, setup: Setup) -> Iterator[TffEngine]:
    """The engine of a plan, with its worker.

    Raises:
      EngineLostError: If the worker ends or fails.
      NotEnoughMemoryError: If the vectors of a run exceed the free memory. That of a
        small model is not counted: it is hardly known, and fits.
    """
    concurrency = plan.config.concurrency or machine.processors()
    what = f"a round with {concurrency} groups of clients at once"
    mend = "a smaller --concurrency needs less"
    check_memory(plan.about.memory, machine.free_memory(), what, mend)
    with contextlib.ExitStack() as stack:
        stack.enter_context(connection.failures_told())
        worker = stack.enter_context(
            local_worker.start(
                concurrency=concurrency,
                groups=True,
                log_path=setup.directory / "worker.log",
                isolation=plan.config.worker_isolation,
            )
        )
        # Secure sums are simulated: the worker adds values that real parties would
        # hide.
        tff.framework.set_default_context(worker.context(secure_sums=True))
        yield TffEngine(plan, setup, concurrency, worker)


class TffEngine:
    """A plan's training in TFF; see `dpfl.training.engine.Engine`."""

    def __init__(
        self,
        plan: plan_lib.Plan,
        setup: Setup,
        concurrency: int,
        worker: local_worker.Worker,
    ):
        """Initializes the engine; its graphs are built.

        Args:
          plan: The plan of the run.
          setup: Everything else.
          concurrency: Groups of clients at a time.
          worker: The running worker.
        """
        self._plan, self._setup = plan, setup
        self._deadline = functools.partial(worker.deadline, plan.config.round_deadline)
        # Built before the evaluator, since Keras refuses models older than TFF's
        # graphs.
        self._process = self._build(concurrency)
        self._evaluator = federated_averaging.Evaluator(plan.task, setup.model_seed)

    def _build(self, groups: int) -> federated_averaging.GroupedProcess:
        plan, config, setup = self._plan, self._plan.config, self._setup
        aggregator, put_noise = aggregators.build_with_host_noise(
            plan.mechanism,
            plan.dimension,
            seed=selection.derive_seed(setup.key, seed_domains.RunDomain.MECHANISM),
            weighted=config.weighted,
            measure=config.measure,
        )
        optimizer = plan.server_optimizer
        model = plan.task.functional_model(setup.model_seed)
        # The digest covers all but the seed, the data's place, the harmless settings
        # and the measurements.
        digest = provenance.digest(plan)
        rounds = setup.last.get(
            (digest, config.measure, config.task_config, groups),
            lambda: grouped.GroupedRounds(
                plan.task,
                model,
                aggregator,
                plan.client_lr,
                optimizer,
                groups,
                plan.canary_length,
            ),
            lambda last: last.with_other_seeds(model, aggregator),
        )
        client_key = functools.partial(selection.client_key, setup.key)
        return federated_averaging.GroupedProcess(rounds, put_noise, client_key)

    def initialize(self) -> State:
        """See base class."""
        with self._deadline():
            return self._process.initialize()

    def round(self, state: State, clients: Sequence[int]) -> RoundOutput:
        """See base class."""
        with self._deadline():
            return self._process.next(state, list(clients))

    def evaluate(self, state: State, is_due: bool) -> Mapping[str, Any]:
        """See base class."""
        return self._evaluator(state, is_due)

    def weights(self, state: State) -> list[np.ndarray]:
        """See base class."""
        return self._process.weights(state)

    def leaves(self, state: State) -> list[np.ndarray]:
        """See base class."""
        return self._process.leaves(state)

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> State:
        """See base class."""
        return self._process.from_leaves(leaves)

    def save_model(self, state: State, directory: pathlib.Path) -> None:
        """See base class."""
        model = self._plan.task.build_keras_model(self._setup.model_seed)
        federated_averaging.assign_weights(state, model)
        names = keras_models.weight_names(self._plan.task, model)
        write_weights(directory, names, model.get_weights())
