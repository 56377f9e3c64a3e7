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
from importlib import metadata
from typing import Any, Optional

import dpfl
from dpfl import files
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
    found["task fingerprint"] = plan.task.fingerprint
    found["population"] = plan.task.population
    found["dimension"] = plan.dimension
    return found


def manifest(plan: plan_lib.Plan) -> dict[str, dict[str, Any]]:
    """All with which a run must go on, by what it is called.

    These are its settings, the noise that they came to, the versions of what computes
    it, the commit of the source tree if there is one, and the digest of dpfl's own
    files. Without these two, another calibration in the same version could give some
    rounds another noise.
    """
    return {
        "flags": settings(plan),
        "noise": {"noise_multiplier": plan.mechanism.noise_multiplier},
        "versions": versions(),
        "source": {
            "commit": (git_state() or {}).get("commit"),
            "dpfl's files": source_digest(),
        },
    }


def digest(plan: plan_lib.Plan) -> str:
    """The SHA-256 of all that a release depends on, but the seed and the data.

    The task's fingerprint stands for the data. It does not hold the source's commit
    and digest: what a seed gives stays the same within one version. Nor does it hold
    what is measured beside the release.
    """
    found = manifest(plan)
    del found["source"], found["flags"]["seed"], found["flags"]["measure"]
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
    folder = pathlib.Path(dpfl.__file__).parent
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


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
