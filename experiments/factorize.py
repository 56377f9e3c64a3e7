# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Computes factorizations of a workload, and compares them.

  dpfl-factorize compute --rounds=256 --matrix_momentum=0.9 --output=m.npz
  dpfl-factorize compute --rounds=512 --matrix_method=banded --matrix_bands=16
  dpfl-factorize compare --rounds=64,256 --plot=steps.png

Losses are total squared errors of the released iterates, per coordinate, at noise
multiplier 1 and clip norm 1, for one participation or as --epochs and --separation say.
`compare` shows, for each number of rounds, independent noise, the tree with Honaker's
two estimators, the optimal prefix sum used for the workload, the optimal
factorization, its structured approximation with band + rank = log2(rounds), and the
Toeplitz and buffered Toeplitz encoders. `dpfl-privacy bands` finds the number of bands
with the least error at an epsilon. No TensorFlow is imported.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from absl import flags

from dpfl import cache_folder, checks
from dpfl import factorization as mf
from dpfl.factorization import iteration
from dpfl.factorization.sensitivity import participations
from dpfl.factorization.workloads import MOST_ROUNDS
from dpfl.mechanisms.matrix_fields import SCHEDULES

from . import cli, exits, factorizations, tables

_ROUNDS = flags.DEFINE_list(
    "rounds", ["256"], "Rounds of a stream, or several, with commas."
)
_MOMENTUM = flags.DEFINE_float(
    "matrix_momentum", 0.0, "Momentum that the workload applies."
)
_SCHEDULE = flags.DEFINE_enum(
    "matrix_schedule", "constant", [*SCHEDULES], "Learning rates of the workload."
)
_METHOD = flags.DEFINE_enum(
    "matrix_method", "optimal", sorted(mf.METHODS), "Method of compute."
)
_BANDS = flags.DEFINE_integer(
    "matrix_bands",
    None,
    "Diagonals of a banded encoder, of the inverse of one, or of the structured "
    "decoder.",
)
_RANK = flags.DEFINE_integer("matrix_rank", None, "Rank of the structured decoder.")
_BUFFERS = flags.DEFINE_integer(
    "matrix_buffers", None, "Buffers of a buffered encoder."
)
_EPOCHS = flags.DEFINE_integer(
    "epochs", 1, "Most rounds that one client takes part in."
)
_SEPARATION = flags.DEFINE_integer(
    "separation",
    None,
    "Least distance of one client's rounds, and their distance for optimal-epochs; "
    "needed with --epochs.",
)
_JSON = flags.DEFINE_bool("json", False, "Print JSON; null stands for infinity.")
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "File for the factorization (compute), or for the table, which then is not printed "
    "(compare).",
)
_PLOT = flags.DEFINE_string("plot", None, "PNG file: the error of each step (compare).")

# Flags that do not belong to a command.
_MEANINGLESS: Mapping[str, Sequence[str]] = {
    "compute": ("plot",),
    "compare": ("matrix_method",),
}
# The flags of each parameter of a method.
_PARAMETERS: Mapping[str, flags.FlagHolder] = {
    **{"bands": _BANDS, "band": _BANDS, "rank": _RANK},
    **{"buffers": _BUFFERS, "separation": _SEPARATION},
}
# Flags of the methods, of the workload and of the participations.
_FLAG_OF: Mapping[str, str] = {
    **{name: flag.name for name, flag in _PARAMETERS.items()},
    "participations": _EPOCHS.name,
    "momentum": _MOMENTUM.name,
}


def _check_lengths(name: str, value: Sequence[str]) -> None:
    if not value or not all(v.strip().isdecimal() and int(v) > 0 for v in value):
        wanted = "positive integers separated by commas"
        raise ValueError(checks.message(name, wanted, ",".join(value)))
    for text in value:
        checks.integer(name, int(text), at_most=MOST_ROUNDS)


cli.check_flag("rounds", _check_lengths)
for _flag in (_BANDS, _BUFFERS, _EPOCHS, _SEPARATION):
    cli.check_flag(_flag.name, checks.integer, at_most=MOST_ROUNDS)
cli.check_flag(_MOMENTUM.name, checks.real, at_least=0, below=1)
cli.check_flag(_RANK.name, checks.integer, at_least=0, at_most=MOST_ROUNDS)


def _workloads() -> list[mf.Workload]:
    return [
        mf.Workload(int(rounds), _MOMENTUM.value, SCHEDULES[_SCHEDULE.value]())
        for rounds in _ROUNDS.value
    ]


