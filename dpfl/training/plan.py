# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The plan of a run and its cost, before anything is trained.

plan = make_plan(config)
plan.mechanism, plan.participation, plan.cost
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Optional

from dpfl import checks, machine, mechanisms, planning
from dpfl.mechanisms import Mechanism, Participation, build
from dpfl.planning import ledger as ledger_lib
from dpfl.tasks import registry
from dpfl.training import config as config_lib
from dpfl.training import engine, server_optimizers

DEFAULT_EPSILON = 8.0
# Memory of the processes of a run for a small model.
_BASE_BYTES = 900_000_000
# The length of a canary over the clip.
_CANARY_LENGTH = 8.0


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """A checked run; two plans with the same settings give the same results.

    Attributes:
      config: The settings, with the task's defaults filled in.
      task: The `dpfl.tasks.task.Task`, loaded.
      participation: The participation of clients, and the number of rounds.
      mechanism: The mechanism, with its noise.
      cost: The cost of the rounds, and how many of them the budget allows.
      choices: A sentence for each number of the mechanism that was chosen
        automatically.
    """

    config: config_lib.RunConfig
    task: Any
    participation: Participation
    mechanism: Mechanism
    cost: ledger_lib.RunCost
    choices: tuple[str, ...] = ()

    @property
    def dimension(self) -> int:
        """The number of trainable parameters, d."""
        return self.task.dimension

    @property
    def canary_length(self) -> Optional[float]:
        """The L2 norm of a canary's update; None without canaries.

        It is much longer than the clip, so that the mechanism's own clip shortens it,
        and one that is not applied is seen. Without a clip it is the task's.
        """
        if not self.config.canaries:
            return None
        clip = getattr(self.mechanism, "clip_norm", None)
        return _CANARY_LENGTH * clip if clip else self.task.defaults.clip_norm

    @property
    def task_entry(self) -> registry.TaskEntry:
        """The task's row of the table, with the metric that judges the run."""
        return registry.task_entry(self.config.task)

    @property
    def last_round(self) -> int:
        """The number of rounds that will be released."""
        return self.cost.rounds_allowed

    @property
    def client_lr(self) -> float:
        """The learning rate of the clients' SGD."""
        return _given("client_lr", self.config.client_lr)

    @property
    def server_lr(self) -> float:
        """The learning rate of the server's optimizer."""
        return _given("server_lr", self.config.server_lr)

    @property
    def server_optimizer(self) -> server_optimizers.ServerOptimizer:
        """The server's optimizer."""
        return server_optimizers.build_server_optimizer(
            self.config.server_optimizer,
            self.server_lr,
            self.config.server_momentum,
            noise_variance(self.config, self.mechanism, self.dimension),
        )

    @property
    def memory(self) -> int:
        """Upper bound on the bytes that the processes of this machine take together.

        The task's data come on top, and a card has the model's part.
        """
        return _BASE_BYTES + self.about.memory

    @functools.cached_property
    def about(self) -> engine.About:
        """The facts of the engine, which is loaded."""
        return engine.about(self)

    @property
    def draws_noise_anew(self) -> bool:
        """Whether the noise of a round is other noise at each attempt.

        It is where a second attempt may have other updates: the difference of two
        results under the same noise would be one of updates alone. A given seed
        promises the same noise.
        """
        return (
            self.config.engine == "jax"
            and not self.about.repeats_rounds
            and self.config.seed is None
        )

    def is_evaluated(self, number: int) -> bool:
        """Whether the model is evaluated after round `number`, from 1 on."""
        return number % self.config.eval_every == 0 or number == self.last_round

    def is_saved(self, number: int) -> bool:
        """Whether a checkpoint follows round `number`, from 1 on.

        The first round is saved, so that a folder that cannot hold a checkpoint is
        noticed.
        """
        is_due = number % self.config.checkpoint_every == 0
        return is_due or number in (1, self.last_round)

    def is_shown(self, number: int) -> bool:
        """Whether results of round `number` may be shown, once `is_saved` is done.

        If a second attempt at a round may have other updates, only saved rounds are
        shown: the first was then seen by nobody.
        """
        return self.is_saved(number) or self.about.repeats_rounds


def make_plan(config: config_lib.RunConfig) -> Plan:
    """Loads the task and checks the settings against it, without training.

    Args:
      config: The settings.

    Raises:
      ValueError: If the settings do not fit the task, the budget or the memory.
    """
    task = registry.load_config(config.task, config.task_config)
    config, participation, resolved = check_fit(config, task)
    mechanism = _with_noise(resolved.mechanism, config, task, participation)
    cost = ledger_lib.RunCost(
        mechanism,
        participation,
        task.dimension,
        _given("delta", config.delta),
        config.epsilon,
        config.accounting_method,
    )
    return Plan(config, task, participation, mechanism, cost, resolved.sentences)


def check_fit(
    config: config_lib.RunConfig, task: Any
) -> tuple[config_lib.RunConfig, Participation, planning.ResolvedMechanism]:
    """The settings with the task's defaults, who takes part, and the mechanism.

    The mechanism is not calibrated, which takes longest.

    Args:
      config: The settings.
      task: The `dpfl.tasks.task.Task`, loaded.

    Raises:
      ValueError: If engine, clients, rounds or mechanism do not fit the task.
    """
    config = _with_defaults(config, task)
    _check_engine(config, task)
    participation = _participation(config, task)
    resolved = _chosen(config, task, participation)
    _check_mechanism(resolved.mechanism, config, task, participation)
    return config, participation, resolved


