# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import accounting
from experiments.benchmarks import calibration


def test_rows_are_of_each_size_and_of_refusals(monkeypatch):
    settings = calibration.Settings(
        sizes=((100, 7, 4096),), refused=((100, 3, 4096),), repeats=1
    )
    asked = []

    def calibrate(mechanism, participation, length, *_):
        asked.append((mechanism.cohort_size, getattr(mechanism, "bits", None), length))
        if getattr(mechanism, "bits", None) == 3:
            raise accounting.CalibrationError("too few")

    monkeypatch.setattr(calibration.planning, "calibrate", calibrate)
    rows = calibration.calibrations(settings)
    assert [row["name"] for row in rows] == [
        "calibrate Gaussian",
        "calibrate 1e2, 7 bits",
        "calibrate 1e2, 7 bits, sampled",
        "refuse 1e2, 3 bits",
    ]
    # A warm-up and a turn, never twice with the same length.
    assert asked.count((100, 7, 4096)) == asked.count((100, 7, 4097)) == 2
    assert asked.count((100, 3, 4096)) == asked.count((100, 3, 4097)) == 1
    with pytest.raises(accounting.CalibrationError):
        calibration.calibrations(
            calibration.Settings(sizes=((100, 3, 4096),), refused=(), repeats=1)
        )
