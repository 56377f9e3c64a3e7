# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math

import dp_accounting
import pytest

from dpfl import accounting, mechanisms
from dpfl.mechanisms import sketch

SKETCHED = mechanisms.SketchedDdg(100, 1.0, 1.0, 14)
PROJECTED = mechanisms.ProjectAndPerturb(100, 1.0, 1.0, 10.0)
BOTH = pytest.mark.parametrize("config", [SKETCHED, PROJECTED], ids=lambda c: c.name)


@BOTH
def test_sizes(config):
    shape = config.shape(10_000)
    assert (shape.rows, shape.widths, shape.length) == (16, [63], 1008)
    paper = dataclasses.replace(config, sketch="hashes").shape(10_000)
    assert (paper.rows, paper.length) == (15, 15 * 67)
    assert paper.error == pytest.approx(9_999 / 1005)
    assert shape.error < paper.error < 2 * 10_000 / 1008


@BOTH
def test_layers(config):
    layered = dataclasses.replace(config, layers="6000,1000", layer_rates="10,1,5")
    shape = layered.shape(10_000)
    assert shape.parts == ((6000, 10.0), (1000, 1.0), (3000, 5.0))
    assert shape.widths == [38, 63, 38]
    # The second layer loses nothing, the others what they would alone.
    parts = [sketch.SketchShape("shifts", 16, (part,)) for part in shape.parts]
    assert parts[1].error == 0
    together = (6000 * parts[0].error + 3000 * parts[2].error) / 10_000
    assert shape.error == pytest.approx(together)
    assert dataclasses.replace(config, layers="10").shape(30).parts == (
        (10, 10.0),
        (20, 10.0),
    )


def test_events():
    event = SKETCHED.round_dp_event(10_000, 1.0)
    assert isinstance(event, accounting.SketchedDpEvent)
    assert event.release.dimension == event.sketch_dimension == 1008
    assert event.release.clip_norm == pytest.approx(1.1)
    central = PROJECTED.round_dp_event(10_000, 0.1)
    assert central.release == dp_accounting.PoissonSampledDpEvent(
        0.1, dp_accounting.GaussianDpEvent(1.0)
    )
    assert PROJECTED.stddev == pytest.approx(1.1)


def test_bits_and_errors():
    assert SKETCHED.uplink_bits(10_000) == 14 * 1008
    assert PROJECTED.uplink_bits(10_000) == 32 * 1008
    assert PROJECTED.downlink_bits(10_000) == 32 * 10_000 + 128
    noise = 10_000 * (1.1 / 100) ** 2
    assert PROJECTED.mean_squared_error(10_000) == pytest.approx(
        noise + PROJECTED.shape(10_000).error
    )


def test_sparse_recovery_sizes():
    config = mechanisms.SparseRecovery(100, 1.0, 1.0, 14, sparsity=5, measurements=2.0)
    assert config.vector_dimension(1000) == math.ceil(10 * math.log(1000))
    assert config.vector_dimension(20) == 20
    assert not config.has_whole_error and SKETCHED.has_whole_error


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression_rate", 0.5),
        ("compression_rate", math.nan),
        ("sketch", "none"),
        ("sketch_length", 15),
        ("sketch_length", 0),
        ("sketch_clip", 0.0),
        ("layers", "a,b"),
        ("layers", "5,0"),
        ("layers", "inf"),
        ("layers", "nan"),
        ("layer_rates", "2,3"),
        ("layer_rates", "0.5"),
    ],
)
def test_refuses_and_names_what_is_wrong(config, name, value):
    with pytest.raises(ValueError, match=f"^{name} must be .*found '?{value}"):
        dataclasses.replace(config, **{name: value})


@BOTH
def test_layers_longer_than_the_update_are_refused(config):
    layered = dataclasses.replace(config, layers="600,400")
    with pytest.raises(ValueError, match="layers must add up to less than .* 1000"):
        layered.check(1000, mechanisms.FixedSize(1000, 100, 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [("sparsity", 0), ("measurements", 0.0), ("penalty", -1.0), ("solver_steps", 0)],
)
def test_sparse_recovery_refuses(name, value):
    config = mechanisms.SparseRecovery(100, 1.0, 1.0, 14)
    with pytest.raises(ValueError, match=f"^{name} must be .*found {value}"):
        dataclasses.replace(config, **{name: value})


@BOTH
def test_more_rows_than_numbers_are_refused(config):
    longer = dataclasses.replace(config, compression_rate=10.0, sketch_length=128)
    assert longer.shape(1280).length == 128
    with pytest.raises(ValueError, match="sketch_length must be at most .* 127.9"):
        longer.shape(1279)
