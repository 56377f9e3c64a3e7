# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Arrays that Python and TFF's worker share.

    shared = SharedArray(array)
    row = tf.function(lambda i: tf.gather(shared.tensor(), i), autograph=False)

They are files in memory without a name in any folder, which only processes of the same
user can open, through this process, and which end with it.

An array is a constant. As a part of every graph that uses it, it would be sent to TFF's
worker with every call: 50 MB of images cost a second a round. An operation that maps a
file into memory costs nothing, and all graphs share what it maps.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np
import tensorflow as tf

# Smaller arrays are sent faster than they are mapped.
_LEAST_MAPPED = 2**16

# Descriptors of the arrays in memory, by the digest of their bytes.
_descriptors: dict[bytes, int] = {}


def _path(descriptor: int) -> str:
    """The path of a file in memory, valid while this process holds it open."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _descriptor_of(array: np.ndarray) -> int:
    """A descriptor of memory with the bytes of an array, which is never closed."""
    digest = hashlib.sha256(array.data).digest()
    if digest not in _descriptors:
        descriptor = os.memfd_create("dpfl_array")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(array.data)
        _descriptors[digest] = descriptor
    return _descriptors[digest]


class SharedArray:
    """An array that the graphs of this machine's processes read in place.

    It lasts as long as this process, since a graph may outlive the object and would
    read whatever takes its place; equal arrays share memory.
    """

    def __init__(self, array: np.ndarray):
        """Copies the numbers of an array of any shape."""
        self._array = np.ascontiguousarray(array)
        is_large = self._array.nbytes >= _LEAST_MAPPED
        self._descriptor = _descriptor_of(self._array) if is_large else -1

    def __len__(self) -> int:
        return len(self._array)

    def tensor(self) -> tf.Tensor:
        """The array as a tensor, in the graph that is being traced, or eagerly."""
        if self._descriptor < 0:
            return tf.constant(self._array)
        return tf.raw_ops.ImmutableConst(
            dtype=self._array.dtype,
            shape=self._array.shape,
            memory_region_name=_path(self._descriptor),
        )
