# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Holds the tree to its own rules: linter, formatter, types, layers, start-up."""

import ast
import functools
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from dpfl.tasks import registry
from experiments import commands
from tests.package import test_public

ROOT = Path(__file__).resolve().parent.parent
# What each package may import of dpfl, besides itself.
LAYERS = {
    "accounting": set(),
    "factorization": set(),
    "mechanisms": {"accounting", "factorization"},
    "planning": set(
        "accounting arrays factorization mechanisms noise_streams vectors".split()
    ),
    "arrays": set(),
    "vectors": {"arrays"},
    "noise_streams": {"arrays", "factorization", "vectors"},
    "codecs": set(
        "accounting arrays mechanisms noise_streams planning vectors".split()
    ),
    "aggregators": set(
        "accounting arrays codecs mechanisms noise_streams vectors".split()
    ),
    "tasks": {"arrays", "mechanisms", "vectors"},
    "pages": set(),
    "training": set(
        "accounting arrays mechanisms pages planning tasks vectors".split()
    ),
    "loops": {"arrays", "codecs", "mechanisms", "planning", "training"},
    # Engines train for a run: it knows their table alone, and they know its plan.
    "engines": set(
        "aggregators arrays codecs mechanisms planning tasks training vectors".split()
    ),
}
# Modules of lower layers that know engines: a task returns its parts of TensorFlow.
WITH_ENGINE = {"tasks/task.py"}
GROUND = (
    "seed_domains cache_folder checks privacy_coverage disk_cache fields files launcher"
)
GROUND += " locks machine missing needs_tff plugins reading texts __version__"
# Those that import dpfl as a whole, for its version.
OF_ALL = {"connection.py", "provenance.py", "storage.py"}
WITHOUT_TENSORFLOW = set(
    "accounting factorization loops mechanisms pages planning training".split()
)
WITH_TFF = {"aggregators", "engines"}
PACKAGES = sorted(p.parent for p in (ROOT / "dpfl").glob("*/__init__.py"))


def tool(*args, **more):
    done = subprocess.run(
        [sys.executable, "-m", *args],
        cwd=ROOT,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]])
def test_linter_and_formatter(words):
    tool("ruff", *words, ".")


def test_types(tmp_path):
    """Those of the tree, and those that a program of a user's sees."""
    strict = "# mypy: disallow-any-generics, disallow-untyped-calls, strict-equality"
    strict += ", disallow-any-unimported, warn-return-any\n"
    # An ignored error that is none is an error.
    wrong = "dpfl.nonsense  # type: ignore[attr-defined]\n"
    (tmp_path / "program.py").write_text(strict + test_public.PROGRAM + wrong)
    modules = ("-p", "dpfl", "-p", "experiments", "-m", "program")
    tool("mypy", *modules, MYPYPATH=f"{ROOT}{os.pathsep}{tmp_path}")


@functools.cache
def nodes(path):
    """Syntax nodes of a file."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def imported(path):
    """Absolute names of what a file imports, wherever in it."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parent.parts
            around = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*around, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_imports_go_down(package):
    allowed = LAYERS[package.name] | {package.name} | set(GROUND.split())
    for path in package.rglob("*.py"):
        for name in imported(path):
            parts = name.split(".")
            place = path.relative_to(ROOT / "dpfl").as_posix()
            if name.startswith("dpfl.engines.") and place in WITH_ENGINE:
                continue
            if parts[0] == "dpfl" and parts[1:]:
                assert parts[1] in allowed, (path, name)
            elif parts[0] == "dpfl":
                assert path.name in OF_ALL, (path, name)
            assert parts[0] not in ("experiments", "tests", "tools"), (path, name)
            if parts[0] == "tensorflow_federated":
                assert package.name in WITH_TFF, (path, name)
            if parts[0] in ("tensorflow", "tensorflow_privacy", "jax"):
                assert package.name not in WITHOUT_TENSORFLOW, (path, name)
            assert name.split(".")[:2] != ["absl", "flags"], (path, name)


# What files import at no depth, by where they are: engines each other, functions of
# arrays a library, a wheel what is left in the clone, papers each other.
CLONE = {*commands.IN_THE_CLONE, "papers", "benchmarks"}
PAPERS = {"chen2022", "chen2024", "denisov2022", "dome2025", "ours"}
FORBIDDEN = {
    "dpfl/engines/jax": ["tensorflow", "tensorflow_federated", "dpfl.engines.tff"],
    "dpfl/engines/tff": ["jax", "dpfl.engines.jax"],
    "dpfl/vectors": ["tensorflow", "jax"],
    "dpfl/codecs": ["tensorflow", "jax"],
}
for _path in (ROOT / "experiments").glob("[a-z]*"):
    if _path.suffix in ("", ".py") and _path.stem not in CLONE:
        left = [f"experiments.{name}" for name in CLONE]
        FORBIDDEN[f"experiments/{_path.name}"] = left
