# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What several tests of training use."""

import functools

import pytest

from dpfl.tasks import load_task
from tests.training import fakes


@pytest.fixture(scope="module")
def task():
    """A task of a few clients with noise for images."""
    return load_task(
        "synthetic",
        model="small_cnn",
        num_clients=6,
        examples_per_client=7,
        batch_size=3,
        num_test_examples=4,
    )


@pytest.fixture
def make_plan(monkeypatch):
    """Makes the plan of a run on the fake task, of what its config changes."""
    return functools.partial(fakes.make_plan, monkeypatch)
