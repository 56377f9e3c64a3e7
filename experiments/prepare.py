# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Makes the archive of a task's data from the files of their publisher.

  dpfl-prepare femnist leaf/data/femnist --output=data/femnist.npz
  dpfl-prepare femnist SAMPLE OTHER_SAMPLE

The task's name comes first, then folders, files or archives, which are united. The
archive belongs in the task's --data_dir. Whoever makes it of the same files has the
same bytes, and the SHA-256 that is printed. Nothing is downloaded, and no TensorFlow is
imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from absl import flags

from dpfl import checks, files
from dpfl.tasks import court, femnist, prepared

from . import cli

_OUTPUT = flags.DEFINE_string(
    "output", None, "File for the archive; default: the task's name, here."
)
flags.DEFINE_bool("progress", True, "Whether a bar goes to stderr.")

SOURCES = {source.name: source for source in (court.SOURCE, femnist.SOURCE)}


def main(argv: Sequence[str]) -> None:
    """Writes the archive; prints its digest and how much data it has."""
    if not argv[1:]:
        raise ValueError(f"the task must be given, one of {', '.join(SOURCES)}")
    name, folders = argv[1], argv[2:]
    source = SOURCES[checks.choice("the task", name, SOURCES)]
    if not folders:
        wanted = f"given after {name}, as one folder or more"
        raise ValueError(checks.message("SOURCE", wanted, "none"))
    path = source.archive if _OUTPUT.value is None else _OUTPUT.value
    output = files.output_path("--output", path, [".npz"])
    found = [p for folder in folders for p in prepared.find(source, folder, "SOURCE")]
    paths = list({os.path.realpath(path): path for path in found}.values())
    with cli.bar(paths) as shown:
        digest, counts = prepared.write(source, shown, str(output))
    print(f"{digest}  {output}")
    print(counts)


if __name__ == "__main__":
    cli.run(main)
