# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Domains of seeds, by name.

    seed = selection.derive_seed(key, seed_domains.RunDomain.MECHANISM)

A seed is derived from another one and a domain. Each class here holds the domains of
one parent: its values separate the seeds of that parent, and are part of every saved
run. An index, such as the round, the client or the row, may follow the domain.
"""

from __future__ import annotations

import enum


class RunDomain(enum.Enum):
    """The domains of a run's key, or of its seed."""

    # All draws of mechanisms: masks, rotations, sketches, rounding and noise.
    MECHANISM = "aggregator"
    # Initial weights of the model.
    MODEL = "model"
    # Cohorts by each sampling rule, and the order of an epoch.
    POISSON_COHORT = "poisson"
    FIXED_COHORT = "fixed"
    EPOCH_ORDER = "epoch"
    # The next round of each client, of an epoch or of the run, where clients draw it
    # themselves.
    SLOT = "slot"
    # The group or window of each client for the whole run, and the order within a
    # window.
    GROUP = "group"
    WINDOW_ORDER = "window"
    # Parent of each client's masks, rounding and noise; nobody else knows it.
    CLIENT = "client"


class RoundDomain(enum.IntEnum):
    """Domains of the seed of an aggregator's round."""

    BROADCAST = 1
    SERVER_NOISE = 2
    CLIENT = 3
    ROTATION = 4
    UPDATE_NOISE = 5
    COUNT_NOISE = 6


class ClientKeyDomain(enum.IntEnum):
    """Domains of a client's key, besides `RoundDomain.CLIENT`."""

    CANARY = 0x6361_6E61_7279


class RotationDomain(enum.IntEnum):
    """Domains of the seed of a round's rotation, besides the rotation."""

    SKETCH = 1


class NoiseStreamDomain(enum.IntEnum):
    """Domains of the seed of a noise stream, besides the index of a row."""

    # Separates the seeds of rows from other uses of the same seed.
    NORMALS = 0x6E6F_6973_6500_5EED


# The enums below are numbered in their order, from 0 unless they say otherwise.

# Domains of a client's seed where integers are sent.
ClientDomain = enum.IntEnum(
    "ClientDomain", "ROUNDING UPDATE_SHARE COUNT_SHARE", start=0
)
# Domains of the seed of a sketch.
ShiftSketchDomain = enum.IntEnum(
    "ShiftSketchDomain", "SIGNS SHIFTS BLOCK_SIGNS", start=0
)
# Domains of the seed of integers drawn from a table. The second level of the first
# table is `SECOND_LEVEL`; the further tables of a sum follow.
DrawDomain = enum.IntEnum("DrawDomain", "TABLES SECOND_LEVEL", start=0)
# Domains of the seed of a table's second level.
AliasDomain = enum.IntEnum("AliasDomain", "COLUMNS LOW_BITS", start=0)
