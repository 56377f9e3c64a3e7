# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Binaries of dpfl: flags in, results out.

    dpfl-train --task=docs --mechanism=gaussian --epsilon=4
    dpfl-compare runs/a runs/b

Each binary is a module with a command of its own; the others are shared by them.
"""

import os

# TensorFlow's start-up messages (about CUDA, on every machine without it) would bury
# the binaries' output. TensorFlow reads the variable when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
