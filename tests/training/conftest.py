# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What several tests of training use."""

import pytest

from dpfl.tasks import load_task


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