def noise_variance(
    config: config_lib.RunConfig, mechanism: Mechanism, dimension: int
) -> Optional[float]:
    """The noise variance that 'adam_debiased' subtracts; None for other optimizers.

    Args:
      config: The settings.
      mechanism: The mechanism, with its noise.
      dimension: d.
    """
    if config.server_optimizer != "adam_debiased":
        return None
    # The error of 'gaussian' is noise only, equal in each coordinate and round.
    if isinstance(mechanism, mechanisms.Gaussian) and not mechanism.adaptive_clipping:
        return mechanism.mean_squared_error(dimension) / dimension
    raise ValueError(
        "server_optimizer must not be 'adam_debiased' unless mechanism is 'gaussian' "
        f"with a fixed clip, found {mechanism.name!r}"
    )


def _given(name: str, value: Any) -> Any:
    checks.require(value is not None, name, "given", value)
    return value


def _with_defaults(config: config_lib.RunConfig, task: Any) -> config_lib.RunConfig:
    """Fills in the task's defaults."""
    names = ("cohort_size", "rounds", "client_lr", "server_lr")
    chosen = {
        name: getattr(task.defaults, name)
        for name in names
        if getattr(config, name) is None
    }
    if config.server_momentum is None and config.server_optimizer == "sgd":
        chosen["server_momentum"] = task.defaults.server_momentum
    chosen["engine"] = engine.of(config.engine)
    if config.delta is None:
        chosen["delta"] = ledger_lib.default_delta(_population(config, task))
    is_private = config.mechanism_class.is_private
    if is_private and config.noise_multiplier is None and config.epsilon is None:
        chosen["epsilon"] = DEFAULT_EPSILON
    return dataclasses.replace(config, **chosen)


def _check_engine(config: config_lib.RunConfig, task: Any) -> None:
    """Raises ValueError for a model, or a setting, of the other engine."""
    wanted = f"{task.engines[0]!r} for the model of the task {task.name}"
    checks.require(config.engine in task.engines, "engine", wanted, config.engine)
    engine.check_settings(config, config.engine)


def _population(config: config_lib.RunConfig, task: Any) -> int:
    """The number of clients, canaries included."""
    return task.population + (config.canaries or 0)


def _participation(config: config_lib.RunConfig, task: Any) -> Participation:
    rounds = _given("rounds", config.rounds)
    if config.canaries:
        limit = f"for {rounds} rounds, each with a score of each canary"
        most = config_lib.MOST_SCORES // rounds
        checks.integer("canaries", config.canaries, 0, most, limit)
    return build.participation(
        config.participation,
        _population(config, task),
        _given("cohort_size", config.cohort_size),
        rounds,
        rounds_per_epoch=config.rounds_per_epoch,
        min_separation=config.min_separation,
    )


def _chosen(
    config: config_lib.RunConfig, task: Any, participation: Participation
) -> planning.ResolvedMechanism:
    """The mechanism, before calibration, and sentences on numbers that were chosen."""
    mechanism = config.build_mechanism(
        cohort_size=config.cohort_size,
        clip_norm=task.defaults.clip_norm,
        noise_multiplier=config.noise_multiplier or 0.0,
        rounds_per_epoch=participation.rounds_per_epoch,
        rounds=config.rounds if config.streams_over_run else None,
    )
    is_calibrated = config.noise_multiplier is None
    return planning.resolve(
        mechanism,
        participation,
        task.dimension,
        epsilon=config.epsilon if is_calibrated else None,
        delta=_given("delta", config.delta),
        accounting_method=config.accounting_method,
    )


def _check_mechanism(
    mechanism: Mechanism,
    config: config_lib.RunConfig,
    task: Any,
    participation: Participation,
) -> None:
    mechanism.check(participation, task.dimension)
    mechanism.check_cost(participation, task.dimension)
    mechanism.check_accounting_method(
        config.accounting_method, participation, task.dimension
    )
    mechanism.check_server_optimizer(config.server_optimizer, config.server_momentum)
    mechanism.check_measure(config.measure)
    # Refused here rather than after a long calibration.
    engine.check_memory(
        round(4 * mechanism.run_vectors(task.dimension) * task.dimension),
        machine.free_memory(),
        f"mechanism {mechanism.name!r} with {task.dimension} parameters",
        "a smaller model needs less, and so does a noise stream of fewer rows",
    )
    noise_variance(config, mechanism, task.dimension)
    if not _is_calibrated(mechanism, config):
        mechanism.check_noise(task.dimension)


def _is_calibrated(mechanism: Mechanism, config: config_lib.RunConfig) -> bool:
    return mechanism.is_private and config.noise_multiplier is None


def _with_noise(
    mechanism: Mechanism,
    config: config_lib.RunConfig,
    task: Any,
    participation: Participation,
) -> Mechanism:
    """Raises ValueError if a budget asks for so much noise that nothing is learned."""
    if not _is_calibrated(mechanism, config):
        return mechanism
    budget = _given("epsilon", config.epsilon), _given("delta", config.delta)
    mechanism = planning.calibrate(
        mechanism, participation, task.dimension, *budget, config.accounting_method
    )
    multiplier = mechanism.noise_multiplier or 0.0
    most = config_lib.LARGEST_NOISE_MULTIPLIER
    wanted = (
        f"larger, or the compression less: it needs a noise multiplier of "
        f"{multiplier:.4g}, of at most {most:g}"
    )
    checks.require(multiplier <= most, "epsilon", wanted, config.epsilon)
    mechanism.check_noise(task.dimension)
    return mechanism
