# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The open round of a server: the sum of its messages, and which ones are refused."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Optional

import numpy as np

from dpfl import checks
from dpfl.codecs.base import Codec, Fields, Structure
from dpfl.loops import wire
from dpfl.planning.history import names_of

# Reasons why a message is refused: its client is not in the round, or was heard before;
# it has a wrong length, or numbers that no client can send; no round is open.
REFUSALS = ("stranger", "duplicate", "length", "numbers", "late")


class OpenRound:
    """A round before its release.

    Attributes:
      clients: Whether the message of each client, by name, is in the sum.
      shared: The result of `RoundFunctions.prepare`.
      total: The sum of the messages.
      number: How many messages are in the sum.
      epsilon: Of all releases with this one, once it is in the ledger.
    """

    number = 0
    epsilon: Optional[float] = None

    def __init__(self, clients: Iterable[Hashable], shared: Fields, codec: Codec):
        """Initializes a round without messages."""
        self.clients = dict.fromkeys(clients, False)
        self.shared, self.total, self._codec = shared, codec.zero(), codec

    def refusal(self, client: Any, data: wire.Data) -> str:
        """Adds a message, or returns the reason why not, one of `REFUSALS`."""
        try:
            [client] = names_of([client])
        except TypeError:
            return "stranger"
        if self.epsilon is not None:
            return "late"
        if self.clients.get(client) is None:
            return "stranger"
        if self.clients[client]:
            return "duplicate"
        codec, example = self._codec, _example(self._codec)
        try:
            message = wire.unpack(data, example, codec)
        except (TypeError, ValueError):
            return "length"
        if not codec.is_possible(message):
            return "numbers"
        total = codec.accumulate(self.total, message)
        if codec.malformed(total) > codec.malformed(self.total):
            return "numbers"
        self.total, self.clients[client] = total, True
        self.number += 1
        return ""

    def residues(self, total: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """An opened sum of integers in the dtypes of `total`; see `Server.add_sum`."""
        own = {name: np.asarray(part) for name, part in total.items()}
        shapes = {name: part.shape for name, part in own.items()}
        known = {name: part.shape for name, part in self.total.items()}
        checks.require(shapes == known, "total", f"of shapes {known}", shapes)
        for name, part in own.items():
            if part.dtype.kind not in "iu":
                raise TypeError(checks.message("total", "of integers", part.dtype))
            # Wraps around, as sums modulo 2^b may.
            own[name] = part.astype(self.total[name].dtype)
        return own


@functools.lru_cache(maxsize=1)
def _example(codec: Codec) -> Structure:
    """A message of the last codec in this process."""
    seed, nobody = np.zeros([2], np.int64), np.zeros([codec.input_length], np.float32)
    shared = codec.decode_broadcast(codec.broadcast(codec.initial_state(), seed))
    return codec.encode(nobody, shared, seed).message
