# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Progress of a run, in files that are whole or not there: checkpoints, manifest.

A checkpoint is one file: a magic line, the SHA-256 of the rest in hex, and an
uncompressed npz of arrays and of a JSON text. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import re
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import covered, files
from dpfl.training.record import Marks, Row, Tally

MAGIC = b"dpfl checkpoint 1\n"
# What reading a file that is no checkpoint raises.
_DAMAGE = (ValueError, KeyError, OSError, zipfile.BadZipFile)
_HEADER_BYTES = len(MAGIC) + 65
# The name under which a checkpoint holds the digest of its run's manifest.
_MANIFEST = "manifest"
# The name under which a manifest holds its own.
_CHECKSUM = "checksum"
# The second number is there where a folder has taken the name without it.
_NAME = re.compile(r"^checkpoint-\d{8}(-\d+)?$")


class ChangedFlagsError(ValueError):
    """A run is resumed with other flags, noise or versions than it was started with."""


class DamagedManifestError(ValueError):
    """The manifest does not tell any more what a run was started with."""


class Checkpoint(NamedTuple):
    """All that a run needs to go on: rounds done, leaves of the state, and JSON."""

    round_index: int
    arrays: list[np.ndarray]
    info: dict[str, Any]


class Manifest(NamedTuple):
    """The seed that a run was started with, and a digest of all that it was."""

    seed: int
    digest: str


