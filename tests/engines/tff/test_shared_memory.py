# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import os

import numpy as np
import pytest
import tensorflow as tf

from dpfl.engines.tff import shared_memory
from dpfl.engines.tff.shared_memory import SharedLeaf
from tests import forks
from tests.refusals import refuses


@pytest.mark.parametrize("part_bytes", [100, 2**20])
@pytest.mark.parametrize("shape", [(7, 31), (50,), (1, 1)])
def test_arrays_round_trip_through_shared_memory(monkeypatch, part_bytes, shape):
    monkeypatch.setattr(shared_memory, "_PART_BYTES", part_bytes)
    array = np.arange(np.prod(shape)).astype(np.int16).reshape(shape)
    leaf = SharedLeaf.of(array)
    assert SharedLeaf.of(leaf) is leaf
    assert (leaf.shape, leaf.dtype) == (shape, array.dtype)
    read = tf.function(lambda: shared_memory.read(leaf.paths, shape, np.int16))
    for found in (np.asarray(leaf), shared_memory.read(leaf.paths, shape, np.int16)):
        np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(read(), array)
    assert np.asarray(leaf, np.float64).dtype == np.float64


def anonymous_bytes() -> int:
    """Memory of this process that is in no file."""
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def test_writing_keeps_no_copy():
    array = np.ones([16, 2**21], np.int16)
    before = anonymous_bytes()
    leaf = SharedLeaf.of(array)
    assert anonymous_bytes() - before < array.nbytes / 4
    np.testing.assert_array_equal(np.asarray(leaf), array)


# Prints what reading adds to the most memory so far, as a part of the tensor.
READING = """
import os
import numpy as np
import psutil
import tensorflow as tf
from dpfl import machine
from dpfl.engines.tff import shared_memory

shared_memory._PART_BYTES = 2**22
leaf = shared_memory.SharedLeaf.of(np.ones([64, 2**20], np.int16))
graph = tf.Graph()
with graph.as_default():
    # Of paths that it knows the compiler would read the files.
    paths = tf.compat.v1.placeholder(tf.string, [len(leaf.paths)])
    parts = tf.unstack(paths)
    some = shared_memory.read(parts, leaf.shape, leaf.dtype)[-2:, -3:]
with tf.compat.v1.Session(graph=graph) as session:
    session.run(parts, {paths: leaf.paths})
    before = psutil.Process().memory_info().rss
    assert (session.run(some, {paths: leaf.paths}) == np.ones([2, 3])).all()
    added = machine.peak_bytes(os.getpid()) - before
print(added / (64 * 2**21))
"""


def test_reading_allocates_one_tensor(tmp_path):
    """And not beside its parts: then it is there 2.1 times, and 1.15 times without.

    What the allocator keeps adds up to 0.3 on a machine that is busy.
    """
    program = tmp_path / "reading.py"
    program.write_text(READING)
    done = forks.run(program)
    assert 0.9 < float(done.stdout) < 1.7


def test_parts_respect_the_size_limit(monkeypatch):
    monkeypatch.setattr(shared_memory, "_PART_BYTES", 100)
    rows = shared_memory.rows_of_parts((7, 10), np.int16)
    assert sum(rows) == 7 and max(rows) * 20 <= 100
    assert shared_memory.rows_of_parts((3, 1000), np.int16) == [1, 1, 1]


def test_files_are_removed_while_mapped_arrays_stay():
    leaf = SharedLeaf.of(np.ones([1000], np.float32))
    shown, [path] = np.asarray(leaf), leaf.paths
    assert os.path.exists(path)
    del leaf
    assert not os.path.exists(path)
    np.testing.assert_array_equal(shown, 1)
    with refuses(ValueError, "read-only"):
        shown[0] = 2
