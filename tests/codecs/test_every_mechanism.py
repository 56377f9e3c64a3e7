# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What holds for each mechanism of the table: means, noise, errors and messages.

That messages are within the grid of their noise is in `arrays/test_bounds.py`.
"""

import dataclasses
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dpfl
from dpfl import mechanisms
from dpfl.arrays import in_numpy
from tests.codecs import rounds
from tests.loops import audited

Ddg, Csgm = mechanisms.DistributedDiscreteGaussian, mechanisms.L2Csgm
ADAPTS = {"adaptive_clipping": True}
SKETCH = {"compression_rate": 1.0, "sketch_length": 4}


def named(value):
    return value.name if isinstance(value, mechanisms.Mechanism) else None


def csgm(turn, noise_multiplier=0.0, keep_fraction=1.0):
    options = {"linf_ratio": 1.0, "rotation": turn}
    return Csgm(5, 2.0, noise_multiplier, keep_fraction, **options)


# Mechanisms without noise, dimensions, and what a coordinate may be off.
EXACT = [
    (mechanisms.Gaussian(5, 2.0, 0.0), 500, 4e-6),
    (mechanisms.Gaussian(5, 2.0, 0.0, **ADAPTS), 500, 4e-6),
    *((Ddg(5, 2.0, 0.0, 20, rotation=r), 500, 3e-5) for r in ("overlap", "dft")),
    (Ddg(5, 2.0, 0.0, 20, rotation="hadamard", **ADAPTS), 500, 3e-5),
    (mechanisms.SketchedDdg(5, 2.0, 0.0, 18, **SKETCH), 600, 1e-4),
    (mechanisms.ProjectAndPerturb(5, 2.0, 0.0, **SKETCH), 600, 1e-4),
    *((csgm(turn), 700, 2e-6) for turn in mechanisms.csgm.ROTATIONS),
    # The smallest models; the rounding of few numbers shortens a vector by more.
    *((csgm(t), d, 1e-4) for t in mechanisms.csgm.ROTATIONS for d in (1, 2, 3)),
]


@pytest.mark.parametrize(("config", "d", "atol"), EXACT, ids=named)
def test_noiseless_is_the_clipped_sum_over_n(config, d, atol):
    """Four of an expected five report; the divisor stays five."""
    norms = np.array([0.5, 1.0, 2.5, 8.0])
    given = rounds.updates(norms, d)
    found = rounds.run(config, given)
    scale = np.minimum(1, 2 / norms)[:, None]
    assert_allclose(found.decoded.mean, (given * scale).sum(0) / 5, atol=atol)
    assert found.exact["l2_clipped_fraction"] == 0.5


# Five deviations of the estimated variance are 5.5% of it, and of DOME's 11%.
NUMBERS = 1 << 14
LOSSY = Ddg(6, 2.0, 1.0, 18, expected_dropout=0.5)
HELPED = mechanisms.DistributedSkellam(5, 2.0, 1.0, 18, noise_source="helpers")
WHOLE = {"sketch_size": 256, "direction": "gradient"}
# Dimensions, and how many clients take part.
NOISED = [
    *((mechanisms.Gaussian(5, 2.0, 1.3, **more), NUMBERS, 2) for more in ({}, ADAPTS)),
    *((csgm(turn, 1.3, 0.01), 1 << 13, 4) for turn in ("hadamard", "dft")),
    (mechanisms.LinfCsgm(5, 2.0, 1.3, 0.1), 1 << 13, 4),
    (Ddg(5, 2.0, 1.3, 16), NUMBERS, 5),
    (mechanisms.DistributedSkellam(5, 2.0, 1.3, 16), NUMBERS, 5),
    # The noise of those who remain is as promised, and of helpers whoever joins.
    (LOSSY, NUMBERS, 3),
    *((HELPED, NUMBERS, clients) for clients in (1, 5)),
    # Orthogonal matrices.
    *((dpfl.TEST_CONFIGS[n], NUMBERS, 3) for n in ("matrix_factorization", "sgmf")),
    (mechanisms.SketchedDdg(5, 2.0, 1.0, 18, **SKETCH), NUMBERS, 5),
    (mechanisms.ProjectAndPerturb(5, 2.0, 1.0, **SKETCH), NUMBERS, 5),
    (mechanisms.Dome(5, 2.0, 1.3, **WHOLE), 256, 5),
    (mechanisms.DomeDdg(5, 2.0, 1.3, bits=24, **WHOLE), 256, 5),
]


@pytest.mark.parametrize(("config", "d", "clients"), NOISED, ids=named)
def test_noise_is_normal_and_as_large_as_accounted(config, d, clients):
    """White within a round and over rounds, and of the size that is reported."""
    zeros = np.zeros([clients, d])
    found = [rounds.run(config, zeros, i).decoded for i in range(max(2, 4096 // d))]
    noise = np.stack([decoded.mean for decoded in found])
    audited.check_noise(noise.ravel(), config)
    reported = float(found[0].measurements["noise_stddev"])
    assert noise.std() == pytest.approx(reported, rel=0.05)
    limit = 4.5 / math.sqrt(noise.size)
    for one, two in ((noise[:, 1:], noise[:, :-1]), (noise[1:], noise[:-1])):
        assert abs(np.mean(one * two)) < limit * noise.var()


@pytest.mark.parametrize(
    ("config", "d"),
    [
        (mechanisms.Gaussian(5, 2.0, 0.7), 1 << 13),
        (csgm("hadamard", keep_fraction=0.25), 1 << 13),
        (csgm("hadamard", 0.3), 5000),
        (csgm("dft", 0.3, 0.1), 5000),
        # Three blocks.
        (csgm("block_hadamard", 0.3, 0.1), 8200),
        # Much of it is rounding, or nearly all of it is noise.
        *((Ddg(5, 2.0, 0.05, bits), 1 << 13) for bits in (7, 12)),
    ],
    ids=named,
)
def test_error_is_unbiased_and_its_square_the_formula(config, d):
    given = rounds.updates([1.999] * 5, d)
    truth, expected = given.mean(0), config.mean_squared_error(d)
    errors = rounds.means(config, given, 6) - truth
    squared = np.sum(np.square(errors), 1)
    # Six times 5000 squared numbers: a standard error of 0.8%.
    assert squared.mean() == pytest.approx(expected, rel=0.035)
    along = errors @ truth / np.linalg.norm(truth)
    assert abs(along.mean()) < 4.5 * math.sqrt(expected / d / 6)


D = 40
CASES = {
    **mechanisms.TEST_CONFIGS,
    **{
        f"{name} adaptive": dataclasses.replace(mechanisms.TEST_CONFIGS[name], **ADAPTS)
        for name in ("gaussian", "distributed_discrete_gaussian", "sketched_ddg")
    },
    "dome_ddg energy": dataclasses.replace(
        mechanisms.TEST_CONFIGS["dome_ddg"], measures_energy=True
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nonfinite_updates_send_what_zeros_send(name):
    codec, seed = dpfl.make_codec(CASES[name], D), np.array([5, 6])
    shared = codec.decode_broadcast(codec.broadcast(codec.initial_state(), seed))

    def sent(place, value):
        update = np.zeros(codec.input_length, np.float32)
        update[:D][place] = value
        return codec.encode(update, shared, seed).message

    nothing = sent(0, 0.0)
    for place in (D - 1, slice(None)):
        for value in (math.nan, math.inf, -math.inf):
            in_numpy.tree_map(assert_array_equal, sent(place, value), nothing)
    something = in_numpy.structure_leaves(sent(slice(None), 0.1))
    pairs = zip(something, in_numpy.structure_leaves(nothing))
    assert any(np.any(one != other) for one, other in pairs)
    bits = codec.message_bits(sent(slice(None), 0.1))
    if "csgm" in name:
        kept = len(sent(slice(None), 0.1)["values"])
        assert 0 < kept < codec.input_length and bits == 32 * kept + 32 + 128
    elif name != "sgmf":
        assert bits == CASES[name].uplink_bits(D)
