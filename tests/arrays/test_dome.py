# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME in each library: the same random parts, and floats and subspaces close to them.

Eigenvectors and Cholesky factors have no bits that libraries share.
"""

import collections

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import mechanisms
from dpfl.arrays import in_numpy
from dpfl.vectors import adaptive_sketch
from tests.arrays import libraries

D, CLIENTS = 300, 4
SEED = np.array([3, 4])
# Dimension, rows of the sketch, and at most as many directions; those kept; the rule.
SKETCHES = [
    ((D, 16, 8), (0, 5), "eigen"),
    ((D, 16, 8), (0, 5), "qr"),
    ((70_001, 8, 4), (2,), "eigen"),
    ((13, 13, 6), (4,), "qr"),
    ((3, 3, 3), (1,), "eigen"),
]
CONFIGS = {
    "dome": mechanisms.Dome(CLIENTS, 20.0, 0.5, 16, measures_energy=True),
    "integers": mechanisms.DomeDdg(CLIENTS, 20.0, 0.5, 16, bits=16),
    "no probes": mechanisms.Dome(CLIENTS, 20.0, 0.0, 8, probes=False),
}


def draws():
    """Updates, of which the last is not finite."""
    updates = np.random.default_rng(2).standard_normal([CLIENTS, D])
    updates[-1, 5] = np.nan
    return updates.astype(np.float32)


def kept_rows(d, rank, most):
    """Nearly orthonormal rows, then zeros."""
    rows = np.zeros([most, d], np.float32)
    values = np.random.default_rng(0).standard_normal([d, most])
    rows[:rank] = np.linalg.qr(values)[0].T[:rank] if d > 3 else [[0, 1, 0]]
    return rows


def results(nx, sizes, ranks, rule):
    """Everything that is computed of one sketch for each rank, as arrays of numpy."""
    d, size, most = sizes
    own = adaptive_sketch.AdaptiveSketch(
        d, size, max_rank=most, energy_fraction=0.99, decay=0.9, rule=rule
    )

    def compute(rows, rank, seed, gradient, strengths):
        kept = nx.prefix(nx.to_bfloat16(rows), rank)
        sketch = own.expand(kept, rank, seed)
        inside = adaptive_sketch.project(sketch, gradient)
        target = adaptive_sketch.lift(sketch, inside) + gradient
        packed, plain = (
            own.update(sketch, strengths, rank, target, is_packed=is_packed)
            for is_packed in (True, False)
        )
        return {
            "signs": sketch["signs"],
            "rows": adaptive_sketch.dense(sketch),
            "inside": inside,
            "target": target,
            "diagonal": adaptive_sketch.diagonal(sketch),
            "packed": adaptive_sketch.unpack(packed.directions),
            **plain._asdict(),
        }

    seed = nx.asarray(SEED, np.int64)
    # TensorFlow traces for longer than it computes: one sketch by each rule.
    if nx.FIXES_SHAPES or sizes == SKETCHES[0][0]:
        compute = libraries.traced(nx, compute)
    gradient = np.random.default_rng(1).standard_normal(d)
    for rank in ranks:
        strengths = np.where(np.arange(most) < rank, most - np.arange(most), 0)
        floats = (nx.asarray(x, np.float32) for x in (gradient, strengths))
        rows, number = kept_rows(d, rank, most), nx.asarray(rank, np.int32)
        found = compute(nx.asarray(rows, np.float32), number, seed, *floats)
        yield {name: np.asarray(part) for name, part in found.items()}


@pytest.mark.parametrize(("sizes", "ranks", "rule"), SKETCHES)
def test_sketches_are_close(nx, sizes, ranks, rule):
    both = (results(each, sizes, ranks, rule) for each in (in_numpy, nx))
    for expected, found in zip(*both):
        check_sketch(expected, found, rule)


def check_sketch(expected, found, rule):
    assert_array_equal(found.pop("signs"), expected.pop("signs"))
    rank = int(expected["rank"])
    packed, rows = found.pop("packed"), found.pop("directions")
    # A number of bfloat16 has eight bits.
    assert_allclose(packed, rows, rtol=2**-8)
    if rule == "eigen":
        check_subspace(rows, expected["directions"], rank)
    else:
        # A column that depends on those before has anybody's direction.
        del found["overlap"]
    for name, part in found.items():
        assert part.dtype == expected[name].dtype, name
        scale = np.abs(expected[name]).max()
        assert_allclose(part, expected[name], atol=1e-5 * scale, err_msg=name)


def check_subspace(found, expected, rank):
    """Rows of length 1 with the same span, and zeros behind them."""
    assert not np.any(found[rank:])
    products = found[:rank].astype(np.float64) @ expected[:rank].T
    assert_allclose(np.linalg.svd(products)[1], np.ones(rank), atol=1e-5)


@pytest.mark.parametrize("number", [0, 2, 3])
def test_columns_are_split_and_joined(nx, number):
    """Zeros stand behind both parts where shapes are fixed."""
    values = nx.asarray(np.arange(1, 11).reshape(2, 5), np.float32)
    count = nx.asarray(number, np.int32)
    parts = nx.split_at(values, count, 3)
    wanted = np.split(np.asarray(values), [number], axis=1)
    for part, own, length in zip(parts, wanted, (3, 5)):
        missing = length - own.shape[1] if nx.FIXES_SHAPES else 0
        assert_array_equal(part, np.pad(own, [[0, 0], [0, missing]]))
    assert_array_equal(nx.join_at(*parts, count), values)
    rows = map(nx.transpose, parts)
    assert_array_equal(nx.join_at(*rows, count, axis=0), nx.transpose(values))


def test_bfloat16_is_rounded_to_even(nx):
    floats = np.array([0, 1, -1, 1 + 2**-8, 1 + 3 * 2**-8, -7e20, 1e-30], np.float32)
    words = nx.to_bfloat16(nx.asarray(floats, np.float32))
    expected = [0, 0x3F80, 0xBF80, 0x3F80, 0x3F82, 0xE218, 0x0DA2]
    assert_array_equal(words, np.array(expected, np.uint16).view(np.int16))
    back = np.asarray(nx.from_bfloat16(words, np.float64))
    assert back.dtype == np.float64
    assert_allclose(back, floats, rtol=2**-8)


@pytest.mark.parametrize("name", CONFIGS)
def test_rounds_are_close(nx, name):
    """The third round, which has a basis, from the state that numpy has then."""
    if name == "integers" and nx.FIXES_SHAPES:
        pytest.skip("test_jax_aggregator executes its rounds")
    config, updates = CONFIGS[name], draws()
    reference, rounds = (libraries.Rounds(config, updates, x) for x in (in_numpy, nx))
    for _ in range(2):
        reference.state = reference.run("eager").decoded.state
    initial = rounds.state.items()
    rounds.state = collections.OrderedDict(
        (key, nx.asarray(reference.state[key], part.dtype)) for key, part in initial
    )
    missing = config.resolved_max_rank - int(reference.state["rank"])
    model_and_rows = 32 * D + 16 * D * missing
    assert downlink_bits(rounds) == config.downlink_bits(D) - model_and_rows
    expected, found = reference.run("eager"), rounds.run(rounds.ways[-1])
    for one, two in zip(found.messages, expected.messages):
        check_message(rounds.codec, one["update"], two["update"])
    # The noise of the client whose update is not finite.
    assert_array_equal(found.messages[-1]["update"], expected.messages[-1]["update"])
    decoded, exact = opened(rounds, expected)
    check_state(decoded.state, expected.decoded.state)
    close(decoded.mean, expected.decoded.mean, "mean")
    pairs = (decoded.measurements, expected.decoded.measurements)
    for some, others in (pairs, (exact, expected.exact)):
        assert set(some) == set(others)
        for key, part in some.items():
            close(part, others[key], key)


def downlink_bits(rounds):
    def bits(seed):
        return rounds.codec.broadcast_bits(rounds.codec.broadcast(rounds.state, seed))

    return float(libraries.traced(rounds.nx, bits)(rounds.seed))


def opened(rounds, given):
    """The sum of another library decoded; one integer more would move the mean."""
    nx = rounds.nx
    total = {key: nx.asarray(part, part.dtype) for key, part in given.total.items()}
    sums = {key: nx.asarray(part, np.float64) for key, part in given.sums.items()}
    decode, share = map(rounds.compiled, (rounds.opened, rounds.shared))
    opened = decode(total, sums, share(rounds.seed), rounds.seed)
    return libraries.plain(opened[1:])


def check_state(found, expected):
    """Floats are close, and bases of eight bits span nearly the same."""
    assert set(found) == set(expected)
    for key, part in found.items():
        assert part.dtype == expected[key].dtype, key
        if key != "basis":
            close(part, expected[key], key)
    rank = int(expected["rank"])
    assert rank and not found["basis"][rank:].any()
    rows = (in_numpy.from_bfloat16(x["basis"][:rank], float) for x in (found, expected))
    one, two = (np.linalg.qr(each.T)[0] for each in rows)
    assert_allclose(np.linalg.svd(one.T @ two)[1], np.ones(rank), atol=1e-4)


def check_message(codec, one, two):
    """Steps that differ by one, or by 1e-5 of the clip where they are finer."""
    half = 1 << (codec.modulus_bits["update"] - 1)
    apart = (one.astype(np.int64) - two + half) % (2 * half) - half
    assert np.abs(apart).max() <= (1 if one.dtype == np.int32 else 32)


def close(found, expected, name):
    scale = np.abs(expected).max()
    assert_allclose(found, expected, atol=1e-5 * scale, rtol=1e-5, err_msg=name)
