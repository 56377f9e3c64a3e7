# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Arrays that graphs read where they lie.

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

# What is smaller is sent faster than it is mapped.
_LEAST_BYTES = 2**16

_in_graphs = False
# Of what lies in memory, by the digest of its bytes.
_descriptors: dict[bytes, int] = {}


@contextlib.contextmanager
def in_graphs(wanted: bool = True) -> Iterator[None]:
    """Has the graphs that are traced in the block carry their arrays themselves.

    What reads them where they lie runs on this machine alone, and not in a worker that
    is isolated by a namespace: the kernel keeps this process from it as well. Where it
    is not `wanted` nothing changes.
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
    """A descriptor of memory with the bytes of an array, never to be closed."""
    digest = hashlib.sha256(array.data).digest()
    if digest not in _descriptors:
        descriptor = os.memfd_create("dpfl_array")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(array.data)
        _descriptors[digest] = descriptor
    return _descriptors[digest]


class SharedArray:
    """An array that the graphs of this machine's processes read.

    It lies in memory that has no name in any folder, and can be opened by processes of
    the same user alone, by way of this process. It is there as long as this process,
    since a graph may outlive what it was made from and would read what comes to lie in
    the same place; equal arrays lie in one.
    """

    def __init__(self, array: np.ndarray):
        """The numbers of an array of any shape, which are copied."""
        self._array = np.ascontiguousarray(array)
        is_large = self._array.nbytes >= _LEAST_BYTES
        self._descriptor = _descriptor_of(self._array) if is_large else -1

    def __len__(self) -> int:
        return len(self._array)

    def tensor(self) -> tf.Tensor:
        """The array, in the graph that is being traced, or eagerly."""
        if self._descriptor < 0 or _in_graphs:
            return tf.constant(self._array)
        return tf.raw_ops.ImmutableConst(
            dtype=self._array.dtype,
            shape=self._array.shape,
            memory_region_name=f"/proc/{os.getpid()}/fd/{self._descriptor}",
        )
