# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures of audits against closed forms and Neyman-Pearson tests on a grid."""

import numpy as np
import pytest
from scipy.stats import norm

from dpfl import accounting
from dpfl.accounting import audit_figures, k_of_t, trees
from tests.accounting.event_names import COMPOSED, GAUSSIAN, L2, POISSON, SELF
from tests.accounting.test_routes import CASES

RATES = np.array(audit_figures.FALSE_POSITIVE_RATES)


def figures_of(event, delta=1e-5, **more):
    report = accounting.epsilon(event, delta, figures=True, **more)
    assert report == accounting.epsilon(event, delta, **more)
    assert report.figures.epsilons.get(delta, np.inf) == report.epsilon
    return report.figures


def powers(figures):
    return np.array([figures.true_positive_rates[rate] for rate in RATES])


def sampled(q, z, rounds):
    event = POISSON(q, GAUSSIAN(z))
    return event if rounds == 1 else SELF(event, rounds)


def grid_laws(q, z, rounds):
    """Masses with the client and without, by falling likelihood ratio."""
    step = 0.01 if rounds == 1 else 0.03
    x = np.arange(-9, 9 + 1 / z, step)
    without = norm.pdf(x) * step
    one = (1 - q) * without + q * norm.pdf(x - 1 / z) * step
    with_it = one
    for _ in range(rounds - 1):
        without = np.multiply.outer(without, norm.pdf(x) * step).ravel()
        with_it = np.multiply.outer(with_it, one).ravel()
    order = np.argsort(with_it / without)[::-1]
    return with_it[order], without[order]


def power_of_tests(null, other, rates):
    return np.interp(rates, np.cumsum(null), np.cumsum(other))


@pytest.mark.parametrize("z, count", [(1.0, 1), (0.2, 1), (12.0, 1), (5.0, 100)])
def test_gaussians_have_closed_forms(z, count):
    found = figures_of(SELF(GAUSSIAN(z), count))
    mu = count**0.5 / z
    assert found.absent == {}
    assert found.mu == pytest.approx(mu, rel=1e-12)
    assert found.rho == pytest.approx(mu**2 / 2, rel=1e-12)
    exact = norm.cdf(norm.ppf(RATES) + mu)
    assert (exact <= powers(found)).all() and (powers(found) <= exact * 1.001).all()
    assert (1 - powers(found) >= (1 - exact) * 0.98).all()
    assert set(found.epsilons) == set(audit_figures.DELTAS)
    for delta, epsilon in found.epsilons.items():
        own = accounting.gaussian_epsilon(delta, 1 / mu)
        assert own <= epsilon <= own * 1.001 + 1e-9


@pytest.mark.parametrize(
    "q, z, rounds", [(0.5, 1.3, 1), (0.02, 0.5, 1), (0.3, 0.8, 2), (0.05, 0.4, 2)]
)
def test_sampled_gaussians_by_integration(q, z, rounds):
    """Both directions: either law may be the null."""
    delta = 1e-5
    found = figures_of(sampled(q, z, rounds), delta)
    with_it, without = grid_laws(q, z, rounds)
    directions = (without, with_it), (with_it[::-1], without[::-1])
    best = np.max([power_of_tests(*laws, RATES) for laws in directions], axis=0)
    assert (best <= powers(found) * (1 + 1e-4)).all()
    assert (powers(found) <= best * 1.01).all()
    # Nothing is above mu and delta, and a smaller mu has a smaller delta somewhere.
    rates = np.geomspace(1e-7, 1, 400)
    for laws in directions:
        ours = norm.cdf(norm.ppf(rates) + found.mu) + delta
        assert (power_of_tests(*laws, rates) <= ours * (1 + 1e-3)).all()

    def hockey_stick(epsilon, of, over):
        return np.maximum(of - np.exp(epsilon) * over, 0).sum()

    epsilons = np.linspace(0, found.epsilons[delta], 12)
    truth = [
        max(hockey_stick(e, with_it, without), hockey_stick(e, without, with_it))
        for e in epsilons
    ]
    above, below = (
        [accounting.gaussian_delta(e, 1 / (found.mu * part)) for e in epsilons]
        for part in (1.002, 0.99)
    )
    assert (np.array(truth) <= above).all() and (np.array(truth) > below).any()
    for other, epsilon in found.epsilons.items():
        if other > 1e-8:
            own = max(
                hockey_stick(epsilon, with_it, without),
                hockey_stick(epsilon, without, with_it),
            )
            assert other * 0.98 <= own <= other * 1.001 or epsilon == 0


