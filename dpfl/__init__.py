# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Differential privacy and communication in federated learning.

    mechanism = dpfl.L2Csgm(1000, 0.3, 0.9, keep_fraction=0.1)
    plan = dpfl.PoissonSampling(population=100_000, cohort_size=1000, rounds=1500)
    mechanism = dpfl.calibrate(mechanism, plan, 7850, epsilon=8, delta=1e-6)
    dpfl.epsilon(mechanism, plan, 7850, delta=1e-6)
    dpfl.aggregator(mechanism)  # a tff.aggregators factory

Functions take the mechanism first, then how clients take part, then the dimension. A
name's module is imported when the name is used; names marked [TF] need TensorFlow
Federated.

Mechanisms: frozen numbers, from which noise, epsilon and bits follow.

- `Gaussian`: Gaussian noise on the sum of clipped updates.
- `L2Csgm`: Gaussian noise on coordinates kept at random.
- `LinfCsgm`: the same release, accounted by its L-infinity sensitivity.
- `MatrixFactorization`: noise correlated over the rounds (DP-FTRL).
- `Sgmf`: correlated noise on coordinates kept at random.
- `DistributedDiscreteGaussian`: clients add the noise, under a secure sum.
- `DistributedSkellam`: the same with differences of Poisson variables.
- `SketchedDdg`: a count-mean sketch under a secure sum, with clients' noise.
- `SparseRecovery`: a Gaussian sketch under a secure sum, decoded by LASSO.
- `ProjectAndPerturb`: a count-mean sketch at a trusted server.
- `Dome`: a few directions learned from earlier releases.
- `DomeDdg`: the same under a secure sum, with clients' noise.
- `NoMechanism`: the mean without privacy, a baseline.
- `MECHANISMS`: the configurations' classes by name.
- `TEST_CONFIGS`: a small configuration of each mechanism, as tests run it.

Participation: which clients are in which rounds.

- `PoissonSampling`: each client joins each round independently.
- `CyclicPoisson`: groups take turns, and a round samples from its group.
- `BallsInBins`: the same with groups that nobody knows.
- `BMinSeparation`: independent joining, at least b rounds apart.
- `RandomAllocation`: each client draws one round of every epoch.
- `KOfT`: each client draws k of the T rounds.
- `OncePerEpoch`: clients are shuffled in each epoch and taken n at a time.
- `WithoutReplacement`: n clients a round, any n equally likely.
- `FixedSize`: n clients a round, chosen in any way.
- `PARTICIPATIONS`: the classes by name.

Accounting and planning: epsilon of a run, and numbers that meet a budget.

- `epsilon`: epsilon of a whole run.
- `privacy_report`: the same with its relation, accounting method and order.
- `PrivacyReport`: the result of `privacy_report`.
- `calibrate`: the mechanism with the least noise that meets a budget.
- `resolve`: the mechanism with numbers in place of "auto".
- `ResolvedMechanism`: the result of `resolve`.
- `Ledger`: epsilon after each round of a run.
- `loss_distribution`: the privacy loss distribution of an event.
- `DpflAccountant`: an accountant for dp_accounting's programs.
- `CalibrationError`: no noise multiplier solves a calibration; base of two more.
- `BudgetNotBindingError`: any noise meets the budget.
- `UnreachableBudgetError`: no noise meets the budget.
- `NoiseTooLargeError`: more noise than the mechanism can have.
- `NoiseTooSmallError`: less noise than the mechanism can have.

Aggregators: mechanisms in TFF and in other programs.

- `Server`: rounds of a mechanism in any training loop, by bytes.
- `encode`: a client's update as bytes for a `Server`.
- `encode_integers`: the same as integers for a secure sum.
- `aggregator`: the tff.aggregators factory of a mechanism [TF].
- `host_noise_aggregator`: the same for a program that holds the state [TF].
- `PrivateProgram`: TFF's training with a ledger and saved states [TF].
- `no_metrics`: a metrics aggregator for tff.learning that opens nothing [TF].
- `query`: the DPQuery of TensorFlow Privacy for a mechanism [TF].
- `make_codec`: a mechanism on flat vectors of numpy, JAX or TensorFlow.
- `jax_aggregator`: a mechanism's round in a training loop in JAX.
- `noise`: the noise of each round, as arrays of NumPy.

