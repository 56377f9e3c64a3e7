# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the documentation's loops of optax and DrJAX."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("optax", reason="runs in the environment with optax")
pytest.importorskip("drjax")

PAGE = Path(__file__).resolve().parents[2] / "docs/aggregators.md"


def test_the_loops_of_the_page_learn_privately():
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S)
    (in_optax,) = [block for block in blocks if "optax.chain" in block]
    (in_drjax,) = [block for block in blocks if "drjax.program" in block]
    program, found = {}, []
    for code in (in_optax, in_drjax):
        exec(code, program)
        found.append(np.asarray(program["model"]["weights"]))
        np.testing.assert_allclose(found[-1], [1, -2], atol=0.1)
    assert np.all(found[0] != found[1])  # of other entropy
