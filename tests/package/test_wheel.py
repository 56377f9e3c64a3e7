# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Builds the wheel and installs it where there is no TensorFlow."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from experiments import commands
from tests import forks, test_docs
from tools import interpreters

ROOT = Path(__file__).resolve().parent.parent.parent
CHECKS = ROOT / "tests/package/installed_checks.py"
IN_THE_WHEEL = ("dpfl", "experiments", "configs")
# Parts of these that no wheel has.
IN_THE_CLONE = [
    *(ROOT / f"experiments/{name}.py" for name in commands.IN_THE_CLONE),
    *(ROOT / f"experiments/{name}" for name in ("papers", "benchmarks")),
    *(ROOT / f"configs/{name}" for name in ("papers", "evidence")),
]
BESIDE = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
EPSILON_OF_GAUSSIAN = ["--mechanism=gaussian", "--cohort_size=10", "--population=10"]
EPSILON_OF_GAUSSIAN += ["--participation=fixed", "--rounds=1", "--json"]


def run(command, folder, exit_code=0, **more):
    """Runs a command, mostly far from the source tree; returns what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment.update(more)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout if exit_code == 0 else done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy: a build leaves folders behind."""
    source = tmp_path_factory.mktemp("source")
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in IN_THE_WHEEL:
        shutil.copytree(ROOT / name, source / name, ignore=skipped)
    for name in BESIDE:
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    run([*PIP, "wheel", *options, "--wheel-dir", target, source], target)
    (found,) = target.glob("*.whl")
    return found


def test_wheel_holds_one_complete_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dpfl"}
    expected = {"dpfl/py.typed"} | {
        f"dpfl/tasks/mnist_writers.{end}" for end in ("npz", "LICENSE")
    }
    for folder in IN_THE_WHEEL:
        inside = "" if folder == "dpfl" else "dpfl/"
        for path in (ROOT / folder).rglob("*"):
            is_left = {path, *path.parents} & set(IN_THE_CLONE)
            if path.suffix in (".py", ".flags", ".csv", ".css", ".txt") and not is_left:
                expected.add(f"{inside}{path.relative_to(ROOT).as_posix()}")
    assert len(expected) > 100
    assert {name for name in names if name.startswith("dpfl/")} == expected
    assert any(name.endswith("/LICENSE") for name in names)


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        return archive.read(name).decode()


def test_the_base_asks_for_no_tensorflow(wheel):
    text = metadata(wheel)
    asked = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*(;.*)?$", text, re.M)
    base = {name for name, marker in asked if "extra" not in marker}
    numbers = {"dp-accounting", "matplotlib", "numpy", "scipy"}
    assert base == {"absl-py", "attrs", "tqdm"} | numbers
    extras = [(name, marker) for name, marker in asked if "extra" in marker]
    assert "dp-accounting<0.7,>=0.4.3" in text
    of_tff = {name: marker for name, marker in extras if '"tff"' in marker}
    assert {"tensorflow", "tensorflow-federated"} <= set(of_tff)
    for marker in of_tff.values():
        assert 'sys_platform == "linux"' in marker
        assert 'python_version < "3.12"' in marker
    for extra in ("jax", "cuda"):
        own = {name: marker for name, marker in extras if f'"{extra}"' in marker}
        assert set(own) == {"jax", "psutil", "scikit-learn", "tensorboard"}
        assert all('python_version >= "3.11"' in marker for marker in own.values())
    assert "Requires-Dist: jax[cuda12]" in text


def pins_of(name):
    """The Python and the pins of an environment; that of TFF is this one."""
    if name == "tff":
        text = (ROOT / "dpfl/requirements-tff.txt").read_text()
        return HERE, re.findall(r"^(\S+==.*?)(?: \\)?$", text, re.M)
    return interpreters.ENVIRONMENTS[name][:2]


@pytest.mark.parametrize("name", ["tff", "jax", "jax-newest", "flower"])
def test_environments_have_what_the_extra_asks_for(wheel, name):
    from packaging.requirements import Requirement

    version, pins = pins_of(name)
    where = {"extra": name.partition("-")[0], "python_version": version}

    def needed(lines):
        every = map(Requirement, lines)
        return [x for x in every if x.marker is None or x.marker.evaluate(where)]

    has = {pin.name: next(iter(pin.specifier)).version for pin in needed(pins)}
    for wanted in needed(re.findall(r"^Requires-Dist: (.*)$", metadata(wheel), re.M)):
        assert wanted.specifier.contains(has[wanted.name]), wanted


# All other tests run on this one.
HERE = "{}.{}".format(*sys.version_info)
OTHERS = [version for version in interpreters.VERSIONS if version != HERE]
# Both ends of what setup.py allows; the first is also what stands beside TFF, and
# test_environments.py has others.
DP_ACCOUNTING = {OTHERS[0]: "0.4.3", OTHERS[-1]: "0.6.0"}


@pytest.mark.parametrize("version", OTHERS)
def test_installs_and_works_without_tensorflow(version, wheel, tmp_path):
    interpreter = interpreters.find(version)
    if interpreter is None:
        assert "CI" not in os.environ, f"tools/interpreters.py gave no Python {version}"
        pytest.skip(
            f"there is no Python {version} here; tools/interpreters.py finds one"
        )
    binaries = tmp_path / "env" / "bin"
    python = binaries / "python"
    interpreters.uv("venv", "--no-project", "--python", interpreter, tmp_path / "env")
    pinned = f"dp-accounting=={DP_ACCOUNTING[version]}"
    interpreters.uv("pip", "install", "--python", python, wheel, pinned)
    assert int(run([python, "-I", CHECKS], tmp_path)) == 3
    check_numbers(binaries, tmp_path)
    if version == OTHERS[-1]:
        check_the_rest(binaries, tmp_path)


