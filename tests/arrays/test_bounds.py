# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Bounds that privacy rests on hold in each library, whatever a client has."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

import dpfl
from dpfl import arrays
from dpfl.vectors import clipping, integers, randomness, rotation, rounding
from tests.arrays import libraries

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
LARGEST = np.finfo(np.float32).max
# A bound nearer to the float32 above it.
BETWEEN = 283154.6547
LENGTH = 1 << 20


def vectors(length):
    """Vectors of float32[length] for which a careless bound would break."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(length)
    small = np.ones(length)
    behind_large = small.copy()
    # Its square is 2**24, from which a float32 has no neighbour at a distance of one.
    behind_large[0] = 4096
    found = {
        "normal": normal,
        "zeros": 0 * small,
        "ones behind a large one": behind_large,
        "halves": small / 2,
        "just below halves": small * np.nextafter(np.float32(0.5), np.float32(0)),
        "signs": np.sign(normal) * 1000,
        "infinite": np.where(np.arange(length) == 3, np.inf, normal),
        "negative infinite": np.where(np.arange(length) == 0, -np.inf, normal),
        "not a number": np.where(np.arange(length) == length - 1, np.nan, normal),
        "1e30": normal * 1e30,
        "largest": np.sign(normal) * LARGEST,
        "a largest": np.where(np.arange(length) == 5, LARGEST, normal),
        "subnormal": small * 1e-40,
        "vanishing squares": small * 1e-25,
        "extremes": np.where(normal > 0, 2.0**31, -(2.0**31)),
    }
    return {name: vector.astype(np.float32) for name, vector in found.items()}


def of_each(nx, function, given):
    """A function of all vectors: vmapped and compiled by JAX, else one by one."""
    if nx.__name__.endswith("jax"):
        import jax

        stacked = nx.asarray(np.stack(list(given.values())), np.float32)
        found = jax.jit(jax.vmap(function))(stacked)
        every = [jax.tree.map(lambda x, i=i: x[i], found) for i in range(len(given))]
    else:
        every = [function(nx.asarray(vector, np.float32)) for vector in given.values()]
    return {name: libraries.plain(each) for name, each in zip(given, every)}


def square_sum(vector):
    """A sum of squares in float64, of integers of int64 exactly."""
    if vector.dtype.kind == "f":
        wide = vector.astype(np.float64)
        return float(wide @ wide)
    return int(np.sum(vector.astype(object) ** 2))


def is_finite(vector):
    return bool(np.isfinite(vector).all())


def test_norms_of_a_million_numbers(nx):
    given = vectors(LENGTH)
    norms = of_each(nx, lambda vector: clipping.safe_norm(vector), given)
    for name, vector in given.items():
        found = norms[name]
        assert bool(found.is_finite) == is_finite(vector), name
        assert is_finite(found.direction), name
        true = math.sqrt(square_sum(vector)) if is_finite(vector) else 0.0
        # Squares of subnormal numbers are zero in some libraries.
        true = 0.0 if name == "subnormal" and not found.norm else true
        assert math.isclose(found.norm, true, rel_tol=1e-5), name


def test_a_squared_norm_is_never_below_the_true_one(nx):
    given = vectors(LENGTH)
    for name, found in of_each(nx, rounding.squared_norm_above, given).items():
        if not (is_finite(given[name]) and np.abs(given[name]).max() < 1e16):
            assert not found <= LARGEST or name == "1e30", name
            continue
        true = square_sum(given[name])
        lost = 4e-38 * LENGTH
        assert true - lost <= found <= true * (1 + 4e-5), name


@pytest.mark.parametrize("max_squared_norm", [1, 300, 10**6, 1 << 52])
def test_rounding_to_nearest_stays_within_its_norm(nx, max_squared_norm):
    given = vectors(4096)
    rounded = of_each(nx, lambda v: rounding.round_within(v, max_squared_norm), given)
    for name, found in rounded.items():
        assert found.dtype == np.int32
        assert square_sum(found) <= max_squared_norm, name
        assert found.any() or name != "normal" or max_squared_norm < 4096


@pytest.mark.parametrize("bounds", [(1.0, 0.5), (40.0, 3.25), (1e6, 2.0**20)])
def test_randomized_rounding_stays_within_its_bounds(nx, bounds):
    given = vectors(4096)
    seed = nx.asarray(np.array([5, -7]), np.int64)

    def rounded(vector):
        return rounding.randomized_round(vector, seed, *bounds)

    for name, found in of_each(nx, rounded, given).items():
        check_rounded(found, *bounds, name)


def check_rounded(found, max_norm, max_coordinate, name):
    """Integers that are numbers within bounds rounded up or down."""
    assert np.abs(found).max() <= math.ceil(max_coordinate), name
    inside = np.maximum(np.abs(found.astype(np.int64)) - 1, 0)
    assert square_sum(inside) <= max_norm**2, name


def test_the_rounded_vector_is_within_both_bounds(nx):
    given, (norm, size) = vectors(LENGTH), (1e6, rounding._float32_below(BETWEEN))
    within = of_each(nx, lambda v: rounding._within(v, norm, size), given)
    for name, found in within.items():
        assert square_sum(found) <= norm**2, name
        # numpy 2 rounds a number to float32 to compare it with one.
        assert float(np.abs(found).max()) <= BETWEEN, name


NOISED = [name for name in dpfl.TEST_CONFIGS if name != "none"]


@pytest.mark.parametrize("name", NOISED)
def test_messages_are_within_the_grid(name, nx):
    # A longer vector would be 2**16 integers at most.
    config, length = dpfl.TEST_CONFIGS[name], 4096
    if config.sums_securely:
        # Its messages have a share of the noise.
        config = dataclasses.replace(config, noise_multiplier=0.0)
    rounds = libraries.Rounds(config, np.zeros([1, length], np.float32), nx)
    codec, shared = rounds.codec, rounds.compiled(rounds.shared)(rounds.seed)
    padding = [0, codec.input_length - length]
    given = {case: np.pad(own, padding) for case, own in vectors(length).items()}

    def message(vector):
        return codec.encode(vector, shared, rounds.seed).message

    # The codec of DOME's vectors after the sketch has a grid of its own.
    inner, largest = getattr(codec, "_inner", codec), 0
    if hasattr(inner, "_grid"):
        grid, most = inner._grid, inner._grid.granularity**-2
    else:
        grid, most = inner._sum.grid, inner._sum.grid.max_squared_norm
    for case, found in of_each(nx, message, given).items():
        sent = found
        if isinstance(found, dict):
            sent = found["values" if "values" in found else "update"]
        if config.sums_securely:
            sent = integers.center(sent, config.modulus_bits)
        largest = max(largest, square_sum(sent))
        if hasattr(inner, "_grid"):
            limit = grid.max_coordinate / grid.granularity
            check_rounded(sent, 1 / grid.granularity, limit, case)
        else:
            assert np.abs(sent.astype(np.int64)).max() <= grid.max_size, case
            assert square_sum(sent) <= most, case
    assert largest > most / 1000, "no vector was near the bound"


def test_impossible_messages_add_nothing(nx):
    """The least integer has no absolute value, and squares of large ones overflow."""
    config = dpfl.TEST_CONFIGS["l2_csgm"]
    rounds = libraries.Rounds(config, np.zeros([1, 4096], np.float32), nx)
    codec, seed = rounds.codec, rounds.seed
    update = nx.asarray(vectors(4096)["normal"], np.float32)
    shared = rounds.compiled(rounds.shared)(seed)
    sound, *_ = rounds.compiled(rounds.sent)(update, shared, seed, seed[0])
    size, add = codec._sum.grid.max_size, codec.accumulate
    if nx.FIXES_SHAPES:
        # All messages have one, and it would be compiled one operation at a time.
        add = libraries.traced(nx, add)
    for worst in (-(2**31), 2**31 - 1, size + 1, -size - 1):
        values = np.asarray(sound["values"]).copy()
        values[7] = worst
        message = {**sound, "values": nx.asarray(values, np.int32)}
        total = libraries.plain(add(codec.zero(), message))
        assert not total["total"].any() and total["malformed"] == 1
    if not nx.FIXES_SHAPES:
        for wrong in (sound["values"][:-1], sound["values"][:0]):
            message = {**sound, "values": wrong}
            total = libraries.plain(add(codec.zero(), message))
            assert not total["total"].any() and total["malformed"] == 1
    total = libraries.plain(add(codec.zero(), sound))
    assert total["total"].any() and total["malformed"] == 0


@pytest.mark.skipif(libraries.HAS_TENSORFLOW, reason="JAX has its own environment")
@pytest.mark.parametrize("name", dpfl.TEST_CONFIGS)
def test_jax_multiplies_matrices_in_full_precision(name):
    """Each product of a round, whatever a program permits; a card would take TF32."""
    import jax

    config = dataclasses.replace(dpfl.TEST_CONFIGS[name], cohort_size=1)
    if name != "none":
        # Tables of noise are constants of 10 MB, and no products.
        config = config.with_noise_multiplier(0.0)
    with libraries.wide("jax"), jax.default_matmul_precision("tensorfloat32"):
        updates = np.zeros([1, 64], np.float32)
        rounds = libraries.Rounds(config, updates, arrays.named("jax"))

        def whole(update, seed):
            shared = rounds.shared(seed)
            message, total, sums = rounds.sent(update, shared, seed, 0)
            return message, rounds.opened(total, sums, shared, seed)

        lowered = jax.jit(whole).lower(rounds.updates[0], rounds.seed)
    lines = lowered.as_text().splitlines()
    products = [line for line in lines if "dot_general" in line]
    assert bool(products) == (name not in ("none", "gaussian"))
    for line in products:
        assert "precision = [HIGHEST, HIGHEST]" in line, line


@pytest.mark.skipif(libraries.HAS_TENSORFLOW, reason="JAX has its own environment")
@pytest.mark.parametrize("share", [1e-5, 0.01, 0.3])
def test_jax_draws_for_all_places_that_are_meant(share):
    from dpfl.arrays import in_jax

    for length in (10_000, 200_001):
        most = in_jax.most_of(length, share)
        assert most < length / 2
        assert stats.binom.sf(most, length, share) < 1e-60
        flags = np.random.default_rng(0).random(length) < share
        assert np.array_equal(in_jax._counts(flags), np.cumsum(flags))


def test_a_rotated_vector_keeps_its_norm(nx):
    """To 4e-6 at a million coordinates, as the slack of the bounds assumes."""
    rotate = rotation.HadamardRotation(LENGTH)
    seed = nx.asarray(np.array([5, -7]), np.int64)
    vector = vectors(LENGTH)["ones behind a large one"]

    def rotated(given):
        signs = randomness.fold_in(seed, 1)
        return rotate.rotate(given, rotate.expand(signs))

    found = of_each(nx, rotated, {"": vector})[""]
    assert math.isclose(square_sum(found), square_sum(vector), rel_tol=4e-6)
