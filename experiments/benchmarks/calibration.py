# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""What it costs to set integer noise for a budget, and to refuse too few bits.

  dpfl-benchmark --rows=calibration

prints the rows of `ROWS`. Messages grow by a number from turn to turn, and with them
the grid changes, so that nothing that the accountant remembers serves twice.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, Optional

from dpfl import accounting, mechanisms, planning
from dpfl.mechanisms.participation import Participation

from .harness import Row, compare

_EPSILON, _DELTA = 8.0, 1e-8
_BASELINE = "calibrate Gaussian"
# Clients of which a round's are sampled, for each of a round, and rounds.
_SAMPLED_OF, _ROUNDS = 100, 1000


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark.

    Attributes:
      sizes: Clients in a round, bits and coordinates of messages.
      refused: The same where the bits are too few.
      repeats: Turns that each calibration gets.
    """

    sizes: tuple[tuple[int, int, int], ...] = (
        (100, 7, 2**20),
        (10_000, 13, 1_000_000),
        (100_000, 18, 1_000_000),
        (1_000_000, 22, 10_000_000),
    )
    refused: tuple[tuple[int, int, int], ...] = ((100, 3, 2**20), (10_000, 12, 10_000))
    repeats: int = 9


FULL = Settings()
QUICK = Settings(sizes=((100, 7, 10_000),), refused=((100, 3, 10_000),))


def calibrations(settings: Settings) -> list[Row]:
    """Measures calibrations of one release, of sampled rounds, and refusals."""
    gaussian = mechanisms.Gaussian(100, 1.0, 1.0)
    calls: dict[str, Callable[[], None]] = {_BASELINE: _call(gaussian, 1, None)}
    for n, bits, length in settings.sizes:
        size = f"{n:.0e}, {bits} bits".replace("e+0", "e")
        plain = mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)
        helped = dataclasses.replace(plain, noise_source="helpers")
        sampled = mechanisms.PoissonSampling(_SAMPLED_OF * n, n, _ROUNDS)
        calls[f"calibrate {size}"] = _call(plain, length, None)
        calls[f"calibrate {size}, sampled"] = _call(helped, length, sampled)
    for n, bits, length in settings.refused:
        plain = mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)
        name = f"refuse {n:.0e}, {bits} bits".replace("e+0", "e")
        calls[name] = _call(plain, length, None, refused=True)
    return compare(calls, _BASELINE, min(3, settings.repeats))


ROWS: dict[str, Callable[[Settings], list[Row]]] = {"calibration": calibrations}


def _call(
    mechanism: Any,
    length: int,
    participation: Optional[Participation],
    refused: bool = False,
) -> Callable[[], None]:
    """Returns a function that calibrates, with longer messages at each call."""
    lengths = itertools.count(length)

    def run() -> None:
        try:
            planning.calibrate(
                mechanism, participation, next(lengths), _EPSILON, _DELTA
            )
        except accounting.CalibrationError:
            if not refused:
                raise

    return run
