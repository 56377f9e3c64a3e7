# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Vector operations on the way from client to server, whatever the array library.

    normed = clipping.safe_norm(update)
    factor, is_clipped = clipping.clip_factor(normed, clip_norm)

Nothing here depends on TFF: every function runs eagerly, in a `tf.function` and in a
TFF computation.
"""
