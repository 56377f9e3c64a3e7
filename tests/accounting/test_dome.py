# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of DOME's privacy event."""

import math

import dp_accounting
import numpy as np
import pytest

from dpfl.accounting import accountant, dome

ZEROS = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
SETTING = {"clip_norm": 0.5, "population": 1000, "epochs": 3, "clients_per_round": 20}


def paper_event(epsilon, delta):
    stddev = dome.paper_local_stddev(epsilon, delta, **SETTING)
    return dome.DomeDpEvent.paper(local_stddev=stddev, **SETTING)


def test_rho_by_hand():
    # E C^2 / (2 B a^2) = 3 * 4 / (2 * 20 * 0.09)
    event = dome.DomeDpEvent(20, 0.3, 2.0, 3)
    assert event.rho == pytest.approx(12 / 3.6)
    np.testing.assert_allclose(event.rdp([1.5, 10]), [5.0, 100 / 3])


def test_is_its_epochs_gaussians_composed():
    event = dome.DomeDpEvent(20, 0.3, 2.0, 3)
    once = dp_accounting.GaussianDpEvent(math.sqrt(20) * 0.3 / 2)
    orders = [2.0, 5.5, 40.0]
    whole = accountant.DpflAccountant(orders, ZEROS).compose(event).rdp
    for same, count in ((once, 3), (event.as_gaussian(), 1)):
        found = accountant.DpflAccountant(orders).compose(same, count).rdp
        np.testing.assert_allclose(whole, found)


def test_paper_noise_by_hand():
    # sigma is the larger of the two terms; then a = sqrt(N E / B) sigma C.
    assert dome.paper_noise_scale(1.0, 1e-5) == pytest.approx(
        2 * math.sqrt(2) * math.sqrt(math.log(1e5))
    )
    assert dome.paper_noise_scale(100.0, 0.9) == pytest.approx(0.1)
    assert dome.paper_local_stddev(100.0, 0.9, **SETTING) == pytest.approx(
        math.sqrt(150) * 0.1 * 0.5
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_paper_accounting_meets_its_theorem(epsilon, delta):
    event = paper_event(epsilon, delta)
    sigma = dome.paper_noise_scale(epsilon, delta)
    assert event.rho == pytest.approx(1 / (2 * sigma**2))
    by_conversion = event.rho + 2 * math.sqrt(event.rho * math.log(1 / delta))
    assert by_conversion <= epsilon * (1 + 1e-12)
    ledger = accountant.DpflAccountant(neighboring_relation=ZEROS).compose(event)
    assert ledger.get_epsilon(delta) <= epsilon


def test_tight_charges_an_epoch_once():
    paper = paper_event(2.0, 1e-5)
    tight = dome.DomeDpEvent(20, paper.local_stddev, 0.5, 3)
    assert paper.rho == pytest.approx(1000 * tight.rho)
    # At equal privacy the tight accounting needs sqrt(N) times less noise.
    less = dome.DomeDpEvent(20, paper.local_stddev / math.sqrt(1000), 0.5, 3)
    assert less.rho == pytest.approx(paper.rho)


@pytest.mark.parametrize(
    "arguments,name",
    [
        ((0, 1.0, 1.0, 1), "clients_per_round"),
        ((1, 0.0, 1.0, 1), "local_stddev"),
        ((1, 1.0, math.nan, 1), "clip_norm"),
        ((1, 1.0, 1.0, True), "epochs"),
        ((1, 1.0, 1.0, 1, 0), "charges_per_epoch"),
    ],
)
def test_refuses_bad_fields(arguments, name):
    with pytest.raises((ValueError, TypeError), match=name + " must be"):
        dome.DomeDpEvent(*arguments)


def test_refuses_bad_targets():
    with pytest.raises(ValueError, match="epsilon must be"):
        dome.paper_noise_scale(0.0, 1e-5)
    with pytest.raises(ValueError, match="delta must be"):
        dome.paper_noise_scale(1.0, 1.0)
    with pytest.raises(ValueError, match="population must be"):
        dome.paper_local_stddev(1.0, 1e-5, **{**SETTING, "population": 0})
