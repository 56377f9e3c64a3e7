# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sketches under noise: count-mean sketches, and sparse vectors from Gaussian ones.

    mechanism = mechanisms.ProjectAndPerturb(100, 1.0, 1.0, compression_rate=4)
    codec = ProjectAndPerturbCodec(mechanism, dimension, in_numpy)
    sketch = make_sketch(mechanism.shape(dimension))   # what a client applies

The other codecs send their sketches as an `IntegerCodec` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl import arrays, mechanisms, seed_domains
from dpfl.arrays import Array
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, Received, Seed
from dpfl.codecs.distributed import IntegerCodec
from dpfl.codecs.integer_sums import IntegerSum
from dpfl.mechanisms import sketch as sketch_configs
from dpfl.vectors import clipping, count_sketch, gaussian_sketch
from dpfl.vectors.clipping import NormedVector


def make_sketch(shape: sketch_configs.SketchShape) -> Any:
    """Makes the count-mean sketch, or sketches, of a shape."""
    sketches = [
        count_sketch.ShiftSketch(length, shape.rows, width)
        for (length, _), width in zip(shape.parts, shape.widths)
    ]
    if len(sketches) == 1:
        return sketches[0]
    return count_sketch.GroupedSketch(sketches)


def clip_and_sketch(
    sketch: Any, update: Array, shared: Fields
) -> tuple[NormedVector, NormedVector, Array]:
    """The sketch of a clipped update, the update, and whether it was clipped.

    The clip's factor is applied to the sketch, which is shorter than the update, and is
    itself not yet clipped.

    Args:
      sketch: The sketch.
      update: float32[input_length].
      shared: Has the expanded "sketch", and "clip_norm", the clip of the update.
    """
    normed = clipping.safe_norm(update)
    factor, is_clipped = clipping.clip_factor(normed, shared["clip_norm"])
    vector = sketch.encode(normed.direction, shared["sketch"])
    nx = arrays.of(vector)
    norm = nx.norm(vector)
    # A sketch of norm zero, or one that is not finite, becomes zeros.
    is_usable = nx.isfinite(norm) & (norm > 0)
    vector = nx.cond(is_usable, lambda: vector, lambda: nx.zeros_like(vector))
    norm = nx.asarray(nx.where(is_usable, norm, nx.zeros_like(norm)), np.float64)
    sketched = NormedVector(vector, factor, norm, normed.is_finite)
    return sketched, normed, is_clipped


