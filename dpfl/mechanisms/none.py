# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The plain mean: no clipping, no noise, no compression, no privacy."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import dp_accounting

from dpfl.mechanisms import mechanism


@dataclasses.dataclass(frozen=True)
class NoMechanism(mechanism.Mechanism):
    """The mean over those who report a finite update: the yardstick without privacy.

    `cohort_size` serves the choice of clients alone.
    """

    name: ClassVar[str] = "none"
    is_private: ClassVar[bool] = False
    is_weighted: ClassVar[bool] = True

    @property
    def trust(self) -> str:
        """Whom clients trust."""
        return "a trusted server, and whoever sees the model: there is no noise"

    def round_dp_event(
        self, dimension: int, sampling_probability: float
    ) -> dp_accounting.DpEvent:
        """A NonPrivateDpEvent, of which epsilon is infinite."""
        return dp_accounting.NonPrivateDpEvent()

    def uplink_bits(self, dimension: int) -> float:
        """32 bits for each parameter."""
        return float(mechanism.FLOAT_BITS * dimension)

    def mean_squared_error(self, dimension: int) -> float:
        """Zero: there is no noise."""
        return 0.0
