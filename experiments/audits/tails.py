# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise that leaves real codecs, counted far out, against its exact law.

A codec of a long vector releases the sum of nobody, or of clients that send zeros: that
is the noise alone, one draw a coordinate. Beyond 5.7 standard deviations a normal
sampler in float32 has nothing (Box-Muller with a uniform number of 1e-7 at the least
reaches 5.68), and a billion draws of what is claimed have twelve.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
from scipy import special

from dpfl import mechanisms
from dpfl.accounting.integer import grid_numbers as numbers
from dpfl.accounting.integer import summed_noise
from dpfl.aggregators import dome, registry
from dpfl.aggregators.codec import Codec, Fields
from dpfl.vectors import integers, randomness

from . import adversary, finding

FAR = (5.0, 5.5, 5.7, 6.0, 6.5)
"""Standard deviations beyond which draws are counted, where there are many draws."""

NEAR = (3.0, 4.0, 4.5, 5.0, 5.5)
"""The same where there are few."""

# Above, sums of shares have a normal law's tails, to 1e-4 of them at 6.5.
_COARSE = 1000.0
# Draws of one call.
_LENGTH = 1 << 20
# Of which so many are wanted beyond the least of FAR.
_MANY_DRAWS = 100_000_000
# Chance of a count below which it is no chance.
_SMALLEST_CHANCE = 1e-4
# Standard deviations that the mean square of some draws may be off.
_SPREAD_LIMIT = 5.5


@dataclasses.dataclass(frozen=True)
class Source:
    """Noise as it leaves a codec.

    Attributes:
      mechanism: Whose noise.
      draw: From a seed to integers, or to floats on a grid.
      unit: What the draws are multiplied by to be integers.
      stddev: The standard deviation of the law, in integers.
      log_pmf: Of the law, for one that is too coarse for a continuous one; None else.
    """

    mechanism: str
    draw: Callable[[tf.Tensor], tf.Tensor]
    unit: float
    stddev: float
    log_pmf: Optional[Callable[[np.ndarray], np.ndarray]] = None

    def tail(self, least: int) -> float:
        """Returns the probability of an integer of at least that size."""
        if self.log_pmf is None:
            # The sum over integers is the integral from half a step before, to 1e-9.
            return special.erfc((least - 0.5) / (self.stddev * math.sqrt(2)))
        size = np.arange(least, least + math.ceil(10 * self.stddev))
        return 2 * float(np.sum(np.exp(self.log_pmf(size))))


def trusted_source(mechanism: Any) -> Source:
    """Returns the noise of a server, as it leaves `Codec.release` or `decode`."""
    length = _LENGTH
    if isinstance(mechanism, mechanisms.ProjectAndPerturb):
        length = round(_LENGTH * mechanism.compression_rate)
    codec = registry.make_codec(mechanism, length)
    sums = collections.OrderedDict(clients=tf.constant(1.0, tf.float64))
    if isinstance(mechanism, (mechanisms.MatrixFactorization, mechanisms.Sgmf)):
        # A stream of one row: the result is a row of Z, with the scale of the mean.
        scale = mechanism.stddev / mechanism.noise_divisor
        nobody = _nobody(codec, mechanism, length)

        def draw_row(seed: tf.Tensor) -> tf.Tensor:
            return codec.decode(codec.initial_state(), *nobody, seed).mean

        fine = numbers.grid(1.0, 1).stddev
        stddev = math.sqrt(fine**2 + numbers.COVER_VARIANCE)
        return Source(mechanism.name, draw_row, fine / scale, stddev)

    def draw(seed: tf.Tensor) -> tf.Tensor:
        nothing: Fields = collections.OrderedDict()
        return codec.release(nothing, codec.zero(), sums, nothing, seed)

    def draw_update(seed: tf.Tensor) -> tf.Tensor:
        released = draw(seed)
        return released["update"] if isinstance(released, dict) else released

    steps = adversary.steps_to_clip(mechanism, length) * adversary.noise_multiplier(
        mechanism
    )
    stddev = math.sqrt(steps**2 + numbers.COVER_VARIANCE)
    return Source(mechanism.name, draw_update, 1.0, stddev)


def _nobody(codec: Any, mechanism: Any, length: int) -> tuple[Any, Any, Any]:
    """Returns the sum of no clients, with what `decode` wants beside it."""
    names = ("l2_clipped", "linf_clipped", "kept", "clients")
    sums = collections.OrderedDict((n, tf.constant(1.0, tf.float64)) for n in names)
    seed = tf.zeros([2], tf.int64)
    shared = codec.expand(codec.broadcast(codec.initial_state(), seed))
    return codec.zero(), sums, shared


