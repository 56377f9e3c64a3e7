# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Messages of CSGM: bounds of the event, the kept fraction, and clipped coordinates."""

import math

import numpy as np
import pytest
import scipy.stats

import dpfl
from dpfl import mechanisms
from tests.codecs import rounds

D = 700


def config(**changes):
    numbers = {"keep_fraction": 0.3, "linf_ratio": None, **changes}
    return mechanisms.L2Csgm(4, 0.5, 0.0, **numbers)


def test_enforced_bounds_are_the_accounted_ones():
    """Coordinates, norm and kept fraction of the messages, against the event."""
    codec = dpfl.make_codec(config(), D)
    event = config().round_dp_event(D, 1.0)
    spike = np.zeros(codec.input_length, np.float32)
    spike[3] = 9.0
    # Undoes the rotation of round 0, so that the client meets it with a spike.
    shared = codec.decode_broadcast(codec.broadcast({}, np.array([0, 8])))
    hostile = codec._rotation.invert(spike, shared["rotation"])
    kept = []
    for i in range(60):
        values = codec.encode(hostile, shared, np.array([i, 1])).message["values"]
        kept.append(len(values))
        values = codec._sum.to_float(values, 0.5)
        assert np.abs(values).max() <= event.linf_ratio * 0.5 * (1 + 1e-6)
        assert np.linalg.norm(values) <= 0.5 * (1 + 1e-6)
    stddev = math.sqrt(0.3 * 0.7 / (event.dimension * 60))
    fraction = np.mean(kept) / event.dimension
    assert fraction == pytest.approx(event.keep_fraction, abs=4.5 * stddev)


def test_coordinates_are_clipped_and_counted():
    numbers = config(linf_ratio=0.01, keep_fraction=0.5)
    found = rounds.run(numbers, rounds.updates([0.5] * 4, D))
    codec = dpfl.make_codec(numbers, D)
    largest = np.abs(codec._sum.to_float(found.total["total"], 0.5)).max()
    assert 0.005 < largest <= 4 * 0.005 * (1 + 1e-6)
    # Rotated coordinates are N(0, 1 / 4096): |x| > 0.005 in most of them.
    expected = 2 * scipy.stats.norm.sf(0.005 * 64)
    assert found.exact["linf_clipped_fraction"] == pytest.approx(expected, abs=0.05)
    assert found.exact["malformed_clients"] == 0
