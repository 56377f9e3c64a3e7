# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import gc
import os

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks import shared_array
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


def test_a_graph_outlives_its_array_and_never_reads_another():
    first = tf.function(SharedArray(LARGE).tensor, autograph=False)
    graph = first.get_concrete_function()
    del first
    gc.collect()
    others = [SharedArray(LARGE + k) for k in (1, 2)]
    assert np.array_equal(graph(), LARGE)
    assert np.array_equal(others[1].tensor(), LARGE + 2)


def test_equal_arrays_lie_in_one_place():
    kept = SharedArray(LARGE)
    before = len(os.listdir("/proc/self/fd"))
    again = SharedArray(LARGE.copy())
    assert len(os.listdir("/proc/self/fd")) == before
    assert np.array_equal(kept.tensor(), again.tensor())


def test_a_graph_for_another_machine_holds_it():
    shared = SharedArray(LARGE)
    with shared_array.in_graphs():
        graph = tf.function(shared.tensor, autograph=False).get_concrete_function()
    assert graph.graph.as_graph_def().ByteSize() > LARGE.nbytes
