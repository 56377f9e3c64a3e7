# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""All that a result depends on: settings, versions, the state of the source tree."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Optional

import dpfl
from dpfl import disk_cache, files
from dpfl.mechanisms import Mechanism, matrix_factorization
from dpfl.tasks import registry
from dpfl.training import config as config_lib
from dpfl.training import plan as plan_lib

# Where the data come from; the fingerprint says what they are.
_WHERE_DATA_ARE = ("data_dir", "download", "verify")
_PACKAGES = (
    *("tensorflow", "tensorflow-federated", "dp-accounting", "numpy", "scipy"),
)


def settings(plan: plan_lib.Plan) -> dict[str, Any]:
    """All that decides a run's results, by flag; with it a run can be resumed.

    The noise multiplier is as it was given, so that None is one that was calibrated.
    """
    config = plan.config
    found = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in config_lib.HARMLESS
        and field.name not in ("task_config", "mechanism_options")
    }
    found.update(dataclasses.asdict(config.task_config))
    found.update(
        (name, value)
        for name, value in dataclasses.asdict(plan.mechanism).items()
        if name != "noise_multiplier"
    )
    for name in _WHERE_DATA_ARE:
        found.pop(name, None)
    found["mechanism's file"] = plan.mechanism.file_digest
    found["task fingerprint"] = _fingerprint(plan)
    found["population"] = plan.task.population
    found["dimension"] = plan.dimension
    return found


def manifest(plan: plan_lib.Plan) -> dict[str, dict[str, Any]]:
    """All with which a run must go on, by what it is called.

    These are its settings, the noise that they came to, the versions of what computes
    it, the commit of the source tree if there is one, the digests of dpfl's own files
    and of those of plug-ins, and for correlated noise the processors. Without source,
    another calibration in the same version could give some rounds another noise, or
    another task the same noise to other updates.
    """
    return {
        "flags": settings(plan),
        "noise": {"noise_multiplier": plan.mechanism.noise_multiplier},
        "versions": versions(),
        "source": {
            "commit": (git_state() or {}).get("commit"),
            "dpfl's files": source_digest(),
            "plug-ins' files": plugins_digest(plan),
        },
        "arithmetic": _arithmetic(plan.mechanism),
    }


def digest(plan: plan_lib.Plan) -> str:
    """The SHA-256 of all that a release depends on, but the seed and the data.

    The task's fingerprint stands for the data. It does not hold the source's commit
    and digests, nor the processors: what a seed gives stays the same within one
    version. Nor does it hold what is measured beside the release.
    """
    found = manifest(plan)
    del found["source"], found["arithmetic"]
    del found["flags"]["seed"], found["flags"]["measure"]
    return files.digest(found)


def versions() -> dict[str, str]:
    """The versions of what a result may depend on."""
    found = {"dpfl": dpfl.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def source_digest() -> str:
    """The SHA-256 of the names and contents of dpfl's own modules, in hex.

    It differs after an edit that is not committed, and is there where no git is.
    """
    return _digest_of([pathlib.Path(dpfl.__file__)])


def _fingerprint(plan: plan_lib.Plan) -> str:
    """The task's fingerprint; a plug-in's may forget some data, so a few go with it."""
    if _is_own(registry.task_entry(plan.config.task).module):
        return plan.task.fingerprint
    return f"{plan.task.fingerprint} {plan.task.sample_digest}"


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == dpfl.__name__


def plugins_digest(plan: plan_lib.Plan) -> Optional[str]:
    """The same of what is not dpfl's of a plan's task and mechanism, None without any.

    It is that of the whole package in which one of them is.
    """
    names = {
        registry.task_entry(plan.config.task).module,
        type(plan.config.task_config).__module__,
        type(plan.mechanism).__module__,
    }
    found = {_top(name) for name in names if not _is_own(name)}
    return _digest_of(sorted(filter(None, found))) if found else None


def _top(name: str) -> Optional[pathlib.Path]:
    """The file of the outermost package of a module that has one."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        file = getattr(sys.modules.get(".".join(parts[:end])), "__file__", None)
        if file:
            return pathlib.Path(file)
    return None


def _digest_of(tops: Sequence[pathlib.Path]) -> str:
    """The SHA-256 of modules, and of all in the folders of those that are packages."""
    found = hashlib.sha256()
    for top in tops:
        is_package = top.name == "__init__.py"
        for path in sorted(top.parent.rglob("*.py")) if is_package else [top]:
            content = path.read_bytes()
            name = path.relative_to(top.parent).as_posix()
            found.update(f"{name} {len(content)}\n".encode())
            found.update(content)
    return found.hexdigest()


def _arithmetic(mechanism: Mechanism) -> dict[str, Any]:
    """What the last bits of correlated noise depend on, beside its source.

    It is sums of float32 numbers, whose order is that of threads. Other noise is one of
    integers.
    """
    if not isinstance(mechanism, matrix_factorization.StreamedMatrix):
        return {}
    processors, settings_of_blas, kind = disk_cache.ADDING_UP
    return {
        "processors": processors,
        "settings of BLAS": settings_of_blas,
        "kind of processor": files.digest({"lines": kind}),
    }


def git_state() -> Optional[dict[str, Any]]:
    """The source tree's commit and if it is changed; None outside of one.

    A tree that holds the installed package without tracking it is none of its own.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(pathlib.Path(__file__).parent), *arguments],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", pathlib.Path(__file__).name)
        return {
            "commit": git("rev-parse", "HEAD"),
            "is_changed": bool(git("status", "--porcelain")),
        }
    except (OSError, subprocess.SubprocessError):
        return None
