# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Checkpoints and the manifest of a run, in files that are written atomically.

    store = CheckpointStore(folder / "checkpoints", keep=3)
    store.save(progress.to_checkpoint(marks))
    progress = from_checkpoint(store.load_newest())

A checkpoint is one file: a magic line, the SHA-256 of the rest in hex, and an
uncompressed npz of arrays and of a JSON text. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import files, privacy_coverage, reading
from dpfl.training.record import EVAL, NEEDED, Marks, Row, RunTotals, is_mark, is_row

MAGIC = b"dpfl checkpoint 1\n"
_HEADER_BYTES = len(MAGIC) + 65
# The name under which a checkpoint holds the digest of its run's manifest.
_MANIFEST = "manifest"
# The names under which a manifest holds its own digest, and the seed.
_CHECKSUM, _SEED = "checksum", "seed"
# The facts of which no error shows a value: with the seed the noise can be removed, and
# the digest of the data is exact.
_UNSAID = (_SEED, "task fingerprint")
# Limits of a manifest's size in bytes, some hundred times the usual one, and of a
# seed's digits.
_MOST_MANIFEST = 1 << 24
_SEED_TEXT = re.compile(r"[0-9]{1,78}", re.ASCII)
# The second number is appended if a folder has the name without it.
_NAME = re.compile(r"^checkpoint-\d{8}(-\d+)?$")


class ChangedFlagsError(ValueError):
    """A run is resumed with other flags, noise or versions than it was started with."""


class DamagedManifestError(ValueError):
    """The manifest is damaged, or does not match the checkpoints."""


class DamagedCheckpointError(ValueError):
    """A checkpoint has a valid checksum, but holds no state of the run."""


class Checkpoint(NamedTuple):
    """Everything needed to resume a run: rounds done, leaves of the state, and JSON."""

    round_index: int
    arrays: list[np.ndarray]
    info: dict[str, Any]


class Manifest(NamedTuple):
    """The seed of a run, and a digest of everything that it was started with."""

    seed: int
    digest: str


