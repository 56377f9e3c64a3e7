# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""dpfl: differential privacy and communication in federated learning.

    mechanism = dpfl.L2Csgm(1000, 0.3, 0.9, keep_fraction=0.1)
    plan = dpfl.PoissonSampling(population=100_000, cohort_size=1000, rounds=1500)
    mechanism = dpfl.calibrate(mechanism, plan, 7850, epsilon=8, delta=1e-6)
    dpfl.epsilon(mechanism, plan, 7850, delta=1e-6)
    dpfl.aggregator(mechanism)  # a tff.aggregators factory

Everything takes the mechanism first, then how clients take part, then the dimension.
Modules are imported when a name of theirs is used: TensorFlow with `aggregator` and
what trains, and nothing before.
"""

# The star import is for type checkers alone; `__all__` below is the list of names.
# ruff: noqa: F405
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfl.accounting import (
        BudgetNotBindingError,
        CalibrationError,
        DpflAccountant,
        NoiseTooLargeError,
        NoiseTooSmallError,
        PrivacyReport,
        UnreachableBudgetError,
        loss_distribution,
    )
    from dpfl.aggregators import Codec, CodecFactory, make_codec, no_metrics
    from dpfl.aggregators import build as aggregator
    from dpfl.aggregators import build_fed as fed_aggregator
    from dpfl.aggregators.query import query
    from dpfl.fields import option, required
    from dpfl.mechanisms import *  # noqa: F403
    from dpfl.planning import (
        Chosen,
        Ledger,
        calibrate,
        chosen,
        epsilon,
        noise,
        privacy_report,
    )
    from dpfl.tasks import Measure, TaskConfig, TaskEntry, load_task
    from dpfl.tasks import register as register_task
    from dpfl.training.config import RunConfig
    from dpfl.training.local_worker import start as start_worker
    from dpfl.training.plan import make_plan
    from dpfl.training.run import Run

__version__ = "0.1.0"

__all__ = ["BudgetNotBindingError", "CalibrationError", "DpflAccountant"]
__all__ += ["NoiseTooLargeError", "NoiseTooSmallError", "PrivacyReport"]
__all__ += ["UnreachableBudgetError", "loss_distribution"]
__all__ += ["Codec", "CodecFactory", "aggregator", "fed_aggregator", "make_codec"]
__all__ += ["no_metrics", "query"]
__all__ += ["EXAMPLES", "MECHANISMS", "PARTICIPATIONS"]
__all__ += ["BallsInBins", "BMinSeparation", "CyclicPoisson"]
__all__ += ["DistributedDiscreteGaussian", "DistributedSkellam", "Dome", "DomeDdg"]
__all__ += ["FixedSize", "Gaussian", "IntegerMechanism", "L2Csgm", "LinfCsgm"]
__all__ += ["MatrixFactorization", "Mechanism", "NoMechanism", "NoiseMechanism"]
__all__ += ["OncePerEpoch", "Participation", "PoissonSampling", "ProjectAndPerturb"]
__all__ += ["RandomSlot", "Sgmf", "SketchedDdg", "SparseRecovery"]
__all__ += ["WithoutReplacement", "register"]
__all__ += ["Chosen", "Ledger", "calibrate", "chosen", "epsilon", "noise"]
__all__ += ["privacy_report"]
__all__ += ["Measure", "TaskConfig", "TaskEntry", "load_task", "register_task"]
__all__ += ["Run", "RunConfig", "make_plan", "start_worker", "option", "required"]

# Packages in which names are looked up, in this order: the last ones need TensorFlow.
_PACKAGES = ("mechanisms", "planning", "accounting", "tasks", "aggregators")
# Names that no package lists, or lists under another name: the module and the name
# there.
_ELSEWHERE = {
    "aggregator": ("aggregators", "build"),
    "fed_aggregator": ("aggregators", "build_fed"),
    "query": ("aggregators.query", "query"),
    "option": ("fields", "option"),
    "required": ("fields", "required"),
    "register_task": ("tasks", "register"),
    "Run": ("training.run", "Run"),
    "RunConfig": ("training.config", "RunConfig"),
    "make_plan": ("training.plan", "make_plan"),
    "start_worker": ("training.local_worker", "start"),
}


# Hidden from type checkers, which would otherwise accept misspelled names.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'dpfl' has no attribute {name!r}")
        if name in _ELSEWHERE:
            place, own_name = _ELSEWHERE[name]
            return getattr(importlib.import_module(f"dpfl.{place}"), own_name)
        packages = (importlib.import_module(f"dpfl.{place}") for place in _PACKAGES)
        return next(getattr(each, name) for each in packages if name in each.__all__)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