for _path in (ROOT / "experiments/papers").glob("*.py"):
    if _path.stem != "index":
        others = [f"experiments.papers.{name}" for name in PAPERS - {_path.stem}]
        FORBIDDEN[f"experiments/papers/{_path.name}"] = others


def is_within(name, package):
    return f"{name}.".startswith(f"{package}.")


@pytest.mark.parametrize("place", sorted(FORBIDDEN))
def test_what_is_not_imported(place):
    paths = [ROOT / place, *(ROOT / place).rglob("*.py")]
    for path in [path for path in paths if path.is_file()]:
        for name in imported(path):
            wrong = [x for x in FORBIDDEN[place] if is_within(name, x)]
            assert not wrong, (path, name)


def test_arguments_are_what_their_checks_return():
    for path in sorted((ROOT / "dpfl").rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                call = ast.unparse(node.value)
                dropped = re.match(r"checks\.\w+\('(\w+)', \1\b", call)
                assert not dropped, (path, node.lineno, call)


def test_shared_modules_import_no_higher_layer():
    for name in {*GROUND.split()} - {"__version__"}:
        for found in imported(ROOT / f"dpfl/{name}.py"):
            parts = found.split(".")
            assert parts[0] != "dpfl" or parts[1] in GROUND.split(), (name, found)


TASKS = sorted({entry.module for entry in registry.TASKS.values()})
BINARIES = {
    f"experiments.{path.stem}"
    for path in (ROOT / "experiments").glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
}
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.py"))


def arguments(node):
    """Names of a function's arguments, but for the object or class it belongs to."""
    names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [each.arg for each in names if each.arg not in ("self", "cls")]


def test_public_functions_of_three_arguments_say_what_each_is():
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path in sorted([*(ROOT / "dpfl").rglob("*.py"), *EXPERIMENTS])
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if len(arguments(node)) >= 3
        and not re.search("Args:|See base class|^$", ast.get_docstring(node) or "")
    ]
    assert not silent, "\n".join(silent)


def test_no_two_classes_have_one_name():
    pattern = re.compile(r"^class (\w+)", re.MULTILINE)
    paths = (ROOT / "dpfl").rglob("*.py")
    names = [name for path in paths for name in pattern.findall(path.read_text())]
    assert len(names) > 100
    assert not {name for name in names if names.count(name) > 1}


def test_binaries_are_imported_by_nothing():
    assert len(BINARIES) == 11
    for path in EXPERIMENTS:
        for name in imported(path):
            module = ".".join(name.split(".")[:2])
            # The flags of a sweep are those of a training.
            is_sweep = (path.name, module) == ("sweep.py", "experiments.train")
            assert is_sweep or module not in BINARIES, (path, name)


def test_binaries_import_each_other_relatively():
    for path in EXPERIMENTS:
        assert (path.parent / "__init__.py").exists(), path
        for node in nodes(path):
            # Absolute imports would look for the source tree from a wheel.
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert not node.module.startswith(("experiments", "configs")), path


STARTED = ["dpfl", "dpfl.arrays", "dpfl.codecs", "dpfl.training.run"]
STARTED += ["experiments.privacy", *TASKS]
STARTED += [f"dpfl.{name}" for name in sorted(WITHOUT_TENSORFLOW)]
LIGHT = """
import importlib, sys
heavy = {"tensorflow", "tensorflow_federated", "jax", "torch", "sklearn"}
for module in sys.argv[1:]:
    importlib.import_module(module)
    heavy |= {"numpy", "scipy", "dp_accounting"} if module == "dpfl" else set()
    found = heavy & {name.split(".")[0] for name in sys.modules}
    assert not found, (module, found)
    heavy -= {"numpy", "scipy", "dp_accounting"}
"""


def test_tensorflow_and_jax_stay_out():
    command = [sys.executable, "-c", LIGHT, *STARTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("place", runpy.run_path(ROOT / "tests/conftest.py")["SLOW"])
def test_every_slow_entry_exists(place):
    file, *names = place.partition("[")[0].split("::")
    path = ROOT / "tests" / file
    assert path.exists()
    inside = ast.parse(path.read_text()).body if names else []
    for name in names:
        found = [node for node in inside if getattr(node, "name", None) == name]
        assert found, name
        inside = found[0].body
