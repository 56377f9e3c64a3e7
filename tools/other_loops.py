# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains with one mechanism in the loops of examples/ and in `dpfl-train`, as a table.

  python -m tools.other_loops docs/results/other_loops.csv [--seeds=8]

Each loop runs as its notebook has it, with another seed. PyTorch runs in the
environment that `tools/interpreters.py` makes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path

from experiments import tables
from tools import interpreters

ROOT = Path(__file__).resolve().parents[1]
OWN = "dpfl-train"
LOOPS = {
    "TensorFlow Privacy": "tff_query",
    "PyTorch": "pytorch_loop",
    "JAX": "jax_loop",
}
FLAGS = (
    *("--task=digits", "--mechanism=matrix_factorization", "--epsilon=8"),
    *("--participation=once_per_epoch", "--cohort_size=20", "--rounds=60"),
    *("--delta=1e-3", "--eval_every=60", "--noprogress"),
)
RESULT = re.compile(r"round 60: accuracy (\S+), epsilon (\S+)")


def code_of(notebook: Path) -> str:
    """The code of a notebook's cells."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    codes = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    return "\n".join(codes)


def trained(way: str, seed: int) -> tuple[float, float]:
    """The accuracy and epsilon at the end of a run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = ["-m", "experiments.train", *FLAGS, f"--seed={seed}"]
        command.append(f"--output_dir={folder / 'run'}")
        python: object = sys.executable
        if way != OWN:
            code = code_of(ROOT / f"examples/{LOOPS[way]}.ipynb")
            code = code.replace("SEED = 1\n", f"SEED = {seed}\n")
            # Nothing is left to do after the checkpoint.
            code = code.replace("STOPPED = 60, 52", "STOPPED = 60, 60")
            (folder / "loop.py").write_text(code, encoding="utf-8")
            command = ["loop.py"]
            python = sys.executable
            if way == "PyTorch":
                python = interpreters.find_environment("torch")
        said = subprocess.run(
            [str(python), *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
        if way == OWN:
            summary = json.loads((folder / "run/summary.json").read_text())
            return summary["final_accuracy"], summary["epsilon"]
        accuracy, epsilon = RESULT.findall(said)[-1]
        return float(accuracy), float(epsilon)


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    parser.add_argument("--seeds", type=int, default=8, help="runs of each loop")
    given = parser.parse_args(argv)
    runs = [(way, s) for s in range(1, given.seeds + 1) for way in (OWN, *LOOPS)]
    rows: list[tuple[object, ...]] = []
    with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for run, result in zip(runs, pool.map(trained, *zip(*runs))):
            rows.append((*run, *result))
            columns = zip(("loop", "seed", "final_accuracy", "epsilon"), zip(*rows))
            tables.write_columns(given.table, dict(columns))


if __name__ == "__main__":
    main(sys.argv[1:])
