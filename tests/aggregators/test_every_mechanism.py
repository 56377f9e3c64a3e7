# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What holds for each mechanism of the table: messages, errors, and a round in TFF.

That messages are within the grid of their noise is in `tests/arrays/test_bounds.py`.
"""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_array_equal

from dpfl import aggregators, codecs, mechanisms
from tests.aggregators import cohorts
from tests.aggregators.rounds import many_means

D, N = 40, 3
ADAPTIVE = ("gaussian", "distributed_discrete_gaussian", "sketched_ddg")
CASES = {
    **mechanisms.TEST_CONFIGS,
    **{
        f"{name} adaptive": dataclasses.replace(
            mechanisms.TEST_CONFIGS[name], adaptive_clipping=True
        )
        for name in ADAPTIVE
    },
    "dome_ddg energy": dataclasses.replace(
        mechanisms.TEST_CONFIGS["dome_ddg"], measures_energy=True
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nonfinite_updates_send_what_zeros_send(name):
    codec = codecs.make_codec(CASES[name], D, arrays="tensorflow")
    seed = tf.constant([5, 6], tf.int64)
    shared = codec.decode_broadcast(codec.broadcast(codec.initial_state(), seed))

    def sent(place, value):
        update = np.zeros(codec.input_length, np.float32)
        update[:D][place] = value
        return codec.encode(tf.constant(update), shared, seed).message

    nothing = sent(0, 0.0)
    for place in (D - 1, slice(None)):
        for value in (math.nan, math.inf, -math.inf):
            tf.nest.map_structure(assert_array_equal, sent(place, value), nothing)
    something = tf.nest.flatten(sent(slice(None), 0.1))
    pairs = zip(something, tf.nest.flatten(nothing))
    assert any(np.any(one != other) for one, other in pairs)
    bits = codec.message_bits(sent(slice(None), 0.1))
    if "csgm" in name:
        kept = len(sent(slice(None), 0.1)["values"])
        assert 0 < kept < codec.input_length and bits == 32 * kept + 32 + 128
    elif name != "sgmf":
        assert bits == CASES[name].uplink_bits(D)


def l2_csgm(keep_fraction, noise_multiplier, rotation):
    options = {"linf_ratio": 1.0, "rotation": rotation}
    return mechanisms.L2Csgm(4, 2.0, noise_multiplier, keep_fraction, **options)


@pytest.mark.parametrize(
    ("config", "d", "rel"),
    [
        (mechanisms.Gaussian(5, 2.0, 0.7), 500, 0.02),
        (l2_csgm(0.25, 0.0, "hadamard"), 1024, 0.025),
        (l2_csgm(1.0, 0.3, "hadamard"), 700, 0.025),
        (l2_csgm(0.1, 0.3, "dft"), 700, 0.025),
        # Three blocks.
        (l2_csgm(0.1, 0.3, "block_hadamard"), 8200, 0.025),
        # Much of it is rounding, or nearly all of it is noise.
        (mechanisms.DistributedDiscreteGaussian(5, 2.0, 0.05, 7), 500, 0.025),
        (mechanisms.DistributedDiscreteGaussian(5, 2.0, 0.05, 12), 500, 0.025),
    ],
)
def test_mean_squared_error_is_the_formula(config, d, rel):
    x = cohorts.updates([1.999] * config.cohort_size, d)
    codec = codecs.make_codec(config, d, arrays="tensorflow")
    error = cohorts.mean_error(many_means(codec, x, 150), x)
    assert error == pytest.approx(config.mean_squared_error(d), rel=rel)


VALUE_TYPE = tff.to_type([(np.float32, (5, 6)), (np.float32, [D - 30])])
EXACT = {"seed": 2**80 + 3, "measure": "exact_for_simulation"}
IN_TFF = ["gaussian adaptive", "l2_csgm", "linf_csgm", "distributed_skellam"]
IN_TFF += ["distributed_discrete_gaussian adaptive", "sketched_ddg adaptive"]
IN_TFF += ["project_and_perturb", "sparse_recovery", "dome", "dome_ddg energy"]


@pytest.mark.parametrize("name", IN_TFF)
def test_a_round_in_tff_is_a_function_of_its_state(name, tff_secure_context):
    """Which goes through plain numpy arrays, as a checkpoint holds them."""
    config = CASES[name]
    process = aggregators.build(config, **EXACT).create(cohorts.with_ids(VALUE_TYPE))
    x = cohorts.updates([1.0] * N, D).numpy()
    x[1, 3] = np.nan
    values = cohorts.identified([[v[:30].reshape(5, 6), v[30:]] for v in x])
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
