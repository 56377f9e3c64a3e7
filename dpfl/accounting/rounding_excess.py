# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""h(x)/x^2 for a coordinate of at most one grid step; see `rounding`.

1 + h(x) = E_f[(1 - x + x r)^a], r being the likelihood ratio of a unit shift. By
moments it is a polynomial in x, exact at whole orders and a bound at others, where it
is summed directly if the polynomial's omitted terms matter.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from dpfl.accounting import log_space, ratio_moments

# Orders above which the terms that a fractional order omits are not looked at.
_MOST_CORRECTED = 16.0
# Floats of one block of terms.
_BLOCK = 1 << 20


def _log_binomials(orders: np.ndarray, size: int) -> np.ndarray:
    """Returns log |C(a, l)|, l = 0 .. size - 1, and -inf where it is 0; [m, size]."""
    a, l = orders[:, None], np.arange(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = special.gammaln(a + 1) - special.gammaln(l + 1)
        # |Gamma(a - l + 1)|, which is infinite where C(a, l) is 0.
        return np.where(
            (a == np.floor(a)) & (l > a), -np.inf, logs - special.gammaln(a - l + 1)
        )


class Excess:
    """Bounds from above on h(x)/x^2 at given orders, by moments."""

    def __init__(self, moments: ratio_moments.RatioMoments, orders: np.ndarray):
        if not moments.paired:
            # 1 + h rises in the order; these would omit terms of unknown sign.
            long = np.ceil(orders) + 2 >= moments.log_moments.size
            orders = np.where(long, np.ceil(orders), orders)
        self._moments = moments
        self._orders = orders
        self._ceiling = np.ceil(orders).astype(np.int64)
        self._size = moments.log_moments.size
        binomials = _log_binomials(orders, self._size)
        self._logs = binomials + moments.log_moments
        self._tail = moments.log_tail(orders)
        self._rest = moments.log_rest_of(self._ceiling)

    def log_at(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns log bounds on h(x)/x^2.

        Args:
          x: In [0, 1], one row for each order asked for; shape [m, p].
          rows: Which orders these are; shape [m].
        """
        log_x = np.log(np.maximum(x, 1e-200))
        result = np.empty(x.shape)
        ceiling = self._ceiling[rows]
        edges = [0, 8, 16, 32, 64, 128, 256, 512, 1 << 30]
        for low, high in zip(edges, edges[1:]):
            part = np.nonzero((ceiling > low) & (ceiling <= high))[0]
            if part.size:
                result[part] = self._polynomial(rows[part], log_x[part])
        rest = self._rest[rows, None] + (self._size - 2) * log_x
        result = np.logaddexp(result, rest)
        self._add_omitted_terms(result, log_x, rows)
        return np.logaddexp(result, self._tail[rows, None])

    def _polynomial(self, rows: np.ndarray, log_x: np.ndarray) -> np.ndarray:
        size = min(self._size, int(self._ceiling[rows].max()) + 1)
        l = np.arange(2, size)
        kept = l <= self._ceiling[rows, None]
        logs = np.where(kept, self._logs[rows, 2:size], -np.inf)
        result = np.empty(log_x.shape)
        step = max(1, _BLOCK // (log_x.shape[1] * l.size))
        for start in range(0, rows.size, step):
            part = slice(start, start + step)
            terms = logs[part, None, :] + (l - 2) * log_x[part, :, None]
            result[part] = log_space.log_sum_exp(terms)
        return result

    def _omitted(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns which rows omit terms, the first such l, and if two more may count.

        At a fractional order the first term left out is negative, the next positive.
        """
        fractional = self._orders[rows] != self._ceiling[rows]
        first = self._ceiling[rows] + 1
        index = np.nonzero(fractional & (first + 1 < self._size))[0]
        first, a = first[index], self._orders[rows[index]]
        known = (first % 2 == 0) | (self._moments.paired & (a >= (first + 3) / 2))
        return index, first, known

    def _add_omitted_terms(
        self, result: np.ndarray, log_x: np.ndarray, rows: np.ndarray
    ) -> None:
        """Adds the next two terms, in place, where the sum is still a bound.

        Moments that are not those of a ratio may lack a sign at odd l; what they can
        add is at most |C(a,l)| (l/a) x^l sqrt(m_(l-1) m_(l+1)).
        """
        index, first, known = self._omitted(rows)
        if not index.size:
            return
        at, log_x = rows[index], log_x[index]
        negative = self._logs[at, first][:, None] + (first[:, None] - 2) * log_x
        positive = self._logs[at, first + 1][:, None] + (first[:, None] - 1) * log_x
        change = np.exp(np.minimum(positive - negative, 1.0)) - 1
        change *= np.exp(np.minimum(negative - result[index], 0.0))
        known &= ~self.positive(at)
        change = np.where(known[:, None], np.clip(change, -0.5, 0.0), 0.0)
        result[index] += np.log1p(change)
        if not self._moments.paired:
            moments = self._moments.log_moments
            slack = (moments[first - 1] + moments[first + 1]) / 2 - moments[first]
            slack += np.log(first / self._orders[at])
            slack = np.where(first % 2 == 1, slack, -np.inf)
            result[index] = np.logaddexp(result[index], slack[:, None] + negative)

    def positive(self, rows: np.ndarray) -> np.ndarray:
        """Returns whether h is bounded by a polynomial without negative terms; [m]."""
        whole = self._orders[rows] == self._ceiling[rows]
        return whole | (self._orders[rows] > _MOST_CORRECTED)

    def doubt(self, x: float) -> np.ndarray:
        """Returns about how far above the truth the bounds are at x, relative; [m]."""
        rows = np.arange(self._orders.size)
        index, first, known = self._omitted(rows)
        at = self.log_at(np.full((rows.size, 1), x), rows)[index, 0]
        omitted = self._logs[index, first] + (first - 2) * math.log(x) - at
        after = self._logs[index, first + 1] + (first - 1) * math.log(x) - at
        result = np.zeros(rows.size)
        # Under hardly any noise the doubt may be beyond all floats.
        with np.errstate(over="ignore"):
            result[index] = np.exp(np.where(known, np.minimum(omitted, after), omitted))
        return result


class DirectExcess:
    """The same at fractional orders by direct sums over a table; see `Excess`."""

    def __init__(self, moments: ratio_moments.RatioMoments, orders: np.ndarray):
        self._log_pmf, self._log_ratio = moments.table()
        self._orders = orders
        self._tail = moments.log_tail(orders)
        self._limit = np.log(orders * (orders - 1) / 2) + moments.log_moments[2]

    def positive(self, rows: np.ndarray) -> np.ndarray:
        """See `Excess`."""
        return np.zeros(rows.size, dtype=bool)

    def log_at(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `Excess`."""
        ratio = self._log_ratio
        log_rise = ratio + np.log(-np.expm1(-ratio))  # log(r - 1)
        log_fall = np.log(-np.expm1(-ratio))  # log(1 - 1/r)
        result = np.empty(x.shape)
        for i, row in enumerate(rows.tolist()):
            order = float(self._orders[row])
            log_x = np.log(np.maximum(x[i], 1e-9))[:, None]
            pairs = np.logaddexp(
                _log_convex(order, log_x + log_rise, 1.0),
                _log_convex(order, np.minimum(log_x + log_fall, 0.0), -1.0) + ratio,
            )
            sums = log_space.log_sum_exp(self._log_pmf + pairs) - 2 * log_x[:, 0]
            sums = np.logaddexp(sums, self._tail[row])
            result[i] = np.where(x[i] < 1e-9, self._limit[row], sums)
        return result + 1e-11


def _log_convex(order: float, log_size: np.ndarray, sign: float) -> np.ndarray:
    """Returns log((1 + y)^a - 1 - a y) for y = sign exp(log_size) > -1."""
    small = log_size < -4.6
    y = sign * np.exp(np.where(small, log_size, -4.6))
    series = np.ones(y.shape)
    for l in range(8, 2, -1):
        series = 1 + series * y * (order - l + 1) / l
    near = np.log(series * order * (order - 1) / 2) + 2 * log_size
    large = np.where(small, 0.0, log_size)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        if sign > 0:
            power = order * np.logaddexp(0.0, large)
            line = np.logaddexp(0.0, math.log(order) + large)
            far = power + np.log(-np.expm1(line - power))
        else:
            size = np.exp(large)
            far = np.log(np.power(1 - size, order) - 1 + order * size)
    return np.where(small, near, far)
