# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Shares of integer noise for secure sums, and where it is made sure that it is there.

The noise of a trusted server, and shares of it in DOME, are drawn by `fixed_point`, the
correlated noise of matrix factorization by `dpfl.noise_streams`.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from dpfl.vectors import randomness, share_noise


class IntegerShares:
    """Shares of integer noise, of which the sum of a round carries many."""

    def __init__(self, kind: str, stddev: float):
        """Initializes the shares.

        Args:
          kind: "discrete_gaussian" or "skellam".
          stddev: Of one share, in grid steps; zero for no noise.
        """
        self._sampler: Optional[share_noise.Sampler] = None
        if stddev:
            self._sampler = share_noise.NOISE[kind](stddev)

    def sample(
        self, seed: tf.Tensor, purpose: int, number: int, length: int
    ) -> tf.Tensor:
        """Returns the sum of `number` shares, int32[length].

        Args:
          seed: int64[2] that nobody else knows.
          purpose: What the noise is for.
          number: How many shares; zero for no noise.
          length: Of each.
        """
        total, sampler = tf.zeros([length], tf.int32), self._sampler
        if sampler is None or not number:
            return total
        if number == 1:
            return sampler.sample(randomness.fold_in(seed, purpose), length)

        def add_share(share: tf.Tensor, total: tf.Tensor) -> tuple[Any, Any]:
            own = randomness.fold_in(seed, purpose, share)
            return share + 1, total + sampler.sample(own, length)

        return tf.while_loop(
            lambda share, _: share < number, add_share, [tf.constant(0), total]
        )[1]


def opened(total: Any, clients: tf.Tensor, needed: int) -> Any:
    """Returns a sum once it is sure that it carries the noise that was promised.

    Args:
      total: Tensors.
      clients: Scalar, how many reported and so added their share of noise.
      needed: How many shares the promised noise needs; 0 for none.

    Raises:
      InvalidArgumentError: When it runs, if fewer clients reported.
    """
    check = tf.debugging.Assert(
        clients >= needed,
        [f"the sum is not opened: at least {needed} clients must report, found"]
        + [tf.cast(clients, tf.int32)],
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.nest.map_structure(tf.identity, total)
