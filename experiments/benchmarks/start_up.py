# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a run takes before its first round and after its last.

`start_up` is `dpfl-train` with the task `digits` and a single round, from the command
line to the exit: imports, tracing, compiling and pictures are nearly all of it. It is
compared with a program that imports TFF and nothing else. The group is measured beside
an idle worker, as every group.
"""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

from . import harness
from .harness import Row

BASELINE = "start_up: import of TFF"
_IMPORT = ("-c", "import tensorflow_federated")
_TRAIN = ("-m", "dpfl", "train", "--task=digits", "--rounds=1", "--noprogress")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How often the programs are run.

    Attributes:
      flags: More flags of the training.
      repeats: Turns of each.
    """

    flags: tuple[str, ...] = ()
    repeats: int = 5


def start_up(settings: Settings) -> list[Row]:
    """Measures a run of one round, and the import of TFF."""
    functions = {
        BASELINE: lambda: _run(_IMPORT),
        "start_up: dpfl-train": lambda: _train(settings.flags),
    }
    return harness.compare(functions, BASELINE, settings.repeats)


def _train(flags: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run"
        _run((*_TRAIN, *flags, f"--output_dir={output}"))


def _run(arguments: tuple[str, ...]) -> None:
    subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )


FULL = Settings()
QUICK = Settings(("--num_clients=10", "--cohort_size=2", "--epsilon=100"))

ROWS: dict[str, Callable[[Settings], list[Row]]] = {"start_up": start_up}
