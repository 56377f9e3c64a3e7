# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Audits the aggregators: lower bounds on epsilon, tails of noise, what sums open.

  dpfl-audit --quick
  dpfl-audit --output=audit.csv
  dpfl-audit --mechanisms=gaussian,dome --trials=20000 --draws=10000000

Canaries are put into real rounds, of TFF's worker or else of dpfl.jax_aggregator, and
whatever the adversary of the event sees is compared with what is claimed. The exit code
is 0 if nothing contradicts a claim, and 1 if anything does. docs/privacy/audit.md says
what is looked at. The audit with all its trials takes an hour of one core.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence

from absl import flags

from dpfl import checks, files
from dpfl.mechanisms import MECHANISMS
from dpfl.training import engine

from . import cli, start, tables

_MECHANISMS = flags.DEFINE_list(
    *("mechanisms", None),
    "Mechanisms to audit, separated by commas; default: all private ones.",
)
_QUICK = flags.DEFINE_bool(
    "quick", False, "Audit one case of each mechanism with few trials."
)
_TRIALS = flags.DEFINE_integer(
    "trials",
    None,
    "Releases of a case with a canary, and as many without; up to eight times as many "
    "if these would show little, unless the audit is quick.",
)
_DRAWS = flags.DEFINE_integer(
    "draws", None, "Draws of noise to count; some mechanisms take fewer."
)
_SEED = flags.DEFINE_integer("seed", 1, "Seed of canaries, keys and noise.")
_OUTPUT = flags.DEFINE_string("output", None, "File for all lines, .csv or .json.")
flags.DEFINE_bool("progress", True, "Whether a bar goes to stderr.")
_ISOLATION = flags.DEFINE_string(
    "worker_isolation", "socket", "Isolation of TFF's worker from other users."
)

COLUMNS = (
    *("check", "mechanism", "setting", "relation", "delta"),
    *("accounting_method", "claimed"),
    *("found", "ratio", "attainable", "trials", "verdict", "detail"),
)
"""The columns of a finding's row, in the order of a file."""

# Defaults: trials of a case, its rounds through TFF, and draws.
_QUICK_NUMBERS = (1_000, 10, 2_000_000)
_NUMBERS = (20_000, 20, 1_000_000_000)
_LEAST_TRIALS = 4
_NOT_SOUND_EXIT_CODE = 1


def _check_flags() -> None:
    """Raises ValueError for invalid flags, before TensorFlow is imported."""
    checks.choice("--worker_isolation", _ISOLATION.value, engine.ISOLATIONS)
    private = [name for name, kind in MECHANISMS.items() if kind.is_private]
    for name in _MECHANISMS.value or []:
        checks.choice("--mechanisms", name, private)
    for flag, least in ((_TRIALS, _LEAST_TRIALS), (_DRAWS, 1), (_SEED, 0)):
        if flag.value is not None:
            checks.integer(f"--{flag.name}", flag.value, least)
    cli.check_outputs({"output": (".csv", ".json")})


@contextlib.contextmanager
def _worker() -> Iterator[None]:
    """TFF's worker as the default context, with simulated secure sums."""
    import tensorflow_federated as tff

    from dpfl.engines.tff import local_worker as worker_lib

    with worker_lib.start(isolation=_ISOLATION.value) as worker:
        tff.framework.set_default_context(worker.context(secure_sums=True))
        yield


def main(argv: Sequence[str]) -> None:
    """Audits, prints the table, and exits with 1 if a claim is contradicted."""
    cli.no_arguments(argv)
    _check_flags()
    library = engine.of("auto")
    if library != "tff" and flags.FLAGS["worker_isolation"].present:
        wanted = "left out without TensorFlow Federated"
        raise ValueError(checks.message("--worker_isolation", wanted, _ISOLATION.value))
    start.import_engine(library)
    from .audits import cases, findings, suite

    trials, in_tff, draws = _QUICK_NUMBERS if _QUICK.value else _NUMBERS
    settings = suite.Settings(
        mechanisms=tuple(_MECHANISMS.value or cases.names()),
        trials=_TRIALS.value or trials,
        rounds_in_tff=in_tff,
        draws=_DRAWS.value or draws,
        seed=_SEED.value,
        is_quick=_QUICK.value,
    )
    cli.work_begins()
    results: list[findings.Finding] = []
    with _worker() if library == "tff" else contextlib.nullcontext():
        with cli.bar(list(suite.jobs(settings))) as jobs:
            for name, job in jobs:
                jobs.set_description(name)
                results += job()
    rows = [one.row() for one in results]
    heads = {**dict(zip(COLUMNS, COLUMNS)), "accounting_method": "claimed by"}
    print(tables.text(rows, heads, digits=4))
    if _OUTPUT.value is not None:
        is_json = _OUTPUT.value.lower().endswith(".json")
        content = (
            f"{tables.as_json(rows)}\n" if is_json else files.csv_text(COLUMNS, rows)
        )
        files.write_atomically(_OUTPUT.value, content)
    bad = [one for one in results if not one.is_sound]
    for one in bad:
        print(f"{one.verdict}: {one.check} of {one.mechanism}, {one.setting}")
    if bad:
        sys.exit(_NOT_SOUND_EXIT_CODE)


if __name__ == "__main__":
    cli.run(main)