Training runs and tasks: simulations on this machine.

- `RunConfig`: the settings of a run [TF].
- `make_plan`: settings checked and the task loaded, without training [TF].
- `Run`: a run in its output folder, which resumes [TF].
- `start_worker`: starts TFF's worker process [TF].
- `load_task`: clients' data, model and metrics, by the task's name [TF].

Extending: mechanisms and tasks of one's own.

- `Mechanism`: base of all mechanisms.
- `NoiseMechanism`: base of mechanisms with an L2 clip and Gaussian-like noise.
- `IntegerMechanism`: base of mechanisms with integer noise.
- `Participation`: base of the choices of clients.
- `required`: a field without a default; a flag and its check follow.
- `option`: a field with a default.
- `register`: makes a mechanism known, with its codec.
- `Codec`: base of a mechanism's computation.
- `CodecFactory`: the tff.aggregators factory of a codec [TF].
- `TaskConfig`: base of a task's options [TF].
- `TaskEntry`: a row of the table of tasks [TF].
- `TaskMetric`: the metric that judges a task's runs [TF].
- `register_task`: makes a task known [TF].
"""

# Imports for type checkers alone; they take `X as X` and a star for public names.
# ruff: noqa: F403
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpfl import missing

if TYPE_CHECKING:
    from dpfl.accounting import BudgetNotBindingError as BudgetNotBindingError
    from dpfl.accounting import CalibrationError as CalibrationError
    from dpfl.accounting import DpflAccountant as DpflAccountant
    from dpfl.accounting import NoiseTooLargeError as NoiseTooLargeError
    from dpfl.accounting import NoiseTooSmallError as NoiseTooSmallError
    from dpfl.accounting import PrivacyReport as PrivacyReport
    from dpfl.accounting import UnreachableBudgetError as UnreachableBudgetError
    from dpfl.accounting import loss_distribution as loss_distribution
    from dpfl.aggregators import CodecFactory as CodecFactory
    from dpfl.aggregators import build as _build
    from dpfl.aggregators import build_with_host_noise as _build_with_host_noise
    from dpfl.aggregators import no_metrics as no_metrics
    from dpfl.aggregators.query import query as query
    from dpfl.codecs import Codec as Codec
    from dpfl.codecs import make_codec as make_codec
    from dpfl.engines.jax.aggregator import jax_aggregator as jax_aggregator
    from dpfl.engines.tff.local_worker import start as _start
    from dpfl.engines.tff.program import PrivateProgram as PrivateProgram
    from dpfl.fields import option as option
    from dpfl.fields import required as required
    from dpfl.loops import Server as Server
    from dpfl.loops import encode as encode
    from dpfl.loops import encode_integers as encode_integers
    from dpfl.mechanisms import IntegerMechanism as IntegerMechanism
    from dpfl.mechanisms import Mechanism as Mechanism
    from dpfl.mechanisms import NoiseMechanism as NoiseMechanism
    from dpfl.mechanisms.participation import *
    from dpfl.mechanisms.registry import *
    from dpfl.planning import Ledger as Ledger
    from dpfl.planning import ResolvedMechanism as ResolvedMechanism
    from dpfl.planning import calibrate as calibrate
    from dpfl.planning import epsilon as epsilon
    from dpfl.planning import noise as noise
    from dpfl.planning import privacy_report as privacy_report
    from dpfl.planning import resolve as resolve
    from dpfl.tasks import TaskConfig as TaskConfig
    from dpfl.tasks import TaskEntry as TaskEntry
    from dpfl.tasks import TaskMetric as TaskMetric
    from dpfl.tasks import load_task as load_task
    from dpfl.tasks import register as _register_task
    from dpfl.training.config import RunConfig as RunConfig
    from dpfl.training.plan import make_plan as make_plan
    from dpfl.training.run import Run as Run

    aggregator, host_noise_aggregator = _build, _build_with_host_noise
    register_task, start_worker = _register_task, _start

__version__ = "0.1.0"

# Names of `__all__`, in groups. A mechanism of the table is found without being here.
# Mechanisms.
_NAMES = ["Gaussian", "L2Csgm", "LinfCsgm", "MatrixFactorization", "Sgmf"]
_NAMES += ["DistributedDiscreteGaussian", "DistributedSkellam", "SketchedDdg"]
_NAMES += ["SparseRecovery", "ProjectAndPerturb", "Dome", "DomeDdg", "NoMechanism"]
_NAMES += ["MECHANISMS", "TEST_CONFIGS"]
# Participation.
_NAMES += ["PoissonSampling", "CyclicPoisson", "BallsInBins", "BMinSeparation"]
_NAMES += ["RandomAllocation", "KOfT", "OncePerEpoch", "WithoutReplacement"]
_NAMES += ["FixedSize", "PARTICIPATIONS"]
# Accounting and planning.
_NAMES += ["epsilon", "privacy_report", "PrivacyReport", "calibrate", "resolve"]
_NAMES += ["ResolvedMechanism", "Ledger", "loss_distribution", "DpflAccountant"]
_NAMES += ["CalibrationError", "BudgetNotBindingError", "UnreachableBudgetError"]
_NAMES += ["NoiseTooLargeError", "NoiseTooSmallError"]
# Aggregators.
_NAMES += ["Server", "encode", "encode_integers"]
_NAMES += ["aggregator", "host_noise_aggregator", "PrivateProgram", "no_metrics"]
_NAMES += ["query", "make_codec", "jax_aggregator", "noise"]
# Training runs and tasks.
_NAMES += ["RunConfig", "make_plan", "Run", "start_worker", "load_task"]
# Extending.
_NAMES += ["Mechanism", "NoiseMechanism", "IntegerMechanism", "Participation"]
_NAMES += ["required", "option", "register", "Codec", "CodecFactory", "TaskConfig"]
_NAMES += ["TaskEntry", "TaskMetric", "register_task"]

# Packages in which names are looked up, in this order: the last ones need TensorFlow.
_PACKAGES = ["mechanisms", "planning", "accounting", "codecs", "loops", "tasks"]
_PACKAGES += ["aggregators"]
# Names that no package lists, or lists under another name: the module and the name
# there.
_ELSEWHERE = {
    "aggregator": ("aggregators", "build"),
    "host_noise_aggregator": ("aggregators", "build_with_host_noise"),
    "jax_aggregator": ("engines.jax.aggregator", "jax_aggregator"),
    "query": ("aggregators.query", "query"),
    "option": ("fields", "option"),
    "required": ("fields", "required"),
    "register_task": ("tasks", "register"),
    "PrivateProgram": ("engines.tff.program", "PrivateProgram"),
    "Run": ("training.run", "Run"),
    "RunConfig": ("training.config", "RunConfig"),
    "make_plan": ("training.plan", "make_plan"),
    "start_worker": ("engines.tff.local_worker", "start"),
}


# Hidden from type checkers, which would otherwise accept misspelled names.
if not TYPE_CHECKING:
    __all__ = _NAMES

    def __getattr__(name: str) -> Any:
        if name in _ELSEWHERE:
            place, own_name = _ELSEWHERE[name]
            with missing.explained(f"dpfl.{name}"):
                return getattr(importlib.import_module(f"dpfl.{place}"), own_name)
        # Python looks for modules here too; their names begin with a small letter.
        table = ["mechanisms"] if name[:1].isupper() else []
        for place in _PACKAGES if name in _NAMES else table:
            package = importlib.import_module(f"dpfl.{place}")
            if name in package.__all__:
                return getattr(package, name)
        raise AttributeError(f"module 'dpfl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_NAMES]
