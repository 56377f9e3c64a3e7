# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Matrix factorization: what is released, and that it survives a kill."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import factorization as fact
from dpfl import noise_streams
from dpfl.aggregators import build, build_with_host_noise
from dpfl.aggregators.host_noise import HostNoise
from dpfl.arrays import in_tensorflow
from dpfl.codecs import make_codec
from dpfl.mechanisms.matrix_factorization import MatrixFactorization
from dpfl.mechanisms.sgmf import Sgmf
from tests.aggregators import cohorts
from tests.aggregators.rounds import compiled_round, many_means, run_codec
from tests.refusals import refuses

ROUNDS = 5
WORKLOADS = {
    "prefix": {},
    "momentum": {"matrix_momentum": 0.9, "matrix_schedule": "cooldown"},
}
METHODS = {
    "optimal": {},
    "honaker-online": {},
    "honaker-full": {},
    "band-low-rank": {"matrix_bands": 2, "matrix_rank": 1},
    "toeplitz": {"matrix_bands": 3},
    "blt": {"matrix_buffers": 2},
}


FIELDS = {"cohort_size": 2, "clip_norm": 1.0, "noise_multiplier": 0.5}


def matrix(**changes):
    return MatrixFactorization(**{**FIELDS, "rounds_per_epoch": ROUNDS, **changes})


def sgmf(**changes):
    own = {"rounds_per_epoch": ROUNDS, "keep_fraction": 1.0, "linf_ratio": 1.0}
    return Sgmf(**{**FIELDS, **own, **changes})


MAKERS = {"matrix_factorization": matrix, "sgmf": sgmf}


def noise_of(config, dimension, rounds):
    """The results of rounds of two clients with zeros."""
    updates = [tf.zeros([2, dimension])] * rounds
    return run_rounds(make_codec(config, dimension, arrays="tensorflow"), updates)


def run_rounds(codec, updates):
    """The results of a round for each of the updates."""
    state, results = None, []
    for number, given in enumerate(updates):
        decoded, _ = run_codec(codec, given, number, state)
        state = decoded.state
        results.append(decoded)
    return results


def means(results):
    return np.stack([result.mean.numpy() for result in results])


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_noiseless_results_sum_to_the_workload(maker, workload):
    config = MAKERS[maker](noise_multiplier=0.0, **WORKLOADS[workload])
    rng = np.random.default_rng(0)
    updates = [tf.constant(rng.normal(size=(2, 6)) / 10, tf.float32) for _ in range(12)]
    found = means(run_rounds(make_codec(config, 6, arrays="tensorflow"), updates))
    sums = np.stack([u.numpy().sum(axis=0) / 2 for u in updates])
    for first in (0, 5):
        expected = config.factorization.workload.apply(sums[first : first + 5])
        actual = np.cumsum(found[first : first + 5], axis=0)
        assert_allclose(actual, expected, atol=1e-5)
    # The third epoch has only two rounds, and begins afresh like the others.
    rates = config.factorization.workload.rates
    assert_allclose(found[10], rates[0] * sums[10], atol=1e-5)


@pytest.mark.parametrize(
    ("method", "workload"), zip(METHODS, ["momentum", "prefix"] * 3)
)
def test_noise_of_summed_results_has_bs_covariance(method, workload):
    config = matrix(matrix_method=method, **METHODS[method], **WORKLOADS[workload])
    dimension = 60_000
    results = noise_of(config, dimension, 10)
    scale = 0.5 * config.factorization.sensitivity().value / 2
    b = config.factorization.decoder()
    covariance = scale**2 * (b @ b.T)
    found = means(results).astype(np.float64)
    sums = [np.cumsum(found[:5], axis=0), np.cumsum(found[5:], axis=0)]
    deviations = np.sqrt(np.diag(covariance))
    unit = np.outer(deviations, deviations)
    for epoch in sums:
        assert_allclose(
            epoch @ epoch.T / dimension / unit, covariance / unit, atol=0.03
        )
    assert np.abs(sums[0] @ sums[1].T / dimension / unit).max() < 0.03
    rows = scale * np.linalg.norm(config.factorization.noising_rows()[:5], axis=1)
    for name, expected in (
        ("iterate_noise_stddev", deviations),
        ("noise_stddev", rows),
    ):
        found = [float(result.measurements[name]) for result in results]
        assert_allclose(found, np.tile(expected, 2), rtol=1e-5)


def test_sgmf_noise_is_divided_by_n_gamma():
    config = sgmf(keep_fraction=0.25, noise_multiplier=0.8)
    sums = np.cumsum(means(noise_of(config, 60_000, 5)), axis=0)
    # Equal multipliers are equal noise, whatever the sparsification.
    expected = 0.8 / 2 * np.linalg.norm(config.factorization.decoder(), axis=1)
    assert_allclose(sums.std(axis=1), expected, rtol=0.03)


