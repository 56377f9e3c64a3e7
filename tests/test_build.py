# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""BUILD is in the part of Starlark that Python understands: it is run as such."""

import subprocess
from pathlib import Path

from experiments import commands

ROOT = Path(__file__).resolve().parent.parent


def targets():
    """Keyword arguments of each rule of BUILD, by the rule's name."""
    found = {"py_library": [], "py_binary": [], "py_test": [], "filegroup": []}

    def glob(include, exclude=()):
        left_out = {path for pattern in exclude for path in ROOT.glob(pattern)}
        paths = {path for pattern in include for path in ROOT.glob(pattern)}
        files = (
            p for p in paths - left_out if p.is_file() and "__pycache__" not in p.parts
        )
        return sorted(str(path.relative_to(ROOT)) for path in files)

    rules = {
        kind: lambda into=into, **fields: into.append(fields)
        for kind, into in found.items()
    }
    nothing = dict.fromkeys(("load", "package", "exports_files"), lambda *a, **k: None)
    exec((ROOT / "BUILD").read_text(), {**rules, **nothing, "glob": glob})
    return found


def test_every_python_file_is_in_a_target():
    found = targets()
    rules = [rule for kind in found for rule in found[kind]]
    listed = {source for rule in rules for source in rule["srcs"]}
    command = ["git", "ls-files", "*.py"]
    known = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert set(known.stdout.split()) - listed <= {"setup.py"}
    names = [rule["name"] for rule in rules]
    assert len(names) == len(set(names))
    for rule in rules:
        files = ":BUILD"
        for dep in (*rule.get("deps", ()), *rule.get("data", ())):
            assert dep.lstrip(":") in names or dep == files or (ROOT / dep).is_file()


def test_every_command_is_a_binary():
    names = {rule["name"] for rule in targets()["py_binary"]}
    modules = (*commands.COMMANDS, *commands.IN_THE_CLONE)
    assert names == {f"dpfl-{name}" for name in modules}
