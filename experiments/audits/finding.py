# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""One line of an audit: what was claimed, what was found, and the verdict."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional

import numpy as np
from scipy import special


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of an audit.

    Attributes:
      check: What was looked at: "epsilon" or the name of another check.
      mechanism: Whose release it was.
      setting: What was released, in a few words.
      is_sound: False if what was found contradicts what is claimed.
      relation: Between the neighbours, for a claimed epsilon.
      delta: Of the claimed epsilon.
      method: By which epsilon is claimed.
      claimed: The epsilon, or the expected count or number.
      found: The lower bound on epsilon, or what was counted or measured.
      attainable: The ratio that the test of a bound reaches with infinitely many trials
        if the mechanism is what it claims to be; None for another check.
      trials: Releases with the canary and as many without, or draws.
      detail: What else a reader may want to know.
    """

    check: str
    mechanism: str
    setting: str
    is_sound: bool
    relation: Optional[str] = None
    delta: Optional[float] = None
    method: Optional[str] = None
    claimed: Optional[float] = None
    found: Optional[float] = None
    attainable: Optional[float] = None
    trials: Optional[int] = None
    detail: str = ""

    @property
    def ratio(self) -> Optional[float]:
        """What was found over what is claimed; None if either is missing or zero."""
        if self.found is None or not self.claimed:
            return None
        return self.found / self.claimed

    @property
    def verdict(self) -> str:
        """In a word: "below" the claim or "ABOVE" it, "ok" or "FAILED"."""
        if self.check == "epsilon":
            return "below" if self.is_sound else "ABOVE"
        return "ok" if self.is_sound else "FAILED"

    def row(self) -> dict[str, Any]:
        """Returns what is in a table and in a file, by column."""
        own = {**dataclasses.asdict(self), "ratio": self.ratio, "verdict": self.verdict}
        del own["is_sound"]
        return own


def count_chance(count: int, trials: int, probability: float) -> float:
    """Returns the chance of a count as far from what is expected, on both sides.

    Args:
      count: Successes.
      trials: Independent trials.
      probability: Of a success.

    Returns:
      Twice the smaller binomial tail, at most 1.
    """
    below = special.bdtr(count, trials, probability)
    above = special.bdtrc(count - 1, trials, probability) if count else 1.0
    return float(min(1.0, 2 * min(below, above)))


def correlation(one: Any, other: Any) -> float:
    """Returns the correlation of two vectors times the root of their length.

    That is about N(0, 1) for independent vectors.
    """
    one, other = (np.asarray(x, np.float64).ravel() for x in (one, other))
    one, other = one - np.mean(one), other - np.mean(other)
    scale = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / scale * math.sqrt(one.size)) if scale else 0.0
