# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms as functions of arrays; a module for each family.

    codec = dpfl.make_codec(mechanism, dimension, arrays="jax")

`make_codec` makes the codec of a `dpfl.mechanisms` configuration over numpy, JAX or
TensorFlow; `dpfl.codecs.base` describes its functions. No library is imported here.
"""

from dpfl.codecs.base import Codec
from dpfl.codecs.build import make_codec

__all__ = ["Codec", "make_codec"]
