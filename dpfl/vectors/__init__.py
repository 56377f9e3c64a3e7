# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What happens to a vector on its way to the server, in plain TensorFlow.

Nothing here knows of TFF: every function runs eagerly, in a `tf.function` and in a TFF
computation alike.
"""
