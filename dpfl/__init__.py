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
    )
    from dpfl.aggregators import (
        Codec,
        CodecFactory,
        make_codec,
    )
    from dpfl.aggregators import (
        build as aggregator,
    )
    from dpfl.aggregators import (
        build_fed as fed_aggregator,
    )
    from dpfl.fields import (
        option,
        required,
    )
    from dpfl.mechanisms import (
        EXAMPLES,
        MECHANISMS,
        PARTICIPATIONS,
        CyclicPoisson,
        DistributedDiscreteGaussian,
        DistributedSkellam,
        Dome,
        DomeDdg,
        FixedSize,
        Gaussian,
        IntegerMechanism,
        L2Csgm,
        LinfCsgm,
        MatrixFactorization,
        Mechanism,
        NoiseMechanism,
        NoMechanism,
        OncePerEpoch,
        Participation,
        PoissonSampling,
        ProjectAndPerturb,
        RandomSlot,
        Sgmf,
        SketchedDdg,
        SparseRecovery,
        register,
    )
    from dpfl.planning import (
        Chosen,
        Ledger,
        calibrate,
        chosen,
        epsilon,
        privacy_report,
    )
    from dpfl.tasks import (
        Measure,
        TaskConfig,
        TaskEntry,
        load_task,
    )
    from dpfl.tasks import (
        register as register_task,
    )
    from dpfl.training.config import RunConfig
    from dpfl.training.plan import make_plan
    from dpfl.training.run import Run
    from dpfl.training.worker import start as start_worker

__version__ = "0.1.0"

_MODULES = {
    "accounting": (
        *("BudgetNotBindingError", "CalibrationError", "DpflAccountant"),
        *("NoiseTooLargeError", "NoiseTooSmallError", "PrivacyReport"),
        "UnreachableBudgetError",
    ),
    "aggregators": ("Codec", "CodecFactory", "make_codec"),
    "fields": ("option", "required"),
    "mechanisms": (
        *("EXAMPLES", "MECHANISMS", "PARTICIPATIONS", "CyclicPoisson"),
        *("DistributedDiscreteGaussian", "DistributedSkellam", "Dome", "DomeDdg"),
        *("FixedSize", "Gaussian", "IntegerMechanism", "L2Csgm", "LinfCsgm"),
        *("MatrixFactorization", "Mechanism", "NoMechanism", "NoiseMechanism"),
        *("OncePerEpoch", "Participation", "PoissonSampling", "ProjectAndPerturb"),
        *("RandomSlot", "Sgmf", "SketchedDdg", "SparseRecovery", "register"),
    ),
    "planning": (
        *("Chosen", "Ledger", "calibrate", "chosen", "epsilon", "privacy_report"),
    ),
    "tasks": ("Measure", "TaskConfig", "TaskEntry", "load_task"),
    "training.config": ("RunConfig",),
    "training.plan": ("make_plan",),
    "training.run": ("Run",),
}
# Each public name, its module, and its name there.
_PUBLIC = {
    **{name: (module, name) for module, names in _MODULES.items() for name in names},
    "aggregator": ("aggregators", "build"),
    "fed_aggregator": ("aggregators", "build_fed"),
    "register_task": ("tasks", "register"),
    "start_worker": ("training.worker", "start"),
}

__all__ = [
    "BudgetNotBindingError",
    "CalibrationError",
    "Chosen",
    "Codec",
    "CodecFactory",
    "CyclicPoisson",
    "DistributedDiscreteGaussian",
    "DistributedSkellam",
    "Dome",
    "DomeDdg",
    "DpflAccountant",
    "EXAMPLES",
    "FixedSize",
    "Gaussian",
    "IntegerMechanism",
    "L2Csgm",
    "Ledger",
    "LinfCsgm",
    "MECHANISMS",
    "MatrixFactorization",
    "Measure",
    "Mechanism",
    "NoMechanism",
    "NoiseMechanism",
    "NoiseTooLargeError",
    "NoiseTooSmallError",
    "OncePerEpoch",
    "PARTICIPATIONS",
    "Participation",
    "PoissonSampling",
    "PrivacyReport",
    "ProjectAndPerturb",
    "RandomSlot",
    "Run",
    "RunConfig",
    "Sgmf",
    "SketchedDdg",
    "SparseRecovery",
    "TaskConfig",
    "TaskEntry",
    "UnreachableBudgetError",
    "aggregator",
    "calibrate",
    "chosen",
    "epsilon",
    "fed_aggregator",
    "load_task",
    "make_codec",
    "make_plan",
    "option",
    "privacy_report",
    "register",
    "register_task",
    "required",
    "start_worker",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dpfl' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(importlib.import_module(f"dpfl.{module}"), attribute)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
