# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The settings of a run, checked as far as possible without the task's data.

RunConfig(task="digits", task_config=tasks.make_config("digits"), epsilon=8.0,
          mechanism="gaussian", mechanism_options={}, output_dir=folder)
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Optional

from dpfl import checks, mechanisms
from dpfl.accounting.calibration import ACCOUNTING_METHODS, ACCOUNTING_METHODS_HELP
from dpfl.fields import Checked, option, required, said
from dpfl.mechanisms import Mechanism, build, matrix_factorization
from dpfl.mechanisms import participation as participation_lib
from dpfl.mechanisms.participation import MOST_CLIENTS
from dpfl.privacy_coverage import MEASURES, RELEASED
from dpfl.tasks import TaskConfig, registry
from dpfl.training import engine as engine_lib

# Settings that may change on resume: nothing that a result depends on.
HARMLESS = (
    *("output_dir", "checkpoint_every", "keep_checkpoints", "round_deadline"),
    *("progress", "profile", "concurrency", "worker_isolation", "flags"),
    *("coordinator_address", "num_processes", "process_id"),
)
SERVER_OPTIMIZERS = ("sgd", "adam", "adam_uncorrected", "adam_debiased")
# Limits beyond which a float32 model diverges in the first rounds.
LARGEST_NOISE_MULTIPLIER = 1e4
_LARGEST_LEARNING_RATE = 1e4
_MOST_ROUNDS = 10**7
# Most groups at a time; each takes threads and memory.
_MOST_CONCURRENCY = 1000
_MOST_PROCESSES = 10_000
# A third of a year; beyond about 1e9 seconds the system's clocks overflow.
LONGEST_DEADLINE = 1e7
_LARGEST_EPSILON = 1e6
# Most canaries, and most scores of them, one a round.
MOST_CANARIES, MOST_SCORES = 10**6, 10**8
# Longer seeds add nothing: the run's other seeds are parts of a SHA-256 of the seed.
_LARGEST_SEED = 2**256 - 1
_OF_ROUNDS: dict[str, Any] = {"at_least": 1, "at_most": _MOST_ROUNDS}
_OF_CLIENTS: dict[str, Any] = {"at_least": 1, "at_most": MOST_CLIENTS}
_OF_RATES: dict[str, Any] = {"above": 0, "at_most": _LARGEST_LEARNING_RATE}


def _folder(name: str, value: Any) -> pathlib.Path:
    return pathlib.Path(checks.path(name, value))


# Cohort size for checks that need one before the task's own is known.
_ANY_COHORT = 50


