# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What integer noise and secure sums cost: error over the Gaussian's, bits and time."""

from __future__ import annotations

import math

from dpfl import accounting
from dpfl.mechanisms import gaussian, integer
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.planning import budget


def expected_error(mechanism: Mechanism, dimension: int, product: float) -> float:
    """Returns the expected squared error of the mean of unit vectors that differ.

    `mean_squared_error` is for equal vectors. A sketch errs in proportion to the
    squared norm of the mean, (1 + (n - 1) product) / n, which is less if the vectors
    differ; noise and rounding do not depend on it.

    Args:
      mechanism: A configuration with clip norm 1 for n clients.
      dimension: d.
      product: Inner product of any two of the n vectors.
    """
    error = mechanism.mean_squared_error(dimension)
    compression = getattr(mechanism, "compression_error", None)
    if compression is None:
        return error
    n = mechanism.cohort_size
    squared_norm = (1 + (n - 1) * product) / n
    return error - (1 - squared_norm) * compression(dimension)


def error_ratio(
    n: int, length: int, epsilon: float, delta: float, bits: int, bound: str
) -> float:
    """Returns the squared error of DDG over that of Gaussian noise at equal epsilon.

    Args:
      n: Number of clients, which all take part in the one release.
      length: Coordinates of a message; there is no sketch.
      epsilon: Of both mechanisms.
      delta: Of both mechanisms.
      bits: Of a coordinate of the sum, b.
      bound: A value of `integer_bound`.

    Returns:
      The ratio; infinity if no noise meets the budget with so few bits.
    """
    # Both by the same method: the Gaussian alone has a tighter one.
    plain = budget.calibrate(
        gaussian.Gaussian(n, 1.0, 1.0), None, length, epsilon, delta, method="rdp"
    )
    try:
        config = integer.DistributedDiscreteGaussian(
            n, 1.0, 1.0, bits, integer_bound=bound
        )
        config.grid(length)
        # Any noise will do here, even what `budget.calibrate` says is too much.
        noise = accounting.calibrate_noise_multiplier(
            lambda z: config.with_noise_multiplier(z).round_dp_event(length, 1.0),
            epsilon,
            delta,
            method="rdp",
        )
    except ValueError:
        return math.inf
    noised = config.with_noise_multiplier(noise)
    return noised.mean_squared_error(length) / plain.mean_squared_error(length)


def rate_of_equal_time(small: int, large: int) -> float:
    """Returns the compression at which a larger cohort's secure sum takes no longer.

    The time of secure aggregation is of order n log(n) d (Chen et al. 2022, A.1).

    Args:
      small: Clients whose messages are not compressed; at least 2.
      large: Clients whose messages are.
    """
    return large * math.log(large) / (small * math.log(small))
