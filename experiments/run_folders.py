# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs as they are on disk, and what several of them have in common. No TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from dpfl import covered, files

from . import effects
from .tables import read_run

# The data's digest is compared on its own; results do not depend on the others.
_NO_SETTINGS = (
    *("task fingerprint", "output_dir", "data_dir", "progress", "concurrency"),
    *("checkpoint_every", "keep_checkpoints", "round_deadline", "workers"),
)
# Runs that differ in nothing else are trials of one thing.
_SEEDS = ("seed",)
_DIGEST = "task_fingerprint"
# What a summary must have to be compared, as `dpfl.training.report.summary` writes it.
_SPENT = (
    *("epsilon", "delta", "accountant", "relation"),
    *("uplink_bits_per_parameter", "downlink_bits_per_parameter"),
)
_NEEDED = ("task", "mechanism", "settings", "flags", "rounds", "final_metrics", *_SPENT)


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run that is done: its name, its summary.json and the rows of metrics.csv.

    What is exact stands beside the rest, and no column is marked as exact.
    """

    name: str
    summary: Mapping[str, Any]
    rows: Sequence[Mapping[str, Optional[float]]]

    def points(self, x: str, y: str) -> list[tuple[float, float]]:
        """Two columns of the rows, where both are finite numbers."""
        return [
            (a, b)
            for a, b in ((row.get(x), row.get(y)) for row in self.rows)
            if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
        ]


def read(paths: Sequence[str]) -> list[RunFolder]:
    """The runs of output folders.

    Raises:
      ValueError: If one is no folder, or not that of a run that is done.
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
        why = "whose run is not done" if begun else "in which there is no run"
        raise ValueError(
            f"RUN must be a folder with a summary.json, found {folder}, {why}"
        )
    try:
        summary = covered.plain_keys(files.read_json(path))
        missing = [key for key in _NEEDED if key not in summary]
        metrics = folder / "metrics.csv"
        files.check_regular(metrics.name, metrics)
        rows = [
            {key: float(cell) if cell else None for key, cell in row.items()}
            for row in read_run(metrics)
        ]
    except (AttributeError, OSError, ValueError, TypeError) as error:
        raise ValueError(
            "RUN must be a folder with summary.json and metrics.csv as dpfl-train "
            f"writes them, found {folder} ({error})"
        ) from error
    if missing:
        raise ValueError(
            f"RUN must be a folder whose summary.json has {missing[0]}, found {folder}"
        )
    return RunFolder(name, summary, rows)


def check_one_task(runs: Sequence[RunFolder]) -> None:
    """Raises ValueError if the runs are not all of the same data and split.

    A run that writes nothing exact does not say of which data it is.
    """
    first = runs[0]
    for run in runs:
        own, other = (str(each.summary.get(_DIGEST)) for each in (run, first))
        if own != other:
            raise ValueError(
                "RUN must be of the same data and split as the others, found "
                f"{first.summary['task']} ({other[:8]}) in {first.name} and "
                f"{run.summary['task']} ({own[:8]}) in {run.name}; --any_task "
                "compares them all the same"
            )


def _setting(run: RunFolder, name: str) -> Any:
    """A setting: as it was given, or as the run filled it in."""
    given, filled = run.summary["flags"], run.summary["settings"]
    return given[name] if name in given else filled.get(name)


def different_settings(runs: Sequence[RunFolder]) -> list[str]:
    """Names of the settings that are not the same in all runs.

    A setting that not all runs have, such as a mechanism's own, is among them only if
    it was given for some run.
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
    """What keeps the epsilons of the runs from being compared as they are."""
    found = []
    for key, words in {
        "relation": "epsilons are for different neighbours",
        "delta": "epsilons are at different deltas",
        "accountant": "epsilons were found by different methods",
    }.items():
        users: dict[Any, list[str]] = {}
        for run in runs:
            # An infinite epsilon is infinite however it is found.
            if math.isfinite(run.summary["epsilon"]):
                users.setdefault(run.summary[key], []).append(run.name)
        if len(users) > 1:
            parts = (f"{value} ({', '.join(names)})" for value, names in users.items())
            found.append(f"note: {words}: {'; '.join(parts)}")
    return found


def labels(runs: Sequence[RunFolder]) -> dict[str, str]:
    """What tells each run from the others, by its name: settings, else the name."""
    settings = different_settings(runs)
    found = {
        run.name: ", ".join(f"{s}={_setting(run, s)}" for s in settings) for run in runs
    }
    words = list(found.values())
    return {k: v if words.count(v) == 1 else k for k, v in found.items()}


def arms(
    runs: Sequence[RunFolder], settings: Sequence[str], baseline: str, metric: str
) -> list[dict[str, Any]]:
    """A row for the runs that differ in nothing but seeds, with its effect.

    Args:
      settings: Settings that differ among the runs.
      baseline: Name of a run; the others are compared with all runs of its settings.
      metric: The measure whose final value is compared, such as "accuracy".

    Raises:
      ValueError: If no run has the name, a run does not have the metric, or it is not
        finite, or two runs differ in no setting and have the same seed.
    """
    by_name = {run.name: run for run in runs}
    if baseline not in by_name:
        known = ", ".join(by_name)
        raise ValueError(f"--baseline must be one of {known}, found {baseline!r}")
    chosen = [name for name in settings if name not in _SEEDS]
    cells: dict[tuple[str, ...], dict[Any, float]] = {}
    shown: dict[tuple[str, ...], dict[str, Any]] = {}
    named: dict[tuple[Any, ...], str] = {}
    for run in runs:
        final = run.summary["final_metrics"].get(f"eval_{metric}")
        if final is None:
            raise ValueError(f"--metric must be one that all runs have, found {metric}")
        if not math.isfinite(final):
            raise ValueError(
                f"--metric must be finite in all runs, found {final} in {run.name}"
            )
        arm, seed = _arm(run, chosen), _setting(run, "seed")
        # Runs that were given none share none.
        key = run.name if seed is None else seed
        other = named.setdefault((arm, key), run.name)
        if other != run.name:
            raise ValueError(
                "RUN must differ from the others in a setting or in the seed, found "
                f"{other} and {run.name}, which do not"
            )
        cells.setdefault(arm, {})[key] = float(final)
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
        rows.append(row)
    return rows


def _arm(run: RunFolder, settings: Sequence[str]) -> tuple[str, ...]:
    return tuple(json.dumps(_setting(run, name)) for name in settings)


def row(run: RunFolder, settings: Sequence[str]) -> dict[str, Any]:
    """A line of the table, with the settings that are named."""
    summary = run.summary
    found: dict[str, Any] = {"run": run.name}
    found.update((name, _setting(run, name)) for name in settings)
    for column, final in summary["final_metrics"].items():
        name = column[len("eval_") :]
        seen = [value for _, value in run.points("round", column)]
        best = min if name == "loss" else max
        found[f"final_{name}"] = final
        found[f"best_{name}"] = best(seen) if seen else None
    # The rounds that were done are not those that were asked for.
    found["rounds_done"] = summary["rounds"]
    found.update((name, summary[name]) for name in _SPENT)
    found["seconds"] = summary.get("wall_time_seconds")
    return found
