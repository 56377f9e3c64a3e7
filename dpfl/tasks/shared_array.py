# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Arrays that graphs read in place, without copies.

    shared = SharedArray(array)
    row = tf.function(lambda i: tf.gather(shared.tensor(), i), autograph=False)

A constant is a part of every graph that uses it, and a graph is sent to TFF's worker
with every call: 50 MB of images cost a second a round. An operation that maps a file
into memory costs nothing, and all graphs share what it maps.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

# Smaller arrays are sent faster than they are mapped.
_LEAST_BYTES = 2**16

_in_graphs = False
# Descriptors of the arrays in memory, by the digest of their bytes.
_descriptors: dict[bytes, int] = {}


@contextlib.contextmanager
def in_graphs(wanted: bool = True) -> Iterator[None]:
    """Makes graphs that are traced in the block carry their arrays themselves.

    Graphs that read arrays in place run only on this machine, and not in a worker
    isolated by a namespace, from which the kernel hides this process too. If it is not
    `wanted` nothing changes.
    """
    global _in_graphs
    before, _in_graphs = _in_graphs, wanted or _in_graphs
    try:
        yield
    finally:
        _in_graphs = before


def is_in_graphs() -> bool:
    """Whether graphs that are traced now carry their arrays themselves."""
    return _in_graphs


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

    It is in memory without a name in any folder, which only processes of the same user
    can open, through this process. It lasts as long as this process, since a graph may
    outlive the object and would read whatever takes its place; equal arrays share
    memory.
    """

    def __init__(self, array: np.ndarray):
        """Copies the numbers of an array of any shape."""
        self._array = np.ascontiguousarray(array)
        is_large = self._array.nbytes >= _LEAST_BYTES
        self._descriptor = _descriptor_of(self._array) if is_large else -1

    def __len__(self) -> int:
        return len(self._array)

    def tensor(self) -> tf.Tensor:
        """The array as a tensor, in the graph that is being traced, or eagerly."""
        if self._descriptor < 0 or _in_graphs:
            return tf.constant(self._array)
        return tf.raw_ops.ImmutableConst(
            dtype=self._array.dtype,
            shape=self._array.shape,
            memory_region_name=f"/proc/{os.getpid()}/fd/{self._descriptor}",
        )
