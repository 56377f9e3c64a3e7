# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Writes an installable package with a task of one's own users, from an npz.

  dpfl-new-task mine --from_npz=users.npz
  pip install --no-build-isolation --no-deps -e ./mine
  dpfl-train --task=mine

The npz has the arrays x, y and users; docs/tasks.md describes them. Network
and settings stand in mine/src/mine/__init__.py, to be changed there. The package has a
copy of the npz: it is as private as the data are.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags

from dpfl import checks, files, tasks
from dpfl.tasks import users

from . import cli

_FROM_NPZ = flags.DEFINE_string("from_npz", None, "File with the users' examples.")
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the package; default: ./NAME."
)
# Least side of pictures for a convolution, and most clients of a round.
_LEAST_SIDE, _MOST_CLIENTS = 20, 100

# The files of a package, with names of what is filled in.
_TEMPLATES = Path(__file__).with_name("templates")


def layers(data: users.Data) -> list[str]:
    """The layers of a small network for examples of such a shape."""
    shape = data.x.shape[1:]
    is_large = len(shape) == 3 and min(shape[:2]) >= _LEAST_SIDE
    first = "Convolution(24, 5, 3)" if is_large else "Dense(64, 'relu')"
    flat = [first, "Flatten()"] if is_large else ["Flatten()", first]
    return [*flat, f"Dense({data.num_classes})"]


def main(argv: Sequence[str]) -> None:
    """Writes the package."""
    checks.require(len(argv) == 2, "NAME", "one name of a task", " ".join(argv[1:]))
    name = argv[1]
    is_name = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    checks.require(is_name, "NAME", "a name of a Python module", name)
    spec = importlib.util.find_spec(name)
    # A folder without code is no module.
    is_new = name not in tasks.task_names() and not (spec and spec.origin)
    checks.require(is_new, "NAME", "a name that no task or module has", name)
    given = name if _OUTPUT_DIR.value is None else _OUTPUT_DIR.value
    checks.require(given, "--output_dir", "a folder's path", given)
    cli.require("dpfl-new-task", "from_npz")
    path = files.input_path("--from_npz", _FROM_NPZ.value)
    try:
        data = users.read(path)
        checks.require(len(data.names) > 1, "users", "two or more", len(data.names))
        labels = np.unique(data.y).tolist()
        checks.require(len(labels) > 1, "labels in y", "two or more", labels)
    except ValueError as error:
        wanted = "an archive of users' examples"
        raise ValueError(
            f"--from_npz must be {wanted}, found {path}, where {error}"
        ) from error
    folder = Path(os.path.realpath(given))
    is_empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    checks.require(is_empty, "--output_dir", "a new or an empty folder", str(folder))
    content = {
        "name": name,
        "users": len(data.names),
        "examples": len(data.y),
        "classes": data.num_classes,
        "shape": data.x.shape[1:],
        "layers": ",\n        ".join(f"networks.{each}" for each in layers(data)),
        "cohort": max(1, min(_MOST_CLIENTS, len(data.names) // 2)),
    }
    files.output_folder("--output_dir", folder)
    package = folder / "src" / name
    package.mkdir(parents=True)
    shutil.copyfile(path, package / f"{name}.npz")
    for template, path in (
        ("task.txt", package / "__init__.py"),
        ("pyproject.txt", folder / "pyproject.toml"),
    ):
        text = (_TEMPLATES / template).read_text(encoding="utf-8")
        files.write_atomically(path, text.format(**content))
    print(f"task: {name}, {len(data.names)} users, {len(data.y)} examples")
    print(f"package: {folder}")
    print(f"install: pip install --no-build-isolation --no-deps -e {folder}")


if __name__ == "__main__":
    cli.run(main)
