# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Audits of an adapter from outside: noise, bytes and integers, for each framework."""

import contextlib
import math
import shutil
from unittest import mock

import numpy as np
import scipy.stats
from numpy.testing import assert_array_equal

import dpfl
from dpfl.arrays import in_numpy
from tests.arrays import cases

# So many numbers that noise which is wrong by 5% is seen, and right noise is not.
DIMENSION, CLIENTS = 1 << 16, 3
# Noise of the server, behind masks, and of the clients.
NOISED = ("gaussian", "l2_csgm", "distributed_discrete_gaussian")
# And noise of which a saved state has a part: that of the rounds before.
RESTORED = (*NOISED, "matrix_factorization")
# One of each kind of message; test_server.py has them all.
SENT = ("gaussian", "l2_csgm", "sgmf", "sketched_ddg", "dome")


def check_noise(mean, mechanism):
    """Checks the mean, the variance and the law of the mean of clients' zeros."""
    size = math.sqrt(len(mean))
    multiplier = mechanism.noise_multiplier
    # That of the update alone, where a count of clips has noise too.
    multiplier = getattr(mechanism, "update_noise_multiplier", multiplier)
    stddev = multiplier * mechanism.clip_norm / mechanism.cohort_size
    stddev *= getattr(mechanism, "sketch_clip", 1.0)
    if mechanism.name in ("matrix_factorization", "sgmf"):
        # A round's own row, whose coefficient is 1.
        stddev = mechanism.stddev / mechanism.noise_divisor
    assert abs(np.mean(mean)) < 5 * stddev / size
    assert abs(np.var(mean) / stddev**2 - 1) < 5.5 * math.sqrt(2) / size
    assert scipy.stats.kstest(mean / stddev, "norm").statistic < 2.5 / size


def check_restored(name, folder, released):
    """Checks that rounds which go on from one saved state have noise of their own.

    Were it in the state, the difference of two releases would be a client's update.

    Args:
      name: One of `RESTORED`.
      folder: A folder for states.
      released: A function of mechanism, updates, plan and folder, to what a round
        releases, or the model after it. It goes on from the state in the folder, if
        there is one, and saves one.
    """
    run = dpfl.TEST_CONFIGS[name], np.zeros([4 * CLIENTS, DIMENSION], np.float32)
    plan, found = dpfl.OncePerEpoch(4 * CLIENTS, CLIENTS, 2), []
    begun = folder / "begun"
    begun.mkdir()
    released(*run, plan, begun)
    for again in (folder / "one", folder / "two"):
        found.append(released(*run, plan, shutil.copytree(begun, again)))
    check_noise((found[0] - found[1]) / math.sqrt(2), run[0])


def check_bytes(lengths, mechanism, dimension):
    """Checks that messages have the bits that are claimed, and nothing else."""
    claimed = mechanism.uplink_bits(dimension) / 8
    if getattr(mechanism, "noise_source", None) == "helpers":
        # Each helper sends as much as a client.
        claimed /= 2
    if "keep_fraction" in vars(mechanism):
        # Each place is kept by a coin, in 4 bytes.
        places = 1 << math.ceil(math.log2(dimension))
        kept = mechanism.keep_fraction
        spread = 4 * math.sqrt(places * kept * (1 - kept) / len(lengths))
        assert abs(np.mean(lengths) - claimed) < 5 * spread
    else:
        assert set(lengths) == {math.ceil(claimed)}


@contextlib.contextmanager
def sums_of(mechanism):
    """Yields a list to which the sums that are decoded for releases are added."""
    kind, sums = type(dpfl.make_codec(mechanism, cases.DIMENSION)), []
    decode = kind.decode

    def opened(codec, received):
        sums.append(received.total)
        return decode(codec, received)

    with mock.patch.object(kind, "decode", opened):
        yield sums


def check_sum(name, release, template):
    """Checks that an adapter sums and releases as `dpfl.Server` does.

    Args:
      name: One of `cases.SUMMED`, of which updates and sums are exact.
      release: A function of mechanism, updates and seed, to the mean.
      template: The structure of the mean.
    """
    mechanism, updates = cases.EXACT[name], cases.exact_updates()
    seeds = mock.patch.object(in_numpy, "fresh_seed", lambda: np.array([5, -7]))
    with seeds, sums_of(mechanism) as sums:
        found = release(mechanism, updates, seed=5)
        plan = plan_of(updates)
        server = dpfl.Server(mechanism, plan, template, delta=1e-3, seed=5)
        now = server.begin_round()
        for client in now.clients:
            data = dpfl.encode(mechanism, updates[client], now.message)
            assert server.add(client, data)
        wanted = server.end_round().mean
    in_numpy.tree_map(assert_array_equal, wanted, found)
    in_numpy.tree_map(assert_array_equal, *sums)


def plan_of(updates):
    """A plan of one round, with all clients."""
    return dpfl.WithoutReplacement(len(updates), len(updates), 1)