def _plan() -> mf.ParticipationSchema:
    if _EPOCHS.value == 1:
        return mf.OneParticipation()
    if _SEPARATION.value is None:
        raise ValueError(
            f"--separation must be given with --epochs={_EPOCHS.value}, found none"
        )
    rounds = min(int(rounds) for rounds in _ROUNDS.value)
    most = participations(rounds, _SEPARATION.value)
    if _EPOCHS.value > most:
        raise ValueError(
            f"--epochs must be at most {most} for --separation={_SEPARATION.value} in "
            f"{rounds} rounds, found {_EPOCHS.value}"
        )
    if _METHOD.value == "optimal-epochs":
        return mf.FixedEpochs(_EPOCHS.value, _SEPARATION.value)
    return mf.MinSeparation(_SEPARATION.value, _EPOCHS.value)


def _params(method: str) -> dict[str, Any]:
    """The given parameters; ValueError if one is missing or not the method's."""
    given = {name: flag.value for name, flag in _PARAMETERS.items()}
    given["participations"] = _EPOCHS.value if _EPOCHS.value > 1 else None
    takes = inspect.signature(mf.METHODS[method]).parameters
    missing = " and ".join(
        f"--{_PARAMETERS[name].name}"
        for name, parameter in takes.items()
        if parameter.kind is parameter.KEYWORD_ONLY
        and parameter.default is parameter.empty
        and given.get(name) is None
    )
    if missing:
        raise ValueError(f"{missing} must be given for --matrix_method={method}")
    for flag in (_BANDS, _RANK, _BUFFERS):
        names = [name for name, other in _PARAMETERS.items() if other is flag]
        if flag.value is not None and not set(names) & set(takes):
            raise ValueError(f"--{flag.name} has no meaning for the method {method}")
    return {k: v for k, v in given.items() if v is not None and k in takes}


def _check_meaning(command: str) -> None:
    """Raises ValueError for a flag without meaning for the command."""
    cli.refuse(command, *_MEANINGLESS[command])
    if _EPOCHS.value == 1:
        cli.refuse("--epochs=1", "separation")


def _write(
    rows: Sequence[tables.Row], columns: Mapping[str, str], path: Optional[str] = None
) -> None:
    form = "json" if _JSON.value else "text"
    tables.show(rows, columns, path, form, digits=6)


_ERROR_COLUMNS = tables.columns("factorizations")


def compute() -> None:
    """Computes one factorization, prints its numbers and saves it."""
    workloads, plan = _workloads(), _plan()
    if len(workloads) != 1:
        raise ValueError(
            f"--rounds must be one number for compute, found {len(workloads)}"
        )
    method, params = _METHOD.value, _params(_METHOD.value)
    timed = factorizations.timed(lambda: mf.compute(workloads[0], method, **params))
    row = timed.row(plan)
    cli.work_begins()
    if _OUTPUT.value is not None:
        mf.save(timed.factorization, _OUTPUT.value)
    _write([row], _ERROR_COLUMNS)


def compare() -> None:
    """Prints the methods side by side, and draws steps."""
    workloads, plan = _workloads(), _plan()
    rows: list[tables.Row] = []
    last: list[factorizations.TimedFactorization] = []
    for workload in workloads:
        last = factorizations.contenders(
            workload,
            bands=_BANDS.value,
            rank=_RANK.value,
            buffers=_BUFFERS.value or 3,
            participations=_EPOCHS.value,
            separation=_SEPARATION.value,
        )
        some = [one.row(plan) for one in last]
        best = next(row["total"] for row in some if row["method"] == "optimal")
        rows += [{**row, "ratio": row["total"] / best} for row in some]
    cli.work_begins()
    _write(rows, {**_ERROR_COLUMNS, "ratio": "loss / optimal"}, _OUTPUT.value)
    if _PLOT.value is not None:
        from . import plotting
        from .panels import Plot

        steps = [
            {"round": step, "method": one.factorization.method, "squared_error": error}
            for one in last
            for step, error in enumerate(one.factorization.step_errors(plan), 1)
        ]
        plot = Plot("round", "method", y="squared_error", log="y")
        plotting.write(plot, steps, str(workloads[-1]), _PLOT.value)


COMMANDS: Mapping[str, Callable[[], None]] = {
    "compute": compute,
    "compare": compare,
}


def main(argv: Sequence[str]) -> None:
    """Runs the command named by the one positional argument."""
    command = cli.command(argv, COMMANDS)
    _check_meaning(command)
    cli.check_outputs({"output": (), "plot": (".png",)})
    # Only computing time is measured.
    os.environ[cache_folder.VARIABLE] = cache_folder.OFF
    try:
        with checks.renaming(_FLAG_OF):
            COMMANDS[command]()
    except iteration.ConvergenceError as error:
        exits.fail(str(error))


if __name__ == "__main__":
    cli.run(main)
