# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Remarks on an epsilon or a delta that means little, or could be smaller.

    delta_remark(0.05, population=100)  # "note that delta is above 1/100: ..."
    epsilon_remark(epsilon, mechanism, Setting(dimension, participation, delta))

A remark is one sentence, and "" where there is nothing to say.
"""

from __future__ import annotations

import dataclasses
import math

from dpfl import accounting, checks
from dpfl.mechanisms.integer_grid import MOST_BITS
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.planning.budget import Setting

# The epsilon that the remark proposes.
USUAL_EPSILON = 8.0
# Number of additional bits tried, and the part of epsilon below which its reduction is
# worth a remark.
_MORE_BITS, _WORTH_IT = 2, 0.9


def epsilon_remark(epsilon: float, mechanism: Mechanism, setting: Setting) -> str:
    """One sentence about an epsilon that protects nobody.

    It names the noise multiplier that would bring epsilon to `USUAL_EPSILON`, which is
    found by calibration: up to seconds for mechanisms with integer noise. It has no
    full stop, as it stands on a line of its own.

    Args:
      epsilon: The epsilon of the run, which may be infinite.
      mechanism: The mechanism with its noise.
      setting: The run, and the delta that epsilon is at.

    Returns:
      The sentence; "" for an epsilon of at most `accounting.LARGE_EPSILON`, and for a
      mechanism that promises nothing.
    """
    if epsilon <= accounting.LARGE_EPSILON or not mechanism.is_private:
        return ""
    size = (
        "an infinite epsilon" if math.isinf(epsilon) else f"an epsilon of {epsilon:.4g}"
    )
    remark = f"note that {size} protects nobody"
    try:
        calibrated = setting.calibrated(mechanism, USUAL_EPSILON)
        enough = _rounded_up(calibrated.noise_multiplier or 0.0)
        mechanism.with_noise_multiplier(enough).check_noise(setting.dimension)
    except (accounting.CalibrationError, ValueError):
        return (
            f"{remark}; no noise_multiplier brings it to {USUAL_EPSILON:g} with these "
            "settings"
        )
    return f"{remark}; a noise_multiplier of {enough:g} brings it to {USUAL_EPSILON:g}"


def bits_remark(epsilon: float, mechanism: Mechanism, setting: Setting) -> str:
    """One sentence about an epsilon that a bit or two more would reduce.

    Noise on a coarse grid has a larger epsilon, and little is proved about sampled
    clients where coordinates are longer than a step: a bit too few may increase epsilon
    tenfold. The remark is for noise that was given, since a calibration finds the noise
    that the bits need. It takes two more computations of epsilon. As for
    `epsilon_remark` there is no full stop.

    Args:
      epsilon: The epsilon of the run, which may be infinite.
      mechanism: The mechanism with its noise.
      setting: The run, and the delta that epsilon is at.

    Returns:
      The sentence; "" where two bits more reduce epsilon by less than a tenth, and for
      a mechanism without bits.
    """
    bits = mechanism.bits
    if bits is None:
        return ""
    enough, reached = bits, epsilon
    for more in range(bits + 1, min(bits + _MORE_BITS, MOST_BITS) + 1):
        wider = dataclasses.replace(mechanism, **{"bits": more})
        smaller = setting.report(wider).epsilon
        if smaller < _WORTH_IT * reached:
            enough, reached = more, smaller
    if enough == bits:
        return ""
    return (
        f"note that with {enough} bits in place of {bits}, and the same noise, epsilon "
        f"would be {reached:.4g}"
    )


def delta_remark(delta: float, population: int) -> str:
    """One sentence about a delta above one in N; "" for a smaller one."""
    population = checks.integer("population", population)
    if checks.delta("delta", delta) * population <= 1:
        return ""
    return (
        f"note that delta is above 1/{population}: publishing the data of a random "
        "client would satisfy it"
    )


def _rounded_up(value: float) -> float:
    """The value to four digits, not less: the printed number must suffice."""
    digits = 3 - math.floor(math.log10(value))
    scaled = math.ceil(value * 10.0**digits * (1 - 1e-12))
    return float(f"{scaled / 10.0**digits:.4g}")
