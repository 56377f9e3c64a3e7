# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The adversary's knowledge: a canary's place in a release, and its likelihood.

    shared = codec.decode_broadcast(codec.broadcast(state, seed))
    updates = adversary.directions(mechanism, dimension, shared)
    scores = adversary.log_ratio(mechanism, dimension, released, block)

A canary is a block of coordinates of the release, of length one in units of the clip.
`directions` computes the updates that appear there, `log_ratio` how much more likely an
outcome is with the canary than without. Both use public values only: the broadcast and
the mechanism's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from dpfl import mechanisms
from dpfl.accounting.integer import summed_noise
from dpfl.arrays import Array
from dpfl.codecs import sketch
from dpfl.codecs.integer_sums import IntegerSum
from dpfl.mechanisms import integer
from dpfl.mechanisms.integer import CLIP_COUNT_BITS
from dpfl.vectors import adaptive_sketch, rotation

from . import library
from .library import NX

# Distance to an integer below which a canary is taken for it.
WHOLE = 1e-6

# The effect of a canary above an adaptive clip: the sum of the votes changes by -1, of
# which a trusted server releases half.
COUNT_CANARY = np.array([-1.0])
HALF_VOTE = np.array([-0.5])


def directions(
    mechanism: mechanisms.Mechanism, dimension: int, shared: Any
) -> Optional[Array]:
    """Updates, each of which appears in a single coordinate of the release.

    Args:
      mechanism: The mechanism.
      dimension: d.
      shared: The round's broadcast, expanded.

    Returns:
      float32[m, d], one update for each coordinate, or None if the release has the
      update's own coordinates.
    """
    if isinstance(mechanism, mechanisms.L2Csgm):
        length = mechanism.rotated_dimension(dimension)
        turn = rotation.ROTATIONS[mechanism.rotation](length)
        return _rows(length, lambda e: turn.invert(e, shared["rotation"])[:dimension])
    if isinstance(mechanism, mechanisms.Dome):
        inner = NX.eye(mechanism.sketch_size, dtype=np.float32)
        if isinstance(mechanism, mechanisms.DomeDdg):
            inner = _unrotated(
                mechanism.release, mechanism.sketch_size, shared["release"]
            )
        return adaptive_sketch.combine(shared["sketch"], inner)
    if isinstance(mechanism, mechanisms.ProjectAndPerturb):
        return _unsketched(sketch.make_sketch(mechanism.shape(dimension)), shared)
    if not isinstance(mechanism, integer.IntegerMechanism):
        return None
    inner = _unrotated(mechanism, dimension, shared)
    if isinstance(mechanism, mechanisms.SketchedDdg):
        made = sketch.make_sketch(mechanism.shape(dimension))
        return inner @ _unsketched(made, shared)
    if isinstance(mechanism, mechanisms.SparseRecovery):
        # The sketch is the matrix itself, and the clip of a sketch is over this.
        updates = inner @ NX.transpose(NX.linalg.pinv(shared["sketch"]))
        return updates * shared["largest"]
    return inner


def _unrotated(
    mechanism: integer.IntegerMechanism, dimension: int, shared: Any
) -> Array:
    """The vectors that are rotated to unit vectors, as rows."""
    length = mechanism.rotated_dimension(dimension)
    turn = rotation.ROTATIONS[mechanism.rotation](length)
    return _rows(length, lambda e: turn.invert(e, shared["rotation"]))


def _rows(length: int, of_unit: Callable[[Array], Array]) -> Array:
    """The images of the unit vectors, as rows."""
    units = NX.eye(length, dtype=np.float32)
    return library.mapped(lambda row: of_unit(*row), (units,))


def _unsketched(made: Any, shared: Any) -> Array:
    """The shortest updates whose sketches are the unit vectors, as rows."""
    rows = _rows(made.input_length, lambda e: made.encode(e, shared["sketch"]))
    # Rows are the columns of S, so that the pseudo-inverse has the updates as rows.
    return NX.linalg.pinv(rows[: made.dimension])


def steps_to_clip(mechanism: mechanisms.Mechanism, dimension: int) -> float:
    """The clip of the summed vectors, in steps of the integers of the sum."""
    if isinstance(mechanism, mechanisms.DomeDdg):
        return steps_to_clip(mechanism.release, mechanism.sketch_size)
    if isinstance(mechanism, integer.IntegerMechanism):
        return 1 / mechanism.grid(dimension).granularity
    multiplier = noise_multiplier(mechanism)
    ratio = 1.0
    if isinstance(mechanism, mechanisms.L2Csgm):
        ratio = mechanism.resolved_linf_ratio(dimension)
    made = IntegerSum(1, multiplier, mechanism.cohort_size, ratio)
    return made.grid.stddev / multiplier


def noise_multiplier(mechanism: Any) -> float:
    """The noise of the sum over the clip of the summed vectors."""
    if isinstance(mechanism, mechanisms.L2Csgm):
        return mechanism.stddev / mechanism.clip_norm
    if isinstance(mechanism, mechanisms.Gaussian):
        return mechanism.update_noise_multiplier
    return mechanism.noise_multiplier


def log_ratio(
    mechanism: Any, dimension: int, released: np.ndarray, block: Any
) -> np.ndarray:
    """The log-likelihood ratio log P/Q of blocks of a release, float64[trials].

    Roundings that are ignored can only weaken it.

    Args:
      mechanism: The mechanism.
      dimension: d.
      released: [trials, block], the released or opened integers.
      block: The canary, float64[block], of length 1 in units of the clip.
    """
    steps = steps_to_clip(mechanism, dimension)
    block = np.asarray(block, np.float64)
    if isinstance(mechanism, mechanisms.DomeDdg):
        mechanism, dimension = mechanism.release, mechanism.sketch_size
    if isinstance(mechanism, integer.IntegerMechanism):
        stddev = mechanism.grid(dimension).local_stddev_steps
        opened = centered(released, mechanism.bits)
        return integer_ratio(mechanism, opened, block * steps, stddev)
    keep = mechanism.keep_fraction
    return gaussian_ratio(
        np.asarray(released, np.float64) / steps,
        block,
        noise_multiplier(mechanism),
        keep,
    )


