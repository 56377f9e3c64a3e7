# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What happens to a vector on its way to the server, in plain TensorFlow.

Nothing here knows of TFF: every function runs eagerly, in a `tf.function` and in a TFF
computation alike.
"""

from dpfl.vectors.adaptive_sketch import AdaptiveSketch
from dpfl.vectors.clipping import NormedVector, clip_factor, safe_norm
from dpfl.vectors.count_sketch import (
    SKETCHES,
    GroupedSketch,
    HashSketch,
    ShiftSketch,
    build_sketch,
)
from dpfl.vectors.gaussian_sketch import GaussianSketch, lasso
from dpfl.vectors.integer_noise import discrete_gaussian_noise, skellam_noise
from dpfl.vectors.integers import OverlapRotation
from dpfl.vectors.masks import BernoulliMask, FullMask, build_mask
from dpfl.vectors.randomness import (
    fold_in,
    fresh_seed,
    rademacher,
    seed_from_int,
    standard_normal,
)
from dpfl.vectors.rotation import (
    ROTATIONS,
    FourierRotation,
    HadamardRotation,
    hadamard_transform,
)
from dpfl.vectors.rounding import conditional_round, randomized_round

__all__ = [
    "ROTATIONS",
    "SKETCHES",
    "AdaptiveSketch",
    "BernoulliMask",
    "FourierRotation",
    "FullMask",
    "GaussianSketch",
    "GroupedSketch",
    "HadamardRotation",
    "HashSketch",
    "NormedVector",
    "OverlapRotation",
    "ShiftSketch",
    "build_mask",
    "build_sketch",
    "clip_factor",
    "conditional_round",
    "discrete_gaussian_noise",
    "fold_in",
    "fresh_seed",
    "hadamard_transform",
    "lasso",
    "rademacher",
    "randomized_round",
    "safe_norm",
    "seed_from_int",
    "skellam_noise",
    "standard_normal",
]