@dataclasses.dataclass(frozen=True)
class RunConfig(Checked):
    """The settings of a run; None means the task's own default, or as described.

    Fields with a sentence in their metadata are flags of the same name, and are
    described there.

    Attributes:
      mechanism_options: Fields of the mechanism's configuration, without `cohort_size`,
        `noise_multiplier`, `rounds_per_epoch` and `rounds`.
      cohort_size: Expected clients in a round, by which sums are divided.
      rounds_per_epoch: Rounds after which clients may return, for "once_per_epoch" and
        "random_allocation"; None for as many as the clients suffice for.
      noise_multiplier: The noise multiplier; None to calibrate it to `epsilon`.
      epsilon: The budget; `plan.DEFAULT_EPSILON` if it and `noise_multiplier` are None.
      delta: The delta of epsilon; None for `ledger.default_delta`.
      seed: Seed of all of the run's randomness; None draws it once from the operating
        system's entropy.
      eval_every: Rounds between evaluations; the last round is always evaluated.
      measure: Measurements beside the release; None for those that the mechanism's
        trust model allows, see `Mechanism.check_measure` for others.
      flags: The command line, for the summary.
    """

    task: str = required(None, choices=registry.TASKS)
    task_config: TaskConfig = required(None)
    mechanism: str = required(None, choices=mechanisms.MECHANISMS)
    mechanism_options: Mapping[str, Any] = required(
        None, check=checks.instance(Mapping)
    )
    output_dir: pathlib.Path = required(None, check=_folder)
    participation: str = option(
        "poisson",
        "Sampling of a round's clients.",
        choices=mechanisms.PARTICIPATIONS,
    )
    cohort_size: Optional[int] = option(None, None, at_least=1, at_most=MOST_CLIENTS)
    rounds: Optional[int] = option(None, "Number of rounds.", **_OF_ROUNDS)
    rounds_per_epoch: Optional[int] = option(None, None, **_OF_ROUNDS)
    min_separation: Optional[int] = option(
        None, build.MIN_SEPARATION_HELP, **_OF_ROUNDS
    )
    client_lr: Optional[float] = option(
        None, "Learning rate of the clients' SGD.", **_OF_RATES
    )
    server_lr: Optional[float] = option(
        None, "Learning rate of the server.", **_OF_RATES
    )
    server_momentum: Optional[float] = option(
        None, "Momentum of the server's SGD, or Adam's beta_1.", at_least=0, below=1
    )
    server_optimizer: str = option(
        "sgd",
        "The server's optimizer; adam_uncorrected has no bias correction, and "
        "adam_debiased subtracts the noise of 'gaussian' from the second moment.",
        choices=SERVER_OPTIMIZERS,
    )
    weighted: bool = option(
        False, "Weight clients by their examples; for --mechanism=none only."
    )
    noise_multiplier: Optional[float] = option(
        None, None, at_least=0, at_most=LARGEST_NOISE_MULTIPLIER
    )
    epsilon: Optional[float] = option(
        None,
        "Budget that sets the noise; with --noise_multiplier, the run stops before the "
        "round that would exceed the budget. Default: 8 if neither is given.",
        above=0,
        at_most=_LARGEST_EPSILON,
    )
    delta: Optional[float] = option(
        None,
        "Delta of all epsilons; default: min(1e-3, N**-1.1) for N clients.",
        check=checks.delta,
    )
    accounting_method: str = option(
        "auto", ACCOUNTING_METHODS_HELP, choices=ACCOUNTING_METHODS
    )
    engine: str = option(
        "auto",
        "Engine that trains: TensorFlow Federated, or JAX, on a card too; default: tff "
        "where it is installed, else jax.",
        choices=("auto", *engine_lib.ENGINES),
    )
    precision: str = option(
        "float32",
        "Precision of products in local training, with --engine=jax; clips, "
        "messages and noise are in float32 always.",
        choices=engine_lib.PRECISIONS,
    )
    clients_at_once: Optional[int] = option(
        None,
        "Clients that train at once, with --engine=jax; default: as many as the memory "
        "of the device suggests.",
        **_OF_CLIENTS,
    )
    canaries: Optional[int] = option(
        None,
        "Number of further clients with random updates that are clipped, which audit "
        "the run: the summary has what an attacker learns of them. With the rounds it "
        f"makes at most {MOST_SCORES:,} scores.",
        at_least=100,
        at_most=MOST_CANARIES,
    )
    seed: Optional[int] = option(
        None,
        "Seed of all random numbers; default: drawn and stored in the run's folder.",
        at_least=0,
        at_most=_LARGEST_SEED,
    )
    checkpoint_every: int = option(10, "Rounds between checkpoints.", **_OF_ROUNDS)
    keep_checkpoints: int = option(
        3, "Number of checkpoints that are kept.", **_OF_ROUNDS
    )
    eval_every: int = option(1, "Rounds between evaluations.", **_OF_ROUNDS)
    round_deadline: float = option(
        3600.0,
        "Deadline of a round in seconds, after which the run fails.",
        above=0,
        at_most=LONGEST_DEADLINE,
    )
    concurrency: Optional[int] = option(
        None,
        "Client groups that run concurrently; default: number of CPUs.",
        at_least=1,
        at_most=_MOST_CONCURRENCY,
    )
    worker_isolation: str = option(
        "socket",
        "Isolation of TFF's worker from other users; with anyone_can_connect, whoever "
        "reaches its port can read and write files as you.",
        choices=engine_lib.ISOLATIONS,
    )
    coordinator_address: Optional[str] = option(
        None,
        "HOST:PORT of the first of several processes that compute a run together, with "
        "--engine=jax; all are started with the same flags.",
    )
    num_processes: Optional[int] = option(
        None, "Number of these processes.", at_least=1, at_most=_MOST_PROCESSES
    )
    process_id: Optional[int] = option(
        None,
        "Index of this process; 0 writes all files.",
        at_least=0,
        at_most=_MOST_PROCESSES,
    )
    measure: Optional[str] = option(
        None,
        "released: write only values that epsilon covers. exact_for_simulation: also "
        "measure values that a secure sum would hide. Default: exact values, whose "
        "names begin with exact_, are measured if the server is trusted.",
        choices=MEASURES,
    )
    progress: bool = option(True, "Show a progress bar on stderr.")
    profile: bool = option(
        False,
        "Write a jax.profiler trace of three rounds to the folder profile/, for "
        "TensorBoard, with --engine=jax.",
    )
    flags: Mapping[str, Any] = dataclasses.field(
        default_factory=dict, metadata=said(check=checks.instance(Mapping))
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_processes()
        self._check_exact()
        self._check_participation()
        self._check_mechanism()

    @property
    def mechanism_class(self) -> type[Mechanism]:
        """The class of the mechanism's configuration."""
        return mechanisms.MECHANISMS[self.mechanism]

    def build_mechanism(self, **known: Any) -> Mechanism:
        """Builds the mechanism; `known` values that it does not have are ignored."""
        return build.build(self.mechanism, {**known, **self.mechanism_options})

    @property
    def streams_over_run(self) -> bool:
        """Whether the mechanism has one stream of noise over all rounds."""
        return self.mechanism_options.get("noise_stream") == matrix_factorization.RUN

    @property
    def _has_stream(self) -> bool:
        fields = dataclasses.fields(self.mechanism_class)
        return any(field.name == "noise_stream" for field in fields)

    def _check_processes(self) -> None:
        place = self.coordinator_address
        if (place, self.num_processes, self.process_id) == (None, None, None):
            return
        host, _, port = (place or "").rpartition(":")
        wanted = "HOST:PORT, with num_processes and process_id"
        is_right = host and re.fullmatch("[0-9]{1,5}", port)
        checks.require(is_right, "coordinator_address", wanted, place)
        for name in ("num_processes", "process_id"):
            value, wanted = getattr(self, name), "given with coordinator_address"
            checks.require(value is not None, name, wanted, value)
        most = (self.num_processes or 1) - 1
        checks.integer("process_id", self.process_id, 0, most)

    def _check_exact(self) -> None:
        """Refuses exact times, and canaries without weight or with unused coins."""
        is_released = self.measure == RELEASED
        left_out = (
            ("profile", "measure", is_released),
            ("canaries", "measure", is_released),
            ("canaries", "weighted", self.weighted),
        )
        for name, beside, is_set in left_out:
            value = getattr(self, name)
            wanted = f"left out with {beside} {getattr(self, beside)}"
            checks.require(not (value and is_set), name, wanted, value)

    def _check_participation(self) -> None:
        chosen, once = self.participation, mechanisms.OncePerEpoch.name
        needs_epochs = self._has_stream and not self.streams_over_run
        wanted = f"{once} for {self.mechanism} whose noise_stream is not "
        wanted += matrix_factorization.RUN
        is_right = not needs_epochs or chosen == once
        checks.require(is_right, "participation", wanted, chosen)
        with_epochs = participation_lib.WITH_EPOCHS
        is_right = self.rounds_per_epoch is None or chosen in with_epochs
        wanted = f"left out unless participation is {' or '.join(with_epochs)}"
        checks.require(is_right, "rounds_per_epoch", wanted, self.rounds_per_epoch)

    def _check_mechanism(self) -> None:
        """Refuses invalid settings of the mechanism before the task is loaded."""
        if not self._has_stream:
            self.build_mechanism(
                cohort_size=self.cohort_size or _ANY_COHORT,
                clip_norm=1.0,
                noise_multiplier=self.noise_multiplier or 0.0,
            )
        allowed = {
            "weighted": self.mechanism_class.is_weighted,
            "noise_multiplier": self.mechanism_class.is_private,
            "epsilon": self.mechanism_class.is_private,
        }
        for name, is_allowed in allowed.items():
            value, wanted = getattr(self, name), f"left out for {self.mechanism}"
            is_left_out = value is None or value is False
            checks.require(is_allowed or is_left_out, name, wanted, value)
