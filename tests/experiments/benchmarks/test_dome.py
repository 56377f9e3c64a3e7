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
    found = dome.ROWS[table](SMALL)
    rows = [row for row in found if "bytes" not in row]
    sizes = {row["name"]: row["bytes"] for row in found if row not in rows}
    assert bool(sizes) == (table == "dome_training")
    assert all(2**20 < size < 2**36 for size in sizes.values())
    if sizes:
        assert sizes["python: with dome"] <= sizes["python: peak with dome"]
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names) > 1
    for row in rows:
        assert set(row) == set(harness.KEYS)
        assert row["baseline"] in names
        assert row["seconds_median"] > 0 and row["repeats"] == 2
