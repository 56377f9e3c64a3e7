# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise for a budget, and the choice of bits and compression rates that are "auto".

    mechanism = calibrate(mechanism, plan, dimension, epsilon=8.0, delta=1e-6)
    resolved = resolve(mechanism, plan, dimension, epsilon=8.0, delta=1e-6)
    resolved.mechanism, resolved.sentences

`bits` "auto" is the fewest bits with which the error by noise, rounding and wraps is
within `BITS_TOLERANCE` of that of Gaussian noise at the same epsilon, both by the given
accounting method. `compression_rate` "auto" is the largest rate at which the error of n
equal updates is within `RATE_TOLERANCE` of that without a sketch at the same epsilon.
With Gaussian noise of multiplier z and a clip of sketches at s times that of updates,
their ratio is s^2 + e n^2 / (d z^2), where e, about d/m, is the error of the sketch
alone: a length m of the order of (n/z)^2, which is that of n^2 epsilon^2 in one release
(Chen et al. 2022).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable
from typing import Any, Optional, TypeVar, cast

from dpfl import accounting, checks, fields
from dpfl.mechanisms.dome import DomeDdg
from dpfl.mechanisms.gaussian import Gaussian
from dpfl.mechanisms.integer import DistributedDiscreteGaussian, IntegerMechanism
from dpfl.mechanisms.integer_grid import LEAST_BITS, MOST_BITS
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.mechanisms.participation import Participation
from dpfl.mechanisms.sketch import CountSketched
from dpfl.planning.budget import DEFAULT_DELTA, OF_A_RUN, Setting

_LOGGER = logging.getLogger(__name__)
_Mechanism = TypeVar("_Mechanism", bound=Mechanism)

# Largest errors of chosen bits and rates, over the errors that they are compared with.
BITS_TOLERANCE, RATE_TOLERANCE = 1.02, 1.5
# Steps of a search for a rate, which is rounded to three digits.
_BISECTIONS = 40
# Start of a search for the bits: a share of noise over the grid step, and half the
# modulus over the standard deviation of the sum.
_USUAL_STEPS, _USUAL_REACH = 1.2, 4.4


@dataclasses.dataclass(frozen=True)
class ResolvedMechanism:
    """A mechanism with all numbers known, and a sentence on each chosen one.

    Attributes:
      mechanism: The mechanism, without "auto".
      sentences: A sentence for each number that was chosen.
    """

    mechanism: Mechanism
    sentences: tuple[str, ...] = ()

    def logged(self) -> Mechanism:
        """The mechanism, once its sentences are in the log."""
        for sentence in self.sentences:
            _LOGGER.warning("%s: %s", self.mechanism.name, sentence)
        return self.mechanism


@checks.of_arguments(OF_A_RUN)
def calibrate(
    mechanism: _Mechanism,
    participation: Optional[Participation],
    dimension: int,
    epsilon: float,
    delta: float,
    accounting_method: str = "auto",
) -> _Mechanism:
    """The mechanism with the least noise that meets a budget over a whole run.

    Args:
      mechanism: The mechanism; its own noise multiplier is ignored, and numbers that
        are "auto" are chosen for the budget, as by `resolve`, and logged.
      participation: The choice of clients over the run; None is one release in which
        all clients take part.
      dimension: Length d of the flattened model update.
      epsilon: The budget's, greater than 0.
      delta: The budget's, in (0, 1).
      accounting_method: See `dpfl.accounting.epsilon`.

    Raises:
      dpfl.accounting.CalibrationError: If the noise that meets the budget does not suit
        the rest, as where bits are too few for it.
      dpfl.accounting.BudgetNotBindingError: If hardly any noise meets the budget.
      dpfl.accounting.UnreachableBudgetError: If no noise meets it.
      ValueError: If an argument is out of range.
    """
    setting = Setting(dimension, participation, delta, accounting_method)
    resolved = _resolved(mechanism, setting, epsilon)
    return setting.calibrated(cast(_Mechanism, resolved.logged()), epsilon)


