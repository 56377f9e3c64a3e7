# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""dpfl beside its peers: one process after the other, in turns, and their ratios.

    pythons = turns.interpreters(["tff", "pfl=/path/bin/python"])
    rows = turns.compare(turns.work("cnn_50", quick=True), pythons, processes=2)

`CASES` lists the cases, and `peers` is the program that each process runs.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

from . import peers
from .harness import Row
from .peers import RoundWork

# Import and installation of each peer that may be installed for another interpreter.
ELSEWHERE = {
    "pfl": ("pfl.model.tensorflow", "pip install 'pfl[tf]'"),
    "fedjax": ("fedjax", "pip install fedjax 'jax<0.6'"),
}
# Clients, examples of each, rounds of a process, and clients of its warm-up. TFF's own
# loop takes longer in its first round of a thousand than in later ones; that of the
# LSTM fails, and a round of the others takes minutes.
CASES = {
    "cnn_50": ("cnn", 50, 100, 3, 50),
    "cnn_1000": ("cnn", 1000, 100, 1, 1000),
    "lstm_50": ("lstm", 50, 20, 3, 50),
    "lstm_1000": ("lstm", 1000, 20, 1, 50),
}
PROCESSES = 5
# Column of a row by the name of a measurement.
_CLOCKS = {"seconds": "", "processor_seconds": "cpu_"}


def work(case: str, quick: bool) -> RoundWork:
    """The work of every peer in a case of `CASES`; little of it if quick."""
    model, cohort, examples, rounds, warm_up = CASES[case]
    if quick:
        cohort, examples, rounds, warm_up = 2, 4, 1, 2
    return RoundWork(model, cohort, examples, rounds, warm_up)


def interpreters(given: Sequence[str]) -> dict[str, str]:
    """The interpreter of each peer, from words such as 'pfl=/path/bin/python'.

    Raises:
      ValueError: If a word is malformed, or a peer cannot be imported.
    """
    pythons: dict[str, str] = {}
    for word in given or [""]:
        name, _, python = word.partition("=")
        if name in pythons or not (word == "tff" or name in ELSEWHERE):
            raise ValueError(
                "--peers must be some of tff, pfl and fedjax, each once, the last two "
                f"with =PYTHON if another interpreter has them, found {word!r}"
            )
        pythons[name] = python or sys.executable
    for name in ELSEWHERE.keys() & pythons.keys():
        module, install = ELSEWHERE[name]
        if not _imports(pythons[name], module):
            raise ValueError(
                f"--peers must be packages that can be imported, found no {name} with "
                f"{pythons[name]}; {install} in an environment ENV installs it for "
                f"--peers={name}=ENV/bin/python"
            )
    return pythons


def _imports(python: str, module: str) -> bool:
    command = [python, "-I", "-c", f"import {module}"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def run(peer: str, python: str, asked: RoundWork) -> Row:
    """Measures a peer in a process of its own.

    Args:
      peer: Name of the peer.
      python: Path of the interpreter.
      asked: The work.

    Raises:
      RuntimeError: If the process fails, with its error.
    """
    # Run by its path, since another interpreter does not have dpfl.
    program = ["-I", peers.__file__]
    if peer not in ELSEWHERE:
        program = ["-m", "dpfl.experiments.benchmarks.peers"]
    done = subprocess.run(
        [python, *program, json.dumps({"peer": peer, **asked._asdict()})],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode or not done.stdout:
        raise RuntimeError(f"{peer} failed with {python}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(asked: RoundWork, pythons: Mapping[str, str], processes: int) -> list[Row]:
    """Rows of dpfl and each peer, over processes that take turns.

    A ratio is the geometric mean of a peer's seconds by that of dpfl's, with an
    interval at 95% over turns: the paired Student's, of the logarithms. A peer that
    fails, as it may for lack of memory, has no more turns and a row without numbers.

    Args:
      asked: The work.
      pythons: Path of the interpreter by peer.
      processes: Number of processes of each peer.

    Raises:
      RuntimeError: If dpfl fails, or a peer trains other parameters or examples.
    """
    ways = {"dpfl": sys.executable, **pythons}
    taken: dict[str, list[Row]] = {way: [] for way in ways}
    for _ in range(processes):
        for way in list(taken):
            try:
                taken[way].append(run(way, ways[way], asked))
            except RuntimeError as error:
                if way == "dpfl":
                    raise
                print(f"error: {error}", file=sys.stderr)
                del taken[way]
                continue
            for amount in ("parameters", "examples"):
                both = [taken[each][-1][amount] for each in ("dpfl", way)]
                if both[0] != both[1]:
                    raise RuntimeError(f"{amount} of dpfl and {way} differ: {both}")
    failed = [{"name": f"{way}, failed"} for way in ways if way not in taken]
    return [*(_row(way, taken) for way in taken), *failed]


def _row(way: str, taken: Mapping[str, Sequence[Row]]) -> Row:
    # Imported here, since SciPy takes time that a refusal need not wait for.
    from .. import effects

    result: Row = {"name": way, "processes": len(taken[way]), "baseline": None}
    for key, clock in _CLOCKS.items():
        every = {w: [each[key] for each in taken[w]] for w in ("dpfl", way)}
        result[f"{clock}seconds_median"] = statistics.median(every[way])
        result[f"{clock}seconds"] = every[way]
        if way != "dpfl":
            result["baseline"] = "dpfl"
            # Processes of one turn are near each other in time.
            logs = {w: dict(enumerate(map(math.log, s))) for w, s in every.items()}
            gap = effects.effect(logs, [(way, "dpfl")])
            ends = {"ratio": gap.size, "low": gap.low, "high": gap.high}
            result.update((f"{clock}{k}", math.exp(v)) for k, v in ends.items())
    return result
