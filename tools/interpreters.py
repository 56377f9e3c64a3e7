# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Finds or provides the Pythons that test the wheel, and what runs beside no TFF.

`.venv/bin/python tools/interpreters.py` has uv download every version of Python that is
missing, and make the environments of `environments.csv`, in the folder .pythons. Where
that is impossible it says so, with exit code 1.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Optional

ROOT = Path(__file__).resolve().parent.parent
PROVIDED = ROOT / ".pythons"
# Versions that the wheel supports, both ends and the middle.
VERSIONS = ("3.9", "3.11", "3.13")


class Environment(NamedTuple):
    """An environment of its own for tests, of packages that do not go beside TFF.

    Attributes:
      version: Version of Python.
      pins: Requirements, with all that `import dpfl` asks for.
      modules: Modules that are compiled when the environment is made: all of them would
        take longer than the installation.
    """

    version: str
    pins: tuple[str, ...]
    modules: str


with open(ROOT / "tools/environments.csv", encoding="utf-8") as _table:
    ENVIRONMENTS = {
        row["name"]: Environment(
            row["python"], tuple(row["pins"].split()), row["modules"]
        )
        for row in csv.DictReader(_table)
    }


def uv(*words: object) -> str:
    """What a command of uv prints.

    Raises:
      subprocess.CalledProcessError: If it fails.
    """
    pyenv = Path.home().glob(".pyenv/versions/3.*/bin")
    own = {"UV_PYTHON_INSTALL_DIR": str(PROVIDED / "uv")}
    own["PATH"] = os.pathsep.join([*map(str, pyenv), os.environ["PATH"]])
    # uv does not read the settings of pip, which may have packages of this machine.
    if "PIP_FIND_LINKS" in os.environ:
        own["UV_FIND_LINKS"] = os.environ["PIP_FIND_LINKS"]
    return subprocess.run(
        [sys.executable, "-m", "uv", *map(str, words)],
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout


def find(version: str) -> Optional[Path]:
    """An interpreter of the version; None if there is none."""
    try:
        return Path(uv("python", "find", "--system", version).strip())
    except subprocess.CalledProcessError:
        return None


def find_environment(name: str) -> Optional[Path]:
    """The interpreter of one of `ENVIRONMENTS`; None if it is not whole."""
    made_of = PROVIDED / name / "made-of"
    wanted = "\n".join(ENVIRONMENTS[name].pins)
    is_whole = made_of.exists() and made_of.read_text() == wanted
    return PROVIDED / name / "bin/python" if is_whole else None


def provide_environment(name: str) -> None:
    """Makes one of `ENVIRONMENTS`.

    Raises:
      subprocess.CalledProcessError: If a package cannot be downloaded.
    """
    folder, environment = PROVIDED / name, ENVIRONMENTS[name]
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin/python"
    uv("venv", "--quiet", "--no-project", "--python", environment.version, folder)
    uv("pip", "install", "--quiet", "--python", python, *environment.pins)
    compiling = ["env", "-u", "PYTHONDONTWRITEBYTECODE", python]
    subprocess.run([*compiling, "-c", f"import {environment.modules}"], check=True)
    (folder / "made-of").write_text("\n".join(environment.pins))


def main() -> int:
    """Provides what is missing; returns the exit code."""
    try:
        for version in VERSIONS:
            if find(version) is None:
                print(f"Python {version}: downloading it", flush=True)
                uv("python", "install", version)
            print(f"Python {version}: {find(version)}")
        for name in ENVIRONMENTS:
            if find_environment(name) is None:
                print(f"{name}: making an environment", flush=True)
                provide_environment(name)
            print(f"{name}: {find_environment(name)}")
    except subprocess.CalledProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
