# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every route to an epsilon: its epsilon, why it is taken or not, and its pages."""

import re
from pathlib import Path

import pytest

from dpfl import accounting, mechanisms
from dpfl.accounting import events, routes, trees
from experiments import privacy_explained
from tests.accounting.event_names import GAUSSIAN, L2, LAPLACE, POISSON, SELF

PAGES = Path(__file__).resolve().parents[2] / "docs/privacy"
SAMPLED = POISSON(0.5, GAUSSIAN(1.3))
CSGM = L2(3.3513, 0.01, 0.041227, 2**14, 0.5)
SECRET = mechanisms.Gaussian(10, 1.0, 1.3).dp_event(
    mechanisms.BallsInBins(100, 10, 25), 100
)
# The event, the routes that have an epsilon, and the one that is taken.
CASES = {
    "plain": (SELF(GAUSSIAN(5.0), 3), "exact-gaussian rdp", "exact-gaussian"),
    "once": (SAMPLED, "exact-gaussian pld unsampled-gaussian rdp", "exact-gaussian"),
    "rounds": (SELF(SAMPLED, 60), "pld unsampled-gaussian rdp", "pld"),
    "silent": (GAUSSIAN(0.0), "exact-gaussian rdp", "exact-gaussian"),
    "masked": (
        SELF(CSGM, 60),
        "extreme-pld stopped-pld stopped-unsampled-gaussian rdp",
        "extreme-pld",
    ),
    "masked, everybody": (
        SELF(L2(5.0, 0.01, 0.041227, 2**14), 30),
        "extreme-pld stopped-exact-gaussian rdp",
        "extreme-pld",
    ),
    "secret": (SECRET, "monte-carlo exact-gaussian rdp", "monte-carlo"),
    "laplace": (LAPLACE(1.0), "rdp", "rdp"),
}


def explained(event, **more):
    report = accounting.epsilon(event, 1e-3, every_route=True, **more)
    assert len(report.candidates) == len(routes.ROUTES)
    return report, {each.route: each for each in report.candidates}


@pytest.mark.parametrize("name", CASES)
def test_every_route_has_an_epsilon_or_a_reason(name):
    event, known, best = CASES[name]
    report, found = explained(event)
    assert [r for r in found if found[r].epsilon is not None] == known.split()
    assert [r for r in found if found[r].is_taken] == [best]
    assert report.accounting_method == best and report.epsilon == found[best].epsilon
    assert all(found[best].epsilon <= found[r].epsilon for r in known.split())
    assert all(each.reason for each in report.candidates)


@pytest.mark.parametrize("name", CASES)
def test_explaining_is_optional_and_changes_no_epsilon(name):
    report, found = explained(CASES[name][0])
    plain = accounting.epsilon(CASES[name][0], 1e-3)
    assert plain == report and plain.event == report.event
    assert accounting.epsilon(plain.event, 1e-3) == plain
    for each in plain.candidates:
        same = found[each.route]
        assert (each.epsilon, each.reason) == (same.epsilon, same.reason)
    by_rdp = accounting.epsilon(CASES[name][0], 1e-3, accounting_method="rdp")
    assert by_rdp.epsilon == found["rdp"].epsilon


def test_routes_outside_the_method_are_shown_but_not_taken():
    report, found = explained(SELF(SAMPLED, 60), accounting_method="rdp")
    assert found["pld"].epsilon < report.epsilon == found["rdp"].epsilon
    assert "'rdp'" in found["pld"].reason and not found["pld"].is_taken


def test_relations_known_by_rdp_alone_have_one_route():
    replaced = events.Relation.REPLACE_ONE
    report, found = explained(GAUSSIAN(5.0), relation=replaced)
    assert report.accounting_method == "rdp" and report.relation == "replace_one"
    assert "replace_one" in found["exact-gaussian"].reason


def all_events(kind):
    for each in kind.__subclasses__():
        if each.__module__.startswith("dpfl."):
            yield each
            yield from all_events(each)


def anchors(text):
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}


def test_theorem_pages_exist():
    of_routes = privacy_explained.ROUTE_PAGES
    assert [*of_routes] == [route.name for route in routes.ROUTES]
    every = {page for pages in of_routes.values() for page in pages}
    for event in {*all_events(events.RdpDpEvent)}:
        own = {*event.pages, *event.sampling_pages, *event.dominating_pages}
        assert event.pages or event.__subclasses__(), event
        every |= own
    for config in mechanisms.MECHANISMS.values():
        if config.is_private and config.__module__.startswith("dpfl."):
            assert config.privacy_page, config
            every.add(config.privacy_page)
    for page in every:
        name, _, section = page.partition("#")
        text = (PAGES / name).read_text(encoding="utf-8")
        assert not section or section in anchors(text), page


@pytest.mark.parametrize(
    ("name", "route", "pages"),
    [
        ("masked", "rdp", "sparsified_gaussian client_sampling"),
        ("masked", "stopped-pld", "gaussian_domination gaussian"),
        ("masked", "extreme-pld", "extreme_vector sparsified_gaussian client_sampling"),
        ("rounds", "pld", "gaussian"),
        ("secret", "monte-carlo", "balls_in_bins"),
        ("laplace", "rdp", ""),
    ],
)
def test_pages_name_the_route_and_the_event(name, route, pages):
    report, candidates = explained(CASES[name][0])
    found = privacy_explained.pages_of(candidates[route], report.event)
    assert [page.partition(".md")[0] for page in found] == pages.split()


def test_pages_of_slots_include_the_releases_page():
    plan = mechanisms.RandomAllocation(100, 10, 8)
    event = mechanisms.L2Csgm(10, 1.0, 2.0, 0.1).dp_event(plan, 100)
    assert [*privacy_explained.pages(trees.normalised(event))] == [
        *("random_allocation.md", "sparsified_gaussian.md")
    ]
