# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs what dpfl says of cards: a training, a resume, equal integers, benchmarks.

  python -m tools.card results --minutes=9
  python -m tools.card results --minutes=9     # goes on with what is left
  python -m tools.card rehearsal --quick       # at tiny sizes, on a processor too

Each step writes a file in the folder, and is skipped where the file is. A step begins
only if the time that it takes on a card is left. Compiled programs are kept in a folder
beside that of the results. With dpfl installed the commands are those of its wheel,
else those of this tree. pfl and FedJAX are measured where this Python can import them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.benchmarks import turns

ROOT = Path(__file__).resolve().parent.parent
_TRAIN = ("train", "--engine=jax", "--seed=1", "--noprogress", "--checkpoint_every=1")
_INTEGERS = ("tests/arrays/test_same_integers.py", "tests/arrays/test_bounds.py", "-k")
# The peers that are measured where this Python can import them.
_PEERS = ("fedjax", "pfl")


class Card:
    """Commands on the device of this machine, within a time."""

    def __init__(self, folder: Path, is_quick: bool, seconds: float):
        """Initializes the commands.

        Args:
          folder: Folder of the results.
          is_quick: Whether everything has tiny sizes.
          seconds: Time that is left.
        """
        self.folder, self.is_quick = folder, is_quick
        self._end = time.monotonic() + seconds
        self._environment = {
            # Without it the tests choose programs that are not optimized.
            "XLA_FLAGS": "",
            **os.environ,
            # A process compiles what an earlier one has not.
            "JAX_COMPILATION_CACHE_DIR": f"{folder}-programs",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        inside = [sys.executable, "-c", "import dpfl.experiments"]
        found = subprocess.run(inside, cwd=folder, capture_output=True)
        self._is_installed = found.returncode == 0

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - time.monotonic()

    def command(self, name: str, *given: str) -> list[str]:
        """A command of dpfl."""
        if self._is_installed:
            return [sys.executable, "-m", "dpfl", name, *given]
        return [sys.executable, "-m", f"experiments.{name}", *given]

    def begin(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """Starts a command, whose output goes to this one's."""
        print("$", *words[1:], flush=True)
        is_ours = self._is_installed and words[2] == "dpfl"
        folder = self.folder if is_ours else ROOT
        return subprocess.Popen(
            words, cwd=folder, env=self._environment, text=True, start_new_session=True
        )

    def run(self, words: Sequence[str]) -> float:
        """Runs a command to its end; returns its seconds.

        Raises:
          RuntimeError: If it fails.
          subprocess.TimeoutExpired: If time is up.
        """
        begun = time.monotonic()
        process = self.begin(words)
        try:
            code = process.wait(self.left)
        finally:
            # Nothing that it has started slows the next step down.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if code:
            raise RuntimeError(f"exit code {code} of {words}")
        return time.monotonic() - begun

    def benchmark(self, name: str, *given: str) -> None:
        """Runs the benchmark, whose rows are the step's file."""
        more = ["--quick"] if self.is_quick else []
        partial = self.folder / f"{name}.partial.json"
        command = [sys.executable, "-m", "experiments.benchmark"]
        self.run([*command, *given, *more, f"--output={partial}"])
        partial.rename(self.folder / f"{name}.json")


def _train(card: Card) -> None:
    """The README's run, and again with a kill: both have the same bits."""
    size = ["--rounds=20"] if card.is_quick else []
    with tempfile.TemporaryDirectory() as name:
        whole, killed = (Path(name, part) for part in ("whole", "killed"))
        lines = {
            folder: card.command(*_TRAIN, *size, f"--output_dir={folder}")
            for folder in (whole, killed)
        }
        found: dict[str, object] = {"seconds": card.run(lines[whole])}
        process = card.begin(lines[killed])
        while not list(killed.glob("checkpoints/checkpoint-*")):
            if process.poll() is not None or card.left < 0:
                process.kill()
                raise RuntimeError("the run that is to be killed ended before")
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise RuntimeError("the run that is to be killed ended before")
        found["seconds_resumed"] = card.run(lines[killed])
        for key, each in (("model", whole), ("model_resumed", killed)):
            content = (each / "model.npz").read_bytes()
            found[key] = hashlib.sha256(content).hexdigest()
        found["summary"] = json.loads((whole / "summary.json").read_text())
        if found["model"] != found["model_resumed"]:
            raise RuntimeError("the resumed run has other weights")
        _write(card, "train", found)


def _integers(card: Card) -> None:
    """The stored digests of exact inputs and the bounds of privacy, on this device."""
    kinds = "rounding" if card.is_quick else "vectors or rounds or bounds"
    chosen = f"jax and ({kinds})"
    options = ("-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib")
    words = [sys.executable, "-m", "pytest", *options, *_INTEGERS, chosen]
    _write(card, "integers", {"seconds": card.run(words)})


def _write(card: Card, name: str, found: Mapping[str, object]) -> None:
    path = card.folder / f"{name}.json"
    path.write_text(json.dumps(found, indent=2) + "\n")


def _rounds(
    name: str, rows: str, processes: int, has_peers: bool = False
) -> Callable[[Card], None]:
    """The step that measures rows of whole rounds, beside peers or alone.

    Args:
      name: Name of the step.
      rows: The case and mechanisms.
      processes: Number of processes that take turns.
      has_peers: Whether peers take turns too.
    """

    def run(card: Card) -> None:
        given = ["--engine=jax", f"--rows={rows}", f"--processes={processes}"]
        if has_peers:
            peers = [p for p in _PEERS if turns.has(turns.PEERS[p], sys.executable)]
            if not peers:
                raise RuntimeError(f"no {' and no '.join(_PEERS)} to measure")
            given.append(f"--peers={','.join(peers)}")
        card.benchmark(name, *given)

    return run


class Step(NamedTuple):
    """A step, and the seconds that it takes on a card by estimate."""

    run: Callable[[Card], None]
    seconds: float


STEPS = {
    "train": Step(_train, 90),
    "cnn": Step(
        _rounds("cnn", "cnn_100,none,gaussian,csgm_0.1,ddg_clients,ddg_helpers", 3), 120
    ),
    "cnn_peers": Step(_rounds("cnn_peers", "cnn_100,none", 2, True), 170),
    "lstm": Step(_rounds("lstm", "lstm_100,none,csgm_0.1", 3), 110),
    "lstm_peers": Step(_rounds("lstm_peers", "lstm_100,none", 2, True), 180),
    "thousand": Step(_rounds("thousand", "cnn_1000,none,csgm_0.1", 2), 70),
    "aggregation": Step(
        lambda card: card.benchmark("aggregation", "--rows=jax_aggregation"), 150
    ),
    "integers": Step(_integers, 120),
}


def main(argv: Sequence[str]) -> int:
    """Runs the steps that are left; returns 0 once none is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9, help="time that there is")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only", default=",".join(STEPS), help="steps, by commas")
    asked = parser.parse_args(argv)
    asked.folder.mkdir(parents=True, exist_ok=True)
    card = Card(asked.folder.resolve(), asked.quick, 60 * asked.minutes)
    failed = []
    for name in asked.only.split(","):
        if (asked.folder / f"{name}.json").exists() or card.left < STEPS[name].seconds:
            continue
        try:
            STEPS[name].run(card)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            failed.append(name)
    left = [n for n in STEPS if not (asked.folder / f"{n}.json").exists()]
    text = f"left, for the same command: {', '.join(left)}"
    print(text if left else "done")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
