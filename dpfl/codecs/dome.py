# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME: clients send noised sketches, and the server runs Adam.

    mechanism = mechanisms.Dome(100, 1.0, 1.0, sketch_size=32)
    codec = DomeCodec(mechanism, dimension, in_numpy)
    state = codec.initial_state()   # of the sketch and the optimizer

`LocalNoiseCodec` is the part of it that sums the noised sketches.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dpfl import mechanisms, seed_domains
from dpfl.arrays import Array
from dpfl.codecs import measurements
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, Received, Seed
from dpfl.codecs.distributed import IntegerCodec, opened
from dpfl.codecs.integer_sums import IntegerSum
from dpfl.mechanisms.dome import BETA_2
from dpfl.mechanisms.mechanism import COUNT_BITS
from dpfl.vectors import adaptive_sketch, clipping, integers, randomness

# Name of the part of a message that only a simulation sums, in the open.
_EXACT = "exact_update"
# Attribute of a broadcast, the sketch that it was made with: a simulation has need of
# it again at once.
_SKETCH = "sketch"
# Bits of a number of the basis.
_BASIS_BITS = 16


class LocalNoiseCodec(Codec):
    """The secure sum of clipped vectors, to each of which a client adds N(0, a^2 I).

    In integers: each client rounds its vector within the bound, adds a discrete
    Gaussian, its share of the noise (see `rounding`), and sends residues modulo 2^b.
    The server decodes the sum from them, since b is large enough that it cannot wrap.

    The round fails before the sum is opened if too few clients report for the promised
    noise.
    """

    has_private_randomness = True
    needed_sums = ("clients",)

    def __init__(self, config: mechanisms.Dome, nx: Any):
        super().__init__(config, config.sketch_size, nx)
        self.modulus_bits = {"update": config.modulus_bits}
        multiplier, no_noise = config.noise_multiplier, config.no_noise
        self.needed_clients = config.cohort_size if multiplier else 0
        self._sum = IntegerSum(
            config.sketch_size, multiplier, config.cohort_size, no_noise=no_noise
        )

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The residues of the noised vector, int64[k].

        See base class for the arguments.
        """
        config, normed = self._config, clipping.safe_norm(update)
        message = self._sum.round(normed, config.clip_norm)
        noised = self._sum.with_share(message, client_seed, config.cohort_size)
        steps = self.nx.asarray(noised, np.int64)
        message = Fields(update=steps)
        return Encoded(self.reduce_modulo(message), normed, Fields())

    def message_bits(self, message: Any) -> Array:
        """The bits of a message: b for each of the k numbers."""
        return self.nx.asarray(self._config.uplink_bits(self.dimension), np.float64)

    def zero(self) -> Any:
        """Zeros, k of them."""
        zeros = self.nx.zeros([self.dimension], np.int64)
        return Fields(update=zeros)

    def release(self, received: Received) -> Array:
        """The sum in steps, decoded from its residues; its noise is complete."""
        update, clients = received.total["update"], received.sums["clients"]
        total = opened(self.nx, update, clients, self.needed_clients)
        steps = integers.center(total, self._config.modulus_bits)
        return self.nx.asarray(steps, self._sum.dtype)

    def decode(self, received: Received) -> Decoded:
        """The mean of the vectors."""
        config, total = self._config, self.release(received)
        mean = self._sum.to_float(total, config.clip_norm) / config.cohort_size
        return Decoded(mean, received.state, Fields())


class DomeCodec(Codec):
    """DOME (Nicolas et al. 2025, Algorithms 1 and 2), as corrected in `docs/dome.md`.

    Client: S (g - m), clipped to C, plus N(0, a^2 I_k); only S m is needed of the first
    moment m. For `DomeDdg` an `IntegerCodec` on k numbers rounds the vector and adds
    integer noise in place of the normal one; a^2 / B below is then the variance of
    noise and rounding of the mean. Server, from the mean s of B clients:

      g = S^T s + m
      m' <- b1 m' + (1 - b1) g                              m = m' / (1 - b1^t)
      v' <- b2 v' + (1 - b2) (g^2 - (a^2 / B) diag(S^T S))  v = v' / (1 - b2^t)
      result m / sqrt(max(v, floor)), or g

    and then the sketch is updated. Both sums are secure and of integers: of 32 bits
    each for `Dome`, of few for `DomeDdg`. The sign is that of the updates: a server
    that takes theta - eta * result, as TFF's SGD does with an aggregate of (old - new)
    weights, takes the paper's step.

    An update that is not finite counts as S (g - m) = 0, and its client still adds its
    noise. A client that does not report adds none, so the privacy is that of the
    mechanism's event if B clients report; the sum is not opened if fewer do.

    State: `steps` (int32, t), `first_moment` m' and `second_moment` v' (float32[d],
    each where it is used), and that of `AdaptiveSketch.initial_state`.

    Measurements: `noise_stddev` (of each of the k coordinates of the mean),
    `retained_rank` (int32, of the new sketch), `subspace_overlap` (of the new and the
    old kept directions). With integer noise also those of `IntegerCodec`;
    `noise_stddev` includes rounding. Exact: `l2_clipped_fraction` (of the clients) and,
    if the mechanism measures it, `explained_energy`: ||S (x - m)||^2 / ||x - m||^2 for
    the mean x of the finite updates, neither clipped nor noised.
    """

    has_private_randomness = True
    counted: Mapping[str, str] = MappingProxyType({"basis": "rank"})

    def __init__(self, config: mechanisms.Dome, dimension: int, nx: Any):
        """Initializes the codec; raises ValueError if `config` has too few bits."""
        super().__init__(config, dimension, nx)
        # The codec that sums the k-vectors; its broadcast is a function of the round's
        # seed.
        self._inner: Codec
        if isinstance(config, mechanisms.DomeDdg):
            self._inner = IntegerCodec(config.release, config.sketch_size, nx)
        else:
            self._inner = LocalNoiseCodec(config, nx)
        self.modulus_bits = self._inner.modulus_bits
        self.needed_sums = self._inner.needed_sums
        self.needed_clients = self._inner.needed_clients
        self._sketch = adaptive_sketch.AdaptiveSketch(
            dimension,
            config.sketch_size,
            max_rank=config.resolved_max_rank,
            energy_fraction=config.energy_fraction,
            decay=config.sketch_decay,
            rule=config.sketch_rule,
            has_probes=config.probes,
        )
        self._has_adam = config.direction == "adam"
        self.gives_mean = not self._has_adam
        self._has_first_moment = self._has_adam or config.mean_removal
        self._floor = config.resolved_second_moment_floor(dimension)

    def initial_state(self) -> Fields:
        """Zero steps, zero moments and an empty basis."""
        nx = self.nx
        state = Fields(steps=nx.zeros([], np.int32))
        if self._has_first_moment:
            state["first_moment"] = nx.zeros([self.dimension], np.float32)
        if self._has_adam:
            state["second_moment"] = nx.zeros([self.dimension], np.float32)
        state.update(self._sketch.initial_state(nx))
        return state

    def broadcast(self, state: Fields, round_seed: Seed) -> Fields:
        """The basis U' in bfloat16, the probes' seed, and S m if there is mean removal.

        The probes' seed is derived from the round's seed, as are the clients' seeds.
        Where shapes are fixed, there are zeros behind the `rank` rows, which nobody has
        to send.
        """
        rank = state["rank"]
        message = Fields(
            seed=randomness.fold_in(round_seed, seed_domains.RoundDomain.ROTATION),
            basis=self.nx.prefix(state["basis"], rank),
            rank=rank,
        )
        if self._config.mean_removal:
            sketch = self._expanded(message)
            message["offset"] = adaptive_sketch.project(sketch, self._mean(state))
            setattr(message, _SKETCH, sketch)
        return message

    def broadcast_bits(self, broadcast: Fields) -> Array:
        """The bits of the broadcast, in which each row of the basis has 16 d."""
        nx = self.nx
        rest = Fields(broadcast)
        del rest["basis"], rest["rank"]
        rows = nx.asarray(broadcast["rank"], np.float64)
        bits = rows * (_BASIS_BITS * self.dimension) + COUNT_BITS
        return bits + measurements.structure_bits(nx, rest)

    def decode_broadcast(self, broadcast: Fields) -> Fields:
        """The sketch S, the shared values of the sum, and S m if m is removed."""
        sent = self._inner.broadcast(Fields(), broadcast["seed"])
        expanded = Fields(
            sketch=getattr(broadcast, _SKETCH, None) or self._expanded(broadcast),
            release=self._inner.decode_broadcast(sent),
        )
        if self._config.mean_removal:
            expanded["offset"] = broadcast["offset"]
        return expanded

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The clipped and noised k-vector, computed in float64.

        See base class for the arguments.
        """
        config, nx = self._config, self.nx
        normed = clipping.safe_norm(update)
        projected = adaptive_sketch.project(shared["sketch"], normed.direction)
        centred = nx.asarray(projected, np.float64) * normed.unit
        if config.mean_removal:
            centred = centred - nx.asarray(shared["offset"], np.float64)
        centred = nx.where(normed.is_finite, centred, 0.0)
        norm = nx.norm(centred)
        is_clipped = norm > config.clip_norm
        inside = nx.divide_no_nan(nx.asarray(config.clip_norm, np.float64), norm)
        factor = nx.where(is_clipped, inside, 1.0)
        values = nx.asarray(centred * factor, np.float32)
        released = self._inner.encode(values, shared["release"], client_seed)
        message = Fields(released.message)
        if config.measures_energy:
            message[_EXACT] = clipping.finite(update, normed)
        sums = Fields(l2_clipped=is_clipped)
        return Encoded(message, normed, sums)

    def message_bits(self, message: Any) -> Array:
        """The bits of the k-vector; vectors for exact measurements are not sent."""
        return self._inner.message_bits(message)

    def zero(self) -> Any:
        """Zeros of the k-vectors, and float32[d] if energy is measured."""
        total = Fields(self._inner.zero())
        if self._config.measures_energy:
            total[_EXACT] = self.nx.zeros([self.dimension], np.float32)
        return total

    def release(self, received: Received) -> Any:
        """The release of the k-vectors' sum."""
        return self._inner.release(self._of_sum(received))

    def decode(self, received: Received) -> Decoded:
        """The decoded mean or Adam's step, and the new sketch."""
        config, state = self._config, received.state
        sketch = received.shared["sketch"]
        released = self._inner.decode(self._of_sum(received))
        residual = adaptive_sketch.lift(sketch, released.mean)
        gradient = residual
        if config.mean_removal:
            gradient = gradient + self._mean(state)
        target = gradient if config.sketch_target == "gradient" else residual
        updated = self._sketch.update(
            sketch, state["strengths"], state["rank"], target, is_packed=True
        )
        new_state = self._moments(state, gradient, sketch)
        new_state["basis"] = updated.directions
        new_state["strengths"] = updated.strengths
        new_state["rank"] = updated.rank
        measured = released.measurements
        measured["noise_stddev"] = self.nx.asarray(config.stddev, np.float32)
        measured["retained_rank"] = updated.rank
        measured["subspace_overlap"] = updated.overlap
        step = self._adam_step(new_state) if self._has_adam else gradient
        return Decoded(step, new_state, measured)

    def exact_metrics(self, received: Received) -> Fields:
        """The fraction of clipped updates, and the energy that the sketch keeps."""
        measured = super().exact_metrics(received)
        if self._config.measures_energy:
            measured["explained_energy"] = self._energy(received)
        return measured

    def _of_sum(self, received: Received) -> Received:
        """The round of the codec that sums the k-vectors."""
        parts = ((name, received.total[name]) for name in self.modulus_bits)
        total, shared = Fields(parts), received.shared["release"]
        return received._replace(state=Fields(), total=total, shared=shared)

    def _expanded(self, broadcast: Fields) -> adaptive_sketch.Sketch:
        basis, rank, seed = (broadcast[name] for name in ("basis", "rank", "seed"))
        return self._sketch.expand(basis, rank, seed)

    def _mean(self, state: Fields) -> Array:
        """The first moment m, zero before the first step."""
        nx = self.nx
        correction = _correction(nx, self._config.beta_1, state["steps"])
        return nx.divide_no_nan(state["first_moment"], correction)

    def _moments(
        self, state: Fields, gradient: Array, sketch: adaptive_sketch.Sketch
    ) -> Fields:
        """The step count and the moments after this round."""
        config = self._config
        steps = self.nx.asarray(state["steps"] + 1, np.int32)
        new_state = Fields(steps=steps)
        if self._has_first_moment:
            new_state["first_moment"] = (
                config.beta_1 * state["first_moment"] + (1 - config.beta_1) * gradient
            )
        if self._has_adam:
            square = self.nx.square(gradient)
            if config.debiasing and config.stddev:
                bias = config.stddev**2 * adaptive_sketch.diagonal(sketch)
                square = square - bias
            new_state["second_moment"] = (
                BETA_2 * state["second_moment"] + (1 - BETA_2) * square
            )
        return new_state

    def _adam_step(self, state: Fields) -> Array:
        """The step m / sqrt(max(v, floor))."""
        nx = self.nx
        correction = _correction(nx, BETA_2, state["steps"])
        second = nx.divide_no_nan(state["second_moment"], correction)
        return self._mean(state) / nx.sqrt(nx.maximum(second, self._floor))

    def _energy(self, received: Received) -> Array:
        """The ratio ||S (x - m)||^2 / ||x - m||^2, x the mean of the finite updates."""
        nx, sums = self.nx, received.sums
        number = nx.asarray(sums["clients"] - sums["nonfinite_clients"], np.float32)
        centred = nx.divide_no_nan(received.total[_EXACT], number)
        if self._config.mean_removal:
            centred = centred - self._mean(received.state)
        normed = clipping.safe_norm(centred)
        inside = adaptive_sketch.project(received.shared["sketch"], normed.direction)
        squared = nx.sum(nx.square(nx.asarray(inside, np.float64)))
        return measurements.ratio(squared, nx.square(normed.direction_norm))


def _correction(nx: Any, beta: float, steps: Array) -> Array:
    """The bias correction 1 - beta^t, float32."""
    power = nx.asarray(beta, np.float64) ** nx.asarray(steps, np.float64)
    return nx.asarray(1 - power, np.float32)
