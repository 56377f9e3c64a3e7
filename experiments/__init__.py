# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Binaries of dpfl: flags in, results out."""

import os

# Hides TensorFlow's start-up messages (about CUDA, on every machine without it) would
# bury what the binaries say. It reads this when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
