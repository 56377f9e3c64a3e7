# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Serialised records: as TensorFlow writes them, cut off, and others."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl.engines.tff import records as graph_records
from dpfl.tasks import emnist, records


def serialized(features):
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString()


def test_invalid_emnist_label_gives_a_nonfinite_client():
    found = []
    pixels = tf.train.Feature(float_list=tf.train.FloatList(value=[0.5] * 784))
    for label in (61, 62, -1):
        label = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
        found.append(serialized({"pixels": pixels, "label": label}))
    record = emnist.ImageRecord()
    parse = graph_records.PARSERS[type(record)](record)
    for x, y in (parse(tf.constant(found)), record.parse(found)):
        assert np.asarray(y).tolist() == [61, 0, 0]
        assert np.isnan(x).all((1, 2, 3)).tolist() == [False, True, True]
        assert np.all(x[0] == 0.5)


def test_record_cut_off_anywhere_and_others_are_refused():
    for other in (b"", b"\xff" * 20):
        with pytest.raises(records.DamagedExampleError):
            emnist.ImageRecord().parse([other])
    text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a b"]))
    whole = serialized({"tokens": text, "title": text})
    assert records.fields(whole)["tokens"] == [b"a b"]
    for kept in range(1, len(whole)):
        with pytest.raises(records.DamagedExampleError):
            records.fields(whole[:kept])
