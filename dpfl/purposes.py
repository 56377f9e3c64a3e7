# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Purposes of randomness, by name.

A seed is derived from another one and a purpose. Each class here holds the purposes of
one parent: its values separate the seeds of that parent, and are part of every saved
run. An index, such as the round, the client or the row, may follow the purpose.
"""

from __future__ import annotations

import enum


class Run(enum.Enum):
    """The purposes of a run's key, or of its seed."""

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


class Round(enum.IntEnum):
    """Purposes of the seed of an aggregator's round."""

    BROADCAST = 1
    SERVER_NOISE = 2
    CLIENT = 3
    ROTATION = 4
    UPDATE_NOISE = 5
    COUNT_NOISE = 6


class Rotation(enum.IntEnum):
    """Purposes of the seed of a round's rotation, besides the rotation."""

    SKETCH = 1


class NoiseStream(enum.IntEnum):
    """Purposes of the seed of a noise stream, besides the index of a row."""

    # Separates the seeds of rows from other uses of the same seed.
    NORMALS = 0x6E6F_6973_6500_5EED


class MeanEstimation(enum.IntEnum):
    """Purposes of the seed of a measured round, besides its clients from 1 on."""

    SHARED = 0
    NOISE = -1


# The enums below are numbered in their order, from 0 unless they say otherwise.

# Purposes of a client's seed where integers are sent.
Client = enum.IntEnum("Client", "ROUNDING UPDATE_SHARE COUNT_SHARE", start=0)
# Purposes of the seed of a sketch's row, by hashes and by shifts.
HashSketch = enum.IntEnum("HashSketch", "BUCKETS SIGNS", start=0)
ShiftSketch = enum.IntEnum("ShiftSketch", "SIGNS SHIFTS BLOCK_SIGNS", start=0)
# Purposes of the seed of integers drawn from a table. The second level of the first
# table is `SECOND_LEVEL`; the further tables of a sum follow.
Draw = enum.IntEnum("Draw", "TABLES SECOND_LEVEL", start=0)
# Purposes of the seed of a table's second level.
Alias = enum.IntEnum("Alias", "COLUMNS LOW_BITS", start=0)
# Purposes of the seed of a round of DOME's learning without clients.
Learning = enum.IntEnum("Learning", "SHARED CLIENT NOISE", start=1)
