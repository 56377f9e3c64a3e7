# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise of a run for any training loop."""

import copy
import functools
import json
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dpfl
from tests.refusals import refuses

DIMENSION = 30_000
EPOCHS = dpfl.OncePerEpoch(population=100, cohort_size=10, rounds=12)
POISSON = dpfl.PoissonSampling(population=100, cohort_size=10, rounds=12)


FIELDS = {"cohort_size": 10, "clip_norm": 0.5, "noise_multiplier": 2.0}


def matrix(rounds_per_epoch=10, **changes):
    return dpfl.MatrixFactorization(rounds_per_epoch, **{**FIELDS, **changes})


def over_run(**changes):
    return matrix(None, noise_stream="run", rounds=12, **changes)


STATE = {"round": 1, "row_seeds": [[1, 2]], "digest": "0"}
CASES = {
    "independent": (dpfl.Gaussian(**FIELDS), POISSON),
    "dense": (matrix(matrix_momentum=0.9), EPOCHS),
    "banded": (matrix(matrix_method="banded", matrix_bands=3), EPOCHS),
    "tree": (matrix(matrix_method="honaker-online"), EPOCHS),
    "run": (
        over_run(matrix_method="toeplitz", matrix_bands=3),
        dpfl.CyclicPoisson(population=100, cohort_size=10, rounds=12, min_separation=4),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_have_the_accounted_covariance(name):
    """Whitened, of 30,000 draws: one standard error is 0.8% of a variance."""
    mechanism, plan = CASES[name]
    rows = np.stack(list(dpfl.noise(mechanism, plan, DIMENSION, seed=3)))
    assert rows.dtype == np.float32
    expected = np.eye(12)
    if name != "independent":
        period = mechanism.stream_rounds
        part = mechanism.factorization.noising_rows()[:period]
        first, rest = part @ part.T, part[: 12 - period] @ part[: 12 - period].T
        zeros = np.zeros([period, 12 - period])
        expected = np.block([[first, zeros], [zeros.T, rest]])
        expected *= mechanism.matrix_sensitivity**2
    root = np.linalg.cholesky(expected)
    white = np.linalg.solve(root, rows.astype(np.float64) / (2.0 * 0.5))
    assert_allclose(white @ white.T / DIMENSION, np.eye(12), atol=0.05)
    assert np.abs(white.mean(axis=1)).max() < 0.03


@pytest.mark.parametrize("name", CASES)
def test_resuming_from_a_state_draws_fresh_rows(name):
    """A round done again has fresh noise on top of the past of what was released."""
    mechanism, plan = CASES[name]
    make = functools.partial(dpfl.noise, mechanism, plan, DIMENSION)
    for done in (0, 4, 11):
        noise = make()
        released = [next(noise) for _ in range(done)]
        state = json.loads(json.dumps(noise.state()))
        first, *others = (next(make(state=state)) for _ in range(3))
        scale = 1.0
        if name != "independent":
            scale = noise._stream.own_weights[done % mechanism.stream_rounds]
            scale *= mechanism.matrix_sensitivity
        for other in others:
            assert np.std(first - other) == pytest.approx(scale * np.sqrt(2), rel=0.03)
        rest = list(make(state=state))
        assert len(released + rest) == 12
        again = make(state=state)
        assert again.round == done
        assert not np.isclose(next(again), rest[0], atol=1e-4).all()
        assert again.state()["row_seeds"][:-1] == state["row_seeds"][: again.round - 1]


@pytest.mark.parametrize("name", CASES)
def test_copies_are_independent(name):
    """Also a shallow one, whose rows are no rows of the other's past."""
    mechanism, plan = CASES[name]
    noise = dpfl.noise(mechanism, plan, 50)
    for _ in range(4):
        next(noise)
    before = noise.state()
    copies = [copy.copy(noise), copy.deepcopy(noise), pickle.loads(pickle.dumps(noise))]
    rows = [next(each) for each in copies]
    assert noise.state() == before
    rows.append(next(noise))
    assert len({row.tobytes() for row in rows}) == 4
    for each in (noise, *copies):
        seeds = each.state()["row_seeds"]
        assert len(seeds) == (0 if name == "independent" else 5)
        assert seeds[:4] == before["row_seeds"]


def test_state_of_other_noise_is_refused():
    """Wrong rows in the past would leave later ones with too little noise."""
    mechanism, plan = CASES["dense"]
    noise = dpfl.noise(mechanism, plan, 50)
    for _ in range(3):
        next(noise)
    state = noise.state()
    seeds = np.array(state["row_seeds"])
    for changed in (
        {"row_seeds": seeds.astype(np.float64)},
        {"row_seeds": seeds[::-1].tolist()},
        {"row_seeds": seeds[:2].tolist(), "round": 2},
    ):
        with refuses(ValueError, "state") as refused:
            dpfl.noise(mechanism, plan, 50, state={**state, **changed})
        assert str(seeds[0, 0]) not in str(refused.value)
    for other in (matrix(), matrix(matrix_momentum=0.9, clip_norm=1.0)):
        with refuses(ValueError, "state"):
            dpfl.noise(other, plan, 50, state=state)
    with refuses(ValueError, "state"):
        dpfl.noise(mechanism, plan, 51, state=state)
    assert dpfl.noise(mechanism, plan, 50, state=state).round == 3
    with_arrays = {**state, "row_seeds": seeds}
    assert dpfl.noise(mechanism, plan, 50, state=with_arrays).state() == state


@pytest.mark.parametrize("name", ["dense", "banded", "tree", "run"])
def test_resumed_stream_telescopes(name):
    """Noise of sums of the rows is that of the decoder, across a restore."""
    mechanism, plan = CASES[name]
    make = functools.partial(dpfl.noise, mechanism, plan, DIMENSION)
    noise = make()
    rows = [next(noise) for _ in range(5)]
    rows += list(make(state=noise.state()))[: mechanism.stream_rounds - 5]
    sums = mechanism.factorization.workload.apply(np.stack(rows).astype(np.float64))
    expected = np.linalg.norm(mechanism.factorization.decoder(), axis=1)
    expected = expected[: len(sums)] * mechanism.matrix_sensitivity
    assert_allclose(sums.std(axis=1), expected, rtol=0.03)


@pytest.mark.parametrize("name", CASES)
def test_resumed_seeded_run_has_equal_bits(name):
    mechanism, plan = CASES[name]
    rows = list(dpfl.noise(mechanism, plan, 50, seed=3))
    assert len(rows) == 12
    for first in (0, 4, 10, 11, 12):
        resumed = dpfl.noise(mechanism, plan, 50, seed=3, first_round=first)
        assert resumed.round == first
        assert_array_equal(np.array(list(resumed)), np.array(rows[first:]))
        assert resumed.round == 12


def test_seeds():
    """The system's own unless one is given, and of one mechanism alone."""
    mechanism, plan = CASES["independent"]
    make = functools.partial(dpfl.noise, mechanism, plan, 50)
    assert not np.isclose(next(make()), next(make())).any()
    again = next(make(seed=7))
    assert_array_equal(next(make(seed=7)), again)
    louder = dpfl.Gaussian(**{**FIELDS, "noise_multiplier": 4.0})
    other = next(dpfl.noise(louder, plan, 50, seed=7)) / 2
    assert not np.isclose(other, again).any()


@pytest.mark.parametrize(
    ("mechanism", "plan", "options", "error", "parts"),
    [
        (dpfl.TEST_CONFIGS["sgmf"], EPOCHS, {}, TypeError, ["mechanism", "Sgmf"]),
        (
            dpfl.Gaussian(**FIELDS, adaptive_clipping=True),
            POISSON,
            {},
            TypeError,
            ["adaptive_clipping"],
        ),
        (matrix(), POISSON, {}, ValueError, ["once_per_epoch", "poisson"]),
        (
            dpfl.Gaussian(**FIELDS),
            POISSON,
            {"first_round": 13},
            ValueError,
            ["first_round", 13],
        ),
        (dpfl.Gaussian(**FIELDS), POISSON, {"seed": -1}, ValueError, ["seed", -1]),
        (matrix(), EPOCHS, {"first_round": 2}, ValueError, ["first_round", 2]),
        (matrix(), EPOCHS, {"state": {"round": 2}}, ValueError, ["state"]),
        (matrix(), EPOCHS, {"state": {**STATE, "round": 2}}, ValueError, ["state"]),
        (matrix(), EPOCHS, {"state": {**STATE, "round": 13}}, ValueError, ["state"]),
        (matrix(), EPOCHS, {"state": STATE, "seed": 1}, ValueError, ["state"]),
    ],
)
def test_refusals(mechanism, plan, options, error, parts):
    with refuses(error, *parts):
        dpfl.noise(mechanism, plan, 50, **options)
