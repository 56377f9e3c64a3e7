# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Construction of TFF factories from configurations of mechanisms.

    process = dpfl.aggregator(mechanism, seed=1).create(value_type)  # calls `build`
    output = process.next(process.initialize(), updates)

`build_with_host_noise` is for noise that the training program computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, cast

from dpfl import checks, mechanisms
from dpfl.aggregators.factory import CodecFactory
from dpfl.aggregators.host_noise import HostNoise
from dpfl.codecs import build as build_codec
from dpfl.codecs import round_functions
from dpfl.codecs.base import Codec
from dpfl.mechanisms.matrix_factorization import StreamedMatrix


def build(
    mechanism: mechanisms.Mechanism,
    *,
    seed: Optional[int] = None,
    output: str = "mean",
    measure: Optional[str] = None,
    weighted: bool = False,
    around: Optional[Callable[[Codec], Codec]] = None,
    **options: Any,
) -> Any:
    """Builds the tff.aggregators factory of a mechanism.

    A mechanism with integer noise needs an execution context that can sum securely.
    Numbers that are "auto" are chosen for one release of the mechanism's own noise, see
    `planning.resolve`, and logged.

    Args:
      mechanism: A configuration from `dpfl.mechanisms.MECHANISMS`.
      seed: As for `CodecFactory`.
      output: As for `CodecFactory`.
      measure: As for `CodecFactory`.
      weighted: Whether clients bring weights, which only `NoMechanism` allows, and only
        `CodecFactory.round_functions` takes.
      around: Function that wraps the mechanism's codec, for instance to measure more;
        None for the codec itself. The noise is the same.
      **options: Options of the codec's class. Matrix factorization and SGMF have two:
        `block_rounds`, the rounds of noise that are computed at a time for a dense
        matrix (as many vectors of length d are in the state), and `noise_on_host`,
        whether the training program puts each round's noise into the state, by
        `HostNoise.put_into`, for large d and many rounds.

    Raises:
      TypeError: If `mechanism` is not a configuration from the table. `create` raises
        it for an option that the codec does not have.
      ValueError: If it cannot be weighted, if there is no such output or measure, if it
        measures the updates themselves where that is not asked for, or if its matrix
        has fewer rounds than an epoch.
    """
    build_codec.check(mechanism)
    mechanism.check_measure(measure)
    if weighted:
        round_functions.check_weighted(mechanism, output)
        options["weighted"] = True
    # Computed or read now, so that errors in a matrix are raised here.
    _ = getattr(mechanism, "factorization", None)

    def codec(dimension: int) -> Codec:
        made = build_codec.make_codec(mechanism, dimension, "tensorflow", **options)
        return made if around is None else around(made)

    return CodecFactory(
        codec,
        seed=seed,
        identity=mechanism.identity,
        output=output,
        measure=measure,
        released_measurements=mechanism.released_measurements,
    )


def build_with_host_noise(
    mechanism: mechanisms.Mechanism, dimension: int, **options: Any
) -> tuple[Any, Callable[[Any], Any]]:
    """Builds the factory for a training program that holds the state between rounds.

    Large values that can be computed again from a seed then stay in the program, and
    out of the state that is sent to TFF's worker and saved.

    Args:
      mechanism: A configuration from `dpfl.mechanisms.MECHANISMS`.
      dimension: d, the number of trainable parameters.
      **options: As for `build`.

    Returns:
      The factory, and the function to call on its state before each round, which is the
      identity for most mechanisms.

    Raises:
      TypeError: If `mechanism` is not a configuration from the table.
    """
    dimension = checks.dimension("dimension", dimension)
    build_codec.check(mechanism)
    if not isinstance(mechanism, StreamedMatrix):
        return build(mechanism, **options), lambda state: state
    put_noise = HostNoise(cast(Any, mechanism), dimension).put_into
    return build(mechanism, noise_on_host=True, **options), put_noise