def shares_source(mechanism: Any) -> Source:
    """Returns the noise of all clients' shares, as their encoded zeros open it."""
    name = mechanism.name
    length = _LENGTH // 4
    config = mechanism
    codec: Codec
    if isinstance(config, mechanisms.Dome):
        config = dataclasses.replace(mechanism, sketch_size=length)
        codec = dome.LocalNoiseCodec(config)
    else:
        codec = registry.make_codec(config, length)
    shared = codec.expand(
        codec.broadcast(collections.OrderedDict(), tf.zeros([2], tf.int64))
    )
    zeros = tf.zeros([codec.input_length])

    def draw(seed: tf.Tensor) -> tf.Tensor:
        total = codec.zero()
        for client in range(config.cohort_size):
            own = randomness.fold_in(seed, client)
            total = codec.accumulate(total, codec.encode(zeros, shared, own).message)
        return integers.center(total["update"], config.message_bits)

    if isinstance(config, mechanisms.Dome):
        steps = adversary.steps_to_clip(config, length) * config.noise_multiplier
        stddev = math.sqrt(steps**2 + numbers.COVER_VARIANCE)
        return Source(name, draw, 1.0, stddev)
    shares, local = config.noise_shares, config.grid(length).local_stddev_steps

    def log_pmf(x: np.ndarray) -> np.ndarray:
        if isinstance(config, mechanisms.DistributedSkellam):
            return summed_noise.SkellamNoise(shares * local**2).log_pmf_at(x)
        return summed_noise.DiscreteGaussianNoise(shares, local).log_pmf_at(x)

    stddev = math.sqrt(shares * config.share_variance(local))
    is_coarse = stddev < _COARSE
    return Source(name, draw, 1.0, stddev, log_pmf if is_coarse else None)


def findings(source: Source, draws: int, seed: int) -> Iterator[finding.Finding]:
    """Yields the mean square, and the counts beyond each size, of many draws.

    Args:
      source: The noise.
      draws: How many, at the least.
      seed: Of all.
    """
    sizes = FAR if draws >= _MANY_DRAWS else NEAR
    least = [math.ceil(size * source.stddev) for size in sizes]
    counts, taken, square = _counted(source, least, draws, seed)
    off = (square / source.stddev**2 - 1) * math.sqrt(taken / 2)
    yield finding.Finding(
        check="spread",
        mechanism=source.mechanism,
        setting="mean square of the noise",
        is_sound=abs(off) < _SPREAD_LIMIT,
        claimed=source.stddev**2,
        found=square,
        trials=taken,
        detail=f"off by {off:.2g} standard deviations",
    )
    for size, integer, count in zip(sizes, least, counts):
        expected = source.tail(integer)
        chance = finding.count_chance(count, taken, expected)
        yield finding.Finding(
            check="tails",
            mechanism=source.mechanism,
            setting=f"beyond {size:g} standard deviations",
            is_sound=chance >= _SMALLEST_CHANCE,
            claimed=taken * expected,
            found=float(count),
            trials=taken,
            detail=f"chance {chance:.2g}",
        )


def _counted(
    source: Source, least: Sequence[int], draws: int, seed: int
) -> tuple[np.ndarray, int, float]:
    """Returns counts of integers of at least those sizes, of how many, mean square."""

    @tf.function(autograph=False)
    def far(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        own = randomness.fold_in(tf.constant([seed, 77], tf.int64), number)
        drawn = source.draw(own)
        if drawn.dtype.is_floating:
            drawn = tf.cast(tf.round(drawn * source.unit), tf.int32)
        size = tf.abs(drawn)
        places = tf.where(size >= tf.cast(min(least), size.dtype))
        square = tf.nn.l2_loss(tf.cast(drawn, tf.float32) / source.stddev)
        return tf.gather_nd(size, places), square, tf.size(drawn)

    counts, taken, squares = np.zeros(len(least), np.int64), 0, 0.0
    number = 0
    while taken < draws:
        sizes, square, drawn = far(tf.constant(number, tf.int64))
        sizes = sizes.numpy()
        counts += [int(np.sum(sizes >= integer)) for integer in least]
        taken += int(drawn)
        squares += 2 * float(square)
        number += 1
    return counts, taken, squares / taken * source.stddev**2
