# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Integer noise under secure aggregation: discrete Gaussian and Skellam.

    mechanism = mechanisms.DistributedSkellam(100, 1.0, 1.0, bits=16)
    codec = IntegerCodec(mechanism, dimension, in_numpy)
    message = codec.encode(update, shared, client_seed).message   # residues

TFF's and tensorflow-privacy's aggregator for this is not used, for these reasons: it is
nested too deeply to compile inside federated averaging; it rounds the scale of a
client's discrete Gaussian noise up to a whole number of grid steps, and samples it in
floating point; and its event is not accounted. Here there is one flat computation, the
noise has exactly the scale of the event, and the bounds of the event are enforced on
the integers.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

from dpfl import arrays, seed_domains
from dpfl.arrays import Array
from dpfl.codecs.adaptive_clip import AdaptiveClip
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, Received, Seed
from dpfl.mechanisms import integer
from dpfl.vectors import (
    clipping,
    integer_noise,
    integers,
    randomness,
    rotation,
    rounding,
)


class IntegerCodec(Codec):
    """Distributed integer noise (Chen et al. 2022, Algorithm 6).

    The numbers are those of `mechanisms.IntegerMechanism`.

    Client: clip, divide by the granularity, rotate, clip coordinates, round each of
    them at random, once, add a share of integer noise, send residues modulo 2^b.
    Server: the secure sum, the centered integers, times the granularity, over n,
    rotated back.

    A codec of vectors of another length, as its configuration says, calls
    `encode_clipped`; the mean of this `decode` then has that length.

    With `noise_source` "clients" the round fails before the sum is opened if too few
    clients report for the promised noise.

    State: `clip_norm` (float32), if the clip adapts. Measurements: `clip_norm`;
    `noise_stddev` (of the mean); `granularity`; `wrap_probability`, of a coordinate of
    the sum, as if it were Gaussian with the variance of the round's sum. Exact:
    `l2_clipped_fraction` (of the clients).
    """

    has_private_randomness = True

    def __init__(self, config: integer.IntegerMechanism, dimension: int, nx: Any):
        """Initializes the codec; raises ValueError if `config` has too few bits."""
        super().__init__(config, dimension, nx)
        self.modulus_bits = {"update": config.modulus_bits}
        if config.adaptive_clipping:
            self.modulus_bits["within"] = integer.CLIP_COUNT_BITS
        config.check_noise(dimension)
        self._grid = config.grid(dimension)
        self._vector_dimension = config.vector_dimension(dimension)
        self._rotated = config.rotated_dimension(dimension)
        self._rotation = rotation.ROTATIONS[config.rotation](self._rotated)
        # The update is rotated directly, so that its padding is free.
        self.input_length = max(dimension, self._rotated)
        self._clip = AdaptiveClip(config, nx)
        kind, count_stddev = config.name_of_noise, 0.0
        if self._clip.adapts:
            count_stddev = config.local_count_stddev
        if config.noise_source == "clients":
            self.needed_sums = ("clients",)
            if config.noise_multiplier:
                self.needed_clients = config.shares_summed
        self._noise = integer_noise.Shares(kind, self._grid.local_stddev_steps)
        self._count_noise = integer_noise.Shares(kind, count_stddev)

    def initial_state(self) -> Fields:
        """The clip, if it adapts."""
        return self._clip.initial_state()

    def broadcast(self, state: Fields, round_seed: Seed) -> Fields:
        """The seed of the shared randomness, and the clip if it adapts."""
        sent = Fields(round_seed=round_seed)
        if self._clip.adapts:
            sent["clip_norm"] = state["clip_norm"]
        return sent

    def decode_broadcast(self, broadcast: Fields) -> Fields:
        """The rotation, and the clips of the update and of the vector to be rounded."""
        clip = self._clip.in_force(broadcast)
        return Fields(
            rotation=self._rotation.expand(self._rotation_seed(broadcast)),
            clip_norm=clip,
            vector_clip=clip * np.float32(self._config.vector_clip),
        )

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The residues, int32, with a vote on the clip if it adapts.

        See base class for the arguments.
        """
        normed = clipping.safe_norm(update)
        factor, is_clipped = clipping.clip_factor(normed, shared["clip_norm"])
        clipped = normed._replace(unit=factor)
        return self.encode_clipped(clipped, normed, is_clipped, shared, client_seed)

    def encode_clipped(
        self,
        clipped: clipping.NormedVector,
        normed: clipping.NormedVector,
        is_clipped: Array,
        shared: Fields,
        client_seed: Optional[Array],
    ) -> Encoded:
        """Encodes a vector that was computed from the update; see `encode`.

        Args:
          clipped: The vector to be sent, before its own clip.
          normed: The update that it is computed from.
          is_clipped: bool scalar, whether the update was clipped.
          shared: The result of `decode_broadcast`.
          client_seed: int64[2], the client's own; None without private randomness.
        """
        nx = self.nx
        step = self._grid.granularity * nx.asarray(shared["vector_clip"], np.float64)
        target = rounding.norm_target(1 / self._grid.granularity, self._rotated)
        target = nx.asarray(target, np.float64)
        inside = nx.divide_no_nan(target, clipped.direction_norm)
        # Clips the vector and converts it to grid steps.
        factor = nx.minimum(clipped.unit / step, inside)
        vector = clipped.direction
        padding = self._rotated - vector.shape[0]
        if padding:
            vector = nx.pad(vector, [[0, padding]])
        rotated = self._rotation.rotate(
            vector * nx.asarray(factor, np.float32), shared["rotation"]
        )
        own = randomness.fold_in(client_seed, seed_domains.ClientDomain.ROUNDING)
        steps = 1 / self._grid.granularity
        limit = self._grid.max_coordinate * steps
        rounded = rounding.randomized_round(rotated, own, steps, limit)
        shares = int(self._config.noise_source == "clients")
        rounded = rounded + self._noise.sample(
            client_seed, seed_domains.ClientDomain.UPDATE_SHARE, shares, self._rotated
        )
        wrapped = integers.wrap(rounded, self._config.modulus_bits)
        message = Fields(update=wrapped)
        if self._clip.adapts:
            vote = self._clip.vote(normed, is_clipped)
            noise = self._count_noise.sample(
                client_seed, seed_domains.ClientDomain.COUNT_SHARE, shares, 1
            )
            message["within"] = integers.wrap(vote + noise[0], integer.CLIP_COUNT_BITS)
        sums = Fields(l2_clipped=is_clipped)
        return Encoded(message, normed, sums)

    def message_bits(self, message: Any) -> Array:
        """The bits of a message: b for each coordinate, and those of the vote."""
        return self.nx.asarray(self._config.uplink_bits(self.dimension), np.float64)

    def zero(self) -> Fields:
        """Zeros, int32."""
        nx = self.nx
        total = Fields(update=nx.zeros([self._rotated], np.int32))
        if self._clip.adapts:
            total["within"] = nx.zeros([], np.int32)
        return total

    def release(self, received: Received) -> Fields:
        """The opened sums, with the helpers' shares of noise if there are helpers.

        A secure sum opens residues modulo 2^b and nothing else.
        """
        config, total = self._config, received.total
        if config.noise_source != "helpers":
            if not self.needed_clients:
                return total
            clients = received.sums["clients"]
            return opened(self.nx, total, clients, self.needed_clients)
        parts = {
            "update": (seed_domains.RoundDomain.UPDATE_NOISE, self._noise),
            "within": (seed_domains.RoundDomain.COUNT_NOISE, self._count_noise),
        }
        helped = Fields()
        for name, residues in total.items():
            domain, noise = parts[name]
            flat = self.nx.reshape(residues, [-1])
            number, length = config.cohort_size, flat.shape[0]
            flat = flat + noise.sample(received.noise_seed, domain, number, length)
            helped[name] = self.nx.reshape(flat, residues.shape)
        return self.reduce_modulo(helped)

    def decode(self, received: Received) -> Decoded:
        """Decodes the residues to the mean, and computes the next clip."""
        config, nx, shared = self._config, self.nx, received.shared
        total = self.release(received)
        steps = nx.asarray(
            integers.center(total["update"], config.modulus_bits), np.float32
        )
        step = self._grid.granularity * shared["vector_clip"]
        rotated = steps * (step / config.cohort_size)
        vector = self._rotation.invert(rotated, shared["rotation"])
        measured = Fields(
            clip_norm=shared["clip_norm"],
            noise_stddev=self._noise_stddev(received.sums) * shared["vector_clip"],
            granularity=step,
            wrap_probability=_wrap_probability(steps, config.modulus_bits),
        )
        new_state = Fields(received.state)
        if self._clip.adapts:
            votes = integers.center(total["within"], integer.CLIP_COUNT_BITS)
            votes = nx.asarray(votes, np.float32) / 2
            new_state.update(self._clip.next_state(shared["clip_norm"], votes))
        return Decoded(vector[: self._vector_dimension], new_state, measured)

    def _noise_stddev(self, sums: Fields) -> Array:
        """The noise of the mean, relative to the clip of the rounded vector."""
        config = self._config
        nx = self.nx
        shares = nx.asarray(config.cohort_size, np.float32)
        if config.noise_source == "clients":
            shares = nx.asarray(sums["clients"], np.float32)
        local = math.sqrt(config.sum_noise_variance(self.dimension, 1))
        return nx.sqrt(shares) * local / config.cohort_size


def opened(nx: Any, total: Any, clients: Array, needed: int) -> Any:
    """Opens a sum once it is certain to carry the promised noise.

    Args:
      nx: The array library.
      total: Structure of integer arrays, the sum.
      clients: Integer scalar, the clients that reported, each with a share of noise.
      needed: Shares that the promised noise needs; 0 for none.

    Raises:
      Exception: If fewer clients reported: an error of the library, when it runs. JAX
        has none inside `jax.jit`, and returns zeros in place of the sum.
    """
    wanted = f"the sum is not opened: at least {needed} clients must report, found"
    return nx.required(clients >= needed, wanted, clients, total)


def _wrap_probability(steps: Array, bits: int) -> Array:
    """The probability erfc(half the modulus / (sqrt 2 root mean square)), float32."""
    nx = arrays.of(steps)
    mean_square = nx.mean(nx.square(steps)) + 1e-30
    return nx.erfc(2.0 ** (bits - 1) / nx.sqrt(2 * mean_square))
