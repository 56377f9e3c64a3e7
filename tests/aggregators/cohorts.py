# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Values of clients with their keys."""

import collections

import numpy as np
import tensorflow_federated as tff


def with_keys(value_type):
    """The type of a value and its client's key."""
    parts = collections.OrderedDict(update=value_type, client_key=(np.int64, [2]))
    return tff.to_type(parts)


def keyed(values):
    """Values, each with its place for its client's key."""
    return [
        collections.OrderedDict(update=value, client_key=np.array([i, 0]))
        for i, value in enumerate(values)
    ]
