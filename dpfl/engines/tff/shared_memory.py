# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Arrays and large tensors that Python and TFF's worker share.

    shared = SharedArray(array)
    row = tf.function(lambda i: tf.gather(shared.tensor(), i), autograph=False)
    leaf = SharedLeaf.of(array)
    same = np.asarray(leaf)

They are files in memory without a name in any folder, which only processes of the same
user can open, through this process, and which end with it.

A `SharedArray` is a constant. As a part of every graph that uses it, it would be sent
to TFF's worker with every call: 50 MB of images cost a second a round. An operation
that maps a file into memory costs nothing, and all graphs share what it maps.

A `SharedLeaf` is a tensor of a state, which is another in every round. A message is
copied several times: a state of half a gigabyte takes tens of seconds and gigabytes of
memory a round. Instead a graph is told the path of a file, from which it reads a tensor
or to which it writes one.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

# Loaded by functions that need it, since tasks are also used without it.
if TYPE_CHECKING:
    import tensorflow_federated as tff

# Smaller arrays are sent faster than they are mapped.
_LEAST_MAPPED = 2**16
# Smaller tensors are faster to send by gRPC.
LEAST_BYTES = 2**20
# Larger tensors are copied in parts.
_PART_BYTES = 2**26

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


class SharedLeaf:
    """Files in memory for one tensor; `np.asarray` reads their content.

    A tensor of more than `_PART_BYTES` has several files, each with some of its rows:
    the copies made for one file are freed before the next.

    Attributes:
      paths: Paths for the worker, valid as long as this object exists.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._rows = rows_of_parts(self.shape, self.dtype)
        self._descriptors = [os.memfd_create("dpfl_leaf") for _ in self._rows]
        self.paths = [_path(descriptor) for descriptor in self._descriptors]
        weakref.finalize(self, _close, self._descriptors)

    @classmethod
    def of(cls, array: Any) -> SharedLeaf:
        """Writes an array to files; a `SharedLeaf` is returned as it is."""
        if isinstance(array, cls):
            return array
        whole = np.ascontiguousarray(array)
        made, end = cls(whole.shape, whole.dtype), 0
        for descriptor, rows in zip(made._descriptors, made._rows):
            part = whole[end : end + rows]
            end += rows
            # TensorFlow's own operations would keep two copies, for good.
            with open(descriptor, "wb", closefd=False) as file:
                file.write(_message_before_content(part))
                file.write(part.reshape(-1).view(np.uint8).data)
        return made

    def __array__(self, dtype: Any = None) -> np.ndarray:
        """The tensor, read-only; a single file is not copied."""
        parts = [
            self._part(descriptor, (rows, *self.shape[1:]))
            for descriptor, rows in zip(self._descriptors, self._rows)
        ]
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return array if dtype is None else array.astype(dtype)

    def _part(self, descriptor: int, shape: tuple[int, ...]) -> np.ndarray:
        size = os.fstat(descriptor).st_size
        content = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        count = int(np.prod(shape, dtype=np.int64))
        # A serialized tensor ends with its content.
        begin = size - count * self.dtype.itemsize
        return np.frombuffer(content, self.dtype, count, begin).reshape(shape)


def rows_of_parts(shape: tuple[int, ...], dtype: Any) -> list[int]:
    """The number of rows in each file of a tensor."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    number = min(shape[0], -(-size // _PART_BYTES))
    return [len(rows) for rows in np.array_split(np.arange(shape[0]), number)]


def write(paths: Any, tensor: tf.Tensor) -> list[tf.Operation]:
    """Writes a tensor's parts one after the other, eagerly or in a graph."""
    done: list[tf.Operation] = []
    rows = rows_of_parts(tuple(tensor.shape), tensor.dtype.as_numpy_dtype)
    for path, part in zip(paths, tf.split(tensor, rows)):
        with tf.control_dependencies(done):
            operation = tf.io.write_file(path, tf.io.serialize_tensor(part))
        done = [] if operation is None else [operation]
    return done


def read(paths: Any, shape: Any, dtype: Any) -> tf.Tensor:
    """Reads a tensor that was written, eagerly or in a graph.

    Args:
      paths: Paths of its files, a string vector.
      shape: Shape of the tensor.
      dtype: Dtype of the tensor.
    """
    rows = rows_of_parts(tuple(shape), dtype)
    if len(rows) == 1:
        return _read_part(paths[0], shape, dtype)
    # Filled part by part: beside all its parts the tensor would be in memory twice.
    whole, begin = tf.raw_ops.Empty(shape=shape, dtype=dtype), 0
    for path, count in zip(paths, rows):
        with tf.control_dependencies([whole]):
            part = _read_part(path, [count, *shape[1:]], dtype)
        places = tf.range(begin, begin + count)
        whole = tf.raw_ops.InplaceUpdate(x=whole, i=places, v=part)
        begin += count
    return whole


def _read_part(path: Any, shape: Any, dtype: Any) -> tf.Tensor:
    return tf.ensure_shape(tf.io.parse_tensor(tf.io.read_file(path), dtype), shape)


def is_large(spec: tff.TensorType) -> bool:
    """Whether a tensor is passed through files rather than sent."""
    size = int(np.prod(spec.shape, dtype=np.int64)) * np.dtype(spec.dtype).itemsize
    return bool(spec.shape) and size >= LEAST_BYTES


def _message_before_content(array: np.ndarray) -> bytes:
    """TensorFlow's serialized tensor up to its content, which follows."""
    message = tensor_pb2.TensorProto(
        dtype=tf.as_dtype(array.dtype).as_datatype_enum,
        tensor_shape=tf.TensorShape(array.shape).as_proto(),
    )
    rest, length = array.nbytes, bytearray()
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    # Field 4, tensor_content: bytes (wire type 2) of a length.
    return bytes([*message.SerializeToString(), 4 << 3 | 2, *length, rest])


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