class CheckpointStore:
    """The newest few checkpoints of one run."""

    def __init__(
        self,
        directory: pathlib.Path,
        keep: int = 3,
        say: Callable[[str], None] = print,
        *,
        at_most: int = reading.MOST_ARRAYS,
    ):
        """Makes the folder.

        Args:
          directory: Folder of the checkpoints.
          keep: Number of checkpoints that are kept.
          say: Called with a sentence about a file that is skipped.
          at_most: Largest size of a checkpoint of the run, in bytes.
        """
        self._directory = directory
        self._keep = keep
        self._say = say
        self._at_most = at_most
        self._manifest: Optional[str] = None
        self._check: Callable[[Checkpoint], Any] = lambda checkpoint: None
        # Rounds done in the newest whole checkpoint when the store was bound.
        self.whole_round = 0
        files.private_folder(directory)
        files.remove_partials(directory)
        for path in sorted(directory.iterdir()):
            if _NAME.match(path.name) and not _is_file(path):
                say(f"{path} is not a regular file and is ignored")

    def bind(
        self,
        manifest: Manifest,
        check: Callable[[Checkpoint], Any] = lambda checkpoint: None,
    ) -> None:
        """Binds the store to a run; every checkpoint must match it and pass `check`.

        Args:
          manifest: The manifest of the run.
          check: Called with each checkpoint; raises ValueError for an invalid one.

        Raises:
          DamagedManifestError: If a checkpoint is of another manifest.
          DamagedCheckpointError: If `check` raises ValueError for a checkpoint.
        """
        self._manifest, self._check = manifest.digest, check
        self.whole_round = 0
        for path in self._paths():
            checkpoint, _ = self._read(path)
            if checkpoint is not None:
                self._own(path, checkpoint)
                self.whole_round = max(self.whole_round, checkpoint.round_index)

    def save(self, checkpoint: Checkpoint) -> pathlib.Path:
        """Writes a checkpoint, and then removes the oldest ones."""
        path = self._free_path(f"checkpoint-{checkpoint.round_index:08d}")
        info = {**checkpoint.info, _MANIFEST: self._manifest}
        parts = encode(checkpoint._replace(info=info))
        with files.atomically(path, private=True) as file:
            for part in parts:
                file.write(part)
        # Checkpoints of later rounds are kept: they are damaged ones.
        older = [
            candidate for candidate in self._paths() if candidate.name <= path.name
        ]
        for old in list(filter(_is_own, older))[self._keep :]:
            old.unlink()
        return path

    def load_newest(self) -> Optional[Checkpoint]:
        """Loads the newest checkpoint that is whole; None if there is none."""
        paths = self._paths()
        for path, older in zip(paths, [*paths[1:], None]):
            checkpoint, why = self._read(path)
            if checkpoint is not None:
                return self._own(path, checkpoint)
            then = "starting again" if older is None else "trying the previous one"
            self._say(f"checkpoint {path} is damaged ({why}) and is ignored; {then}")
        return None

    def _read(self, path: pathlib.Path) -> tuple[Optional[Checkpoint], str]:
        """Reads a checkpoint; returns None and the reason if it is damaged."""
        try:
            return decode(files.read_bytes(path, self._at_most)), ""
        except DamagedCheckpointError as error:
            raise DamagedCheckpointError(_refused(path, error)) from None
        except (OSError, ValueError, MemoryError) as error:
            return None, str(error)

    def _own(self, path: pathlib.Path, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint of the run without the digest of its manifest."""
        digest = checkpoint.info.pop(_MANIFEST, None)
        if self._manifest is not None and digest != self._manifest:
            raise DamagedManifestError(
                f"{path} belongs to another run than manifest.json, which was changed; "
                "choose another output_dir"
            )
        try:
            self._check(checkpoint)
        except ValueError as error:
            raise DamagedCheckpointError(_refused(path, error)) from None
        return checkpoint

    @property
    def newest_round(self) -> int:
        """Rounds done by the name of the newest checkpoint, whole or damaged; or 0."""
        return max((int(path.name.split("-")[1]) for path in self._paths()), default=0)

    @property
    def is_empty(self) -> bool:
        """Whether there is no checkpoint, whole or damaged."""
        return not self._paths()

    def _free_path(self, name: str) -> pathlib.Path:
        """The path of a name, with a number appended if another kind of file has it."""
        path = self._directory / name
        number = 0
        while os.path.lexists(path) and not _is_own(path):
            number += 1
            path = self._directory / f"{name}-{number}"
        return path

    def _paths(self) -> list[pathlib.Path]:
        """The paths of all checkpoints, newest first."""
        listed = (p for p in self._directory.iterdir() if _NAME.match(p.name))
        return sorted(filter(_is_file, listed), key=lambda p: p.name, reverse=True)


def _is_file(path: pathlib.Path) -> bool:
    """Whether a path is a regular file, and no link to someone else's."""
    return path.is_file() and not path.is_symlink()


def _is_own(path: pathlib.Path) -> bool:
    """Whether a file begins as a checkpoint; no other file is replaced or removed."""
    with contextlib.suppress(OSError, ValueError):
        if _is_file(path):
            with reading.opened(path) as file:
                return file.read(len(MAGIC)) == MAGIC
    return False


def _refused(path: pathlib.Path, error: Exception) -> str:
    return (
        f"{path} is not a checkpoint of this run ({error}); remove it to resume from "
        "the previous one, or choose another output_dir"
    )


def encode(checkpoint: Checkpoint) -> tuple[bytes, memoryview]:
    """Serializes a checkpoint, in two parts, since it may be large."""
    info = json.dumps({"round_index": checkpoint.round_index, **checkpoint.info})
    arrays = {f"array_{i:04d}": array for i, array in enumerate(checkpoint.arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, info=np.frombuffer(info.encode(), np.uint8), **arrays)
    body = buffer.getbuffer()
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"".join([MAGIC, digest, b"\n"]), body


def decode(content: bytes) -> Checkpoint:
    """Parses a checkpoint's file; the inverse of `encode`.

    Raises:
      DamagedCheckpointError: If the checksum is right, but the content is no
        checkpoint.
      ValueError: If a bit of the content was changed.
    """
    header, body = content[:_HEADER_BYTES], content[_HEADER_BYTES:]
    digest = hashlib.sha256(body).hexdigest().encode()
    if header != b"".join([MAGIC, digest, b"\n"]):
        raise ValueError("its checksum does not match")
    try:
        arrays = reading.arrays_in(io.BytesIO(body))
        text = arrays.pop("info", np.zeros(0, np.uint8)).tobytes()
        info = reading.parsed("its info", text.decode("utf-8", "replace"))
        if list(arrays) != [f"array_{i:04d}" for i in range(len(arrays))]:
            raise ValueError("its arrays are not numbered")
        if not isinstance(info, dict):
            raise ValueError("its info is not a mapping")
        number = info.pop("round_index", None)
        if type(number) is not int:
            raise ValueError("its round_index is not an integer")
    except ValueError as error:
        raise DamagedCheckpointError(str(error)) from None
    return Checkpoint(number, list(arrays.values()), info)


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
    _check_unchanged(written, facts, path.parent)
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
        seed = content.pop(_SEED, None)
        if not isinstance(seed, str) or _SEED_TEXT.fullmatch(seed) is None:
            raise ValueError("its seed is not a number")
        if not all(isinstance(facts, dict) for facts in content.values()):
            raise ValueError("its facts are not mappings")
    except ValueError as error:
        raise DamagedManifestError(
            f"{path} is damaged ({error}); choose another output_dir"
        ) from None
    return int(seed), checksum, content


def _check_unchanged(
    old: Mapping[str, Any], new: Mapping[str, Any], directory: pathlib.Path
) -> None:
    """Raises ChangedFlagsError that names the changed facts and their kinds."""
    kinds, changed = [], []
    for kind in sorted({*old, *new}):
        was, now = old.get(kind, {}), new.get(kind, {})
        names = [n for n in sorted({*was, *now}) if was.get(n) != now.get(n)]
        kinds += [kind] if names else []
        changed += [
            n if n in _UNSAID else f"{n} (was {was.get(n)}, now {now.get(n)})"
            for n in names
        ]
    if changed:
        raise ChangedFlagsError(
            f"the run in {directory} can only resume with the same "
            f"{' and '.join(kinds)}; changed: {', '.join(changed)}; choose another "
            "output_dir"
        )


class Progress(NamedTuple):
    """The progress of a run, of a size that does not grow with the rounds.

    Attributes:
      round_index: Rounds done.
      leaves: Leaves of the process's state; set only for a checkpoint.
      totals: The sum of all rows of metrics.csv.
      rows: Rows of metrics.csv since the newest checkpoint; in a checkpoint, since the
        one before it.
      times: The rows of times.csv of the same rounds.
      participations: int64[N], how often each client took part.
      seconds: Wall time of all rounds, over all restarts.
    """

    round_index: int
    leaves: list[np.ndarray]
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
        without_exact: bool = False,
    ) -> Progress:
        """The progress after one more round.

        Args:
          row: The row of metrics.csv.
          cohort: Indices of the clients that took part.
          seconds: Wall time of the round.
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
            participations=counts,
            seconds=self.seconds + seconds,
        )

    def to_checkpoint(self, marks: Marks) -> Checkpoint:
        """The checkpoint from which a run resumes here.

        Args:
          marks: The ends of the files of metrics.
        """
        info = {
            "totals": self.totals._asdict(),
            "rows": self.rows,
            "times": self.times,
            "seconds": self.seconds,
            "marks": marks,
        }
        arrays = [self.participations, *self.leaves]
        return Checkpoint(self.round_index, arrays, info)

    def recorded(self) -> Progress:
        """The progress after everything is written, without the leaves."""
        return self._replace(rows=[], times=[], leaves=[])


def beginning(population: int) -> Progress:
    """The progress of a run of N clients before its first round, without a state."""
    return Progress(0, [], RunTotals(), [], [], np.zeros(population, np.int64), 0.0)


def from_checkpoint(checkpoint: Checkpoint) -> Progress:
    """Restores the progress from a checkpoint; inverse of `Progress.to_checkpoint`."""
    participations, *leaves = checkpoint.arrays
    return Progress(
        checkpoint.round_index,
        leaves,
        RunTotals(**checkpoint.info["totals"]),
        checkpoint.info["rows"],
        checkpoint.info["times"],
        participations,
        checkpoint.info["seconds"],
    )


def check_progress(checkpoint: Checkpoint, population: int, last_round: int) -> None:
    """Raises ValueError for a checkpoint that no run of N clients could have written.

    Args:
      checkpoint: The checkpoint.
      population: N.
      last_round: Number of rounds of the run.
    """
    flaw = next(_flaws(checkpoint, population, last_round), None)
    if flaw is not None:
        raise ValueError(f"it has no valid {flaw}")


def _flaws(checkpoint: Checkpoint, population: int, last_round: int) -> Iterator[str]:
    """Yields the names of invalid parts; each check relies on the ones before."""
    done = checkpoint.round_index
    # Values of any type, each checked in its turn.
    info: Any = checkpoint.info
    if not 1 <= done <= last_round:
        yield "round_index"
    counts = checkpoint.arrays[0] if checkpoint.arrays else np.zeros(0)
    if counts.dtype != np.int64 or counts.shape != (population,):
        yield "participations"
    elif population and not 0 <= counts.min() <= counts.max() <= done:
        yield "participations"
    totals = info.get("totals")
    if not isinstance(totals, dict) or set(totals) != set(RunTotals._fields):
        yield "totals"
    last, evaluated = totals["last"], totals["evaluated"]
    if not is_row(last, NEEDED):
        yield "last row"
    metrics = [name for name in last if privacy_coverage.plain(name).startswith(EVAL)]
    if evaluated is not None and not is_row(evaluated, metrics):
        yield "last evaluated row"
    if [totals["rounds"], last["round"], totals["clients"]] != [
        done,
        done,
        counts.sum(),
    ]:
        yield "totals"
    for name in ("rows", "times"):
        rows = info.get(name)
        is_full = name == "times"
        if not isinstance(rows, list) or not all(
            is_row(row, row if is_full else ()) for row in rows
        ):
            yield name
        first = done - len(rows) + 1
        if [row["round"] for row in rows] != list(range(first, done + 1)):
            yield name
    if not all(set(row) <= set(last) for row in info["rows"]):
        yield "rows"
    seconds = info.get("seconds")
    if not is_row({"round": done, "seconds": seconds}, ["seconds"]) or seconds < 0:
        yield "seconds"
    marks = info.get("marks")
    if not isinstance(marks, dict) or not all(map(is_mark, marks.values())):
        yield "marks"
