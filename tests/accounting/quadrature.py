# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Moments of a sampled, masked Gaussian by equal steps over its likelihood ratio."""

import math

import numpy as np


def ratios(shifts, keep, q=1.0, step=0.04, reach=13.0):
    """y - 1 and Q's weights on a grid; y = 1 - q + q prod_j (1 - g_j + g_j w_j).

    Everything is smooth and falls off as a Gaussian, so that equal steps converge
    faster than any power of the step.
    """
    log_x, weights = np.zeros(1), np.ones(1)
    for shift, one in zip(shifts, np.broadcast_to(keep, len(shifts))):
        t = np.arange(-reach, reach + 9 * shift, step)
        log_one = np.log1p(one * np.expm1(shift * t - shift**2 / 2))
        weight = np.exp(-(t**2) / 2) * step / math.sqrt(2 * math.pi)
        log_x = (log_x[:, None] + log_one).ravel()
        weights = (weights[:, None] * weight).ravel()
    return q * np.expm1(log_x), weights


def log_moment(shifts, keep, q, power, step=0.04):
    """log E_Q[y^power]; E_Q[y] = 1 makes the leading term drop out."""
    u, weights = ratios(shifts, keep, q, step)
    return math.log1p(weights @ (np.expm1(power * np.log1p(u)) - power * u))
