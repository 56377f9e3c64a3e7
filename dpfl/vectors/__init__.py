# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Vector operations on the way from client to server, in plain TensorFlow.

Nothing here depends on TFF: every function runs eagerly, in a `tf.function` and in a
TFF computation.
"""