def test_sgmf_is_unbiased():
    codec = make_codec(
        sgmf(keep_fraction=0.25, noise_multiplier=0.0), 600, arrays="tensorflow"
    )
    update = np.linspace(-0.03, 0.03, 600, dtype=np.float32)
    found = many_means(codec, [update], 200).mean(axis=0)
    # (1 - gamma) / gamma / 600 / 200 is the variance of this, so 0.005 its deviation.
    assert found @ update / (update @ update / 2) == pytest.approx(1, abs=0.025)


@pytest.mark.parametrize(
    ("maker", "method"),
    [("matrix_factorization", "band-low-rank"), ("sgmf", "blt")],
)
def test_killed_runs_resume_with_the_same_noise(maker, method):
    """From a state of round 3; a row of noise follows from the seeds in the state."""
    config = MAKERS[maker](matrix_method=method, **METHODS[method])
    call = compiled_round(make_codec(config, 20, block_rounds=2, arrays="tensorflow"))

    def run(numbers, state):
        found = []
        for number in numbers:
            mean, _, state = call(np.zeros([2, 20]), number, state)
            found.append((mean.numpy(), saved(state)))
        return found

    whole = run(range(7), None)
    rest = run(range(3, 7), whole[2][1])
    tf.nest.map_structure(assert_array_equal, rest, whole[3:])
    stream = noise_streams.build_stream(config.factorization, 20, nx=in_tensorflow)
    seeds = whole[4][1]["row_seeds"]
    assert len({tuple(seed) for seed in seeds}) == ROUNDS

    def draw(row):
        return stream.drawn(tf.gather(seeds, row))

    for t in (0, 4):
        memory = stream.memory_before(draw, tf.constant(t))
        unit, _ = stream.step(draw, tf.constant(t), memory)
        expected = config.stddev / config.noise_divisor * unit
        assert_allclose(whole[t][0], expected, atol=1e-5)


def vectors(dimension, *seeds):
    rng = np.random.default_rng(seeds)
    draws = rng.normal(size=[2, dimension]).astype(np.float32) / 10
    return cohorts.identified(draws)


def value_type(dimension):
    return cohorts.with_ids((np.float32, [dimension]))


def saved(state):
    """The state as a checkpoint brings it back: nothing but copies of arrays."""
    return tf.nest.map_structure(lambda part: np.array(part), state)


def test_host_noise_equals_the_aggregators(tff_context):
    """And a training program's state holds no block of it."""
    config = matrix(**WORKLOADS["momentum"])
    factory, put_noise = build_with_host_noise(config, 20, seed=5)
    alone, process = (
        each.create(value_type(20)) for each in (build(config, seed=5), factory)
    )
    own_state, state = alone.initialize(), process.initialize()
    for number in range(7):
        if number == 3:
            # As after a restart of the program in the middle of a block.
            put_noise = HostNoise(config, 20).put_into
            state = saved(state)
        own = alone.next(own_state, vectors(20, number))
        put_noise(state)
        other = process.next(put_noise(state), vectors(20, number))
        assert_allclose(own.result, other.result, atol=1e-6)
        own_state, state = own.state, other.state
    # The moment, the past of a row, and numbers.
    assert sum(np.size(part) for part in tf.nest.flatten(state)) < 3 * 20


def test_missing_or_stale_host_noise_is_refused(tff_context):
    config = matrix()
    process = build(config, seed=5, noise_on_host=True).create(value_type(20))
    noise = HostNoise(config, 20)
    state = process.initialize()
    with refuses(Exception, "HostNoise.put_into"):
        process.next(state, vectors(20, 0))
    for number in range(6):
        before = noise.put_into(state)
        state = process.next(before, vectors(20, number)).state
        with refuses(Exception, "HostNoise.put_into"):
            process.next(state, vectors(20, 0))
    stale = collections.OrderedDict(
        state, **{name: before[name] for name in ("past", "past_row", "past_seed")}
    )
    with refuses(Exception, "HostNoise.put_into"):
        process.next(stale, vectors(20, 0))
    # The same row of another epoch, or of a run that went on from a copy.
    other = noise.put_into(process.next(noise.put_into(state), vectors(20, 9)).state)
    other["row_seeds"] = other["row_seeds"] + 1
    with refuses(Exception, "HostNoise.put_into"):
        process.next(other, vectors(20, 0))
    own = build(config, seed=5).create(value_type(20))
    with refuses(ValueError, "noise_on_host"):
        noise.put_into(own.initialize())


def test_file_with_too_few_rounds_is_refused_at_build(tmp_path):
    path = tmp_path / "short.npz"
    fact.save(fact.compute(fact.prefix_sum(4), "identity"), path)
    with refuses(ValueError, "matrix_file", path, 5, 4):
        build(matrix(matrix_file=str(path)))
