# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""dpfl beside its peers: one process after the other, in turns, and their ratios.

    pythons = turns.interpreters(["tff", "pfl=/path/bin/python"], "dpfl")
    rows = turns.compare(turns.work("cnn_50", quick=True), pythons, 2, "dpfl")

`CASES` lists the cases, and `peers` is the program that each process runs.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dpfl import machine

from . import peers
from .harness import Row
from .peers import Measured, RoundWork

# dpfl's own loop by the name of its engine.
ENGINES = {"tff": "dpfl", "jax": "dpfl_jax"}


class Peer(NamedTuple):
    """A simulator.

    Attributes:
      probe: Code that its interpreter executes without an error.
      install: The command that installs it in an environment of its own.
      needs_dpfl: Whether its loop is written with dpfl.
      processes: Numbers of processes that it is measured with, if there are as many
        processors.
    """

    probe: str
    install: str
    needs_dpfl: bool = False
    processes: tuple[int, ...] = (1,)


_WITH_TFF = Peer("import dpfl.needs_tff", "sh tools/setup.sh", True)
PEERS = {
    "tff": _WITH_TFF,
    "dpfl": _WITH_TFF,
    "dpfl_jax": Peer("import dpfl, jax", "pip install -e '.[jax]'", True),
    "pfl": Peer(
        "try:\n import pfl.model.pytorch\n"
        "except ImportError:\n import pfl.model.tensorflow",
        "pip install 'pfl[pytorch]' or 'pfl[tf]'",
        processes=(1, 2, 8, 16),
    ),
    "fedjax": Peer(
        "import jax; jax.tree_map = jax.tree_util.tree_map; import fedjax",
        "pip install fedjax dm-haiku",
    ),
}
# Clients, examples of each, rounds of a process, and clients of its warm-up. TFF's own
# loop takes longer in its first round of a thousand than in later ones; that of the
# LSTM fails, and a round of the others takes minutes.
CASES = {
    "cnn_50": ("cnn", 50, 100, 3, 50),
    "cnn_100": ("cnn", 100, 100, 3, 100),
    "cnn_1000": ("cnn", 1000, 100, 1, 1000),
    "lstm_50": ("lstm", 50, 20, 3, 50),
    "lstm_100": ("lstm", 100, 20, 3, 100),
    "lstm_1000": ("lstm", 1000, 20, 1, 50),
}
PROCESSES = 5
# Name of the warm-up, which compiles, behind that of its row.
_FIRST = "first round"
# Column of a row by the name of a measurement.
_CLOCKS = {"seconds": "", "processor_seconds": "cpu_"}


def work(case: str, quick: bool, mechanisms: Sequence[str] = ("none",)) -> RoundWork:
    """The work of every peer in a case of `CASES`; little of it if quick.

    Args:
      case: Name of the case.
      quick: Whether there is little work.
      mechanisms: Mechanisms that dpfl is measured with, `none` first.
    """
    model, cohort, examples, rounds, warm_up = CASES[case]
    if quick:
        cohort, examples, rounds, warm_up = 2, 4, 1, 2
    return RoundWork(model, cohort, examples, rounds, warm_up, mechanisms)


def interpreters(given: Sequence[str], own: str) -> dict[str, str]:
    """The interpreter of each peer, from words such as 'pfl=/path/bin/python'.

    Args:
      given: The words.
      own: The one of `ENGINES` that the others are compared with.

    Raises:
      ValueError: If a word is malformed, or a peer cannot be imported.
    """
    pythons: dict[str, str] = {}
    others = [name for name in PEERS if name != own]
    for word in given or [""]:
        name, _, python = word.partition("=")
        if name in pythons or name not in others:
            raise ValueError(
                f"--peers must be some of {', '.join(others)}, each once, with =PYTHON "
                f"if another interpreter has it, found {word!r}"
            )
        pythons[name] = python or sys.executable
    for name, python in pythons.items():
        peer = PEERS[name]
        if not has(peer, python):
            raise ValueError(
                f"--peers must be packages that can be imported, found no {name} with "
                f"{python}; {peer.install} in an environment ENV installs it for "
                f"--peers={name}=ENV/bin/python"
            )
    return pythons


