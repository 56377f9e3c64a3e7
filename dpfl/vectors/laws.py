# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Probabilities, to 100 digits, of the integers that serve as noise."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction
from typing import NamedTuple

# Digits of the probabilities, and of all that is computed from them.
PRECISION = 120
# Integers of probability below about exp(-90) of the largest are left out.
_LOG_TAIL = 90
# Where the recurrence of the Skellam law begins its probabilities are so much smaller
# again that what it begins with is forgotten to 1e-120 within the law.
_LOG_BEGINNING = _LOG_TAIL + 140


class Law(NamedTuple):
    """A law on the integers that is symmetric about zero.

    Attributes:
      probabilities: Of -R, ..., R.
      beyond: The probability of all other integers, from above.
    """

    probabilities: list[decimal.Decimal]
    beyond: decimal.Decimal

    @property
    def radius(self) -> int:
        """R."""
        return len(self.probabilities) // 2


def discrete_gaussian(variance: Fraction) -> Law:
    """Returns N_Z(0, s^2), of weight exp(-k^2 / (2 s^2)) at k.

    The ratio of neighbours is multiplied by exp(-1/variance) from each to the next; the
    relative errors of 1e-120 an operation add up to less than R^2 of them.

    Args:
      variance: s^2.
    """
    radius = math.ceil(math.sqrt(2 * _LOG_TAIL * variance))
    with decimal.localcontext() as context:
        context.prec = PRECISION
        inverse = decimal.Decimal(variance.denominator) / variance.numerator
        ratio, factor = (-inverse / 2).exp(), (-inverse).exp()
        terms = [decimal.Decimal(1)]
        for _ in range(radius):
            terms.append(terms[-1] * ratio)
            ratio *= factor
        return _normalized(terms, ratio)


def skellam(variance: Fraction) -> Law:
    """Returns exp(-mu) I_|k|(mu) at k, of the difference of two Poisson variables.

    The ratios I_k / I_(k-1) = 1 / (2 k / mu + I_(k+1) / I_k) are computed downwards:
    all terms are positive, and an error shrinks by the square of each ratio.

    Args:
      variance: mu.
    """
    begin = math.ceil(math.sqrt(2 * _LOG_BEGINNING * variance)) + 2 * _LOG_BEGINNING
    with decimal.localcontext() as context:
        context.prec = PRECISION
        mu = decimal.Decimal(variance.numerator) / variance.denominator
        ratios = [decimal.Decimal(0)]
        for k in range(begin, 0, -1):
            ratios.append(1 / (2 * k / mu + ratios[-1]))
        terms, least = [decimal.Decimal(1)], decimal.Decimal(-_LOG_TAIL).exp()
        while terms[-1] > least or len(terms) < 2:
            terms.append(terms[-1] * ratios.pop())
        return _normalized(terms, ratios[-1])


def of_pairs(law: Law) -> list[decimal.Decimal]:
    """Returns the probabilities of two independent draws, row after row."""
    with decimal.localcontext() as context:
        context.prec = PRECISION
        return [p * q for p in law.probabilities for q in law.probabilities]


def _normalized(terms: list[decimal.Decimal], ratio: decimal.Decimal) -> Law:
    """Returns the law of weights at 0, ..., R, and of 0 at R + 1 over that at R.

    Beyond, weights fall faster than by that ratio.
    """
    total = 2 * sum(terms) - 1
    half = [term / total for term in terms]
    beyond = 2 * half[-1] * ratio / (1 - ratio)
    return Law(half[:0:-1] + half, beyond)
