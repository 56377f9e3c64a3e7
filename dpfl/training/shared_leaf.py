# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Large tensors shared by Python and TFF's worker on the same machine.

    leaf = SharedLeaf.of(array)
    same = np.asarray(leaf)

A message between them is copied several times: a state of half a gigabyte takes tens of
seconds and gigabytes of memory a round. Instead a graph is told the path of a file in
memory, from which it reads a tensor or to which it writes one. The file has no name in
any folder, can be opened only by processes of the same user through this process, and
ends with it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.core.framework import tensor_pb2

# Smaller tensors are faster to send by gRPC.
LEAST_BYTES = 2**20
# Larger tensors are copied in parts.
_PART_BYTES = 2**26


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
        names = [f"dpfl_leaf_{i}" for i in range(len(self._rows))]
        self._descriptors = [os.memfd_create(name) for name in names]
        self.paths = [f"/proc/{os.getpid()}/fd/{fd}" for fd in self._descriptors]
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


def of_any_length(structure_type: tff.Type) -> tff.Type:
    """A type whose large tensors have an unknown number of rows.

    It is meant for arguments of TFF computations, which are placeholders in the graph:
    for each placeholder of known shape Grappler, which TFF runs on all graphs,
    allocates an array in Python's memory and keeps it.
    """

    def loosened(spec: tff.TensorType) -> tff.TensorType:
        shape = [None, *spec.shape[1:]] if is_large(spec) else spec.shape
        return tff.TensorType(spec.dtype, shape)

    tree = tff.types.structure_from_tensor_type_tree(loosened, structure_type)
    return tff.to_type(tree)


def of_known_length(structure: Any, structure_type: tff.Type) -> Any:
    """Restores the shapes that `of_any_length` loosened."""
    specs = tff.types.structure_from_tensor_type_tree(lambda spec: spec, structure_type)
    return tf.nest.map_structure(
        lambda tensor, spec: tf.ensure_shape(tensor, spec.shape), structure, specs
    )


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
