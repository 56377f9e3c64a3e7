# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms give the same integers in each library, however they are computed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import arrays, mechanisms
from tests.arrays import cases, libraries

# Cases that are compiled too, and how; those of all ways have a compiled release. JAX takes
# seconds for each, and runs the others one operation at a time. CSGM's two share a codec.
ALL = ("eager", "traced", "vmapped")
COMPILED = {
    **dict.fromkeys(["none", "distributed_skellam"], ALL),
    "l2_csgm": ("eager", "traced"),
    "linf_csgm": ("eager", "vmapped"),
}
STORED = cases.stored()


def test_every_exact_mechanism_has_digests():
    assert set(mechanisms.TEST_CONFIGS) >= cases.BY_SUBSPACE
    assert set(STORED) == {*cases.EXACT, *cases.VECTORS}


@pytest.mark.parametrize("case", cases.VECTORS)
def test_vectors(case, nx):
    assert cases.of_vectors(case, nx) == STORED[case]


@pytest.mark.parametrize("case", cases.EXACT)
def test_rounds(case, nx):
    updates = cases.exact_updates()
    rounds = libraries.Rounds(cases.EXACT[case], updates, nx)
    ways = COMPILED.get(case, ["eager"])
    for way in filter(rounds.ways.__contains__, ways):
        found = rounds.run(way, compiles_release=ways == ALL)
        assert not any(map(np.any, found.exact.values())), "a clip binds"
        assert cases.of_round(found) == STORED[case], way


@pytest.mark.parametrize("case", cases.COMPARED)
def test_rounds_of_any_updates_are_close(case):
    """Messages differ by one in 1% at most, sums of four in 4%, floats by 1e-5.

    With noise as large as the clip, since one of 2**20 steps to the clip would ask for
    more: an integer of 2**18 is off by a hundredth, in float32, before it is rounded.
    """
    config = cases.COMPARED[case]
    if case != "none":
        config = config.with_noise_multiplier(1.0)
    (expected, _), (found, codec) = map(generic_round, libraries.NAMES, [config] * 2)
    check_close(expected.messages, found.messages, codec.modulus_bits, 1)
    for part in ("total", "released"):
        both = (getattr(each, part) for each in (expected, found))
        check_close(*both, codec.modulus_bits, cases.CLIENTS)
    for part in ("shared", "sums", "exact"):
        check_close(getattr(expected, part), getattr(found, part), {}, 0)
    check_close(expected.decoded.state, found.decoded.state, {}, 0)
    # numpy 1 gives some scalars as float64.
    measured = (each.decoded.measurements for each in (expected, found))
    check_close(*({k: np.float32(x) for k, x in m.items()} for m in measured), {}, 0)
    # A sum that differs by one changes all coordinates of a mean that is rotated back.
    step = np.abs(expected.decoded.mean).max() / 1000
    assert found.decoded.mean.dtype == expected.decoded.mean.dtype == np.float32
    assert_allclose(found.decoded.mean, expected.decoded.mean, rtol=0, atol=step)


def generic_round(name, config):
    with libraries.wide(name):
        nx = arrays.named(name)
        rounds = libraries.Rounds(config, cases.generic_updates(), nx)
        return rounds.run("eager"), rounds.codec


def check_close(wanted, found, modulus_bits, most):
    """Integers differ by `most` at most, in `most` of a hundred; a few not at all."""
    pairs = zip(libraries.leaves(wanted), libraries.leaves(found))
    apart = [np.zeros(0)]
    for (name, one), (other_name, two) in pairs:
        assert (name, one.shape, one.dtype) == (other_name, two.shape, two.dtype)
        if one.dtype.kind == "f":
            scale = np.abs(one).max(initial=0)
            assert_allclose(two, one, rtol=1e-5, atol=1e-5 * scale)
        elif one.size < 100:
            assert_array_equal(two, one)
        else:
            bits = modulus_bits.get(name.rpartition(".")[2], 62)
            half = 1 << (bits - 1)
            apart.append((two.astype(np.int64) - one + half) % (2 * half) - half)
    apart = np.abs(np.concatenate(apart))
    assert apart.max(initial=0) <= most
    assert np.count_nonzero(apart) <= most * apart.size / 100


def test_numbers_keep_their_digits(nx):
    """TensorFlow makes a float32, or an int32, of a number that it casts."""
    assert nx.asarray(0.1, np.float64) == 0.1
    assert nx.asarray(2**40 + 1, np.int64) == 2**40 + 1
    assert nx.asarray(-1.5, np.int32) == -1