def sampled_score(log_ratio: np.ndarray, probability: float) -> np.ndarray:
    """The score log(1 - q + q exp(log_ratio)) of a canary of probability q."""
    if probability == 1:
        return log_ratio
    return np.logaddexp(math.log1p(-probability), math.log(probability) + log_ratio)


def gaussian_ratio(
    released: np.ndarray, block: np.ndarray, stddev: float, keep_fraction: float = 1.0
) -> np.ndarray:
    """The ratio log P/Q if coordinates are kept with probability gamma and noised.

    Args:
      released: float64[trials, block].
      block: The canary, float64[block], in the same units.
      stddev: Standard deviation of the noise, in the same units.
      keep_fraction: gamma.
    """
    each = (released - block / 2) * block / stddev**2
    return np.sum(sampled_score(each, keep_fraction), axis=-1)


def stream_ratio(mechanism: Any, results: np.ndarray, block: Any) -> np.ndarray:
    """The ratio log P/Q of blocks of a stream, with the canary in its first round.

    Args:
      mechanism: Matrix factorization, or SGMF.
      results: float32[T, m], the inputs of the server's optimizer, in the canaries'
        coordinates.
      block: The canary, float64[block], of length 1 in units of the clip.
    """
    # A^-1 of the sums of the results: they are rows of (G + A^-1 B Z) / divisor.
    sums = np.asarray(results, np.float64) * mechanism.noise_divisor
    encoder = mechanism.factorization.encoder()
    column = encoder[:, 0]
    length, stddev = stream_column(mechanism)
    # The canary's direction in C G + Z, over the clip.
    along = (column / length) @ encoder @ sums / mechanism.clip_norm
    block = np.asarray(block, np.float64)
    blocks = along[: along.size // block.size * block.size].reshape(-1, block.size)
    keep = mechanism.keep_fraction
    return gaussian_ratio(blocks / length, block, stddev / length, keep)


def stream_column(mechanism: Any) -> tuple[float, float]:
    """The length of C's first column, and the stddev of Z over the clip."""
    column = mechanism.factorization.encoder()[:, 0]
    return float(np.linalg.norm(column)), mechanism.stddev / mechanism.clip_norm


def release_length(mechanism: Any, dimension: int) -> int:
    """The length of a release, m."""
    if isinstance(mechanism, mechanisms.Dome):
        return mechanism.sketch_size
    if isinstance(mechanism, mechanisms.ProjectAndPerturb):
        return mechanism.shape(dimension).length
    if isinstance(mechanism, (mechanisms.L2Csgm, integer.IntegerMechanism)):
        return mechanism.rotated_dimension(dimension)
    return dimension


def count_ratio(mechanism: Any, within: np.ndarray) -> np.ndarray:
    """The ratio log P/Q of an adaptive clip's count, for a canary above the clip.

    `within`, [trials], is half the noised sum of the votes, or the opened one.
    """
    if isinstance(mechanism, integer.IntegerMechanism):
        opened = centered(within, CLIP_COUNT_BITS)[:, np.newaxis]
        stddev = mechanism.local_count_stddev
        return integer_ratio(mechanism, opened, COUNT_CANARY, stddev)
    stddev = mechanism.resolved_count_stddev
    return gaussian_ratio(within[:, np.newaxis], HALF_VOTE, stddev)


def centered(residues: np.ndarray, bits: int) -> np.ndarray:
    """Maps residues modulo 2^b to the integers in [-2^(b-1), 2^(b-1)), int64."""
    half = 1 << (bits - 1)
    return (np.asarray(residues, np.int64) + half) % (1 << bits) - half


def noise_log_pmf(
    mechanism: integer.IntegerMechanism, x: np.ndarray, stddev: float
) -> np.ndarray:
    """Log-probabilities of the sum of all shares of noise.

    Args:
      mechanism: The mechanism.
      x: Integers, of any shape.
      stddev: Standard deviation of a share, in steps.
    """
    shares = mechanism.noise_shares
    if isinstance(mechanism, mechanisms.DistributedSkellam):
        return summed_noise.SkellamNoise(shares * stddev**2).log_pmf_at(x)
    return summed_noise.DiscreteGaussianNoise(shares, stddev).log_pmf_at(x)


def integer_ratio(
    mechanism: integer.IntegerMechanism,
    opened: np.ndarray,
    canary: np.ndarray,
    stddev: float,
) -> np.ndarray:
    """The ratio log P/Q of opened sums.

    Args:
      mechanism: The mechanism.
      opened: int64[trials, block], centered sums.
      canary: float64[block] in steps, which is rounded up or down at random.
      stddev: Standard deviation of a share, in steps.
    """

    def log_pmf(x: np.ndarray) -> np.ndarray:
        return noise_log_pmf(mechanism, x, stddev)

    # A number below an integer by half a clip's float32 rounding is that integer.
    lower = np.floor(canary + WHOLE)
    moved = opened - lower.astype(np.int64)
    with np.errstate(divide="ignore"):
        up, down = np.log(np.maximum(canary - lower, 0)), np.log(1 - (canary - lower))
    rounded = np.logaddexp(
        np.minimum(down, 0) + log_pmf(moved), up + log_pmf(moved - 1)
    )
    return np.sum(rounded - log_pmf(opened), axis=-1)
