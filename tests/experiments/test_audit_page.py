# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Files of audits, and that the page on audits says what its file says."""

import json
from pathlib import Path

import pytest

from experiments import audit_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "privacy" / "audit.md"


def test_a_file_holds_what_was_found(tmp_path):
    """The program that writes it is run by the page on audits."""
    from experiments.audits import finding

    numbers = {"delta": 1e-3, "claimed": 2.0, "found": 1.0, "attainable": 0.75}
    found = [
        finding.Finding("epsilon", "m", "a, b", True, method="rdp", **numbers),
        finding.Finding("wraps", "m", "s", False, claimed=0.0, found=3.0),
    ]
    rows = [one.row() for one in found]
    path = tmp_path / "audit.csv"
    path.write_text(audit_page.content(rows, str(path)), encoding="utf-8")
    epsilon, wraps = audit_page.read(path)
    assert tuple(epsilon) == audit_page.COLUMNS and set(epsilon) == set(rows[0])
    assert epsilon["setting"] == "a, b" and epsilon["method"] == "rdp"
    assert (epsilon["ratio"], epsilon["verdict"]) == ("0.5", "below")
    assert epsilon["attainable"] == "0.75"
    assert wraps["verdict"] == "FAILED" and not wraps["ratio"]
    assert json.loads(audit_page.content(rows, "audit.JSON")) == rows


class TestPage:
    """docs/privacy/audit.md has the tables of the file beside it."""

    @pytest.fixture
    def lines(self):
        return audit_page.read(PAGE.with_suffix(".csv"))

    @pytest.mark.parametrize("table", ["epsilons", "tails", "verdicts"])
    def test_has_the_tables_of_its_file(self, lines, table):
        made = getattr(audit_page, table)(lines)
        assert made.count("\n") > 5
        assert made in PAGE.read_text(encoding="utf-8")

    def test_the_file_is_of_the_whole_audit(self, lines):
        from experiments.audits import cases

        found = [line for line in lines if line["check"] == "epsilon"]
        for name, make in cases.CASES.items():
            settings = {line["setting"] for line in found if line["mechanism"] == name}
            assert {case.setting for case in make()} <= settings
        assert {line["verdict"] for line in lines} == {"below", "ok"}