class _OfSketchesCodec(IntegerCodec):
    """An `IntegerCodec` for sketches of the updates, which `decode` inverts."""

    def __init__(self, config: Any, dimension: int, nx: Any, sketch: Any):
        super().__init__(config, dimension, nx)
        self._sketch = sketch
        self.input_length = sketch.input_length

    def decode_broadcast(self, broadcast: Fields) -> Fields:
        """The sketch's tensors, and the shared values of the integers."""
        shared = super().decode_broadcast(broadcast)
        # The sketch is beside a rotation.
        seed = self._rotation_seed(broadcast, seed_domains.RotationDomain.SKETCH)
        shared["sketch"] = self._sketch.expand(seed)
        return shared

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The integers of the clipped sketch.

        See base class for the arguments.
        """
        clipped = clip_and_sketch(self._sketch, update, shared)
        return self.encode_clipped(*clipped, shared, client_seed)


class SketchedCodec(_OfSketchesCodec):
    """Chen et al. 2022, Algorithm 2: an `IntegerCodec` for sketches of the updates.

    State, besides that of `IntegerCodec`: `error` (float32[d]), the sum of coordinates
    held back below a threshold, if there is one. With y the noised mean sketch, e the
    error and T the threshold, T(S^T y + e) is the mean, and the rest of S^T y + e is
    the next error: the applied means and e add up to all decoded means, and no
    coordinate of e exceeds the threshold. (An error that passed through the next
    round's sketch would grow by d/m - 1 in energy each round.)
    """

    def __init__(
        self,
        config: mechanisms.SketchedDdg,
        dimension: int,
        nx: Any,
        sketch: Any = None,
    ):
        """Makes the codec; a `sketch` takes the place of the mechanism's own."""
        own = make_sketch(config.shape(dimension)) if sketch is None else sketch
        super().__init__(config, dimension, nx, own)

    def initial_state(self) -> Fields:
        """The clip if it adapts, and the error if there is a threshold."""
        state = super().initial_state()
        if self._config.threshold is not None:
            state["error"] = self.nx.zeros([self.dimension], np.float32)
        return state

    def decode(self, received: Received) -> Decoded:
        """The decoded mean, without coordinates held back below a threshold."""
        released, shared = super().decode(received), received.shared
        decoded = self._sketch.decode(released.mean, shared["sketch"])
        config, nx = self._config, self.nx
        if config.threshold is None:
            return released._replace(mean=decoded)
        whole = decoded + received.state["error"]
        stddev = config.grid(self.dimension).local_stddev * shared["vector_clip"]
        stddev = stddev * (config.noise_shares**0.5 / config.cohort_size)
        is_kept = nx.abs(whole) >= config.threshold * stddev
        mean = nx.where(is_kept, whole, nx.zeros_like(whole))
        new_state = Fields(released.state, error=whole - mean)
        return released._replace(mean=mean, state=new_state)


class SparseRecoveryCodec(_OfSketchesCodec):
    """Chen et al. 2022, Algorithm 3: a Gaussian sketch, `IntegerCodec`, then LASSO."""

    def __init__(self, config: mechanisms.SparseRecovery, dimension: int, nx: Any):
        config.check_matrix(dimension)
        length = config.vector_dimension(dimension)
        sketch = gaussian_sketch.GaussianSketch(dimension, length)
        super().__init__(config, dimension, nx, sketch)

    def decode_broadcast(self, broadcast: Fields) -> Fields:
        """The matrix, its largest singular value, and the rotation."""
        shared = super().decode_broadcast(broadcast)
        largest = gaussian_sketch.largest_singular_value(shared["sketch"])
        shared["largest"] = largest
        shared["vector_clip"] = shared["clip_norm"] * largest
        return shared

    def decode(self, received: Received) -> Decoded:
        """Recovers a sparse mean from the noised mean sketch."""
        released, shared = super().decode(received), received.shared
        config, grid = self._config, self._config.grid(self.dimension)
        noise = grid.local_stddev**2 if config.noise_multiplier else 0.0
        stddev = ((noise + grid.granularity**2 / 6) / config.cohort_size) ** 0.5
        penalty = stddev * config.penalty_factor(self.dimension) * shared["vector_clip"]
        matrix, largest = shared["sketch"], shared["largest"]
        mean = gaussian_sketch.lasso(
            matrix, released.mean, penalty, largest, config.solver_steps
        )
        return released._replace(mean=mean)


class ProjectAndPerturbCodec(Codec):
    """Project and perturb (Chen et al. 2022, section 5), for a trusted server.

    The clipped sketches are summed and noised as integers; see `dpfl.vectors.rounding`.

    Measurements: `clip_norm`, `noise_stddev` (of a coordinate of the mean). Exact:
    `l2_clipped_fraction` (of the clients).
    """

    def __init__(self, config: mechanisms.ProjectAndPerturb, dimension: int, nx: Any):
        super().__init__(config, dimension, nx)
        self._sketch = make_sketch(config.shape(dimension))
        self._sketch_clip = config.clip_norm * config.sketch_clip
        self._sum = IntegerSum(
            self._sketch.length, config.noise_multiplier, config.cohort_size
        )
        self.input_length = self._sketch.input_length

    def broadcast(self, state: Fields, round_seed: Seed) -> Fields:
        """The seed of the sketch."""
        return Fields(round_seed=round_seed)

    def decode_broadcast(self, broadcast: Fields) -> Fields:
        """The sketch's tensors, and the clip of the update."""
        config = self._config
        return Fields(
            sketch=self._sketch.expand(self._rotation_seed(broadcast)),
            clip_norm=self.nx.asarray(config.clip_norm, np.float64),
        )

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The clipped sketch, int32[m].

        See base class for the arguments.
        """
        sketched, normed, is_clipped = clip_and_sketch(self._sketch, update, shared)
        message = self._sum.round(sketched, self._sketch_clip)
        return Encoded(message, normed, Fields(l2_clipped=is_clipped))

    def is_possible(self, message: Array) -> Array:
        """Whether the integers are within their bounds."""
        return self._sum.is_possible(message)

    def zero(self) -> Array:
        """Zeros, one for each of the m coordinates."""
        return self._sum.zero(self.nx)

    def release(self, received: Received) -> Array:
        """The noised sum of the sketches, in steps."""
        return self._sum.noised(received.total, received.noise_seed)

    def decode(self, received: Received) -> Decoded:
        """The mean S^T (sum + noise) / n."""
        config, nx = self._config, self.nx
        noised = self.release(received)
        mean = self._sum.to_float(noised, self._sketch_clip) / config.cohort_size
        mean = self._sketch.decode(mean, received.shared["sketch"])
        measured = Fields(
            clip_norm=nx.asarray(config.clip_norm, np.float32),
            noise_stddev=nx.asarray(config.stddev / config.cohort_size, np.float32),
        )
        return Decoded(mean, received.state, measured)
