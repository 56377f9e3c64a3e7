# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The engine of TensorFlow Federated.

from dpfl.engines.tff import keras_models
"""
