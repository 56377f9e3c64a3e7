# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import numpy as np
import pytest

from dpfl import factorization as mf
from dpfl.factorization import Workload, factorization, optimal, structured
from tests.refusals import refuses

PARAMS = {
    "band-low-rank": {"band": 3, "rank": 2},
    "banded": {"bands": 4},
    "banded-inverse": {"bands": 3},
    "banded-inverse-root": {"bands": 3},
    "blt": {"buffers": 2},
    "blt-rational": {"buffers": 3},
}
WORKLOADS = [Workload(20), Workload(20, 0.9), Workload(20, 0.9, mf.LinearCooldown())]


@pytest.mark.parametrize("method", sorted(mf.METHODS))
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_every_method_agrees_with_its_dense_factors(workload, method):
    found = mf.compute(workload, method, **PARAMS.get(method, {}))
    assert found.method == method
    decoder, encoder = found.materialize()
    assert np.max(np.abs(decoder @ encoder - workload.matrix())) < 1e-9
    rows = np.sum(decoder**2, axis=1)
    # What is released of C, of which the tree's is less where it is decoded online.
    released = np.linalg.pinv(decoder) @ workload.matrix()
    norm = np.max(np.sum(released**2, axis=0))
    assert norm <= np.max(np.sum(encoder**2, axis=0)) * (1 + 1e-9)
    np.testing.assert_allclose(found.step_errors(), rows * norm)
    assert found.loss == pytest.approx(np.sum(rows) * norm)
    assert found.sensitivity().value == pytest.approx(np.sqrt(norm))
    noising = np.linalg.solve(workload.matrix(), decoder)
    np.testing.assert_allclose(found.noising_rows(), noising, atol=1e-9)
    plan = mf.MinSeparation(5, 3)
    value = plan.sensitivity(encoder).value
    if method == "honaker-online":
        value = plan.sensitivity(released).value
        assert value < plan.sensitivity(encoder).value
    assert found.sensitivity(plan).value == pytest.approx(value)
    assert found.errors(plan).total == pytest.approx(np.sum(rows) * value**2)
    for plan in (mf.MinSeparation(5, 3), mf.ShuffledEpochs(5, 2)):
        part = plan.sensitivity(found.factors.released_encoder(workload)[:18, :18])
        assert found.sensitivity(plan, 18).value == pytest.approx(part.value)


def test_no_method_beats_the_lower_bound():
    for workload in WORKLOADS:
        bound = mf.compute(workload, "optimal").lower_bound
        for method in mf.METHODS:
            found = mf.compute(workload, method, **PARAMS.get(method, {}))
            assert found.loss >= bound * (1 - 1e-9), method


@pytest.mark.parametrize(
    ("method", "name", "sizes", "last", "rel"),
    [
        ("toeplitz", "bands", (1, 2, 4, 16, 48), "toeplitz", 1e-9),
        ("banded", "bands", (1, 2, 4, 8, 48), "optimal", 1e-3),
        ("blt", "buffers", (1, 2, 3), "toeplitz", 5e-3),
    ],
)
@pytest.mark.parametrize("workload", [Workload(48), Workload(48, 0.5)], ids=str)
def test_larger_sizes_are_no_worse(workload, method, name, sizes, last, rel):
    losses = [mf.compute(workload, method, **{name: size}).loss for size in sizes]
    assert all(b <= a * (1 + 1e-6) for a, b in zip(losses, losses[1:]))
    assert losses[-1] == pytest.approx(mf.compute(workload, last).loss, rel=rel)
    if sizes[-1] == 48 and not workload.momentum:
        # One band is independent noise: n (n + 1) / 2.
        assert losses[0] == pytest.approx(48 * 49 / 2)


