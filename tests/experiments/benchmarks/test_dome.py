# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from experiments.benchmarks import dome, harness

SMALL = dome.Settings(
    dimension=50, clients=3, repeats=2, training_dimension=2000, training_clients=2
)


def test_default_sizes():
    settings = dome.Settings()
    assert (settings.dimension, settings.clients) == (1_018_174, 50)
    assert dome.SKETCH_SIZES == (16, 64, 256)


@pytest.mark.parametrize("table", sorted(dome.ROWS))
def test_rows(tff_secure_context, monkeypatch, table):
    monkeypatch.setattr(dome, "SKETCH_SIZES", (4, 8))
    rows = dome.ROWS[table](SMALL)
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names) > 1
    for row in rows:
        assert set(row) == set(harness.KEYS)
        assert row["baseline"] in names
        assert row["seconds_median"] > 0 and row["repeats"] == 2
