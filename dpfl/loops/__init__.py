# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms in training loops of any kind: messages are bytes, arrays are numpy's.

    server = dpfl.Server(mechanism, plan, template, delta=1e-5, epsilon=8)
    now = server.begin_round()
    server.add(client, dpfl.encode(server.mechanism, update, now.message))
    mean = server.end_round().mean

Modules for frameworks build on this; each imports its framework when it is used.
"""

from dpfl.loops.server import Server
from dpfl.loops.wire import encode, encode_integers

__all__ = ["Server", "encode", "encode_integers"]
