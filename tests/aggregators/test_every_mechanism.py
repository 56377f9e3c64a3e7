# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A round in TFF of each kind of message, sum and state; codecs have their own tests."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_array_equal

from dpfl import aggregators, mechanisms
from tests.aggregators import cohorts
from tests.codecs import rounds

D, N = 40, 3
VALUE_TYPE = tff.to_type([(np.float32, (5, 6)), (np.float32, [D - 30])])
EXACT = {"seed": 2**80 + 3, "measure": "exact_for_simulation"}
CASES = {
    "gaussian": {"adaptive_clipping": True},
    "l2_csgm": {},
    "project_and_perturb": {},
    "sketched_ddg": {"adaptive_clipping": True},
    "dome_ddg": {"measures_energy": True},
}


@pytest.mark.parametrize("name", CASES)
def test_a_round_in_tff_is_a_function_of_its_state(name, tff_secure_context):
    """Which goes through plain numpy arrays, as a checkpoint holds them."""
    config = dataclasses.replace(mechanisms.TEST_CONFIGS[name], **CASES[name])
    process = aggregators.build(config, **EXACT).create(cohorts.with_keys(VALUE_TYPE))
    x = rounds.updates([1.0] * N, D)
    x[1, 3] = np.nan
    values = cohorts.keyed([[v[:30].reshape(5, 6), v[30:]] for v in x])
    first = process.next(process.initialize(), values)
    restored = tf.nest.map_structure(lambda part: np.array(part), first.state)
    second, again = (process.next(s, values) for s in (first.state, restored))
    for part in ("state", "result", "measurements"):
        one, two = getattr(second, part), getattr(again, part)
        tf.nest.map_structure(assert_array_equal, one, two)
    for one, two in zip(first.result, second.result):
        assert one.shape == two.shape and np.isfinite(one).all()
        assert np.any(one != two)
    measured = first.measurements
    assert (first.state["round"], second.state["round"]) == (1, 2)
    assert measured["exact_clients"] == N and measured["exact_nonfinite_clients"] == 1
    if "csgm" in name:
        kept = (measured["exact_uplink_bits"] - 160) / 32 * N
        assert kept == pytest.approx(round(kept)) and 0 < kept < 64 * N
    else:
        assert measured["exact_uplink_bits"] == config.uplink_bits(D)
    # A first round of DOME has no directions to send.
    missing = 16 * D * getattr(config, "resolved_max_rank", 0)
    assert measured["downlink_bits"] == config.downlink_bits(D) - missing
    assert measured["noise_stddev"] > 0
    assert 0 < measured.get("exact_explained_energy", 1) <= 1
