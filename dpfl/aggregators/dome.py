# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME: clients send sketches with noise of their own, the server runs Adam."""

from __future__ import annotations

import collections
import functools
from typing import Optional

import tensorflow as tf

from dpfl import mechanisms
from dpfl.aggregators import base
from dpfl.compression import adaptive_sketch, clipping, randomness


class DomeCodec(base.Codec):
    """DOME (Nicolas et al. 2025, Algorithms 1 and 2), as corrected in `docs/dome.md`.

    Client: S (g - m), clipped to C, plus N(0, a^2 I_k); only S m is needed of the first
    moment m. Server, from the mean s of B clients:

      g = S^T s + m
      m' <- b1 m' + (1 - b1) g                              m = m' / (1 - b1^t)
      v' <- b2 v' + (1 - b2) (g^2 - (a^2 / B) diag(S^T S))  v = v' / (1 - b2^t)
      result m / sqrt(max(v, floor)), or g

    and then the sketch is updated. The sum of the k-vectors is exact; a deployment
    would sum them securely. The sign is that of the updates: a server that takes
    theta - eta * result, as TFF's SGD does with an aggregate of (old - new) weights,
    takes the paper's step.

    An update that is not finite counts as S (g - m) = 0, and its client still adds its
    noise. A client that does not report adds none, so the privacy is that of
    `DomeDpEvent` if B clients report.

    State: `steps` (int32, t), `first_moment` m' and `second_moment` v' (float32[d],
    each where it is used), and that of `AdaptiveSketch.initial_state`.

    Measurements: `noise_stddev` (of each of the k coordinates of the mean),
    `l2_clipped_fraction` (of the clients), `retained_rank` (int32, of the new sketch),
    `subspace_overlap` (of the new and the old kept directions), and, if the mechanism
    measures it, `explained_energy`: ||S (x - m)||^2 / ||x - m||^2 for the mean x of the
    finite updates, neither clipped nor noised.
    """

    has_private_randomness = True

    def __init__(self, config: mechanisms.Dome, dimension: int):
        super().__init__(dimension)
        self._config = config
        self._sketch = adaptive_sketch.AdaptiveSketch(
            dimension,
            config.sketch_size,
            max_rank=config.resolved_max_rank,
            energy_fraction=config.energy_fraction,
            decay=config.sketch_decay,
            rule=config.sketch_rule,
            has_probes=config.has_probes,
        )
        self._has_adam = config.output == "adam"
        self._has_first_moment = self._has_adam or config.has_mean_removal
        self._floor = config.resolved_second_moment_floor(dimension)
        self._latest: tuple = (None, None, None)

    def initial_state(self):
        """No steps, moments of zero, nothing kept."""
        state = collections.OrderedDict(steps=tf.zeros([], tf.int32))
        if self._has_first_moment:
            state["first_moment"] = tf.zeros([self.dimension])
        if self._has_adam:
            state["second_moment"] = tf.zeros([self.dimension])
        state.update(self._sketch.initial_state())
        return state

    def broadcast(self, state, round_seed):
        """U' in bfloat16, the probes' seed, and S m if there is mean removal.

        The seed is derived from the round's, from which clients' seeds are too.
        """
        message = collections.OrderedDict(
            seed=randomness.fold_in(round_seed, base.Purpose.ROTATION),
            basis=state["basis"][: state["rank"]],
        )
        if self._config.has_mean_removal:
            sketch = self._expanded(message)
            message["offset"] = adaptive_sketch.project(sketch, self._mean(state))
        return message

    def expand(self, broadcast):
        """S, and S m if there is mean removal."""
        expanded = collections.OrderedDict(sketch=self._expanded(broadcast))
        if self._config.has_mean_removal:
            expanded["offset"] = broadcast["offset"]
        return expanded

    def encode(self, update, shared, client_seed):
        """The clipped and noised k-vector; arithmetic on k numbers is in float64."""
        config = self._config
        normed = clipping.safe_norm(update)
        projected = adaptive_sketch.project(shared["sketch"], normed.direction)
        centred = tf.cast(projected, tf.float64) * normed.unit
        if config.has_mean_removal:
            centred -= tf.cast(shared["offset"], tf.float64)
        centred = tf.where(normed.is_finite, centred, 0.0)
        norm = tf.norm(centred)
        is_clipped = norm > config.clip_norm
        factor = tf.where(
            is_clipped, tf.math.divide_no_nan(config.clip_norm, norm), 1.0
        )
        noise = config.local_stddev * randomness.standard_normal(
            randomness.fold_in(client_seed, base.Purpose.UPDATE_NOISE),
            config.sketch_size,
        )
        values = tf.cast(centred * factor, tf.float32) + noise
        message = collections.OrderedDict(values=values)
        if config.measures_energy:
            message["update"] = tf.cond(
                normed.is_finite, lambda: update, lambda: tf.zeros_like(update)
            )
        sums = collections.OrderedDict(l2_clipped=is_clipped)
        return base.Encoded(message, normed, sums)

    def message_bits(self, message):
        """The k-vector's; what a simulation measures is not sent."""
        return base.structure_bits(message["values"])

    def zero(self):
        """float32[k], and float32[d] if energy is measured."""
        total = collections.OrderedDict(values=tf.zeros([self._config.sketch_size]))
        if self._config.measures_energy:
            total["update"] = tf.zeros([self.dimension])
        return total

    def accumulate(self, total, message):
        """The sum."""
        return tf.nest.map_structure(tf.add, total, message)

    def decode(self, state, total, sums, shared, noise_seed):
        """The decoded mean, Adam's step, the new sketch."""
        del noise_seed
        config, sketch = self._config, shared["sketch"]
        residual = adaptive_sketch.lift(sketch, total["values"] / config.cohort_size)
        gradient = residual
        if config.has_mean_removal:
            gradient += self._mean(state)
        target = gradient if config.sketch_target == "gradient" else residual
        updated = self._sketch.update(sketch, state["strengths"], state["rank"], target)
        new_state = self._moments(state, gradient, sketch)
        new_state.update(
            basis=adaptive_sketch.pack(updated.directions),
            strengths=updated.strengths,
            rank=updated.rank,
        )
        measurements = collections.OrderedDict(
            noise_stddev=tf.constant(config.stddev, tf.float32),
            l2_clipped_fraction=base.ratio(sums["l2_clipped"], sums["clients"]),
            retained_rank=updated.rank,
            subspace_overlap=updated.overlap,
        )
        if config.measures_energy:
            measurements["explained_energy"] = self._energy(state, total, sums, sketch)
        step = self._adam_step(new_state) if self._has_adam else gradient
        return base.Decoded(step, new_state, measurements)

    def _expanded(self, broadcast: collections.OrderedDict) -> tf.Tensor:
        """S; built once for the same tensors, since a server needs it twice a round."""
        basis, seed = broadcast["basis"], broadcast["seed"]
        if self._latest[0] is not basis or self._latest[1] is not seed:
            sketch = self._sketch.expand(adaptive_sketch.unpack(basis), seed)
            self._latest = (basis, seed, sketch)
        return self._latest[2]

    def _mean(self, state: collections.OrderedDict) -> tf.Tensor:
        """m, zero before the first step."""
        correction = _correction(self._config.beta_1, state["steps"])
        return tf.math.divide_no_nan(state["first_moment"], correction)

    def _moments(
        self,
        state: collections.OrderedDict,
        gradient: tf.Tensor,
        sketch: tf.Tensor,
    ) -> collections.OrderedDict:
        """The step count and the moments after this round."""
        config = self._config
        new_state = collections.OrderedDict(steps=state["steps"] + 1)
        if self._has_first_moment:
            new_state["first_moment"] = (
                config.beta_1 * state["first_moment"] + (1 - config.beta_1) * gradient
            )
        if self._has_adam:
            square = tf.square(gradient)
            if config.has_debiasing and config.stddev:
                square -= config.stddev**2 * adaptive_sketch.diagonal(sketch)
            new_state["second_moment"] = (
                config.beta_2 * state["second_moment"] + (1 - config.beta_2) * square
            )
        return new_state

    def _adam_step(self, state: collections.OrderedDict) -> tf.Tensor:
        """M / sqrt(max(v, floor))."""
        correction = _correction(self._config.beta_2, state["steps"])
        second = tf.math.divide_no_nan(state["second_moment"], correction)
        return self._mean(state) / tf.sqrt(tf.maximum(second, self._floor))

    def _energy(
        self,
        state: collections.OrderedDict,
        total: collections.OrderedDict,
        sums: collections.OrderedDict,
        sketch: tf.Tensor,
    ) -> tf.Tensor:
        """||S (x - m)||^2 / ||x - m||^2 for the mean x of the finite updates."""
        number = tf.cast(sums["clients"] - sums["nonfinite_clients"], tf.float32)
        centred = tf.math.divide_no_nan(total["update"], number)
        if self._config.has_mean_removal:
            centred -= self._mean(state)
        normed = clipping.safe_norm(centred)
        inside = adaptive_sketch.project(sketch, normed.direction)
        squared = tf.reduce_sum(tf.square(tf.cast(inside, tf.float64)))
        return base.ratio(squared, tf.square(normed.direction_norm))


def _correction(beta: float, steps: tf.Tensor) -> tf.Tensor:
    """1 - beta^t, float32."""
    power = tf.pow(tf.constant(beta, tf.float64), tf.cast(steps, tf.float64))
    return tf.cast(1 - power, tf.float32)


def build(config: mechanisms.Dome, *, seed: Optional[int] = None) -> base.CodecFactory:
    """The aggregation factory of a DOME configuration.

    Args:
      config: Its numbers.
      seed: See `base.CodecFactory`.
    """
    return base.CodecFactory(functools.partial(DomeCodec, config), seed=seed)