def has(peer: Peer, python: str) -> bool:
    """Whether an interpreter can import a peer."""
    command = [python, *_isolated(peer, python), "-c", peer.probe]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def _isolated(peer: Peer, python: str) -> list[str]:
    """Options by which another interpreter finds no modules of this one."""
    return [] if peer.needs_dpfl or python == sys.executable else ["-I"]


def run(peer: str, python: str, asked: RoundWork) -> Measured:
    """Measures a peer in a process of its own, as `peers.measured` does.

    Args:
      peer: Name of the peer.
      python: Path of the interpreter.
      asked: The work.

    Raises:
      RuntimeError: If the process fails, with its error.
    """
    about = PEERS[peer]
    # Run by its path where another interpreter does not have dpfl.
    program = ["-m", peers.__name__] if about.needs_dpfl else [peers.__file__]
    given = json.dumps({"peer": peer, **asked._asdict()})
    done = subprocess.run(
        [python, *_isolated(about, python), *program, given],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode or not done.stdout:
        raise RuntimeError(f"{peer} failed with {python}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(
    asked: RoundWork, pythons: Mapping[str, str], processes: int, own: str
) -> list[Row]:
    """Rows of dpfl and each peer, over processes that take turns.

    A ratio is the geometric mean of a row's seconds by that of dpfl's without a
    mechanism, with an interval at 95% over turns: the paired Student's, of the
    logarithms. A peer that fails, as it may for lack of memory, has no more turns and a
    row without numbers.

    Args:
      asked: The work.
      pythons: Path of the interpreter by peer.
      processes: Number of processes of each peer.
      own: dpfl's loop, one of `ENGINES`.

    Raises:
      RuntimeError: If dpfl fails, or a peer trains other parameters or examples.
    """
    ways = {(own, 1): (sys.executable, asked)}
    for name, python in pythons.items():
        most = min(machine.processors(), asked.cohort)
        for count in (n for n in PEERS[name].processes if n <= most):
            alone = asked._replace(mechanisms=("none",), processes=count)
            ways[name, count] = python, alone
    taken: dict[str, list[Row]] = {}
    failed = []
    for _ in range(processes):
        for (peer, count), (python, given) in list(ways.items()):
            label = peer if count == 1 else f"{peer}, {count} processes"
            try:
                found = run(peer, python, given)
            except RuntimeError as error:
                if peer == own:
                    raise
                print(f"error: {error}", file=sys.stderr)
                failed.append({"name": f"{label}, failed"})
                taken.pop(label, None)
                taken.pop(f"{label}, {_FIRST}", None)
                del ways[peer, count]
                continue
            for name, each in found.items():
                row = label if name == "none" else f"{label}, {name}"
                taken.setdefault(row, []).append(each)
                if "first_seconds" in each:
                    first = {"seconds": each["first_seconds"]}
                    taken.setdefault(f"{row}, {_FIRST}", []).append(first)
            for amount in ("parameters", "examples"):
                both = [taken[each][-1][amount] for each in (own, label)]
                if both[0] != both[1]:
                    raise RuntimeError(f"{amount} of {own} and {label} differ: {both}")
    return [*(_row(row, taken, own) for row in taken), *failed]


def _row(name: str, taken: Mapping[str, Sequence[Row]], own: str) -> Row:
    # Imported here, since SciPy takes time that a refusal need not wait for.
    from .. import effects

    result: Row = {"name": name, "processes": len(taken[name]), "baseline": None}
    for key, clock in _CLOCKS.items():
        if key not in taken[name][0]:
            continue
        every = {w: [each[key] for each in taken[w]] for w in (own, name)}
        result[f"{clock}seconds_median"] = statistics.median(every[name])
        result[f"{clock}seconds"] = every[name]
        if name != own:
            result["baseline"] = own
            # Processes of one turn are near each other in time.
            logs = {w: dict(enumerate(map(math.log, s))) for w, s in every.items()}
            gap = effects.effect(logs, [(name, own)])
            ends = {"ratio": gap.size, "low": gap.low, "high": gap.high}
            result.update((f"{clock}{k}", math.exp(v)) for k, v in ends.items())
    return result