@checks.of_arguments(OF_A_RUN)
def resolve(
    mechanism: Mechanism,
    participation: Optional[Participation],
    dimension: int,
    *,
    epsilon: Optional[float] = None,
    delta: float = DEFAULT_DELTA,
    accounting_method: str = "auto",
) -> ResolvedMechanism:
    """The mechanism with numbers in place of "auto".

    Args:
      mechanism: The mechanism, whose `bits` and `compression_rate` may be "auto".
      participation: The choice of clients over the run; None is one release in which
        all clients take part.
      dimension: Length d of the flattened model update.
      epsilon: The budget that the noise will be calibrated for; None for the
        mechanism's own noise.
      delta: The budget's, in (0, 1).
      accounting_method: See `dpfl.accounting.epsilon`.

    Raises:
      accounting.CalibrationError: If no noise meets the budget.
      ValueError: If there is no noise to compare, or no number will do.
    """
    setting = Setting(dimension, participation, delta, accounting_method)
    return _resolved(mechanism, setting, epsilon)


def _resolved(
    mechanism: Mechanism, setting: Setting, epsilon: Optional[float]
) -> ResolvedMechanism:
    if fields.AUTO not in (mechanism.compression_rate, mechanism.bits):
        return ResolvedMechanism(mechanism)
    has_noise = epsilon is not None or mechanism.noise_multiplier
    wanted = "above 0 for bits or compression_rate 'auto'"
    checks.require(has_noise, "noise_multiplier", wanted, 0)
    sentences: list[str] = []
    if mechanism.compression_rate == fields.AUTO:
        mechanism, sentence = _with_rate(mechanism, setting, epsilon)
        sentences.append(sentence)
    if mechanism.bits == fields.AUTO:
        mechanism, sentence = _with_bits(mechanism, setting, epsilon)
        sentences.append(sentence)
    return ResolvedMechanism(mechanism, tuple(sentences))


def gaussian_like(mechanism: Mechanism) -> Gaussian:
    """The Gaussian mechanism with the same cohort, clip and noise."""
    own = {field.name for field in dataclasses.fields(Gaussian)}
    own &= {field.name for field in dataclasses.fields(mechanism)}
    return Gaussian(**{name: getattr(mechanism, name) for name in own})


def _with_rate(
    mechanism: Any, setting: Setting, epsilon: Optional[float]
) -> tuple[Any, str]:
    has_sketch = isinstance(mechanism, CountSketched)
    wanted = "a number for a mechanism without a sketch"
    checks.require(has_sketch, "compression_rate", wanted, fields.AUTO)
    plain = gaussian_like(mechanism)
    if epsilon is not None:
        plain = setting.calibrated(plain, epsilon)
    d, n = setting.dimension, mechanism.cohort_size
    shares = 1.0
    if isinstance(mechanism, IntegerMechanism):
        shares = n / mechanism.noise_shares
    noise = d * shares * (plain.update_noise_multiplier / n) ** 2

    def ratio(rate: float) -> float:
        sketched = dataclasses.replace(mechanism, compression_rate=rate)
        return mechanism.sketch_clip**2 + sketched.shape(d).error / noise

    rate = _largest(ratio, d)
    compressed = dataclasses.replace(mechanism, compression_rate=rate)
    reached = compressed.shape(d).rate
    if reached < rate:
        # Widths are whole: the rate becomes the actual one, rounded up, since a little
        # less would be one more number a row.
        actual = -_three_digits(-reached)
        compressed = dataclasses.replace(compressed, compression_rate=max(1.0, actual))
    length = compressed.shape(d).length
    if compressed.compression_rate == 1:
        is_integer = isinstance(mechanism, IntegerMechanism)
        other = DistributedDiscreteGaussian if is_integer else Gaussian
        return compressed, (
            "compression_rate 1: no sketch is worth taking, since a shorter one has "
            f"more than {RATE_TOLERANCE:g} times the error of dpfl.{other.__name__}"
        )
    return compressed, (
        f"compression_rate {compressed.compression_rate:g}: a sketch of {length} "
        f"numbers has {ratio(compressed.compression_rate):.3f} times the error without "
        "one"
    )


