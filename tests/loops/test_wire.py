# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers of any width as bytes, and updates of any structure as vectors."""

import collections

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dpfl
from dpfl.loops import wire
from tests.refusals import refuses


class Parts(collections.namedtuple("Parts", "w b")):
    """Parts of an update."""


@pytest.mark.parametrize("number", [0, 1, 63, 64, 65, 200])
def test_numbers_are_packed_one_after_the_other(number):
    """Against Python's own integers of any length."""
    rng = np.random.default_rng(number)
    for width in (1, 2, 3, 7, 8, 13, 16, 24, 30, 31, 32, 33, 62, 63, 64):
        values = rng.integers(0, 1 << 64, number, np.uint64) >> np.uint64(64 - width)
        whole = sum(int(value) << (width * i) for i, value in enumerate(values))
        data = wire._packed(values, width)
        assert data == whole.to_bytes(-(-number * width // 8), "little")
        found = wire._unpacked(data, width, number, np.dtype(np.uint64))
        assert_array_equal(found, values)


def test_numbers_of_their_own_width_keep_their_signs():
    for values in (
        np.array([-(2**31), -1, 0, 2**31 - 1], np.int32),
        np.array([-(2**63), 2**63 - 1], np.int64),
        np.array([-np.inf, np.nan, -0.0, 1e-45], np.float32),
        np.array([True, False, True]),
    ):
        width = 1 if values.dtype == bool else 8 * values.dtype.itemsize
        data = wire._packed(values, width)
        assert len(data) == -(-len(values) * width // 8)
        found = wire._unpacked(data, width, len(values), values.dtype)
        assert found.dtype == values.dtype
        assert_array_equal(found, values)


def test_means_come_back_in_the_structure_of_the_template():
    template = collections.OrderedDict(
        z=[np.zeros([2, 3]), (np.zeros(1, np.float16), np.float32(0))],
        a=Parts(np.zeros([0, 4], np.float32), np.zeros(2, np.float32)),
    )
    layout = wire.UpdateLayout(template)
    assert layout.dimension == 10
    # Keys in their order, as in the layouts of TFF and JAX: "a" first.
    made = layout.restore(np.arange(10, dtype=np.float32))
    assert list(made) == ["z", "a"] and type(made) is collections.OrderedDict
    assert type(made["a"]) is Parts and type(made["z"][1]) is tuple
    assert_array_equal(made["a"].b, [0, 1])
    assert_array_equal(made["z"][0], [[2, 3, 4], [5, 6, 7]])
    assert made["z"][0].dtype == np.float64 and made["z"][1][0].dtype == np.float16
    assert made["z"][1][1] == 9 and made["a"].w.shape == (0, 4)
    assert_array_equal(wire._flat(made), np.arange(10))
    assert_array_equal(wire.UpdateLayout(3).restore(np.ones(3, np.float32)), np.ones(3))


def test_templates_and_updates_without_numbers_are_refused():
    for template, error, *more in (
        ([np.zeros(2), np.array(3)], TypeError, "template[1]", "int64"),
        ({"bn": {"steps": np.array(3)}}, TypeError, "template.bn.steps"),
        ({"a": "text"}, TypeError),
        ({}, ValueError),
        ([np.zeros([0])], ValueError),
        (0, ValueError),
        (2.5, TypeError),
        (None, TypeError),
    ):
        with refuses(error, "template", *more):
            wire.UpdateLayout(template)
    for update in (["text"], np.zeros(3, complex), None):
        with refuses(TypeError, "update"):
            dpfl.encode(dpfl.NoMechanism(3), update, b"")


def test_messages_of_another_round_functions_are_refused():
    mechanism = dpfl.TEST_CONFIGS["l2_csgm"]
    for message in (b"", bytes(15), bytes(17)):
        with refuses(ValueError, "message", "Server.begin_round", len(message)):
            dpfl.encode(mechanism, np.zeros(9), message)
    assert len(dpfl.encode(mechanism, np.zeros(9), bytes(16))) >= 20
    with refuses(TypeError, "message", 16):
        dpfl.encode(mechanism, np.zeros(9), 16)
    with refuses(TypeError, "mechanism", 5):
        dpfl.encode(5, np.zeros(9), b"")
    for secret, error in ((-1, ValueError), (1.5, TypeError), (2**126, ValueError)):
        with refuses(error, secret):
            dpfl.encode(mechanism, np.zeros(9), bytes(16), secret)


def test_a_client_draws_anew_for_each_message_secret_and_call():
    """Zeros are sent as the noise alone, whatever the rotation is."""
    mechanism, update = dpfl.TEST_CONFIGS["distributed_discrete_gaussian"], np.zeros(99)
    messages = [bytes(16), bytes(15) + b"\1"]
    found = [
        dpfl.encode(mechanism, update, message, secret)
        for message in messages
        for secret in (1, 2, None, None)
    ]
    assert len(set(found)) == len(found)
    assert dpfl.encode(mechanism, update, messages[0], 1) == found[0]
    assert dpfl.encode(mechanism, list(update), bytearray(messages[1]), 2) == found[5]
