# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Writes the top-level BUILD from the tree: `python tools/write_build.py`.

One py_library per package of dpfl and per other module, one py_binary per binary, one
py_test per test module. A test fails when BUILD does not match the tree.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = ("dpfl", "experiments", "configs", "tools")
# What is found by its name and not by an import statement.
BY_NAME = {"experiments_flag_files": {"configs"}}

HEADER = """# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Made by tools/write_build.py. Third-party packages are not targets: they come from
# the interpreter that Bazel runs, the one in .venv made by tools/setup.sh.

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

package(default_visibility = ["//visibility:public"])

exports_files([
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "requirements.txt",
])

filegroup(
    name = "flag_files",
    srcs = glob(["configs/**/*.flags"]),
)

filegroup(
    name = "docs",
    srcs = glob(["docs/**/*.md", "README.md"]),
)
"""


def label(path: Path) -> str:
    """Returns the target a source file belongs to, such as `dpfl_accounting`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "dpfl":
        return "_".join(parts[:-1])
    return "_".join(part for part in parts if part != "__init__")


def module_path(module: str) -> Path | None:
    """Returns the file of one of our modules, None for anybody else's."""
    if module.split(".")[0] not in OURS:
        return None
    base = ROOT.joinpath(*module.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


def imported_from(path: Path, node: ast.ImportFrom) -> str:
    """Returns the absolute name of the module that a file imports from."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(ROOT).parent.parts
    around = package[: len(package) - node.level + 1]
    return ".".join([*around, *([node.module] if node.module else [])])


def dependencies(path: Path) -> set[str]:
    """Returns the labels of the targets that a file imports, anywhere in its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = imported_from(path, node)
            modules = [source, *(f"{source}.{alias.name}" for alias in node.names)]
        else:
            continue
        paths = (module_path(module) for module in modules)
        found |= {label(file) for file in paths if file}
    return (found | BY_NAME.get(label(path), set())) - {label(path)}


def rule(kind: str, name: str, srcs: list[Path], **extra: str) -> str:
    """Returns one target's text."""
    relative = sorted(str(path.relative_to(ROOT)) for path in srcs)
    deps = sorted(set().union(*(dependencies(path) for path in srcs)) - {name})
    lines = [f'    name = "{name}",']
    for key, values in (("srcs", relative), ("deps", [f":{dep}" for dep in deps])):
        if len(values) == 1:
            lines.append(f'    {key} = ["{values[0]}"],')
        elif values:
            lines += [f"    {key} = [", *(f'        "{v}",' for v in values), "    ],"]
    lines += [f"    {key} = {value}," for key, value in extra.items()]
    return "\n".join([f"{kind}(", *lines, ")"])


def is_binary(path: Path) -> bool:
    """Returns whether a file runs when called by name."""
    return 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


def sources() -> list[Path]:
    """Returns every Python file of the project but setup.py."""
    return sorted(
        path
        for folder in (*OURS, "tests")
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    )


def build_text() -> str:
    """Returns what BUILD must say."""
    libraries: dict[str, list[Path]] = {}
    rules = []
    for path in sources():
        top = path.relative_to(ROOT).parts[0]
        if top == "tests" and path.name.startswith("test_"):
            name = label(path)
            data = '[":flag_files", ":docs", "//:BUILD"]'
            main = f'"{path.relative_to(ROOT)}"'
            rules.append(rule("py_test", name, [path], main=main, data=data))
        elif top != "dpfl" and is_binary(path):
            main = f'"{path.relative_to(ROOT)}"'
            rules.append(rule("py_binary", label(path), [path], main=main))
        else:
            libraries.setdefault(label(path), []).append(path)
    for name, files in libraries.items():
        data = {"data": '[":flag_files"]'} if name == "configs" else {}
        rules.append(rule("py_library", name, files, **data))
    rules.sort(key=lambda text: (text.split("(")[0] != "py_library", text))
    return "\n\n".join([HEADER.strip(), *rules]) + "\n"


if __name__ == "__main__":
    (ROOT / "BUILD").write_text(build_text(), encoding="utf-8")
