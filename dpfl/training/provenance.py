# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Everything that a result depends on: settings, versions and the source tree.

facts = provenance.manifest(plan)
key = selection.run_key(seed, provenance.digest(plan))
"""

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
from dpfl.mechanisms import matrix_factorization
from dpfl.tasks import registry
from dpfl.training import config as config_lib
from dpfl.training import plan as plan_lib

# Names in a run's digest of settings whose flags have been renamed: a run's seeds are
# made from the digest, whose bytes stay.
_NAMES_IN_DIGEST = {"accounting_method": "accountant"}
# Options for the place of the data, which the fingerprint identifies.
_WHERE_DATA_ARE = ("data_dir", "download")
_PACKAGES = (
    *("tensorflow", "tensorflow-federated", "dp-accounting", "numpy", "scipy"),
    *("jax", "jaxlib"),
)


def settings(plan: plan_lib.Plan) -> dict[str, Any]:
    """The settings, by flag, that determine a run's results and allow it to resume.

    The noise multiplier is as it was given, so that None means a calibrated one.
    """
    config = plan.config
    values = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in config_lib.HARMLESS
        and field.name not in ("task_config", "mechanism_options")
    }
    values.update(dataclasses.asdict(config.task_config))
    values.update(
        (name, value)
        for name, value in dataclasses.asdict(plan.mechanism).items()
        if name != "noise_multiplier"
    )
    for name in _WHERE_DATA_ARE:
        values.pop(name, None)
    values["mechanism's file"] = plan.mechanism.file_digest
    values["task fingerprint"] = _fingerprint(plan)
    values["population"] = plan.task.population
    values["dimension"] = plan.dimension
    return values


def manifest(plan: plan_lib.Plan) -> dict[str, dict[str, Any]]:
    """The facts that must not change when a run resumes, by kind and name.

    These are its settings, the resulting noise, the versions of the packages that
    compute it, the engine's device, the digests of dpfl's own files and of plug-ins,
    and what the last bits of sums depend on. Without the source digests, a changed
    calibration in the same version could give some rounds another noise, or a changed
    task could give other updates the same noise.
    """
    return {
        **_of_release(plan),
        "source": {
            "dpfl's files": source_digest(),
            "plug-ins' files": plugins_digest(plan),
        },
        "arithmetic": {**_arithmetic(plan), **plan.about.last_bits},
    }


def _of_release(plan: plan_lib.Plan) -> dict[str, dict[str, Any]]:
    """The facts of `manifest` from which seeds are made, too."""
    return {
        "flags": settings(plan),
        "noise": {"noise_multiplier": plan.mechanism.noise_multiplier},
        "versions": versions(),
        "engine": dict(plan.about.facts),
    }


def digest(plan: plan_lib.Plan) -> str:
    """The SHA-256 of everything that a release depends on, except seed and data.

    The task's fingerprint represents the data. The source's digests and the
    processors are left out, so that a seed gives the same results within one version.
    Measurements beside the release are left out too.
    """
    facts = _of_release(plan)
    named = facts["flags"]
    del named["seed"], named["measure"]
    if plan.config.engine == "tff":
        # Facts and settings of the other engine.
        del facts["engine"]
        for name in ("engine", "precision", "clients_at_once"):
            del named[name]
    if named["canaries"] is None:
        # A later option, which runs without it do not have.
        del named["canaries"]
    named["participation"] = plan.participation.name_in_digests
    flags = {_NAMES_IN_DIGEST.get(k, k): named[k] for k in named}
    gone = {**plan.mechanism.gone_fields(), **plan.config.task_config.former_fields}
    facts["flags"] = {**gone, **flags}
    return files.digest(facts)


def versions() -> dict[str, str]:
    """The versions of the packages that a result may depend on."""
    installed = {"dpfl": dpfl.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def source_digest() -> str:
    """The SHA-256 of the names and contents of dpfl's own modules, in hex.

    It differs after an uncommitted edit, and exists without git.
    """
    return _digest_of([pathlib.Path(dpfl.__file__)])


def _fingerprint(plan: plan_lib.Plan) -> str:
    """The task's fingerprint, with a sample of the data if it is a plug-in's."""
    if _is_own(registry.task_entry(plan.config.task).module):
        return plan.task.fingerprint
    return f"{plan.task.fingerprint} {plan.task.sample_digest}"


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == dpfl.__name__


def plugins_digest(plan: plan_lib.Plan) -> Optional[str]:
    """The SHA-256 of the plug-ins of a plan's task and mechanism; None without any.

    A plug-in's whole package is included.
    """
    names = {
        registry.task_entry(plan.config.task).module,
        type(plan.config.task_config).__module__,
        type(plan.mechanism).__module__,
    }
    sources = {_top(name) for name in names if not _is_own(name)}
    return _digest_of(sorted(filter(None, sources))) if sources else None


def _top(name: str) -> Optional[pathlib.Path]:
    """The file of a module's outermost package that has one; None without any."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        file = getattr(sys.modules.get(".".join(parts[:end])), "__file__", None)
        if file:
            return pathlib.Path(file)
    return None


def _digest_of(tops: Sequence[pathlib.Path]) -> str:
    """The SHA-256 of modules, and of everything in the folders of packages."""
    hasher = hashlib.sha256()
    for top in tops:
        is_package = top.name == "__init__.py"
        for path in sorted(top.parent.rglob("*.py")) if is_package else [top]:
            content = path.read_bytes()
            name = path.relative_to(top.parent).as_posix()
            hasher.update(f"{name} {len(content)}\n".encode())
            hasher.update(content)
    return hasher.hexdigest()


def _arithmetic(plan: plan_lib.Plan) -> dict[str, Any]:
    """The facts that the last bits of noise depend on, besides the source.

    Correlated noise is sums of float32 numbers, whose order depends on threads. Other
    noise is integers.
    """
    is_stream = isinstance(plan.mechanism, matrix_factorization.StreamedMatrix)
    return processors() if is_stream else {}


def processors() -> dict[str, Any]:
    """The facts of processors that decide the order of float sums."""
    number, settings_of_blas, _ = disk_cache.ADDING_UP
    own = {"processors": number, "settings of BLAS": settings_of_blas}
    return {**own, **kind_of_processor()}


def kind_of_processor() -> dict[str, str]:
    """The fact by which libraries choose their code, and the order of float sums."""
    *_, kind = disk_cache.ADDING_UP
    return {"kind of processor": files.digest({"lines": kind})}


def environment(beginnings: tuple[str, ...]) -> dict[str, str]:
    """The environment's settings that begin so, of the form NAME=VALUE, by name."""
    items = os.environ.items()
    return {name: v for name, v in items if f"{name}={v}".startswith(beginnings)}


def git_state() -> Optional[dict[str, Any]]:
    """The source tree's commit, and whether it is changed; None outside of a tree.

    A tree that contains the installed package without tracking it does not count.
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