def _largest(ratio: Callable[[float], float], dimension: int) -> float:
    """The largest rate, to three digits, whose ratio is within the tolerance; or 1."""

    def fits(rate: float) -> bool:
        try:
            return ratio(rate) <= RATE_TOLERANCE
        except ValueError:  # more rows than numbers
            return False

    low, high = 1.0, float(dimension)
    for _ in range(_BISECTIONS if fits(low) else 0):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(1.0, _three_digits(low))


def _three_digits(rate: float) -> float:
    """The next number of three digits, downwards."""
    unit = 10.0 ** (math.floor(math.log10(abs(rate))) - 2)
    return round(math.floor(rate / unit + 1e-9) * unit, 6)


def error_ratio(
    release: IntegerMechanism, setting: Setting, epsilon: Optional[float] = None
) -> float:
    """The error by noise, rounding and wraps over that of Gaussian noise.

    Both have the same epsilon: the given one, or that of the release's noise. The
    Gaussian noise is accounted for as integer noise on a very fine grid, which is
    practically the same. (Where clients are sampled, integer noise has bounds at whole
    orders alone, by which RDP may give some 2% more error than `Gaussian`, for any
    bits.)

    Args:
      release: The mechanism, whose bits are known.
      setting: The run, with the dimension of the release.
      epsilon: The epsilon of both; None for that of the release's noise.

    Returns:
      The ratio; infinity if no noise meets the budget, or the grid is too coarse.
    """
    noised = release
    if epsilon is not None:
        try:
            noised = setting.calibrated(release, epsilon)
        except accounting.CalibrationError:
            return math.inf
    try:
        noised.check_noise(setting.dimension)
    except ValueError:
        return math.inf
    if epsilon is None:
        epsilon = setting.report(noised).epsilon
    fine = dataclasses.replace(release, bits=MOST_BITS)
    error = noised.error_of_bits(setting.dimension)
    return error / _error_of_noise(fine, setting, epsilon)


@functools.lru_cache(maxsize=16)
def _error_of_noise(fine: IntegerMechanism, setting: Setting, epsilon: float) -> float:
    return setting.calibrated(fine, epsilon).error_of_noise(setting.dimension)


def _with_bits(
    mechanism: Any, setting: Setting, epsilon: Optional[float]
) -> tuple[Any, str]:
    release = mechanism
    if isinstance(mechanism, DomeDdg):
        # Refuses plans that its release would take.
        setting.event(dataclasses.replace(mechanism, bits=MOST_BITS))
        release = mechanism.release
        setting = dataclasses.replace(setting, dimension=mechanism.sketch_size)
    ratios: dict[int, float] = {}

    def fits(bits: int) -> bool:
        if bits not in ratios:
            own = dataclasses.replace(release, bits=bits)
            ratios[bits] = error_ratio(own, setting, epsilon)
        return ratios[bits] <= BITS_TOLERANCE

    bits = _first_guess(release, setting, epsilon)
    while bits < MOST_BITS and not fits(bits):
        bits += 1
    while bits > LEAST_BITS and fits(bits - 1):
        bits -= 1
    is_enough, times = fits(bits), f"{ratios[bits]:.5g} times Gaussian noise's error"
    checks.require(is_enough, "bits", f"a number: {bits} have {times}", fields.AUTO)
    return dataclasses.replace(mechanism, bits=bits), (
        f"bits {bits}: {ratios[bits]:.3f} times the error of Gaussian noise at the "
        f"same epsilon, where {BITS_TOLERANCE:g} times is allowed"
    )


def _first_guess(
    release: IntegerMechanism, setting: Setting, epsilon: Optional[float]
) -> int:
    """An estimate of the number of bits to be chosen."""
    if epsilon is not None:
        plain = setting.calibrated(gaussian_like(release), epsilon)
        release = release.with_noise_multiplier(plain.noise_multiplier)
    share = release.share_stddev
    n, m = release.cohort_size, release.rotated_dimension(setting.dimension)
    total = math.sqrt(n**2 / m + n * share**2)
    half = _USUAL_REACH * total * _USUAL_STEPS / share
    return min(max(LEAST_BITS, 1 + math.ceil(math.log2(half) - 0.5)), MOST_BITS)
