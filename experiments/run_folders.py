# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Finished runs on disk, and their comparison. No TensorFlow.

    runs = run_folders.read(["runs/a", "runs/b"])
    settings = run_folders.different_settings(runs)
    rows = [run_folders.row(run, settings, "accuracy") for run in runs]

A run is the output folder of `dpfl-train`, once it is done.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from dpfl import files, privacy_coverage
from dpfl.tasks import metrics

from . import effects
from .tables import read_run

# Settings that are not compared: the data's digest is compared separately, and results
# do not depend on the others.
_NO_SETTINGS = (
    *("task fingerprint", "output_dir", "data_dir", "progress", "concurrency"),
    *("checkpoint_every", "keep_checkpoints", "round_deadline", "workers"),
    *("worker_isolation", "profile"),
    *("coordinator_address", "num_processes", "process_id"),
)
# Settings in which repeated trials may differ.
_SEEDS = ("seed",)
# Entry with the digest of the task's data.
DIGEST = "task_fingerprint"
# Prefix of the name of a metric on the test set.
_EVAL = "eval_"
_SPENT = (
    *("epsilon", "delta", "accounting_method", "relation"),
    *("uplink_bits_per_parameter", "downlink_bits_per_parameter"),
)
# Entries of a summary that are needed, as `dpfl.training.report.summary` writes it, and
# those of them that are numbers.
_NEEDED = {
    *("task", "mechanism", "settings", "flags", "rounds", "final_metrics"),
    *("lower_is_better", *_SPENT),
}
_NUMBERS = [name for name in _SPENT if name not in ("accounting_method", "relation")]


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A finished run: its name, its summary.json and the rows of metrics.csv.

    Exact values are included, without marks in the names of columns.
    """

    name: str
    summary: Mapping[str, Any]
    rows: Sequence[Mapping[str, Optional[float]]]
    folder: Path

    def points(self, x: str, y: str) -> list[tuple[float, float]]:
        """The points of two columns, where both are finite."""
        return [
            (a, b)
            for a, b in ((row.get(x), row.get(y)) for row in self.rows)
            if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
        ]


def read(paths: Sequence[str]) -> list[RunFolder]:
    """Reads the finished runs in output folders.

    Raises:
      ValueError: If one is no folder, or not of a finished run.
    """
    names = [Path(path).resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = list(paths)
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"RUN must be a folder that is named once, found {name} twice"
            )
    return [_run(name, Path(path)) for name, path in zip(names, paths)]


def _run(name: str, folder: Path) -> RunFolder:
    if not folder.is_dir():
        raise ValueError(f"RUN must be the output folder of a run, found {folder}")
    path = folder / "summary.json"
    if not path.exists():
        begun = (folder / "manifest.json").exists()
        why = "whose run is not finished" if begun else "without a run"
        raise ValueError(
            f"RUN must be a folder with a summary.json, found {folder}, {why}"
        )
    try:
        summary = _read_summary(path)
        rows = [
            {key: float(cell) if cell else None for key, cell in row.items()}
            for row in read_run(folder / "metrics.csv")
        ]
    except (AttributeError, OSError, TypeError, ValueError) as error:
        raise ValueError(
            "RUN must be a folder with summary.json and metrics.csv as dpfl-train "
            f"writes them, found {folder} ({error})"
        ) from error
    return RunFolder(name, summary, rows, folder)


def _read_summary(path: Path) -> dict[str, Any]:
    """A summary without marks of exact keys, its numbers as floats."""
    summary = privacy_coverage.plain_keys(files.read_json(path))
    if missing := _NEEDED - set(summary):
        raise ValueError(f"{path.name} must have {', '.join(sorted(missing))}")
    # In JSON "inf" and "nan" are texts.
    summary |= {name: float(summary[name]) for name in _NUMBERS}
    summary["final_metrics"] = {
        name: None if value is None else float(value)
        for name, value in summary["final_metrics"].items()
    }
    return summary


def headline(runs: Sequence[RunFolder]) -> str:
    """The metric that judges the runs: the first of the first run that has one."""
    names = [name for run in runs for name in run.summary["final_metrics"]]
    return names[0][len(_EVAL) :] if names else ""


def check_one_task(runs: Sequence[RunFolder]) -> None:
    """Raises ValueError if the runs are not all of the same data and split.

    A run that writes nothing exact does not identify its data.
    """
    first = runs[0]
    for run in runs:
        own, other = (str(each.summary.get(DIGEST)) for each in (run, first))
        if own != other:
            raise ValueError(
                "RUN must have the same data and split as the others, found "
                f"{first.summary['task']} ({other[:8]}) in {first.name} and "
                f"{run.summary['task']} ({own[:8]}) in {run.name}; --any_task "
                "compares them anyway"
            )


def _setting(run: RunFolder, name: str) -> Any:
    """A setting as it was given, or as the run filled it in."""
    given, filled = run.summary["flags"], run.summary["settings"]
    return given[name] if name in given else filled.get(name)


def different_settings(runs: Sequence[RunFolder]) -> list[str]:
    """Names of the settings that differ among runs.

    A setting that not all runs have, such as a mechanism's own, is included only if it
    was given for some run.
    """
    names = dict.fromkeys(name for run in runs for name in run.summary["settings"])
    given = dict.fromkeys(name for run in runs for name in run.summary["flags"])
    return [
        name
        for name in {**names, **given}
        if name not in _NO_SETTINGS
        and (name in given or all(name in run.summary["settings"] for run in runs))
        and len({json.dumps(_setting(run, name)) for run in runs}) > 1
    ]


def remarks(runs: Sequence[RunFolder]) -> list[str]:
    """Remarks on why the epsilons of the runs are not directly comparable."""
    sentences = []
    for key, words in {
        "relation": "epsilons are for different neighbours",
        "delta": "epsilons are at different deltas",
        "accounting_method": "epsilons are by different accounting methods",
    }.items():
        users: dict[Any, list[str]] = {}
        for run in runs:
            # An infinite epsilon is infinite by any method.
            if math.isfinite(run.summary["epsilon"]):
                users.setdefault(run.summary[key], []).append(run.name)
        if len(users) > 1:
            parts = (f"{value} ({', '.join(names)})" for value, names in users.items())
            sentences.append(f"note: {words}: {'; '.join(parts)}")
    return sentences


def labels(runs: Sequence[RunFolder]) -> dict[str, str]:
    """A label for each run, by its name: the settings that differ, else the name."""
    settings = different_settings(runs)
    differences = {
        run.name: ", ".join(f"{s}={_setting(run, s)}" for s in settings) for run in runs
    }
    words = list(differences.values())
    return {k: v if words.count(v) == 1 else k for k, v in differences.items()}


def arms(
    runs: Sequence[RunFolder],
    settings: Sequence[str],
    baseline: str,
    metric: str,
    clients: Optional[metrics.ByClient] = None,
) -> list[dict[str, Any]]:
    """A row for each group of runs that differ only in seeds, with its effect.

    Args:
      runs: The runs.
      settings: Settings that differ among the runs.
      baseline: Name or folder of a run; the others are compared with all runs of its
        settings.
      metric: The metric whose final value is compared, such as "accuracy".
      clients: The metric by client, for intervals over seeds and clients too.

    Raises:
      ValueError: If no run has the name or folder, a run lacks the metric or it is not
        finite, or two runs have equal settings and seeds.
    """
    by_name = {run.name: run for run in runs}
    if baseline not in by_name:
        path = Path(baseline).resolve()
        folders = [run.name for run in runs if run.folder.resolve() == path]
        baseline = folders[0] if folders else baseline
    if baseline not in by_name:
        known = ", ".join(by_name)
        raise ValueError(f"--baseline must be one of {known}, found {baseline!r}")
    chosen = [name for name in settings if name not in _SEEDS]
    cells: dict[tuple[str, ...], dict[Any, float]] = {}
    shown: dict[tuple[str, ...], dict[str, Any]] = {}
    named: dict[tuple[Any, ...], str] = {}
    sums: dict[tuple[str, ...], dict[Any, np.ndarray]] = {}
    for place, run in enumerate(runs):
        final = run.summary["final_metrics"].get(f"{_EVAL}{metric}")
        if final is None:
            raise ValueError(f"--metric must be one that all runs have, found {metric}")
        if not math.isfinite(final):
            raise ValueError(
                f"--metric must be finite in all runs, found {final} in {run.name}"
            )
        arm, seed = _arm(run, chosen), _setting(run, "seed")
        # Runs without a given seed share no seed.
        key = run.name if seed is None else seed
        other = named.setdefault((arm, key), run.name)
        if other != run.name:
            raise ValueError(
                "RUN must differ from the others in a setting or in the seed, found "
                f"{other} and {run.name}, which do not"
            )
        cells.setdefault(arm, {})[key] = float(final)
        if clients is not None:
            sums.setdefault(arm, {})[key] = clients.sums[place]
        shown[arm] = {name: _setting(run, name) for name in chosen}
    base = _arm(by_name[baseline], chosen)
    rows = []
    for arm, values in cells.items():
        mean = statistics.fmean(values.values())
        row = {**shown[arm], "seeds": len(values), f"final_{metric}": mean}
        if arm != base:
            gain = effects.effect(cells, [(arm, base)])
            ends = {"effect": gain.size, "low": gain.low, "high": gain.high}
            row.update(**ends, seeds_of_effect=gain.seeds)
        if arm != base and clients is not None and {*sums[arm]} & {*sums[base]}:
            gain = effects.effect_over_clients(sums, clients.counts, [(arm, base)])
            row.update(low_clients=gain.low, high_clients=gain.high)
        rows.append(row)
    return rows


def _arm(run: RunFolder, settings: Sequence[str]) -> tuple[str, ...]:
    return tuple(json.dumps(_setting(run, name)) for name in settings)


def row(run: RunFolder, settings: Sequence[str], metric: str) -> dict[str, Any]:
    """A line of the table.

    Args:
      run: The run.
      settings: Names of its settings that are shown.
      metric: The metric whose last change is shown.
    """
    summary = run.summary
    line: dict[str, Any] = {"run": run.name}
    line.update((name, _setting(run, name)) for name in settings)
    for column, final in summary["final_metrics"].items():
        name = column[len(_EVAL) :]
        seen = [value for _, value in run.points("round", column)]
        best = min if name in summary["lower_is_better"] else max
        line[f"final_{name}"] = final
        line[f"best_{name}"] = best(seen) if seen else None
        if name == metric and len(seen) > 1:
            line["late_change"] = seen[-1] - seen[-2]
    # The number of rounds done may differ from the planned one.
    line["rounds_done"] = summary["rounds"]
    line.update((name, summary[name]) for name in _SPENT)
    line["seconds"] = summary.get("wall_time_seconds")
    return line
