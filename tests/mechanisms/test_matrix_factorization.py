# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The numbers of matrix factorization and of SGMF."""

from __future__ import annotations

from dataclasses import replace

import dp_accounting
import numpy as np
import pytest

from dpfl import accounting, mechanisms, planning
from dpfl import factorization as fact
from dpfl.mechanisms.matrix_factorization import MatrixFactorization
from dpfl.mechanisms.sgmf import Sgmf
from tests.refusals import refuses

BANDED = ("toeplitz", "banded", "banded-inverse", "banded-inverse-root")
BUFFERED = ("blt", "blt-rational")
EPOCHS = mechanisms.OncePerEpoch(population=90, cohort_size=10, rounds=20)


FIELDS = {"cohort_size": 10, "clip_norm": 2.0, "noise_multiplier": 0.5}
FIELDS["rounds_per_epoch"] = 9


def matrix(**changes):
    return MatrixFactorization(**{**FIELDS, **changes})


def sgmf(**changes):
    return Sgmf(**{**FIELDS, "keep_fraction": 0.25, **changes})


def test_noise_is_the_multiplier_times_the_sensitivity():
    tree = {"matrix_method": "honaker-online"}
    # A round is in 4 nodes of the tree over 8 rounds and one, so max ||C_j|| = 2; what
    # is released of C is the least-norm solution of B x = A e_j.
    decoder = matrix(**tree).factorization.decoder()
    released = np.linalg.pinv(decoder) @ np.tril(np.ones((9, 9)))
    sensitivity = np.linalg.norm(released, axis=0).max()
    assert 1.8 < sensitivity < 1.9
    assert matrix(**tree).stddev == pytest.approx(0.5 * 2.0 * sensitivity)
    assert sgmf(**tree).stddev == pytest.approx(0.5 * 2.0 * sensitivity * 0.25)
    assert matrix(**tree).noise_divisor == 10
    assert sgmf(**tree).noise_divisor == 2.5


def test_events():
    whole = EPOCHS.first(27)
    event = matrix().dp_event(whole, 100)
    assert event.neighboring_relations == (accounting.Relation.REPLACE_SPECIAL,)
    assert event.event == dp_accounting.SelfComposedDpEvent(
        accounting.MatrixFactorizationDpEvent(0.5), 3
    )
    event = sgmf(linf_ratio=0.5).dp_event(whole, 100).event
    assert event == dp_accounting.SelfComposedDpEvent(
        accounting.SparsifiedMatrixFactorizationDpEvent(0.5, 0.25, 0.5, 128), 3
    )


def test_last_epoch_is_charged_for_its_released_rows():
    # 20 rounds are two epochs of 9, and 2 rows of a third.
    for config in (matrix(), sgmf(linf_ratio=0.5)):
        whole, begun = config.dp_event(EPOCHS, 100).event.events
        assert whole.count == 2 and begun.count == 1
        encoder = config.factorization.encoder()
        norms = [np.linalg.norm(encoder[:r, :r], axis=0).max() for r in (9, 2)]
        more = norms[0] / norms[1]
        assert more > 1.1
        changed = replace(config, noise_multiplier=0.5 * more)
        expected = changed.round_dp_event(100, 1.0).rdp([2.0, 8.0])
        np.testing.assert_allclose(begun.event.rdp([2.0, 8.0]), expected)


@pytest.mark.parametrize(
    ("rounds", "epsilon"), [(33, 2.360), (1, 1.117), (32, 1.993), (64, 2.943)]
)
def test_epsilon_of_a_prefix_sum_over_epochs_of_32(rounds, epsilon):
    config = matrix(rounds_per_epoch=32, noise_multiplier=2.0)
    who = mechanisms.OncePerEpoch(population=320, cohort_size=10, rounds=rounds)
    report = planning.privacy_report(config, who, 9, 1e-5)
    assert report.epsilon == pytest.approx(epsilon, abs=1e-3)
    assert report.accounting_method == "exact-gaussian"
    assert report.relation == "replaced_by_zeros"


@pytest.mark.parametrize("method", ["optimal", "honaker-online", "honaker-full"])
def test_longer_matrices_are_charged_for_one_epochs_rows(method, tmp_path):
    found = fact.compute(fact.prefix_sum(16), method)
    fact.save(found, tmp_path / "16.npz")
    config = matrix(matrix_file=str(tmp_path / "16.npz"))
    released = np.linalg.pinv(found.decoder()[:9]) @ np.tril(np.ones((9, 9)))
    sensitivity = np.linalg.norm(released, axis=0).max()
    assert sensitivity < 0.97 * np.linalg.norm(found.encoder(), axis=0).max()
    assert config.stddev == pytest.approx(0.5 * 2.0 * sensitivity)
    # The noise over the sensitivity is what is asked for, whatever the matrix.
    event = config.dp_event(EPOCHS.first(9), 100).event.event
    assert event == accounting.MatrixFactorizationDpEvent(0.5)


