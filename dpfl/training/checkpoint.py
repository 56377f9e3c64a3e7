# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Checkpoints and the manifest of a run, in files that are written atomically.

    store = CheckpointStore(folder / "checkpoints", keep=3)
    store.save(progress)
    progress = store.load_newest()

A checkpoint is one archive of `files.write_arrays`, whose header has the progress as a
JSON text. Nothing is pickled.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import files, privacy_coverage
from dpfl.training.record import Row, RunTotals

# The names under which a manifest holds its own digest, and the seed.
_CHECKSUM, _SEED = "checksum", "seed"
# The facts of which no error shows a value: with the seed the noise can be removed, and
# the digest of the data is exact.
_UNSAID = (_SEED, "task fingerprint")
# Limit of a manifest's size in bytes, some hundred times the usual one.
_MOST_MANIFEST = 1 << 24
_PATTERN = "checkpoint-" + 8 * "[0-9]"
# The scores of no canaries.
_NO_SCORES = np.zeros(0, np.float32)


class ChangedFlagsError(ValueError):
    """A run is resumed with other flags, noise or versions than it was started with."""


class DamagedManifestError(ValueError):
    """The manifest is damaged, or does not match the checkpoints."""


class DamagedCheckpointError(ValueError):
    """A whole checkpoint that the run cannot resume from."""


class Manifest(NamedTuple):
    """The seed of a run, and a digest of everything that it was started with."""

    seed: int
    digest: str


