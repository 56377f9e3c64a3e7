# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import os

import psutil
import pytest

from dpfl import machine


def test_a_peak_stays_when_the_memory_is_given_back():
    held = b"1" * 2**27
    with_it = psutil.Process().memory_info().rss
    del held
    found = machine.peak_bytes(os.getpid())
    if found is None:
        pytest.skip("this kernel keeps no peak")
    assert found >= 0.99 * with_it


def test_a_process_that_is_not_there_has_no_peak():
    assert machine.peak_bytes(2**30) is None
