# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What happens to a vector on its way to the server, in plain TensorFlow.

Nothing here knows of TFF: every function runs eagerly, in a `tf.function` and in a TFF
computation alike.
"""

from dpfl.compression.clipping import NormedVector, clip_factor, safe_norm
from dpfl.compression.masks import BernoulliMask, FullMask, build_mask
from dpfl.compression.randomness import (
    fold_in,
    fresh_seed,
    rademacher,
    seed_from_int,
    standard_normal,
)
from dpfl.compression.rotation import (
    ROTATIONS,
    FourierRotation,
    HadamardRotation,
    hadamard_transform,
)

__all__ = [
    "ROTATIONS",
    "BernoulliMask",
    "FourierRotation",
    "FullMask",
    "HadamardRotation",
    "NormedVector",
    "build_mask",
    "clip_factor",
    "fold_in",
    "fresh_seed",
    "hadamard_transform",
    "rademacher",
    "safe_norm",
    "seed_from_int",
    "standard_normal",
]
