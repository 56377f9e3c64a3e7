# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Costs of mechanisms' rounds in JAX, on the device that JAX chooses.

    settings = harness.settings(quick=True, repeats=2)
    rows = harness.measure("jax_aggregation", settings)

It runs where TensorFlow Federated is not installed. `JAX_PLATFORMS=cpu` chooses the
processor where there is a card.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import dpfl
from dpfl import mechanisms

from . import harness
from .harness import Call, Row, Settings

# Bits of sums, the rate of sketches, the rounds of a matrix and the fraction of kept
# coordinates, where there is one row.
_BITS, _RATE, _ROUNDS, _KEEP_FRACTION = 16, 10.0, 2048, 0.1


def jax_aggregation(settings: Settings) -> list[Row]:
    """Encodes, adds up and releases vectors that lie on the device.

    Each function is compiled once, and each round has the state of the round before.
    The baseline is the mechanism `none`. Sparse recovery has no row: its sketch is a
    matrix with a row of the model's length for each measurement.
    """
    import jax

    device = jax.devices()[0].device_kind
    updates = jax.numpy.ones([settings.clients, settings.model])
    calls = {
        f"{device}: {name}": _round(mechanism, updates)
        for name, mechanism in measured_mechanisms(settings).items()
    }
    return harness.compare(calls, settings.repeats, processor_seconds=time.process_time)


def measured_mechanisms(settings: Settings) -> dict[str, mechanisms.Mechanism]:
    """The mechanisms by the names of their rows."""
    n = settings.clients
    release = (n, 1.0, 1.0)
    made: dict[str, mechanisms.Mechanism] = {
        "none": mechanisms.NoMechanism(n),
        "gaussian": mechanisms.Gaussian(*release),
    }
    for keep in (1.0, 0.1, 0.01):
        made[f"csgm {keep:g}"] = mechanisms.L2Csgm(*release, keep)
    made["linf csgm"] = mechanisms.LinfCsgm(*release, _KEEP_FRACTION)
    made["matrix factorization"] = mechanisms.MatrixFactorization(_ROUNDS, *release)
    made["sgmf"] = mechanisms.Sgmf(_ROUNDS, *release, _KEEP_FRACTION)
    sketched = partial(mechanisms.SketchedDdg, compression_rate=_RATE)
    sums: dict[str, Callable[..., mechanisms.Mechanism]] = {
        "discrete Gaussian": mechanisms.DistributedDiscreteGaussian,
        "Skellam": mechanisms.DistributedSkellam,
        f"sketched {_RATE:g}": sketched,
    }
    for name, build in sums.items():
        for source in ("clients", "helpers"):
            of_source = build(*release, _BITS, noise_source=source)
            made[f"{name}, {source}"] = of_source
    size = settings.sketch_sizes[1]
    made["project and perturb"] = mechanisms.ProjectAndPerturb(*release, _RATE)
    made[f"dome k={size}"] = mechanisms.Dome(*release, size)
    made[f"dome k={size}, integers"] = mechanisms.DomeDdg(*release, size)
    return made


def _round(mechanism: mechanisms.Mechanism, updates: object) -> Call:
    """A function that executes the next round of a mechanism."""
    import jax

    aggregator = dpfl.jax_aggregator(mechanism, jax.eval_shape(lambda x: x[0], updates))
    update = jax.jit(aggregator.update)
    state = aggregator.init()

    def run() -> None:
        nonlocal state
        mean, state, _ = update(state, updates, None, aggregator.entropy())
        jax.block_until_ready((mean, state))

    return run
