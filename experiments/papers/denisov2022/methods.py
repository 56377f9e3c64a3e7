# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The four mechanisms of Table 1, by their names in `dpfl.factorization.METHODS`."""

from __future__ import annotations

MOMENTUM = 0.9
TITLES = {
    "honaker-online": "Honaker online (DP-FTRL)",
    "honaker-full": "Honaker full",
    "optimal-prefix-sum": "optimal prefix sum",
    "optimal": "optimal",
}


def workload_title(momentum: float) -> str:
    """Returns what a panel of one momentum is called."""
    return rf"momentum $\beta={momentum:g}$" if momentum else "prefix sum"
