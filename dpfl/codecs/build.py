# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Construction of codecs from configurations of mechanisms.

    mechanism = mechanisms.Gaussian(100, clip_norm=1.0, noise_multiplier=1.0)
    codec = make_codec(mechanism, dimension, arrays="jax")

The codec's class is that of the mechanism's row in `mechanisms.registry`.
"""

from __future__ import annotations

from typing import Any

from dpfl import arrays as libraries
from dpfl import checks, mechanisms, planning
from dpfl.codecs.base import Codec
from dpfl.mechanisms import registry


def make_codec(
    mechanism: mechanisms.Mechanism,
    dimension: int,
    arrays: str = "numpy",
    **options: Any,
) -> Codec:
    """The codec of a mechanism for flattened updates, over an array library.

    Numbers that are "auto" are chosen for one release of the mechanism's own noise, see
    `planning.resolve`, and logged.

    Args:
      mechanism: A configuration from `dpfl.mechanisms.MECHANISMS`.
      dimension: d, the length of a flattened update.
      arrays: "numpy", "jax" or "tensorflow".
      **options: Options of the codec's class, as for `dpfl.aggregator`.

    Raises:
      TypeError: If `mechanism` is not a configuration from the table.
      ValueError: If there is no such library.
    """
    check(mechanism)
    length = checks.dimension("dimension", dimension)
    nx = libraries.named(arrays)
    resolved = planning.resolve(mechanism, None, length)
    codec = registry.codec(type(mechanism))
    return codec(resolved.logged(), length, nx, **options)


def check(mechanism: mechanisms.Mechanism) -> None:
    """Raises TypeError if a mechanism is not a configuration from the table."""
    if registry.codec(type(mechanism)) is None:
        names = sorted(mechanisms.MECHANISMS)
        raise TypeError(
            f"mechanism must be a configuration of one of {names}, found {mechanism!r}"
        )
