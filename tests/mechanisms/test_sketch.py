# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
from dataclasses import replace

import dp_accounting
import pytest

from dpfl import accounting, mechanisms
from dpfl.mechanisms.sketch import SketchShape
from experiments.papers.secure_sums import HashedDdg
from tests.refusals import refuses

SKETCHED = mechanisms.SketchedDdg(100, 1.0, 1.0, 14, compression_rate=10.0)
PROJECTED = mechanisms.ProjectAndPerturb(100, 1.0, 1.0, 10.0)
BOTH = pytest.mark.parametrize("config", [SKETCHED, PROJECTED], ids=lambda c: c.name)


@BOTH
def test_sizes(config):
    shape = config.shape(10_000)
    assert (shape.rows, shape.widths, shape.length) == (16, [63], 1008)
    paper = HashedDdg(1, 1.0, 1.0, 14, compression_rate=10.0).shape(10_000)
    assert (paper.rows, paper.length) == (15, 15 * 67)
    assert paper.error == pytest.approx(9_999 / 1005)
    assert shape.error < paper.error < 2 * 10_000 / 1008


@BOTH
def test_layers(config):
    layered = replace(config, layers="6000,1000", layer_rates="10,1,5")
    shape = layered.shape(10_000)
    assert shape.parts == ((6000, 10.0), (1000, 1.0), (3000, 5.0))
    assert shape.widths == [38, 63, 38]
    # The second layer loses nothing, the others what they would alone.
    parts = [SketchShape(16, (part,)) for part in shape.parts]
    assert parts[1].error == 0
    together = (6000 * parts[0].error + 3000 * parts[2].error) / 10_000
    assert shape.error == pytest.approx(together)
    short = replace(config, layers="10").shape(30)
    assert short.parts == ((10, 10.0), (20, 10.0))


def test_events():
    event = SKETCHED.round_dp_event(10_000, 1.0)
    assert isinstance(event, accounting.DistributedDiscreteGaussianDpEvent)
    # Rotation pads the 1008 numbers of the sketch.
    assert event.dimension == SKETCHED.rotated_dimension(10_000) >= 1008
    assert event.clip_norm == pytest.approx(1.1)
    central = PROJECTED.round_dp_event(10_000, 0.1)
    gaussian = dp_accounting.GaussianDpEvent(1.0)
    assert central.event == dp_accounting.PoissonSampledDpEvent(0.1, gaussian)
    assert PROJECTED.stddev == pytest.approx(1.1)


def test_clip_count_beside_a_sketch_has_tight_accounting():
    plan = mechanisms.PoissonSampling(1000, 100, 20)
    both = replace(SKETCHED, noise_source="helpers", adaptive_clipping=True)
    alone = replace(both, adaptive_clipping=False)
    events = [config.dp_event(plan, 10_000) for config in (both, alone)]
    found, least = (
        accounting.epsilon(e, 1e-5, accounting_method="tight") for e in events
    )
    by_rdp = accounting.epsilon(events[0], 1e-5, accounting_method="rdp")
    assert least.epsilon < found.epsilon < by_rdp.epsilon


def test_bits_and_errors():
    assert SKETCHED.uplink_bits(10_000) == 14 * 1008
    assert PROJECTED.uplink_bits(10_000) == 32 * 1008
    assert PROJECTED.downlink_bits(10_000) == 32 * 10_000 + 128
    error = 10_000 * (1.1 / 100) ** 2 + PROJECTED.shape(10_000).error
    assert PROJECTED.mean_squared_error(10_000) == pytest.approx(error)


def test_sparse_recovery_sizes():
    config = mechanisms.SparseRecovery(100, 1.0, 1.0, 14, sparsity=5, measurements=2.0)
    assert config.vector_dimension(1000) == math.ceil(10 * math.log(1000))
    assert config.vector_dimension(20) == 20
    assert not config.has_whole_error and SKETCHED.has_whole_error


def test_matrices_beyond_memory_are_refused():
    config = mechanisms.SparseRecovery(100, 1.0, 1.0, 14, noise_source="helpers")
    chosen = mechanisms.PoissonSampling(10_000, 100, 10)
    # Of m = ceil(30 ln d) rows: 403 by 666,000 numbers and 403 by 667,000.
    config.check(chosen, 666_000)
    with refuses(ValueError, "sparsity", "measurements", 268801000):
        config.check(chosen, 667_000)
    with refuses(ValueError, "sparsity", "measurements", 268435456, 1000000):
        config.check(chosen, 1_000_000)


@BOTH
def test_layers_longer_than_the_update_are_refused(config):
    layered = replace(config, layers="600,400")
    with refuses(ValueError, "layers", "600,400"):
        layered.check(mechanisms.FixedSize(1000, 100, 1), 1000)


@BOTH
@pytest.mark.parametrize(
    ("dimension", "rate", "reached", "shown"),
    # The widths are 1 of 0.41, 2 of 1.35, and 7 of 6.25 numbers.
    [
        (650, 100.0, 650 / 16, 40.65),
        (650, 30.0, 650 / 32, 20.32),
        (1000, 10.0, 1000 / 112, 8.933),
    ],
)
def test_unreachable_rates_are_refused_with_a_reachable_one(
    config, dimension, rate, reached, shown
):
    asked = replace(config, compression_rate=rate)
    participation = mechanisms.FixedSize(1000, 100, 1)
    with refuses(ValueError, "compression_rate", rate, shown):
        asked.check(participation, dimension)
    mended = replace(config, compression_rate=shown)
    mended.check(participation, dimension)
    assert mended.shape(dimension).rate == pytest.approx(reached)


@BOTH
def test_sketches_longer_than_the_update_have_no_shape(config):
    longer = replace(config, sketch_length=128)
    assert longer.shape(1280).length == longer.shape(1152).length == 128
    with refuses(ValueError, "compression_rate", 10.0, 128):
        longer.shape(1151)


@BOTH
def test_rates_within_a_tenth_are_accepted(config):
    participation = mechanisms.FixedSize(1000, 100, 1)
    # Nine numbers a row, of 8.1 and of 8.09.
    config.check(participation, 1296)
    with refuses(ValueError, "compression_rate", 10.0, 16):
        config.check(participation, 1295)


@BOTH
def test_layers_too_short_for_their_rates_are_refused(config):
    layered = replace(config, layers="50,50", layer_rates="50,50,2")
    with refuses(ValueError, "layer_rates", "50,50,2"):
        layered.check(mechanisms.FixedSize(1000, 100, 1), 200)
    layered.check(mechanisms.FixedSize(1000, 100, 1), 10_000)
