# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Data sets that `dpfl-prepare` makes archives of.

arrays = prepared.read(femnist.SOURCE, config)
digest, counts = prepared.write(femnist.SOURCE, paths, "femnist.npz")
"""

from __future__ import annotations

import dataclasses
import io
import os
import pathlib
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import checks, files, reading
from dpfl.tasks import data_files, downloads


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set in its publisher's form, and its archive.

    Attributes:
      name: Name of the task, and of the archive without its ending.
      wanted: What the folder of the data must have, for an error.
      chosen: Function of the sorted paths of all json files below a folder to those
        of the publisher.
      arrays: Function of paths of such files, or of archives, in any order, to the
        archive's arrays.
      counted: Names of arrays whose lengths tell how much data there are, by what they
        are of.
    """

    name: str
    wanted: str
    chosen: Callable[[list[pathlib.Path]], list[pathlib.Path]]
    arrays: Callable[[Iterable[str]], Mapping[str, np.ndarray]]
    counted: Mapping[str, str]

    @property
    def archive(self) -> str:
        """The archive's name in the folder of the data."""
        return f"{self.name}.npz"


def find(source: Source, folder: str, name: str = "data_dir") -> list[str]:
    """The paths of the publisher's files below a folder, else of archives, sorted.

    Args:
      source: The data set.
      folder: Path of the folder, or of one file.
      name: Name of the folder in errors.

    Raises:
      DataFileError: If there are none.
    """
    root = pathlib.Path(folder)
    if root.is_file():
        return [folder]
    found = source.chosen(sorted(root.rglob("*.json")))
    found = found or sorted(root.rglob(source.archive))
    if not found:
        made = f"`dpfl-prepare {source.name} FOLDER` makes"
        wanted = f"a folder with {source.wanted}, or with {source.archive}"
        wanted += f", which {made} of them"
        raise data_files.DataFileError(checks.message(name, wanted, folder))
    return list(map(str, found))


def read(source: Source, config: Any) -> Mapping[str, np.ndarray]:
    """The arrays of the archive, else of the files, in the folder that options name.

    Raises:
      DataFileError: If the folder has neither, or a file is damaged.
    """
    folder = data_files.data_folder(config)
    path = os.path.join(folder, source.archive)
    if os.path.exists(path):
        return source.arrays([path])
    found = find(source, folder)
    once = f"`dpfl-prepare {source.name} {folder}` makes an archive of them once"
    print(f"reading {len(found)} files of {source.name}: {once}", file=sys.stderr)
    return source.arrays(found)


def archived(path: str, names: Sequence[str]) -> list[np.ndarray]:
    """Some arrays of an archive.

    Raises:
      DataFileError: If it is damaged, or lacks one.
    """
    try:
        with reading.opened(path) as file:
            arrays = reading.arrays_in(file)
    except (OSError, ValueError) as error:
        raise data_files.damaged(path, str(error)) from error
    lacking = [name for name in names if name not in arrays]
    if lacking:
        wanted = f"an archive with the arrays {', '.join(names)}"
        found = f"one without {lacking[0]}"
        raise data_files.DataFileError(checks.message(path, wanted, found))
    return [arrays[name] for name in names]


def write(source: Source, paths: Iterable[str], output: str) -> tuple[str, str]:
    """Writes the archive of files.

    Args:
      source: The data set.
      paths: Paths of its files.
      output: Path of the archive.

    Returns:
      Its SHA-256, the same on every machine, and in words how much data it has.

    Raises:
      DataFileError: If a file is damaged, or they have no data.
    """
    arrays = source.arrays(paths)
    counts = {what: len(arrays[name]) for what, name in source.counted.items()}
    told = ", ".join(f"{count} {what}" for what, count in counts.items())
    if not all(counts.values()):
        wanted = f"{source.wanted}, with enough data"
        raise data_files.DataFileError(checks.message("SOURCE", wanted, told))
    with files.atomically(output) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            # Of 1980 and Unix; compression would depend on the library's version.
            member = zipfile.ZipInfo(f"{name}.npy")
            member.create_system = 3
            archive.writestr(member, content.getbuffer())
    return downloads.digest(output), told
