# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs every command and code block of the documentation.

Python blocks of a page run in order in one process; shell blocks line by line. Output
that a page shows below a command, in a block marked `text`, is not compared: pages
state numbers in prose, and those are held by the tests of what computes them.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.M | re.S)
# What a reader runs but a test must not: it would set up or test itself again.
SETUP = "sh tools/setup.sh && "
MAIN_JOB = SETUP + ".venv/bin/dpfl-train"
KNOWN_LANGUAGES = {"python", "sh", "text"}


def blocks(page):
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield match.group(1), match.group(2).strip(), match.group(3)


def shell_lines(page):
    for language, _, text in blocks(page):
        if language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield line.strip()


def runnable(line):
    """What of a documented command line the test runs: None for the two set-ups."""
    if "-m pytest" in line or line.startswith("git clone") or line.startswith("cd "):
        return None
    return line[len(SETUP) :] if line.startswith(SETUP) else line


SHELL = sorted({(page, line) for page in PAGES for line in shell_lines(page)})
PYTHON = [page for page in PAGES if any(b[0] == "python" for b in blocks(page))]


def environment(tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "DPFL_DOCS_TEST": "1"}


def run(args, tmp_path, **kwargs):
    log = tmp_path / "log"
    with log.open("wb") as out:
        code = subprocess.run(
            args,
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=600,
            **kwargs,
        ).returncode
    assert code == 0, log.read_text(errors="replace")[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_says_its_language(page):
    for language, _, text in blocks(page):
        assert language in KNOWN_LANGUAGES, text


@pytest.mark.parametrize("page", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run(page, tmp_path):
    code = "\n".join(text for language, _, text in blocks(page) if language == "python")
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    run([sys.executable, str(script)], tmp_path)


@pytest.mark.parametrize(
    ("page", "line"), SHELL, ids=lambda v: v if isinstance(v, str) else v.stem
)
def test_shell_lines_run(page, line, tmp_path):
    command = runnable(line)
    if command is None:
        pytest.skip("sets up or tests this very checkout; .ci/run runs it")
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    binary = command.split()[0]
    if binary.startswith(".venv/bin/"):
        command = command.replace(".venv/bin/", f"{Path(sys.executable).parent}/", 1)
    run(["sh", "-c", command], tmp_path)
    if line == MAIN_JOB:
        check_main_job(tmp_path)


def check_main_job(folder):
    """The README's first command: what it promises, whatever the noise it drew."""
    (summary,) = folder.glob("runs/*/summary.json")
    found = json.loads(summary.read_text())
    assert found["final_accuracy"] >= 0.85
    assert found["epsilon"] <= 8
    assert found["delta"] == 1e-3
    assert found["mechanism"]["keep_fraction"] == 0.01


LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_ci_runs_the_readmes_test_command():
    commands = [line for line in shell_lines(ROOT / "README.md") if "pytest" in line]
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci/run").read_text().splitlines()