def check_the_rest(binaries, tmp_path):
    """What does not depend on the version of Python."""
    python = binaries / "python"
    said = run([binaries / "dpfl-compare"], tmp_path, exit_code=2)
    assert said == "error: RUN must be the output folder of a run, found none\n"
    check_commands(python, tmp_path)
    for name in ("train", "audit", "search", "sweep"):
        said = run([binaries / f"dpfl-{name}"], tmp_path, exit_code=2)
        assert said.startswith("error: this part of dpfl needs TensorFlow"), said
        assert said.count("\n") == 1


def check_numbers(binaries, folder):
    """Noise by the exact curve, where Renyi accounting would ask for 4.0456; and sums."""
    calibrate = ["calibrate", *EPSILON_OF_GAUSSIAN, "--epsilon=1", "--delta=1e-5"]
    compute = ["compute", "--rounds=4", "--json", "--matrix_method=identity"]
    saved = folder / "saved.npz"
    for binary, words, name, value in (
        ("dpfl-privacy", calibrate, "noise_multiplier", 3.7308),
        ("dpfl-factorize", [*compute, f"--output={saved}"], "total", 1 + 2 + 3 + 4),
    ):
        (row,) = json.loads(run([binaries / binary, *words], folder))
        assert row[name] == pytest.approx(value, rel=1e-4)
    assert saved.exists()


def check_commands(python, folder):
    text = run([python, "-m", "dpfl"], folder)
    for name in commands.COMMANDS:
        assert re.search(rf"^  {name} +[A-Z]\w+.*\.$", text, re.M), text
    version = run([python, "-m", "dpfl", "--version"], folder)
    assert version == run([python, "-m", "dpfl", "privacy", "--version"], folder)
    assert version == f"dpfl {re.search('__version__ = .(.+?).$', ours(), re.M)[1]}\n"
    configs = Path(run([python, "-m", "dpfl", "configs"], folder).strip())
    found = {p.relative_to(configs) for p in configs.rglob("*.flags")}
    flag_files = set((ROOT / "configs").rglob("*.flags"))
    assert found == {
        path.relative_to(ROOT / "configs")
        for path in flag_files
        if not {*path.parents} & set(IN_THE_CLONE)
    }
    pins = Path(run([python, "-m", "dpfl", "requirements"], folder).strip())
    assert pins.read_text() == (ROOT / "dpfl/requirements-tff.txt").read_text()
    assert folder in configs.parents and folder in pins.parents
    said = run([python, "-m", "dpfl", "trane"], folder, exit_code=2)
    assert said.startswith("error: the command must be one of train, privacy"), said
    for name in commands.IN_THE_CLONE:
        said = run([python, "-m", "dpfl", name, "--help"], folder, exit_code=2)
        assert f"experiments.{name}" in said and said.count("\n") == 1


def ours():
    return (ROOT / "dpfl/__init__.py").read_text()


def test_commands_train_in_jax_from_the_wheel(wheel, tmp_path):
    """The README's line, and others, where the extra `jax` is without TensorFlow."""
    assert "pip install -e '.[jax]' && dpfl-train\n" in (ROOT / "README.md").read_text()
    python = forks.other_python("jax-newest")
    site = tmp_path / "site"
    interpreters.uv("pip", "install", "--no-deps", "--target", site, wheel)

    def dpfl(command, *arguments, exit_code=0):
        # Optimized programs of few rounds take longer to compile than they save.
        flags = "--xla_backend_optimization_level=0" if arguments else ""
        own = {"PYTHONPATH": str(site), "XLA_FLAGS": flags}
        words = [python, "-m", "dpfl", command, *arguments]
        return run(words, tmp_path, exit_code, **own)

    few = ["--rounds=3", "--cohort_size=4", "--noise_multiplier=1"]
    few += ["--mechanism=gaussian", "--accounting_method=rdp"]
    assert "engine: jax on cpu" in dpfl("train")
    [folder] = (tmp_path / "runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    test_docs.check_main_job(summary)
    assert summary["engine"]["engine"] == "jax"
    assert "tensorflow" not in summary["versions"]
    assert (folder / "model.npz").exists()
    assert list(folder.glob("tensorboard/*tfevents*"))
    said = dpfl("train", *few, "--concurrency=2", exit_code=2)
    assert said.count("\n") == 1 and "--concurrency" in said
    search = ["--server_lr=1", "--output_dir=searches", "--runs=1"]
    dpfl("search", *search, "--", *few)
    assert (tmp_path / "searches/best.flags").exists()
    [found] = (tmp_path / "searches").glob("*/summary.json")
    both = [str(folder), str(found.parent)]
    assert len(json.loads(dpfl("compare", *both, "--any_task", "--json"))) == 2
    audit = ["--mechanisms=gaussian", "--quick", "--trials=50", "--draws=1000"]
    dpfl("audit", *audit, "--output=audit.json")
    checks = {row["check"] for row in json.loads((tmp_path / "audit.json").read_text())}
    assert {"epsilon", "composition", "tails", "measured"} <= checks


def test_training_works_from_the_wheel(wheel, tmp_path):
    """TensorFlow Federated is this environment's; dpfl is the wheel's alone."""
    site = tmp_path / "site"
    interpreters.uv("pip", "install", "--no-deps", "--target", site, wheel)
    words = "train", "--rounds=1", "--cohort_size=4", "--output_dir=run"
    first = functools.partial(forks.import_anew, [site])
    done = forks.run("dpfl", *words, folder=tmp_path, first=first)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    # One round of a mechanism that was calibrated to the task's budget for one round.
    assert 7.9 < summary["epsilon"] <= 8
