# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What an audit writes can be read again."""

import json

from experiments import audit_page


def test_a_file_holds_what_was_found(tmp_path):
    """The program that writes it is run by the page on audits."""
    from dpfl.audits import finding

    numbers = {"delta": 1e-3, "claimed": 2.0, "found": 1.0, "trials": 10}
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
    assert wraps["verdict"] == "FAILED" and not wraps["ratio"]
    assert json.loads(audit_page.content(rows, "audit.JSON")) == rows