class CheckpointStore:
    """The checkpoints of one run, the newest few."""

    def __init__(
        self, directory: pathlib.Path, keep: int = 3, say: Callable[[str], None] = print
    ):
        """Makes the folder; `keep` is how many checkpoints stay."""
        self._directory = directory
        self._keep = keep
        self._say = say
        self._manifest: Optional[str] = None
        files.private_folder(directory)
        files.remove_partials(directory)
        for path in sorted(directory.iterdir()):
            if _NAME.match(path.name) and not path.is_file():
                say(f"{path} is no file, so no checkpoint, and is left alone")

    def bind(self, manifest: Manifest) -> None:
        """Refuses (DamagedManifestError) checkpoints of any other manifest."""
        self._manifest = manifest.digest
        for path in self._paths():
            try:
                found = decode(path.read_bytes())
            except _DAMAGE:
                continue
            self._own(path, found)

    def save(self, checkpoint: Checkpoint) -> pathlib.Path:
        """Writes a checkpoint, and only then removes the oldest ones."""
        path = self._free_path(f"checkpoint-{checkpoint.round_index:08d}")
        info = {**checkpoint.info, _MANIFEST: self._manifest}
        parts = encode(checkpoint._replace(info=info))
        with files.atomically(path, private=True) as file:
            for part in parts:
                file.write(part)
        for old in self._paths()[self._keep :]:
            old.unlink()
        return path

    def load_newest(self) -> Optional[Checkpoint]:
        """The newest checkpoint that is whole, None if there is none."""
        paths = self._paths()
        for path, older in zip(paths, [*paths[1:], None]):
            try:
                found = decode(path.read_bytes())
            except _DAMAGE as error:
                then = "starting again" if older is None else "trying the one before"
                self._say(
                    f"checkpoint {path} is damaged ({error}) and is not used; {then}"
                )
                continue
            return self._own(path, found)
        return None

    def _own(self, path: pathlib.Path, found: Checkpoint) -> Checkpoint:
        """A checkpoint without the digest of its manifest, if that is right."""
        digest = found.info.pop(_MANIFEST, None)
        if self._manifest is not None and digest != self._manifest:
            raise DamagedManifestError(
                f"{path} must be of the run that the manifest beside it says, found "
                "another's: the manifest was changed; choose another output_dir"
            )
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is no checkpoint, whole or damaged."""
        return not self._paths()

    def _free_path(self, name: str) -> pathlib.Path:
        """The path of a name, with a number behind it if a folder has it."""
        path = self._directory / name
        number = 0
        while path.exists() and not path.is_file():
            number += 1
            path = self._directory / f"{name}-{number}"
        return path

    def _paths(self) -> list[pathlib.Path]:
        """The paths of all checkpoints, newest first."""
        listed = (p for p in self._directory.iterdir() if _NAME.match(p.name))
        found = (path for path in listed if path.is_file())
        return sorted(found, key=lambda p: p.name, reverse=True)


def encode(checkpoint: Checkpoint) -> tuple[bytes, memoryview]:
    """The bytes of a checkpoint's file, in two parts, since it may be large."""
    info = json.dumps({"round_index": checkpoint.round_index, **checkpoint.info})
    arrays = {f"array_{i:04d}": array for i, array in enumerate(checkpoint.arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, info=np.frombuffer(info.encode(), np.uint8), **arrays)
    body = buffer.getbuffer()
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"".join([MAGIC, digest, b"\n"]), body


def decode(content: bytes) -> Checkpoint:
    """The inverse of `encode`; ValueError if a bit of the content is another."""
    header, body = content[:_HEADER_BYTES], content[_HEADER_BYTES:]
    digest = hashlib.sha256(body).hexdigest().encode()
    if header != b"".join([MAGIC, digest, b"\n"]):
        raise ValueError("its checksum does not match")
    with np.load(io.BytesIO(body), allow_pickle=False) as loaded:
        info = json.loads(loaded["info"].tobytes())
        names = sorted(name for name in loaded.files if name != "info")
        arrays = [loaded[name] for name in names]
    return Checkpoint(info.pop("round_index"), arrays, info)


def open_manifest(
    path: pathlib.Path,
    facts: Mapping[str, Mapping[str, Any]],
    make_seed: Callable[[], int],
) -> Manifest:
    """Starts a run, or makes sure that it is the same one that was started.

    The seed is on disk before any of it is used: a round that was released is never
    released again with other noise.

    Raises:
      ChangedFlagsError: If the run was started with other facts; it names them.
      DamagedManifestError: If the file is not, to the last bit of what it says, one
        that this function wrote.
    """
    facts = files.plain(facts)
    if not path.exists():
        seed = make_seed()
        content = {"seed": str(seed), **facts}
        digest = files.digest(content)
        files.write_json(path, {**content, _CHECKSUM: digest}, private=True)
        return Manifest(seed, digest)
    try:
        written: dict[str, Any] = files.read_json(path)
        digest = written.pop(_CHECKSUM)
        if digest != files.digest(written):
            raise ValueError("its checksum does not match")
        seed = int(written.pop("seed"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedManifestError(
            f"{path} must be as the run wrote it, found it damaged ({error!r}); "
            "choose another output_dir"
        ) from error
    _check_unchanged(written, facts, path.parent)
    return Manifest(seed, digest)


def _check_unchanged(
    old: Mapping[str, Any], new: Mapping[str, Any], directory: pathlib.Path
) -> None:
    """Raises ChangedFlagsError that names what is changed and of what kind it is."""
    kinds, changed = [], []
    for kind in sorted({*old, *new}):
        was, now = old.get(kind, {}), new.get(kind, {})
        names = [n for n in sorted({*was, *now}) if was.get(n) != now.get(n)]
        kinds += [kind] if names else []
        changed += [f"{n} (was {was.get(n)}, now {now.get(n)})" for n in names]
    if changed:
        raise ChangedFlagsError(
            f"a run in {directory} can only go on with the {' and '.join(kinds)} that "
            f"it was started with; changed: {', '.join(changed)}; choose another "
            "output_dir"
        )


class Progress(NamedTuple):
    """The place where a run is; as large after one round as after many.

    Attributes:
      round_index: Rounds done.
      leaves: Leaves of the process's state, in what becomes a checkpoint or was one.
      tally: The sum of all rows of metrics.csv.
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
        """The progress after one more round; `without_exact` is of the files."""
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

    def to_checkpoint(self, marks: Marks) -> Checkpoint:
        """The checkpoint from which a run goes on here."""
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
        """The progress once all is in files; leaves may be gigabytes."""
        return self._replace(rows=[], times=[], leaves=[])


def beginning(population: int) -> Progress:
    """The progress of a run of N clients that has done nothing, without a state."""
    return Progress(0, [], Tally(), [], [], np.zeros(population, np.int64), 0.0)


def from_checkpoint(found: Checkpoint) -> Progress:
    """The inverse of `Progress.to_checkpoint`."""
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
