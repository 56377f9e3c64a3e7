# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import ast
from pathlib import Path

from tools import write_build

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"py_library", "py_binary", "py_test"}


def targets():
    tree = ast.parse((ROOT / "BUILD").read_text())
    for node in tree.body:
        call = node.value
        if call.func.id in KINDS:
            fields = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
            yield call.func.id, fields


def test_every_python_file_is_in_exactly_one_target():
    listed = [src for _, fields in targets() for src in fields["srcs"]]
    assert len(listed) == len(set(listed))
    present = {str(path.relative_to(ROOT)) for path in write_build.sources()}
    assert set(listed) == present, "run: python tools/write_build.py"


def test_dependencies_exist_and_nothing_depends_on_itself():
    names = {fields["name"] for _, fields in targets()}
    for _, fields in targets():
        for dep in fields.get("deps", []):
            assert dep.lstrip(":") in names, (fields["name"], dep)
            assert dep != ":" + fields["name"]


def test_tests_and_binaries_are_what_they_say():
    for kind, fields in targets():
        if kind == "py_test":
            assert Path(fields["main"]).name.startswith("test_")
        if kind == "py_binary":
            assert write_build.is_binary(ROOT / fields["main"])


def test_build_is_up_to_date():
    text = (ROOT / "BUILD").read_text()
    assert text == write_build.build_text(), "run: python tools/write_build.py"
