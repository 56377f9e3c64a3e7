# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Everything that randomness is drawn for, by name.

A seed is derived from another one and a purpose. Each class here holds the purposes of
one parent: its values tell the seeds of that parent apart, and are part of every saved
run. An index, such as the round, the client or the row, may follow the purpose.
"""

from __future__ import annotations

import enum


class Run(enum.Enum):
    """The purposes of a run's key, or of its seed."""

    # All that mechanisms draw: masks, rotations, sketches, rounding and noise.
    MECHANISM = "aggregator"
    # The model's first weights.
    MODEL = "model"
    # Who joins a round, by each of the rules; of an epoch, in which order.
    POISSON_COHORT = "poisson"
    FIXED_COHORT = "fixed"
    EPOCH_ORDER = "epoch"
    # Which round each client is in next, of an epoch or of the run, where each draws it
    # by itself.
    SLOT = "slot"
    # Which group or window each client is dealt into for the whole run, and in which
    # order those of a window are.
    GROUP = "group"
    WINDOW_ORDER = "window"
    # What each client's masks, rounding and noise come from; nobody else is told.
    CLIENT = "client"


class Round(enum.IntEnum):
    """What the seed of an aggregator's round is asked for."""

    BROADCAST = 1
    SERVER_NOISE = 2
    CLIENT = 3
    ROTATION = 4
    UPDATE_NOISE = 5
    COUNT_NOISE = 6


class Rotation(enum.IntEnum):
    """What the seed of a round's rotation is asked for, besides the rotation."""

    SKETCH = 1


class NoiseStream(enum.IntEnum):
    """What the seed of a noise stream is asked for, besides the index of a row."""

    # Sets the seeds of rows apart from other uses of the same seed.
    NORMALS = 0x6E6F_6973_6500_5EED


class MeanEstimation(enum.IntEnum):
    """What a measured round's seed is asked for, beside its clients from 1 on."""

    SHARED = 0
    NOISE = -1


# The rest are numbered in their order, from 0 unless they say so.

# What a client's seed is asked for where integers are sent.
Client = enum.IntEnum("Client", "ROUNDING UPDATE_SHARE COUNT_SHARE", start=0)
# What the seed of a row of a sketch by hashes is asked for, and that of one by shifts.
HashSketch = enum.IntEnum("HashSketch", "BUCKETS SIGNS", start=0)
ShiftSketch = enum.IntEnum("ShiftSketch", "SIGNS SHIFTS BLOCK_SIGNS", start=0)
# What the seed of integers drawn from a table is asked for. The second level of the
# first table is `SECOND_LEVEL`; those of the further parts of a sum of tables follow.
Draw = enum.IntEnum("Draw", "TABLES SECOND_LEVEL", start=0)
# What the seed of a table's second level is asked for.
Alias = enum.IntEnum("Alias", "COLUMNS LOW_BITS", start=0)
# What the seed of a round of DOME's learning without clients is asked for.
Learning = enum.IntEnum("Learning", "SHARED CLIENT NOISE", start=1)
