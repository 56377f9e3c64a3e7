# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import hashlib
import math

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from dpfl.arrays import in_tensorflow, philox
from dpfl.vectors import randomness
from tests.refusals import refuses

SEED = tf.constant([1, 2], tf.int64)
WORD = (1 << 64) - 1


def reference(key, low, high):
    """Philox4x32-10 as Salmon et al. 2011 write it: two words under a key of one."""
    half = (1 << 32) - 1
    x = [low & half, low >> 32, high & half, high >> 32]
    k = [key & half, key >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [
            *((second >> 32) ^ x[1] ^ k[0], second & half),
            *((first >> 32) ^ x[3] ^ k[1], first & half),
        ]
        k = [(k[0] + 0x9E3779B9) & half, (k[1] + 0xBB67AE85) & half]
    return x[0] | x[1] << 32, x[2] | x[3] << 32


def words(seed):
    return tuple(int(word) & WORD for word in np.asarray(seed))


def test_philox_is_that_of_its_authors():
    """Their known answers."""
    pi = (0x299F31D0_A4093822, 0x85A308D3_243F6A88, 0x03707344_13198A2E)
    assert reference(0, 0, 0) == (0xE169C58D_6627E8D5, 0x9B00DBD8_BC57AC4C)
    assert reference(*pi) == (0x94FDCCEB_D16CFE09, 0x24126EA1_5001E420)


@pytest.mark.parametrize("seed", [(1, 2), (-1, 5), (2**63 - 1, -(2**63))])
@pytest.mark.parametrize("value", [0, 1, -1, 2**62 + 3])
def test_fold_in_encrypts_value_and_second_word(seed, value):
    """192 bits in, none lost: what the claim that seeds never coincide is about."""
    key, second = (word & WORD for word in seed)
    expected = reference(key, value & WORD, second)
    assert words(randomness.fold_in(tf.constant(seed, tf.int64), value)) == expected
    assert words(philox.fold_in(seed, value)) == expected


@pytest.mark.parametrize("count", [0, 1, 6, 70_001])
def test_words_in_numpy_are_those_of_tensorflow(count):
    """Beyond a block that is enciphered at a time, too."""
    expected = in_tensorflow.random_words(SEED, count, np.uint32)
    assert_array_equal(philox.random_words(SEED.numpy(), count), expected)


MOST = 2**40 + 1


@pytest.mark.parametrize(
    ("draw", "bound", "theirs", "options"),
    [
        (in_tensorflow.uniform, (), tf.random.stateless_uniform, {"dtype": tf.float64}),
        (
            *(in_tensorflow.below, (MOST,), tf.random.stateless_uniform),
            {"maxval": MOST, "dtype": tf.int64},
        ),
    ],
)
def test_numbers_are_those_of_tensorflow_s_functions(draw, bound, theirs, options):
    seed = tf.constant([-(2**62) - 5, 2**61 + 7], tf.int64)
    expected = theirs([7001], seed, alg="philox", **options)
    assert_array_equal(draw(seed, 7001, *bound), expected)


def test_rademacher_is_fair_and_independent():
    signs = randomness.rademacher(SEED, 200_000).numpy()
    assert set(signs) == {-1.0, 1.0}
    limit = 4.5 / math.sqrt(200_000)
    assert abs(signs.mean()) < limit
    for lag in (1, 2, 16, 32):
        assert abs((signs[lag:] * signs[:-lag]).mean()) < limit


def test_all_bits_of_a_fresh_seed_are_random():
    draw = tf.function(in_tensorflow.fresh_seed, autograph=False)
    seeds = np.stack([draw().numpy() for _ in range(400)])
    bits = np.unpackbits(seeds.view(np.uint8), axis=1)
    assert bits.shape == (400, 128)
    # Binomial(400, 1/2): five standard deviations of 0.025, of 128 bits.
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.025


def test_fresh_seed_is_the_kernels_output(tmp_path, monkeypatch):
    lines = [
        "01234567-89ab-4cde-8f01-23456789abcd",
        "fedcba98-7654-4321-b0fe-dcba98765432",
    ]
    paths = [tmp_path / name for name in ("first", "second")]
    for path, line in zip(paths, lines):
        path.write_text(f"{line}\n")
    read = tf.data.TextLineDataset
    names = [str(path) for path in paths]
    monkeypatch.setattr(tf.data, "TextLineDataset", lambda unused_names: read(names))
    # Digits 0 to 3 and 20 to 31, the first of least weight.
    expected = [line[:4] + line[24:] for line in lines]
    assert words(in_tensorflow.fresh_seed()) == tuple(
        int(digits[::-1], 16) for digits in expected
    )


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1, 2**63, 2**126 - 1])
@pytest.mark.parametrize("identity", ["", "gaussian"])
def test_seed_from_int_truncates_a_hash(seed, identity):
    found = philox.seed_from_int(seed, identity)
    text = f"dpfl seed:{seed}:{identity}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert "".join(f"{word:016x}" for word in words(found)) == digest[:32]
    tf.constant(found, tf.int64)


@pytest.mark.parametrize(
    ("seed", "error"),
    [(-1, ValueError), (2**126, ValueError), (True, TypeError), (1.0, TypeError)],
)
def test_seed_from_int_refuses(seed, error):
    with refuses(error, "seed", seed):
        philox.seed_from_int(seed)