def test_mu_of_a_chord_is_that_of_its_tangent():
    x = np.linspace(0, 2, 50)
    mu = norm.ppf(0.55) - norm.ppf(0.05)
    found = audit_figures._mu(x, 0.55 - 0.05 * np.exp(x), 2.0)
    assert found == pytest.approx(mu, rel=1e-9)
    above = [accounting.gaussian_delta(e, 1 / mu) for e in x]
    assert 0 <= min(above - (0.55 - 0.05 * np.exp(x))) < 1e-3


@pytest.mark.parametrize("name", ["masked", "laplace"])
def test_renyi_deltas_are_the_accountants(name):
    book = accounting.DpflAccountant().compose(CASES[name][0])
    epsilons = np.array([0.0, 0.5, 1.0, 5.0, 2000.0])
    expected = [book.get_delta(epsilon) for epsilon in epsilons]
    np.testing.assert_array_equal(book.profile(epsilons), expected)


@pytest.mark.parametrize(
    "name, more, absent",
    [
        ("plain", {}, {}),
        ("plain", {"accounting_method": "rdp"}, {"mu": "renyi"}),
        ("once", {}, {"rho": "sampled"}),
        ("rounds", {}, {"rho": "sampled"}),
        ("silent", {}, {"mu": "infinite", "rho": "infinite"}),
        ("masked", {}, {"rho": "approximate"}),
        ("masked", {"accounting_method": "rdp"}, {"mu": "renyi", "rho": "orders"}),
        ("secret", {}, {"mu": "draws", "rho": "draws"}),
        ("laplace", {}, {"mu": "renyi", "rho": "orders"}),
    ],
)
def test_absent_figures_have_a_word(name, more, absent):
    report = accounting.epsilon(CASES[name][0], 1e-3, figures=True, **more)
    found = report.figures
    assert found.absent == absent
    assert {key for key in ("mu", "rho") if getattr(found, key) is None} == set(absent)
    # By the epsilon alone.
    e, rates = report.epsilon, powers(found)
    assert (rates <= np.minimum(np.exp(e) * RATES + 1e-3, 1) + 1e-9).all()
    assert (RATES < rates).all() and (rates < 1).all() == (name != "silent")


def test_renyi_and_stopped_bounds_hold_the_truth():
    exact = figures_of(SELF(GAUSSIAN(2.0), 5))
    by_renyi = figures_of(SELF(GAUSSIAN(2.0), 5), accounting_method="rdp")
    assert (powers(by_renyi) > powers(exact)).all()
    assert all(by_renyi.epsilons[d] > e for d, e in exact.epsilons.items())
    assert by_renyi.rho == exact.rho
    # A mask of one coordinate is a sampled Gaussian.
    masked = L2(2.0, 0.3, 1.0, 1)
    truth = figures_of(sampled(0.3, 0.6, 1))
    extreme = figures_of(masked)
    assert (powers(extreme) >= powers(truth) * (1 - 1e-9)).all()
    assert all(e >= truth.epsilons[d] * (1 - 1e-6) for d, e in extreme.epsilons.items())
    # Extreme vectors are refused beside other releases.
    masked = COMPOSED([masked, GAUSSIAN(1e5)])
    stopped = figures_of(masked, accounting_method="tight")
    assert (powers(stopped) > powers(truth)).all()
    assert stopped.mu > truth.mu
    assert min(stopped.epsilons) == 1e-6
    assert all(e > truth.epsilons[d] for d, e in stopped.epsilons.items())


def test_draws_bound_one_epsilon_and_the_revealed_rounds_all():
    event = CASES["secret"][0]
    report = accounting.epsilon(event, 1e-3, figures=True)
    assert report.accounting_method == "monte-carlo"
    [(run, _)] = trees.releases(report.event)
    mu, e = run.longest() ** 0.5, report.epsilon
    curve = report.figures.epsilons
    for delta in (1e-4, 1e-8):
        revealed = accounting.gaussian_epsilon(delta, 1 / mu)
        assert revealed <= curve[delta] <= revealed * 1.001
    assert e < accounting.gaussian_epsilon(1e-3, 1 / mu)
    expected = np.minimum(norm.cdf(norm.ppf(RATES) + mu), np.exp(e) * RATES + 1e-3)
    np.testing.assert_allclose(powers(report.figures), expected, rtol=1e-4)


def test_slots_bound_what_draws_of_k_of_t_do_not():
    event = k_of_t.KOfTDpEvent(1.0, rounds=16, k=4, of_rounds=16)
    report = accounting.epsilon(event, 1e-3, figures=True)
    assert report.accounting_method == "monte-carlo"
    assert report.figures.absent == {"mu": "draws", "rho": "draws"}
    slots = accounting.epsilon(event.as_composition(), 1e-5).epsilon
    assert slots <= report.figures.epsilons[1e-5] <= slots * 1.001
    assert report.epsilon < report.figures.epsilons[1e-4] < slots
