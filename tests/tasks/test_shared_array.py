# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import gc
import os

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks.shared_array import SharedArray

LARGE = np.arange(30_000, dtype=np.int32).reshape(10_000, 3)


@pytest.mark.parametrize("array", [LARGE, LARGE[:5], LARGE[::2], LARGE.astype("f4")])
def test_graphs_and_eager_code_see_the_array(array):
    shared = SharedArray(array)
    assert len(shared) == len(array)
    assert np.array_equal(shared.tensor(), array)
    row = tf.function(lambda i: tf.gather(shared.tensor(), i), autograph=False)
    assert np.array_equal(row(tf.constant([1, 4])), array[[1, 4]])


def test_a_graph_does_not_hold_it():
    shared = SharedArray(LARGE)
    graph = tf.function(lambda: shared.tensor() + 1, autograph=False)
    size = graph.get_concrete_function().graph.as_graph_def().ByteSize()
    assert size < 5_000 < LARGE.nbytes


def test_it_is_gone_with_its_object():
    before = len(os.listdir("/proc/self/fd"))
    shared = SharedArray(LARGE)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del shared
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