@pytest.mark.parametrize(
    ("method", "params", "closed", "of_closed", "most"),
    [
        ("toeplitz", {}, "toeplitz-root", {}, 0.98),
        ("blt", {"buffers": 3}, "blt-rational", {"buffers": 3}, 1),
        ("banded", {"bands": 8}, "toeplitz", {"bands": 8}, 0.9999),
    ],
)
@pytest.mark.parametrize(
    "workload",
    [Workload(64), Workload(64, 0.9), Workload(20, 0.8, mf.LinearCooldown())],
    ids=str,
)
def test_optimisation_improves_on_the_closed_form(
    workload, method, params, closed, of_closed, most
):
    found = mf.compute(workload, method, **params).loss
    assert found < most * mf.compute(workload, closed, **of_closed).loss


def test_error_summary_by_hand():
    factors = mf.DenseFactors(np.tri(3) / np.array([2, 4, 2]), np.diag([2.0, 4, 2]))
    summary = mf.Factorization(Workload(3), "x", {}, factors).errors()
    assert summary == mf.ErrorSummary(18.0, 6.0, np.sqrt(6.0), 9.0, 9.0)


def test_factorizations_are_immutable():
    found = mf.compute(Workload(4), "optimal")
    with pytest.raises(ValueError, match="read-only"):
        found.factors.b[0, 0] = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.method = "other"


def test_source_arrays_stay_writable():
    source = np.eye(3)
    mf.DenseFactors(source, source)
    source[0, 0] = 2.0


NAN = np.full((2, 2), np.nan)


def of(rounds, encoder):
    factors = mf.DenseFactors(np.eye(2), encoder)
    return mf.Factorization(Workload(rounds), "x", {}, factors)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: mf.DenseFactors(np.eye(2), np.eye(3)), ("b", (2, 2), (3, 3))),
        (lambda: mf.DenseFactors(NAN, np.eye(2)), ("b", "NaN")),
        (lambda: mf.TreeFactors(np.eye(2), np.zeros((3, 2))), ("nodes", (3, 2))),
        (lambda: mf.ToeplitzFactors(np.zeros(3)), ("c", 0.0)),
        (lambda: mf.BandedFactors(np.ones((2, 3))), ("diagonals", 3)),
        (
            lambda: mf.BandLowRankFactors(np.zeros((2, 1)), np.eye(2), np.eye(2)),
            ("band", 0),
        ),
        (
            lambda: mf.BandLowRankFactors(np.ones((2, 1)), np.eye(3), np.eye(3)),
            ("left", "right", (3, 3)),
        ),
        (lambda: of(3, np.eye(2)), ("factors", 2)),
        (lambda: mf.InverseBandedFactors(np.zeros(3)), ("e", 0.0)),
        (lambda: mf.compute(Workload(3), "magic"), ("method", "magic")),
        (
            lambda: mf.compute(Workload(3), "optimal", bands=3),
            ("optimal", "bands"),
        ),
        (lambda: of(2, np.zeros((2, 2))), ("factors", 1.0)),
        (lambda: of(2, np.array([[1, 0], [1 - 1e-5, 1]])), ("factors", "5e-06")),
    ],
)
def test_bad_values_are_refused(make, parts):
    with refuses(ValueError, *parts):
        make()


@pytest.mark.parametrize("method", ["optimal", "honaker-online", "honaker-full"])
def test_factors_of_another_product_are_refused(method):
    """C says how much noise there is to be in B: with a thousandth of it, too little."""
    found = mf.compute(Workload(12, 0.9), method)
    for name, array in found.factors.arrays().items():
        for other in (1e-3 * array, 0.999 * array, array + (array == array.max())):
            factors = dataclasses.replace(
                found.factors, **{name: other.astype(array.dtype)}
            )
            with refuses(ValueError, "factors"):
                mf.Factorization(found.workload, method, {}, factors)


