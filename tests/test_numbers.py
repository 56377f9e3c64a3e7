# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers as people have them: what is kept and used is what the check returned.

Nothing here needs TensorFlow: tests/package/test_wheel.py runs it with numpy 2 too.
"""

import dataclasses
from fractions import Fraction
from typing import Any, Optional

import numpy as np
import pytest

import dpfl
from dpfl import mechanisms

PLAN = dpfl.PoissonSampling(population=1000, cohort_size=100, rounds=10)


@dataclasses.dataclass(frozen=True)
class PlugIn(dpfl.Gaussian):
    """Another package's, that forgets all that it should do."""

    size: int = 3
    share: float = 0.5
    words: Optional[str] = None

    def __post_init__(self):
        seen = type(self.size), type(self.cohort_size)
        object.__setattr__(self, "seen", seen)

    def uplink_bits(self, dimension):
        return 32 * dimension * self.size


class TestConfigurations:
    def test_a_plug_in_that_checks_nothing(self):
        made = PlugIn(np.int8(100), np.float32(1.5), 2, size=np.uint8(100), share=1)
        assert made == PlugIn(100, 1.5, 2.0, size=100, share=1.0)
        assert made.seen == (int, int) and type(made.noise_multiplier) is float
        assert made.uplink_bits(np.int32(10**8)) == 320 * 10**9
        for wrong in ({"size": 2.0}, {"share": "1"}, {"words": 3}, {"cohort_size": 0}):
            [name] = wrong
            with pytest.raises((TypeError, ValueError), match=f"^{name} must be"):
                dataclasses.replace(made, **wrong)
        with pytest.raises(ValueError, match="^dimension must be"):
            made.uplink_bits(0)

    def test_a_field_without_a_check_is_refused(self):
        @dataclasses.dataclass(frozen=True)
        class Vague(dpfl.Gaussian):
            thing: Any = None
            name = "vague"

        for make in (lambda: dpfl.register(Vague, "x:Y"), lambda: Vague(3, 1.0, 1.0)):
            with pytest.raises(TypeError, match="^thing of Vague must have a check"):
                make()
        assert Vague not in mechanisms.MECHANISMS.values()

    def test_equal_ones_have_equal_noise(self):
        plan = dpfl.FixedSize(4, 4, 2)
        rows = [
            list(dpfl.noise(dpfl.Gaussian(*own), plan, 3, seed=5))
            for own in ((4, 1.0, 1.0), (4, 1, 1), (np.int8(4), Fraction(1), True + 0))
        ]
        np.testing.assert_array_equal(rows[0], rows[1])
        np.testing.assert_array_equal(rows[0], rows[2])

    def test_auto_stays(self):
        assert mechanisms.DistributedSkellam(3, 1.0, 1.0, bits="auto").bits == "auto"
        with pytest.raises(TypeError, match="^bits must be"):
            mechanisms.DistributedSkellam(3, 1.0, 1.0, bits="many")


def test_a_count_of_parameters():
    shapes = [(50, 30), (30,), (20, 2, 2)]
    counts = [np.prod(shape) for shape in shapes]
    for name, example in mechanisms.EXAMPLES.items():
        for own, length in ((counts, 1610), ([*counts, np.prod(())], 1611)):
            bits = example.uplink_bits(sum(own))
            assert bits == example.uplink_bits(length), name
            assert type(bits) is float
    with pytest.raises(TypeError, match="^dimension must be"):
        example.uplink_bits(26.5)


def test_an_epoch_of_many_rounds():
    """The sums of small integers of numpy are small integers, and wrap."""
    mechanism = dpfl.Gaussian(10, 1.0, 2.0)
    plan = dpfl.OncePerEpoch(3000, 10, np.uint8(200))
    assert dpfl.epsilon(mechanism, plan, 1000, 1e-5) == pytest.approx(1.993, abs=1e-3)
    ledger = dpfl.Ledger(mechanism, plan, 1000, 1e-5)
    assert ledger.record_round() == dpfl.epsilon(mechanism, plan, 1000, 1e-5)
    assert dpfl.Gaussian(10, 1.0, 2.0).uplink_bits(np.int32(10**8)) == 32e8