def test_sgmf_without_sparsification_is_matrix_factorization():
    dense = sgmf(keep_fraction=1.0)
    assert dense.stddev == pytest.approx(matrix().stddev)
    expected = matrix().round_dp_event(64, 1.0).rdp([2.0, 8.0])
    np.testing.assert_allclose(dense.round_dp_event(64, 1.0).rdp([2.0, 8.0]), expected)


@pytest.mark.parametrize("make", [matrix, sgmf])
@pytest.mark.parametrize(
    ("participation", "name", "value"),
    [
        (mechanisms.PoissonSampling(90, 10, 20), "participation", "poisson"),
        (mechanisms.FixedSize(90, 10, 20), "participation", "fixed"),
        (mechanisms.OncePerEpoch(100, 10, 20), "rounds_per_epoch", 9),
        (mechanisms.OncePerEpoch(90, 9, 20), "cohort_size", 10),
    ],
)
def test_other_participations_are_refused(make, participation, name, value):
    with refuses(ValueError, name, value):
        make().dp_event(participation, 100)


def test_file_must_have_the_rounds_of_an_epoch(tmp_path):
    for rounds in (8, 9, 16):
        found = fact.compute(fact.prefix_sum(rounds), "optimal")
        fact.save(found, tmp_path / f"{rounds}.npz")
    for rounds in (9, 16):
        config = matrix(matrix_file=str(tmp_path / f"{rounds}.npz"))
        config.check(EPOCHS, 100)
        assert config.factorization.rounds == rounds
    config = matrix(matrix_file=str(tmp_path / "8.npz"))
    with refuses(ValueError, "matrix_file", tmp_path / "8.npz", 9):
        config.check(EPOCHS, 100)
    with refuses(ValueError, "matrix_file", tmp_path / "none.npz"):
        matrix(matrix_file=str(tmp_path / "none.npz")).check(EPOCHS, 100)


def test_a_changed_file_is_read_again_and_its_digest_follows(tmp_path):
    path, digests = tmp_path / "it.npz", set()
    config = matrix(matrix_file=str(path))
    for method in ("identity", "honaker-online"):
        fact.save(fact.compute(fact.prefix_sum(9), method), path)
        assert config.factorization.method == method
        digests.add(config.file_digest)
    assert len(digests) == 2
    assert matrix().file_digest is None


@pytest.mark.parametrize(
    ("method", "fields", "params"),
    [
        ("band-low-rank", {"matrix_bands": 2, "matrix_rank": 1}, {"band": 2}),
        ("toeplitz", {}, {"bands": 9}),
        *((name, {"matrix_bands": 3}, {"bands": 3}) for name in BANDED),
        *((name, {"matrix_buffers": 2}, {"buffers": 2}) for name in BUFFERED),
    ],
)
def test_methods_receive_their_parameters(method, fields, params):
    found = matrix(matrix_method=method, **fields).factorization
    assert found.method == method
    for name, value in params.items():
        assert found.params.get(name) == value


def test_the_workload():
    found = matrix(matrix_momentum=0.9, matrix_schedule="cooldown").factorization
    expected = fact.Workload(9, 0.9, fact.LinearCooldown())
    assert found.workload == expected


@pytest.mark.parametrize("make", [matrix, sgmf])
def test_momentum_is_not_applied_twice(make):
    make().check_server_optimizer("sgd", 0.9)
    make().check_server_optimizer("adam", None)
    mechanisms.TEST_CONFIGS["gaussian"].check_server_optimizer("adam", 0.9)
    inside = make(matrix_momentum=0.9)
    inside.check_server_optimizer("sgd", None)
    inside.check_server_optimizer("sgd", 0.0)
    with refuses(ValueError, "server_optimizer", 0.9):
        inside.check_server_optimizer("sgd", 0.9)
    with refuses(ValueError, "server_optimizer", "adam"):
        inside.check_server_optimizer("adam", None)


def test_error_and_bits_of_the_identity_are_the_gaussian_mechanisms():
    csgm = mechanisms.L2Csgm(10, 2.0, 0.5, 0.25)
    for make, plain in ((matrix, mechanisms.Gaussian(10, 2.0, 0.5)), (sgmf, csgm)):
        found = make(matrix_method="identity")
        error = plain.mean_squared_error(100)
        assert found.mean_squared_error(100) == pytest.approx(error)
        assert found.uplink_bits(100) == plain.uplink_bits(100)


def test_calibration_does_not_need_the_matrix():
    config = matrix(matrix_file="/nowhere")
    assert replace(config, noise_multiplier=1.0).noise_multiplier == 1
    assert config.round_dp_event(10, 1.0).noise_multiplier == 0.5