BANDED = ("toeplitz", "banded", "banded-inverse", "banded-inverse-root")


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("toeplitz", "separation", 0),
        ("toeplitz", "participations", 0),
        *((name, "bands", 9) for name in BANDED),
        *[
            ("blt", "buffers", 0),
            ("blt", "buffers", 11),
            ("blt-rational", "buffers", 11),
        ],
        *[("band-low-rank", "band", 0), ("band-low-rank", "band", 9)],
        *[("band-low-rank", "rank", 9), ("band-low-rank", "rank", -1)],
    ],
)
def test_bad_sizes_are_refused(method, name, value):
    sizes = {"band": 1, "rank": 1} if method == "band-low-rank" else {}
    with refuses(ValueError, name, value):
        mf.compute(Workload(8), method, **{**sizes, name: value})


@pytest.mark.parametrize("kind", ["toeplitz", "banded"])
def test_columns_of_released_rounds(kind):
    rng = np.random.default_rng(3)
    factors = mf.ToeplitzFactors(np.array([*(1, 0.5, 0.7), *(0,) * 6]))
    if kind == "banded":
        factors = mf.BandedFactors(rng.uniform(0.1, 1, (9, 3)))
    found = mf.Factorization(Workload(9), kind, {}, factors)
    encoder = found.encoder()
    for rounds in range(1, 10):
        for first in range(rounds):
            norms = np.linalg.norm(encoder[:rounds, first:rounds], axis=0)
            longest = factorization.longest_column(found, rounds, first)
            assert longest == pytest.approx(max(norms), rel=1e-12)
        released = found.sensitivity(rounds=rounds).value
        longest = factorization.longest_column(found, rounds)
        assert longest == pytest.approx(released, rel=1e-12)


def test_wide_bands_of_few_rounds_keep_all_rows():
    few, many = np.zeros(1100), np.zeros(2048)
    few[:200], many[:200] = 1, 1
    for column, kept in ((few, None), (many, 199)):
        factors = mf.ToeplitzFactors(column)
        found = mf.Factorization(Workload(len(column)), "toeplitz", {}, factors)
        assert factorization.kept_rows(found) == kept


@pytest.fixture(scope="module")
def best():
    return optimal.factorize(Workload(64), rtol=1e-9)


def test_band_is_exact_and_the_remainder_has_low_rank(best):
    found = structured.band_low_rank(best, 3, 2)
    decoder = found.decoder()
    inside = np.tri(64) - np.tri(64, k=-3)
    np.testing.assert_array_equal(decoder * inside, best.decoder() * inside)
    # Rows from 40 on, columns to 37 lie below the band.
    assert np.linalg.matrix_rank(decoder[40:, :38], tol=1e-10) == 2


def test_exact_low_rank_is_recovered():
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    below = np.tril(u @ v.T, -1)
    found = structured.fit_low_rank(below, 1, 2, penalty=1e-12, max_iterations=5000)
    fitted = np.tril(found[0] @ found[1].T, -1)
    assert np.linalg.norm(fitted - below) < 1e-3 * np.linalg.norm(below)


def test_rank_zero_is_the_band_alone(best):
    decoder = structured.band_low_rank(best, 2, 0).decoder()
    np.testing.assert_array_equal(decoder, np.triu(best.decoder(), -1))


def test_tree_cannot_be_structured():
    found = mf.compute(Workload(8), "honaker-full")
    with refuses(ValueError, "factorization", "honaker-full", (8, 15)):
        structured.band_low_rank(found, 1, 1)


def test_secret_rounds_are_charged_for_absolute_values():
    encoder = np.array([[1.0, 0.0], [-0.5, 2.0]])
    for signed, size in zip(*map(charged_of, (encoder, np.abs(encoder)))):
        assert np.any(signed) and np.array_equal(signed, size)


def charged_of(encoder):
    factors = mf.DenseFactors(np.tri(2) @ np.linalg.inv(encoder), encoder)
    own = mf.Factorization(Workload(2), "x", {}, factors)
    return factorization.columns(own, 2), factorization.group_shifts(own, 2, 2)