class Progress(NamedTuple):
    """The progress of a run; with the rounds grow the scores of canaries alone.

    Attributes:
      round_index: Rounds done.
      leaves: Leaves of the process's state; set only for a checkpoint.
      scores: float32[rounds + 1, K], of each of K canaries by round, behind those of
        the initial model; see `training.canaries`.
      totals: The sum of all rows of metrics.csv.
      rows: Rows of metrics.csv since the newest checkpoint; in a checkpoint, since the
        one before it.
      times: The rows of times.csv of the same rounds.
      participations: int64[N], how often each client took part.
      seconds: Wall time of all rounds, over all restarts.
    """

    round_index: int
    leaves: list[np.ndarray]
    scores: np.ndarray
    totals: RunTotals
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
        scores: np.ndarray = _NO_SCORES,
        without_exact: bool = False,
    ) -> Progress:
        """The progress after one more round.

        Args:
          row: The row of metrics.csv.
          cohort: Indices of the clients that took part.
          seconds: Wall time of the round.
          scores: float32[K], those of the canaries.
          without_exact: Whether exact columns are left out of the files' rows.
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
            written = [privacy_coverage.without_exact(each) for each in written]
        return self._replace(
            round_index=row["round"],
            totals=self.totals.plus(row),
            rows=[*self.rows, written[0]],
            times=[*self.times, written[1]],
            scores=np.concatenate([self.scores, scores[np.newaxis]]),
            participations=counts,
            seconds=self.seconds + seconds,
        )

    def recorded(self) -> Progress:
        """The progress after everything is written, without the leaves."""
        return self._replace(rows=[], times=[], leaves=[])


def beginning(population: int, scores: np.ndarray = _NO_SCORES) -> Progress:
    """The progress of a run before its first round, without a state.

    Args:
      population: The number of clients.
      scores: float32[K], those of the canaries in the initial model.
    """
    counts, scores = np.zeros(population, np.int64), scores[np.newaxis]
    return Progress(0, [], scores, RunTotals(), [], [], counts, 0.0)


class CheckpointStore:
    """The newest few checkpoints of one run."""

    def __init__(
        self,
        directory: pathlib.Path,
        keep: int = 3,
        say: Callable[[str], None] = print,
    ):
        """Makes the folder.

        Args:
          directory: Folder of the checkpoints.
          keep: Number of checkpoints that are kept.
          say: Called with a sentence about a file that is skipped.
        """
        self._directory = directory
        self._keep = keep
        self._say = say
        self._manifest: Optional[str] = None
        files.private_folder(directory)
        files.remove_partials(directory)

    def bind(self, manifest: Manifest) -> None:
        """Binds the store to a run; checkpoints of another manifest are refused."""
        self._manifest = manifest.digest

    def save(self, progress: Progress) -> pathlib.Path:
        """Writes a checkpoint, and then removes the oldest ones."""
        path = self._directory / f"checkpoint-{progress.round_index:08d}"
        info = {
            "totals": progress.totals._asdict(),
            "rows": progress.rows,
            "times": progress.times,
            "seconds": progress.seconds,
        }
        header = {
            "round_index": progress.round_index,
            "manifest": self._manifest,
            # A text, since rows may have NaN and infinity.
            "info": json.dumps(info),
        }
        parts = [progress.participations, progress.scores, *progress.leaves]
        arrays = {f"array_{i:04d}": array for i, array in enumerate(parts)}
        files.write_arrays(path, header, arrays, private=True)
        # Checkpoints of later rounds are kept: they are damaged ones.
        older = [candidate for candidate in self._paths() if candidate <= path]
        for old in older[self._keep :]:
            old.unlink()
        return path

    def load_newest(
        self, say: Optional[Callable[[str], None]] = None
    ) -> Optional[Progress]:
        """Loads the newest checkpoint that is whole; None if there is none.

        Args:
          say: Called in place of the store's own `say`.

        Raises:
          DamagedManifestError: If the checkpoint is of another manifest.
        """
        paths = self._paths()
        for path, older in zip(paths, [*paths[1:], None]):
            try:
                header, arrays = files.read_arrays(path)
            except (OSError, ValueError, MemoryError) as error:
                then = "starting again" if older is None else "trying the previous one"
                (say or self._say)(
                    f"checkpoint {path} is damaged ({error}) and is ignored; {then}"
                )
                continue
            if self._manifest not in (None, header["manifest"]):
                raise DamagedManifestError(
                    f"{path} belongs to another run than manifest.json, which was "
                    "changed; choose another output_dir"
                )
            info = json.loads(header["info"])
            participations, scores, *leaves = arrays.values()
            return Progress(
                header["round_index"],
                leaves,
                scores,
                RunTotals(**info["totals"]),
                info["rows"],
                info["times"],
                participations,
                info["seconds"],
            )
        return None

    @property
    def newest_round(self) -> int:
        """Rounds done by the name of the newest checkpoint, whole or damaged; or 0."""
        return max((int(path.name.split("-")[1]) for path in self._paths()), default=0)

    def _paths(self) -> list[pathlib.Path]:
        """The paths of all checkpoints, newest first."""
        return sorted(self._directory.glob(_PATTERN), reverse=True)


def open_manifest(
    path: pathlib.Path,
    facts: Mapping[str, Mapping[str, Any]],
    make_seed: Callable[[], int],
) -> Manifest:
    """Starts a run, or checks that it is the same run that was started.

    The seed is on disk before it is used, so that a released round is never released
    again with other noise.

    Args:
      path: Path of the manifest, which is written if there is none.
      facts: Everything that must not change on resume, by kind and name.
      make_seed: Draws the seed of a new run.

    Raises:
      ChangedFlagsError: If the run was started with other facts, which the message
        names.
      DamagedManifestError: If the file was changed since this function wrote it.
    """
    facts = files.plain(facts)
    if not path.exists():
        seed = make_seed()
        content = {_SEED: str(seed), **facts}
        digest = files.digest(content)
        files.write_json(path, {**content, _CHECKSUM: digest}, private=True)
        return Manifest(seed, digest)
    seed, digest, written = _read_manifest(path)
    check_unchanged(
        written,
        facts,
        f"the run in {path.parent} can only resume",
        "choose another output_dir",
    )
    return Manifest(seed, digest)


def _read_manifest(path: pathlib.Path) -> tuple[int, str, dict[str, Any]]:
    """Reads the seed, the checksum and the facts; errors do not reveal their values."""
    try:
        content = files.read_json(path, _MOST_MANIFEST)
        if not isinstance(content, dict):
            raise ValueError("it is not a mapping")
        checksum = content.pop(_CHECKSUM, None)
        if checksum != files.digest(content):
            raise ValueError("its checksum does not match")
        seed = int(content.pop(_SEED))
    except ValueError as error:
        raise DamagedManifestError(
            f"{path} is damaged ({error}); choose another output_dir"
        ) from None
    return seed, checksum, content


def check_unchanged(
    old: Mapping[str, Any], new: Mapping[str, Any], what: str, mend: str
) -> None:
    """Raises ChangedFlagsError that names the changed facts and their kinds.

    Args:
      old: Facts by kind and name.
      new: Facts that must be the same.
      what: Words on what they must be the same for.
      mend: Words on what else is possible.
    """
    kinds: list[str] = []
    changed: dict[str, str] = {}
    for kind in sorted({*old, *new}):
        was, now = old.get(kind, {}), new.get(kind, {})
        names = [n for n in sorted({*was, *now}) if was.get(n) != now.get(n)]
        kinds += [kind] if names else []
        for n in names:
            values = f"was {was.get(n)}, now {now.get(n)}"
            changed[n] = f"{n} ({'not shown' if n in _UNSAID else values})"
    if changed:
        raise ChangedFlagsError(
            f"{what} with the same {' and '.join(kinds)}; changed: "
            f"{', '.join(changed.values())}; {mend}"
        )
