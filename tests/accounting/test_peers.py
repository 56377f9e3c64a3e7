# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The numbers that other libraries' tests assert, by dpfl's accounting.

`peers.csv` has them with their source. An event is Poisson-sampled with q, or one of a
fixed share q, of these noise multipliers, so many times; `asked` is what there is `at`
an order, a delta or an epsilon, or the noise at a budget. `sign` says whether dpfl's
number is that or at most or at least that, and `reason` why it is not quite the same.
"""

import csv
from pathlib import Path

import pytest

from dpfl import accounting
from dpfl.accounting import gaussian
from tests.accounting.event_names import COMPOSED, GAUSSIAN, POISSON, SELF

with open(Path(__file__).with_name("peers.csv")) as _file:
    ROWS = [*csv.DictReader(_file)]


def _event(row, noise):
    q = float(row["q"])
    parts = [GAUSSIAN(z) for z in noise]
    if row["event"] == "fixed_size":
        parts = [gaussian.FixedSizeDpEvent(part, q) for part in parts]
    elif q < 1:
        parts = [POISSON(q, part) for part in parts]
    event = COMPOSED(parts) if parts[1:] else parts[0]
    return SELF(event, int(row["count"]))


def _found(row):
    by, asked, at = row["by"], row["asked"], [float(x) for x in row["at"].split()]
    if asked == "noise":
        return accounting.calibrate_noise_multiplier(
            lambda z: _event(row, [z]), *at, accounting_method=by
        )
    event = _event(row, [float(z) for z in row["z"].split()])
    if asked == "rdp":
        return accounting.DpflAccountant(at).compose(event).rdp[0]
    if by == "tight":
        return accounting.epsilon(event, *at, accounting_method=by).epsilon
    if by == "rdp":
        book = accounting.DpflAccountant().compose(event)
    else:
        book = accounting.loss_distribution(event, 1e-9, interval=1e-3)
        book = {"add": book._pmf_add, "remove": book._pmf_remove}.get(by, book)
    if asked == "delta":
        ask = book.get_delta if by == "rdp" else book.get_delta_for_epsilon
    else:
        ask = book.get_epsilon if by == "rdp" else book.get_epsilon_for_delta
    return ask(*at)


@pytest.mark.parametrize("row", ROWS, ids=[f"{r['test']}-{r['at']}" for r in ROWS])
def test_assertions_of_peers_hold(row):
    found, value, rtol = _found(row), float(row["value"]), float(row["rtol"])
    if row["sign"] != "<":
        assert found == value or found >= value * (1 - rtol) - 1e-8
    if row["sign"] != ">":
        assert found == value or found <= value * (1 + rtol) + 1e-8
