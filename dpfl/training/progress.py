# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Where a run is, and the same as a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpfl import covered
from dpfl.training.checkpoint import Checkpoint
from dpfl.training.rows import Row, Tally


class Progress(NamedTuple):
    """Where a run is; its size does not depend on how many rounds were done.

    Attributes:
      round_index: Rounds done.
      leaves: Leaves of the process's state, in what becomes a checkpoint or was one.
      tally: Of all rows of metrics.csv.
      rows: Those of the rounds since the newest checkpoint, or in it those since the
        one before, as they go to the file.
      times: The rows of times.csv that go with them.
      participations: int64[N], how often each client took part.
      seconds: Wall time of all rounds, over all restarts.
    """

    round_index: int
    leaves: list[np.ndarray]
    tally: Tally
    rows: list[Row]
    times: list[Row]
    participations: np.ndarray
    seconds: float

    def advanced(
        self,
        row: Row,
        cohort: Sequence[int],
        seconds: float,
        *,
        without_exact: bool = False,
    ) -> Progress:
        """Returns the progress after one more round; the leaves are not touched.

        Args:
          row: The round's row.
          cohort: Who took part.
          seconds: How long it took.
          without_exact: Whether what is exact stays out of the files.
        """
        counts = self.participations.copy()
        counts[list(cohort)] += 1
        time_row = {
            "round": row["round"],
            "exact_seconds": round(seconds, 4),
            "exact_unix_time": time.time(),
        }
        written = [row, time_row]
        if without_exact:
            written = [covered.without_exact(each) for each in written]
        return self._replace(
            round_index=row["round"],
            tally=self.tally.plus(row),
            rows=[*self.rows, written[0]],
            times=[*self.times, written[1]],
            participations=counts,
            seconds=self.seconds + seconds,
        )

    def to_checkpoint(self, marks: Mapping[str, Any]) -> Checkpoint:
        """Returns the checkpoint from which a run goes on here.

        Args:
          marks: Where the files of metrics end that have all rows but `rows`.
        """
        info = {
            "tally": self.tally._asdict(),
            "rows": self.rows,
            "times": self.times,
            "seconds": self.seconds,
            "marks": marks,
        }
        arrays = [self.participations, *self.leaves]
        return Checkpoint(self.round_index, arrays, info)

    def recorded(self) -> Progress:
        """Returns the progress once `rows` and `times` are in the files."""
        return self._replace(rows=[], times=[])


def beginning(population: int) -> Progress:
    """Returns the progress of a run that has done nothing, without a state.

    Args:
      population: Number of clients N.
    """
    return Progress(0, [], Tally(), [], [], np.zeros(population, np.int64), 0.0)


def from_checkpoint(found: Checkpoint) -> Progress:
    """Returns the inverse of `Progress.to_checkpoint`."""
    participations, *leaves = found.arrays
    return Progress(
        found.round_index,
        leaves,
        Tally(**found.info["tally"]),
        found.info["rows"],
        found.info["times"],
        participations,
        found.info["seconds"],
    )
