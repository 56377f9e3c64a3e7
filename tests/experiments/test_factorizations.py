# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import factorization as mf
from experiments import factorizations


def test_band_and_rank_match_the_paper():
    pairs = {256: (4, 4), 512: (5, 4), 1024: (5, 5), 2048: (6, 5), 4096: (6, 6)}
    for rounds, pair in pairs.items():
        assert factorizations.band_and_rank(rounds) == pair
    assert factorizations.band_and_rank(1) == (1, 0)


def test_several_participations_reach_the_toeplitz_encoders():
    found = factorizations.contenders(
        mf.Workload(16, 0.9), participations=2, separation=8, bands=2, rank=1
    )
    of_methods = {each.factorization.method: each.factorization for each in found}
    for method in ("toeplitz", "blt"):
        params = dict(of_methods[method].params)
        assert params["participations"] == 2 and params["separation"] == 8
    last = found[-1].factorization
    assert last.method == "band-low-rank"
    assert dict(last.params)["band"] == 2 and dict(last.params)["rank"] == 1
    # Twice in 16 rounds: the squared sensitivity of independent noise is 2.
    row = found[0].row(mf.MinSeparation(8, 2))
    assert row["sensitivity"] == pytest.approx(2**0.5)
    assert row["gap"] is None
