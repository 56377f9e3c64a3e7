# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The one table of mechanisms: a name, its configuration, its TFF factory."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from dpfl.mechanisms import (
    base,
    csgm,
    distributed,
    dome,
    gaussian,
    matrix_factorization,
    none,
    sgmf,
    sketch,
)


class Entry(NamedTuple):
    """One mechanism.

    Attributes:
      config: The class of its configuration.
      factory: "module:function"; the function takes a configuration and an optional
        seed and returns a tff.aggregators factory. A string, so that accounting does
        not import TensorFlow.
    """

    config: type[base.Mechanism]
    factory: str


MECHANISMS: dict[str, Entry] = {
    entry.config.name: entry
    for entry in (
        Entry(none.NoMechanism, "dpfl.aggregators.mean:build"),
        Entry(gaussian.Gaussian, "dpfl.aggregators.gaussian:build"),
        Entry(csgm.L2Csgm, "dpfl.aggregators.csgm:build"),
        Entry(csgm.LinfCsgm, "dpfl.aggregators.csgm:build"),
        Entry(
            distributed.DistributedDiscreteGaussian,
            "dpfl.aggregators.distributed:build",
        ),
        Entry(distributed.DistributedSkellam, "dpfl.aggregators.distributed:build"),
        Entry(sketch.SketchedDdg, "dpfl.aggregators.sketched:build"),
        Entry(sketch.ProjectAndPerturb, "dpfl.aggregators.sketched:build"),
        Entry(sketch.SparseRecovery, "dpfl.aggregators.sketched:build"),
        Entry(dome.Dome, "dpfl.aggregators.dome:build"),
        Entry(
            matrix_factorization.MatrixFactorization,
            "dpfl.aggregators.matrix_factorization:build",
        ),
        Entry(sgmf.Sgmf, "dpfl.aggregators.sgmf:build"),
    )
}


def build_aggregator(mechanism: base.Mechanism, **kwargs: Any) -> Any:
    """The tff.aggregators factory of a mechanism.

    Args:
      mechanism: A configuration from `MECHANISMS`.
      **kwargs: Handed to the factory's builder, such as `seed`.

    Raises:
      TypeError: If `mechanism` is not a configuration from the table.
    """
    entry = MECHANISMS.get(getattr(mechanism, "name", ""))
    if entry is None or not isinstance(mechanism, entry.config):
        raise TypeError(
            f"mechanism must be a configuration of one of {sorted(MECHANISMS)}, "
            f"found {mechanism!r}"
        )
    module, function = entry.factory.split(":")
    return getattr(importlib.import_module(module), function)(mechanism, **kwargs)
