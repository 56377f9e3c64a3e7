# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Updates that no honest client sends, through every codec, without TFF.

In each round the mean, the state and the measurements must be finite; each message must
differ from that of an ignored update, under the same randomness, by no more than the
bound that the noise covers.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tools.soaks import kills

_DIMENSION, _COHORT = 64, 8
_MAX = float(np.finfo(np.float32).max)
_TINY = float(np.finfo(np.float32).tiny)
# Values of a coordinate, by kind of update.
_KINDS: dict[str, tuple[float, ...]] = {
    "nan": (np.nan, 0.0, 1.0),
    "infinite": (np.inf, -np.inf, 1.0),
    "huge": (_MAX, -_MAX, 1e30),
    "subnormal": (_TINY / 4, -_TINY / 1024, 1e-45),
    "squares overflow": (1e19, -2e19, 3e18),
    "mixed": (np.nan, np.inf, -_MAX, _TINY / 2, 0.0, -0.0, 1e30, -1e-30, 1.0),
    "mixed, finite": (_MAX, -_MAX, _TINY / 2, -0.0, 1e19, 1e-30, -1.0),
}
# Options under which a mechanism treats updates differently.
_VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gaussian", {"adaptive_clipping": True}),
    ("linf_csgm", {"rotation": "dft"}),
    ("distributed_skellam", {"adaptive_clipping": True}),
    ("sketched_ddg", {"threshold": 1.0}),
    ("matrix_factorization", {"matrix_momentum": 0.5}),
)


def mechanism_cases() -> list[Any]:
    """A configuration of each mechanism, some with options."""
    from dpfl import mechanisms

    examples = {
        name: dataclasses.replace(example, cohort_size=_COHORT)
        for name, example in mechanisms.TEST_CONFIGS.items()
    }
    variants = (dataclasses.replace(examples[name], **own) for name, own in _VARIANTS)
    return [*examples.values(), *variants]


def hostile(seed: int, count: int) -> kills.Outcome:
    """Sends at least so many hostile updates in all, through every codec."""
    cases = mechanism_cases()
    rounds = -(-count // (len(cases) * _COHORT))
    faults: list[str] = []
    for config in cases:
        draw = np.random.default_rng([seed, len(faults)])
        one = _Aggregation(config)
        for number in range(rounds):
            faults += [f"{config.name}: {what}" for what in one.round(draw, number)]
    return rounds * len(cases) * _COHORT, faults


class _Aggregation:
    """The rounds of one mechanism, each with the state that the one before left."""

    def __init__(self, config: Any):
        import tensorflow as tf

        from dpfl import codecs, mechanisms

        self._codec = codecs.make_codec(config, _DIMENSION, arrays="tensorflow")
        self._state = self._codec.initial_state()
        # Without clipping, the sum of two numbers near the largest overflows.
        self._has_clip = not isinstance(config, mechanisms.NoMechanism)
        # Compiled once each, so that a round takes milliseconds.
        self._share = tf.function(self._shared, reduce_retracing=True)
        self._encode = tf.function(self._encoded)
        self._decode = tf.function(self._codec.decode, reduce_retracing=True)

    def round(self, draw: np.random.Generator, number: int) -> list[str]:
        """The fault in a round of hostile updates, if any."""
        import tensorflow as tf

        from dpfl.codecs.base import Received

        kinds = [str(draw.choice(list(_KINDS))) for _ in range(_COHORT)]
        updates = np.stack([_update(draw, kind) for kind in kinds])
        if not self._has_clip:
            updates /= np.float32(2 * _COHORT)
        seed = tf.constant([number, 99], tf.int64)
        shared = self._share(self._state, seed)
        total, sums, faults = self._codec.zero(), None, []
        for index, (kind, update) in enumerate(zip(kinds, updates)):
            own = tf.constant([number, index], tf.int64)
            message, mine = self._encode(update, shared, own)
            # An update of NaN is ignored.
            nothing, _ = self._encode(np.full_like(update, np.nan), shared, own)
            if self._has_clip:
                moved, bound = shift(self._codec, message, nothing)
                if moved > bound:
                    faults.append(f"{kind} moves the sum by {moved}, above {bound}")
            total = self._codec.accumulate(total, message)
            sums = mine if sums is None else tf.nest.map_structure(tf.add, sums, mine)
        noise_seed = tf.constant([number, -1], tf.int64)
        received = Received(self._state, total, sums, shared, noise_seed)
        decoded = self._decode(received)
        self._state = decoded.state
        outputs = {"mean": decoded.mean, **decoded.measurements}
        outputs |= {f"state {name}": part for name, part in decoded.state.items()}
        for name, part in outputs.items():
            if not np.isfinite(np.asarray(part, np.float64)).all():
                faults.append(f"{name} is not finite after round {number}")
        return faults

    def _shared(self, state: Any, seed: Any) -> Any:
        return self._codec.decode_broadcast(self._codec.broadcast(state, seed))

    def _encoded(self, update: Any, shared: Any, own: Any) -> tuple[Any, Any]:
        """A client's message, and the scalars that go with it."""
        import tensorflow as tf

        from dpfl.codecs import measurements

        codec = self._codec
        padded = tf.pad(update, [[0, codec.input_length - _DIMENSION]])
        encoded = codec.encode(padded, shared, own)
        bits = codec.message_bits(encoded.message)
        sums = measurements.client_sums(encoded.normed, bits, encoded.sums)
        return encoded.message, sums


def _update(draw: np.random.Generator, kind: str) -> np.ndarray:
    """An update of a kind, float32[d], now and then in a single coordinate."""
    update = draw.choice(_KINDS[kind], _DIMENSION).astype(np.float32)
    if draw.random() < 0.3:
        honest = draw.normal(size=_DIMENSION).astype(np.float32)
        honest[draw.integers(_DIMENSION)] = update[0]
        return honest
    return update


def shift(codec: Any, message: Any, plain: Any) -> tuple[int, int]:
    """The squared norm by which a message moves the integer sum, and its bound.

    Args:
      codec: A codec of integers.
      message: The message.
      plain: The same client's message for an update that is ignored.

    Returns:
      Both in squared steps.
    """
    sums = []
    for part in (message, plain):
        # The codecs around one of integers add names.
        while isinstance(part, dict):
            part = part["values" if "values" in part else "update"]
        sums.append(np.asarray(part, np.int64))
    inner = codec
    while not (hasattr(inner, "_sum") or hasattr(inner, "_grid")):
        inner = inner._inner
    rounds_once = hasattr(inner, "_grid")
    bits = inner._config.bits if rounds_once else 32
    # The integers are residues, and the shares of noise are equal in both messages.
    half = 1 << (bits - 1)
    steps = (sums[0] - sums[1] + half) % (1 << bits) - half
    if rounds_once:
        # Each coordinate of a vector within the clip is rounded up or down.
        bound = (1 / inner._grid.granularity + steps.size**0.5) ** 2
    else:
        bound = inner._sum.grid.max_squared_norm
    return int(np.sum(steps**2)), math.ceil(bound)
