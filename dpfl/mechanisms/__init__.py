# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms as frozen numbers: noise, accounting and bits from one object.

    mechanism = mechanisms.Gaussian(100, clip_norm=1.0, noise_multiplier=1.0)
    event = mechanism.round_dp_event(dimension, sampling_probability=0.01)
    bits = mechanism.uplink_bits(dimension)

`MECHANISMS` has all of them by name; `dpfl.make_codec` and `dpfl.aggregator` run them.
"""

# A class of the table is a name of this package by its row there alone.
# ruff: noqa: F403
from typing import TYPE_CHECKING

from dpfl.mechanisms import participation, registry
from dpfl.mechanisms.csgm import default_linf_ratio as default_linf_ratio
from dpfl.mechanisms.integer import IntegerMechanism as IntegerMechanism
from dpfl.mechanisms.mechanism import Mechanism as Mechanism
from dpfl.mechanisms.mechanism import NoiseMechanism as NoiseMechanism
from dpfl.mechanisms.participation import *
from dpfl.mechanisms.registry import *

# Hidden from type checkers, which know star imports but no sum of such lists.
if not TYPE_CHECKING:
    __all__ = ["IntegerMechanism", "Mechanism", "NoiseMechanism", "default_linf_ratio"]
    __all__ += participation.__all__ + registry.__all__

# Loaded last, since plug-ins import this package.
registry.load_plugins()
