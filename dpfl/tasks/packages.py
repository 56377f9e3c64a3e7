# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The installed packages that `dpfl/requirements-tff.txt` pins, and their modules.

    installed = packages.installed(packages.pinned())
    sentences = packages.read(installed, folder)    # cached in the folder

The list is part of dpfl, and training needs every package of it. Additional packages of
tests and checks are not in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dpfl.tasks import corpus

PINS = pathlib.Path(__file__).parents[1] / "requirements-tff.txt"
# Version of the reader, changed with what it reads from a file.
_READER = "docstrings 1"
_NAMED = 4


@dataclasses.dataclass(frozen=True)
class Package:
    """An installed package, with its modules' sources by dotted name."""

    name: str
    version: str
    files: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def pinned(path: pathlib.Path = PINS) -> dict[str, str]:
    """The versions, by name, that a list pins for the running Python.

    The list is in pip's format, each line a pin with its digests.
    """
    pins = {}
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        pin = re.split(r"\s--hash|#", line)[0].strip()
        if "==" in pin:
            requirement = Requirement(pin)
            if requirement.marker is None or requirement.marker.evaluate():
                pins[requirement.name] = str(requirement.specifier)[2:]
    return pins


def _distributions(folder: str | None) -> dict[str, metadata.Distribution]:
    """All installed packages by name; of duplicates the one that an import finds."""
    distributions: dict[str, metadata.Distribution] = {}
    path = sys.path if folder is None else [folder]
    for distribution in metadata.distributions(path=path):
        name = distribution.metadata["Name"]
        if name:
            distributions.setdefault(canonicalize_name(name), distribution)
    return distributions


def installed(pins: Mapping[str, str], folder: str | None = None) -> list[Package]:
    """The packages of a list, all of which must be installed.

    Args:
      pins: Versions by name.
      folder: Folder of the packages; None for the running Python's path.

    Raises:
      ValueError: If a package is missing or has another version.
    """
    there = _distributions(folder)
    distributions = {name: there.get(canonicalize_name(name)) for name in pins}
    versions = {
        name: distribution.version if distribution else None
        for name, distribution in distributions.items()
    }
    wrong = [name for name in pins if versions[name] != pins[name]]
    if wrong:
        raise ValueError(_refusal(pins, versions, wrong))
    return [
        Package(name, distribution.version, dict(_modules(distribution)))
        for name, distribution in distributions.items()
        if distribution is not None
    ]


def _refusal(
    pins: Mapping[str, str],
    versions: Mapping[str, str | None],
    wrong: Sequence[str],
) -> str:
    faults = [
        f"{name} {versions[name]} and not {pins[name]}"
        if versions[name]
        else f"no {name} {pins[name]}"
        for name in wrong[:_NAMED]
    ]
    faults += [f"{len(wrong) - _NAMED} more"] if len(wrong) > _NAMED else []
    return (
        "docs_source must not be 'packages' unless all packages that dpfl pins are "
        f"installed at their versions, found {', '.join(faults)}; python -m pip "
        'install --no-deps -r "$(python -m dpfl requirements)" installs them'
    )


def _modules(distribution: metadata.Distribution) -> Iterator[tuple[str, str]]:
    for file in distribution.files or ():
        name = corpus.module_name(file.as_posix())
        if name is not None:
            yield name, str(file.locate())


def _source(packages: Sequence[Package], modules: Sequence[tuple[str, str]]) -> str:
    """A digest that changes with a package, a source file or the reader."""
    digest = hashlib.sha256(f"{_READER} {sys.version_info[:2]}".encode())
    digest.update(" ".join(map(str, packages)).encode())
    for name, path in modules:
        try:
            about = os.stat(path)
            stamp = f"{name} {about.st_size} {about.st_mtime_ns}\n"
        except OSError:
            stamp = f"{name} is not there\n"
        digest.update(stamp.encode())
    return digest.hexdigest()


def read(packages: Sequence[Package], folder: pathlib.Path) -> corpus.Corpus:
    """Reads the sentences of packages, each at its first occurrence only.

    Otherwise generated modules, and copies of modules in other packages, would be
    clients that share most of their text with each other and with the held-out modules.
    The sentences are cached in a folder, and read again if files or packages change.
    """
    # Two packages may have the same name, of which an import finds one.
    modules = sorted(
        {n: p for package in packages for n, p in package.files.items()}.items()
    )
    place = hashlib.sha256("\n".join(path for _, path in modules).encode()).hexdigest()
    path = folder / f"docstrings-{place[:16]}.npz"
    source = _source(packages, modules)
    sentences = corpus.load(path, source)
    if sentences is None:
        sentences = corpus.read(modules, once=True)
        corpus.save(path, sentences, source)
    return sentences
