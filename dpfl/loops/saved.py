# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Saved states of a server as bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import checks, reading


class Saved(NamedTuple):
    """The content of a saved state, or that of a new run.

    Attributes:
      arrays: The state of the round functions, by name.
      numbers: Fields of the mechanism that were chosen for the run.
      key: The key of the cohorts.
      draws: Whether the plan draws the clients; None while that is open.
      cohorts: The last cohorts that it did not draw, which the ledger has to know.
      lost: Releases that are charged for besides the rounds.
      begun: How many of the cohorts, 0 or 1, are of a round without a release.
    """

    arrays: Mapping[str, np.ndarray]
    numbers: dict[str, Any]
    key: int
    draws: Optional[bool] = None
    cohorts: Any = ()
    lost: int = 0
    begun: int = 0

    @classmethod
    def of(cls, state: bytes, about: str) -> Saved:
        """The content of a state; ValueError, without any of it, if it is another's."""
        try:
            arrays = reading.arrays_in(io.BytesIO(state))
            header = reading.parsed("state", str(arrays.pop(reading.HEADER)[()]))
            if header.pop("about") == about:
                return cls(arrays, **header)
            found = "that of another run"
        except (KeyError, TypeError, ValueError, AttributeError):
            found = "damaged bytes"
        wanted = "of Server.save, of the same arguments"
        raise ValueError(checks.message("state", wanted, found))

    def to_bytes(self, about: str) -> bytes:
        """Bytes for `of`, with a digest of the run."""
        header = {"about": about, **self._asdict()}
        arrays, file = header.pop("arrays"), io.BytesIO()
        text = np.array(json.dumps(header))
        np.savez(file, **{reading.HEADER: text, **arrays})
        return file.getvalue()
