# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Binaries of dpfl: flags in, results out."""

import os

# TensorFlow's start-up messages (about CUDA, on every machine without it) would bury
# the binaries' output. TensorFlow reads the variable when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
