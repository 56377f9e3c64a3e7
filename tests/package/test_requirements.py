# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGEST = r" \\\n    --hash=sha256:[0-9a-f]{64}"


@pytest.mark.parametrize("name", ["requirements.txt", "dpfl/requirements-tff.txt"])
def test_every_pin_has_file_digests_and_no_url(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "//" not in text and "--index" not in text and "--find-links" not in text
    pin = rf"[a-z0-9-]+==[^ \n]+(?: ; [^\\\n]+)?(?:{DIGEST})+\n"
    assert re.fullmatch(f"(?:#.*\n)+(?:{pin})+", text)


def test_both_lists_agree():
    lists = [ROOT / name for name in ("requirements.txt", "dpfl/requirements-tff.txt")]
    lines = [
        set(re.findall(r"^([a-z0-9-]+)(==.*)$", p.read_text(), re.M)) for p in lists
    ]
    both = {name for name, _ in lines[0]} & {name for name, _ in lines[1]}
    assert "numpy" in both
    for name in both:
        versions = [
            {re.split("[ ;]", v)[0] for n, v in own if n == name} for own in lines
        ]
        assert versions[0] <= versions[1], name


STUB = """#!/bin/sh
case "$1 $2" in
  "--version "*) echo Python 3.11.0 ;;
  "-m venv")
    echo made >> made.log
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    for name in audit compare factorize privacy search sweep train
    do cp "$0" ".venv/bin/dpfl-$name"; done ;;
esac
"""


@pytest.mark.parametrize("lost", ["bin/python", "bin/dpfl-privacy", "bin"])
def test_incomplete_environment_is_rebuilt(tmp_path, lost):
    for name in ("tools/setup.sh", "requirements.txt", "dpfl/requirements-tff.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "setup.py").touch()
    stub = tmp_path / "python"
    stub.write_text(STUB)
    stub.chmod(0o755)

    def times_made():
        command = ["sh", str(tmp_path / "tools" / "setup.sh")]
        environment = {**os.environ, "PYTHON": str(stub)}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return (tmp_path / "made.log").read_text().count("made")

    assert [times_made(), times_made()] == [1, 1]
    gone = tmp_path / ".venv" / lost
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    assert [times_made(), times_made()] == [2, 2]
