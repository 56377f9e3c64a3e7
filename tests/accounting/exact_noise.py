# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Summed integer noise and its divergences in hundreds of bits, by brute force."""

import math

import mpmath

_BITS = 1400
_DIGITS = 50


def _times(first, second, slot):
    """Product of polynomials with coefficients below 2^_BITS, as one big product."""
    size = slot // 8

    def packed(coefficients):
        parts = (c.to_bytes(size, "little") for c in coefficients)
        return int.from_bytes(b"".join(parts), "little")

    count = len(first) + len(second) - 1
    raw = (packed(first) * packed(second)).to_bytes(size * (count + 1), "little")
    parts = (raw[i * size : (i + 1) * size] for i in range(count))
    return [int.from_bytes(part, "little") >> _BITS for part in parts]


def _power(share, count, reach):
    """The `count`-fold convolution of a share, centred, kept to |k| <= reach."""
    slot = 8 * math.ceil((2 * _BITS + 24) / 8)

    def cut(values):
        extra = (len(values) - 1) // 2 - reach
        return values[extra : len(values) - extra] if extra > 0 else values

    result, base = [1 << _BITS], share
    while count:
        if count & 1:
            result = cut(_times(result, base, slot))
        count >>= 1
        if count:
            base = cut(_times(base, base, slot))
    return result


def discrete_gaussian(count, stddev, reach):
    """Probabilities of the sum at -reach..reach, as mpmath numbers."""
    with mpmath.workdps(int(_BITS * 0.302) + 20):
        width = 2 * mpmath.mpf(stddev) ** 2
        last = math.ceil(math.sqrt(float(width) * _BITS * math.log(2))) + 2
        one = [
            mpmath.exp(-(mpmath.mpf(k) ** 2) / width) for k in range(-last, last + 1)
        ]
        norm = mpmath.fsum(one)
        share = [int(mpmath.floor(p / norm * mpmath.mpf(2) ** _BITS)) for p in one]
        found = _power(share, count, reach)
        side = reach - (len(found) - 1) // 2
        found = [0] * side + found + [0] * side
        return [mpmath.mpf(v) / mpmath.mpf(2) ** _BITS for v in found]


def skellam(variance, reach):
    """The same for Skellam noise."""
    with mpmath.workdps(_DIGITS):
        mu = mpmath.mpf(variance)
        half = [mpmath.besseli(k, mu) * mpmath.exp(-mu) for k in range(reach + 1)]
        return half[:0:-1] + half


def log_moments(pmf, order, coordinate):
    """log E_f[(mix/f)^a] and log E_f[(mix/f)^(1-a)], by direct summation."""
    with mpmath.workdps(_DIGITS):
        a, x = mpmath.mpf(order), mpmath.mpf(coordinate)
        k = int(mpmath.floor(x))
        u = x - k
        forward, backward = [], []
        for y in range(k + 1, len(pmf)):
            f, mix = pmf[y], (1 - u) * pmf[y - k] + u * pmf[y - k - 1]
            if f and mix:
                v = mix / f
                forward.append(f * (v**a - 1 - a * (v - 1)))
                backward.append(f * (v ** (1 - a) - 1 + (a - 1) * (v - 1)))
        sums = mpmath.fsum(forward), mpmath.fsum(backward)
        return tuple(float(mpmath.log1p(total)) for total in sums)
