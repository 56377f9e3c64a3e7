# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Pins the requirements of dpfl and its tests: `python tools/write_requirements.py`.

It needs `uv` on the path. It writes dpfl/requirements-tff.txt, which the wheel carries,
and requirements.txt, which adds packages for tests, checks and the site. Both are
complete, so that they are installed with --no-deps: TensorFlow Federated's own pins
cannot be met. Each pin has the digests of its files, and pip takes no other file for
it. Pins in the files stay; delete a line, or a file, to have it chosen again.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "dpfl/requirements-tff.txt"
ALL = ROOT / "requirements.txt"
# Platforms of TensorFlow Federated 0.87; pins for others are left out.
PLATFORMS = [
    {
        "python_full_version": f"3.{minor}.{patch}",
        "python_version": f"3.{minor}",
        **{"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
        **{"platform_machine": "x86_64", "implementation_name": "cpython"},
        "platform_python_implementation": "CPython",
    }
    for minor in (9, 10, 11)
    for patch in (0, 99)
]
# Short forms of markers that hold on these platforms, in the order above.
SHORT: dict[tuple[bool, ...], str] = {
    (True,) * 6: "",
    (True, True, False, False, False, False): " ; python_version < '3.10'",
    (True, True, True, True, False, False): " ; python_version < '3.11'",
    (False, False, True, True, False, False): " ; python_version == '3.10'",
    (False, False, True, True, True, True): " ; python_version >= '3.10'",
    (False, False, False, False, True, True): " ; python_version >= '3.11'",
}
HEADER = "# Made by tools/write_requirements.py; install with --no-deps.\n"


class Pin(NamedTuple):
    """A version with its marker for TFF's platforms, and the digests of its files.

    The digests are SHA-256, as pip's options.
    """

    requirement: str
    hashes: tuple[str, ...]

    def __str__(self) -> str:
        return " \\\n    ".join([self.requirement, *self.hashes])


def pins(source: Path) -> list[Pin]:
    """The pins of everything that `source` requires, on TFF's platforms."""
    kept = [p.read_text(encoding="utf-8") for p in (RUN, ALL) if p.exists()]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        lines = "".join(kept).splitlines()
        known = [line.rstrip(" \\") for line in lines if "==" in line]
        constraints.write_text("\n".join(known), encoding="utf-8")
        command = ["uv", "pip", "compile", "--quiet", "--universal"]
        command += ["--python-version=3.9", "--no-header", "--no-annotate"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--generate-hashes"]
        command += ["--override", str(ROOT / "requirements-overrides.txt")]
        command += ["--constraint", str(constraints), str(source)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return list(parsed(done.stdout))


def parsed(text: str) -> Iterator[Pin]:
    """The pins in the output of `uv pip compile --generate-hashes`.

    Raises:
      ValueError: If a pin has no digest, since pip would refuse the whole list.
    """
    for line in text.replace("\\\n", " ").splitlines():
        requirement, *hashes = line.split(" --hash=")
        shortened = _shortened(requirement.strip())
        if not shortened:
            continue
        if not hashes:
            raise ValueError(f"a pin must have a digest, found {line!r}")
        yield Pin(shortened, tuple(f"--hash={digest.strip()}" for digest in hashes))


def _shortened(line: str) -> str:
    """A pin with the marker that matters on TFF's platforms, '' if none holds."""
    marker = Requirement(line).marker
    holds = tuple(marker is None or marker.evaluate(where) for where in PLATFORMS)
    if not any(holds):
        return ""
    if holds not in SHORT:
        return line
    return line.partition(" ;")[0] + SHORT[holds]


def main() -> None:
    """Writes both files."""
    run = pins(ROOT / "requirements-tff.in")
    every = pins(ROOT / "requirements.in")
    missing = [pin.requirement for pin in run if pin not in every]
    if missing:
        raise ValueError(f"pins must agree between the two lists, found {missing}")
    rest = [pin for pin in every if pin not in run]
    RUN.write_text("\n".join([HEADER.strip(), *map(str, run), ""]), encoding="utf-8")
    include = f"-r {RUN.relative_to(ROOT)}"
    lines = [HEADER.strip(), include, *map(str, rest), ""]
    ALL.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
