# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl.tasks import registry
from dpfl.training import run as training


def prepared(tmp_path, delta):
    return training.prepare(
        training.RunConfig(
            task="synthetic",
            task_config=registry.make_config(
                "synthetic", model="small_cnn", num_clients=50
            ),
            aggregator="gaussian",
            mechanism_options={},
            output_dir=tmp_path,
            cohort_size=10,
            rounds=5,
            noise_multiplier=2.0,
            target_delta=delta,
        )
    )


@pytest.mark.parametrize(("delta", "is_large"), [(0.019, False), (0.021, True)])
def test_a_delta_above_one_in_all_clients_is_remarked_on(tmp_path, delta, is_large):
    description = prepared(tmp_path, delta).describe()
    assert ("delta is above 1/50" in description) is is_large
