# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs every command and code block of the documentation.

Python blocks of a page run in order in one process; shell blocks line by line. What is
of dpfl alone begins with its imports done (`tests.forks`); the rest has a shell. A block
marked `output` below a Python block is what that block prints, and is compared. A
block marked `text` alone is not: numbers in prose are held by the tests of what
computes them.
"""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.experiments import programs

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.M | re.S)
# What a reader runs but a test must not: it would set up or test itself again.
SETUP = "sh tools/setup.sh && "
MAIN_JOB = SETUP + ".venv/bin/dpfl-train"
# package/test_wheel.py runs it, in an environment as it makes one.
JAX_JOB = "pip install -e '.[jax]' && dpfl-train"
# What other tests run of them, and run here would take long.
SHORTER = {
    "--server_lr=0.2,0.5": "--server_lr=0.2",
    "--rows=csgm,masks,factorization": "--rows=masks",
    "--rows=plain,mean,memory_worker": "--rows=plain",
}
KNOWN_LANGUAGES = {"python", "sh", "text", "output"}
OUTPUT = ("output", "")
# Printed between the Python blocks of a page, to tell their output apart.
MARK = "=== end of a block ==="


def blocks(text):
    """Yields language, what follows it and content of each fenced block."""
    for match in BLOCK.finditer(text):
        yield match.group(1), match.group(2).strip(), match.group(3)


def shell_lines(page):
    for language, _, text in blocks(page.read_text(encoding="utf-8")):
        if language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield line.strip()


def runnable(line):
    """What of a documented command line the test runs: None for those run elsewhere."""
    if "-m pytest" in line or line == JAX_JOB or line.startswith(("git clone", "cd ")):
        return None
    return line[len(SETUP) :] if line.startswith(SETUP) else line


SHELL = sorted({(page, line) for page in PAGES for line in shell_lines(page)})
PYTHON = [p for p in PAGES if "```python\n" in p.read_text(encoding="utf-8")]
# aggregators/test_restored_states.py kills its program, runs it to its end, and computes
# what the page shows.
PYTHON.remove(ROOT / "docs/resuming.md")


def in_a_shell(line, folder):
    """Runs a line as its reader does; returns its output."""
    # Files and not pipes: a worker that outlives the command would hold a pipe open.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    log, errors = folder / "log", folder / "errors"
    with log.open("wb") as out, errors.open("wb") as err:
        code = subprocess.run(
            ["sh", "-c", line],
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        ).returncode
    printed, said = (file.read_text("utf-8", "replace") for file in (log, errors))
    return subprocess.CompletedProcess(line, code, printed, said)


def succeeds(done):
    """What a command printed to stdout, which must have succeeded."""
    if done.returncode != 0:
        pytest.fail((done.stdout + done.stderr)[-4000:])
    return done.stdout


def own_commands(line):
    """The commands of a line, as module and words, if all are dpfl's; else None."""
    if re.search(r"[|><$*;`]", line):
        return None
    commands = []
    for words in map(shlex.split, line.split(" && ")):
        program, _, name = Path(words[0]).name.partition("-")
        if program == "dpfl":
            commands.append((program, name, *words[1:]))
        # And no other Python's.
        elif words[:2] == ["python", "-m"] and words[2].startswith("experiments."):
            commands.append((*words[2:],))
        else:
            return None
    return commands


def python_blocks(text):
    """Yields the code of each Python block and the output shown below it, or None."""
    found = list(blocks(text))
    for (language, _, code), below in zip(found, [*found[1:], ("", "", "")]):
        if language == "python":
            yield code, below[2] if below[:2] == OUTPUT else None


def check_python_blocks(text, tmp_path):
    codes, shown = zip(*python_blocks(text))
    script = tmp_path / "page.py"
    script.write_text(f'\nprint("{MARK}")\n'.join(codes), encoding="utf-8")
    done = forks.run(str(script), folder=tmp_path)
    printed = succeeds(done).split(f"{MARK}\n")
    assert len(printed) == len(codes)
    for expected, found in zip(shown, printed):
        assert expected is None or found == expected


@pytest.mark.parametrize("page", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run_and_print_the_shown_output(page, tmp_path):
    check_python_blocks(page.read_text(encoding="utf-8"), tmp_path)


def test_the_readmes_example_has_a_sensible_epsilon():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ((_, shown),) = python_blocks(readme)
    assert 0 < float(re.search(r"epsilon (\S+)\n", shown).group(1)) <= 8


@pytest.mark.parametrize(
    ("second", "right"), [("x = 3", True), ("x = 4", False), ("x = 3; print()", False)]
)
def test_shown_output_is_compared(second, right, tmp_path):
    page = f"""```python
print("not shown")
```

```python
{second}
print(x)
```

```output
3
```
"""
    if right:
        check_python_blocks(page, tmp_path)
    else:
        with pytest.raises(AssertionError):
            check_python_blocks(page, tmp_path)


@pytest.mark.parametrize(
    ("page", "line"), SHELL, ids=lambda v: v if isinstance(v, str) else v.stem
)
def test_shell_lines_run(page, line, tmp_path):
    command = runnable(line)
    if command is None:
        pytest.skip("sets up or tests this very checkout; .ci/run or a wheel runs it")
    for long, short in SHORTER.items():
        command = command.replace(long, short)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    if own_commands(command) is None:
        binaries = f"{Path(sys.executable).parent}/"
        succeeds(in_a_shell(command.replace(".venv/bin/", binaries, 1), tmp_path))
    else:
        for words in own_commands(command):
            script = Path(sys.executable).parent / f"dpfl-{words[1]}"
            assert words[0] != "dpfl" or script.exists()
            fork = functools.partial(programs.fork_trainers, "dpfl.experiments")
            first = fork if words[1] in ("search", "sweep") else None
            succeeds(forks.run(*words, folder=tmp_path, first=first))
    if line == MAIN_JOB:
        (summary,) = tmp_path.glob("runs/*/summary.json")
        check_main_job(json.loads(summary.read_text()))


def check_main_job(found):
    """The summary of the README's commands: what they promise, whatever the noise."""
    assert found["final_accuracy"] >= 0.85
    assert found["epsilon"] <= 8
    assert found["delta"] == 1e-3
    assert found["mechanism_options"]["keep_fraction"] == 0.01


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (".venv/bin/dpfl-train --rounds=1", [("dpfl", "train", "--rounds=1")]),
        (
            "dpfl-compare a && dpfl-search",
            [("dpfl", "compare", "a"), ("dpfl", "search")],
        ),
        (
            "python -m experiments.benchmark --quick",
            [("experiments.benchmark", "--quick")],
        ),
        ("python -m pip list", None),
        ("dpfl-train > log", None),
        ("sh tools/site.sh && dpfl-train", None),
    ],
)
def test_shell_lines_are_split_into_commands(line, expected):
    assert own_commands(line) == expected


LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:dpfl|experiments|tools|tests|configs)/[\w/.]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_blocks_links_and_files_of_a_page(page):
    text = page.read_text(encoding="utf-8")
    found = list(blocks(text))
    assert {language for language, _, _ in found} <= KNOWN_LANGUAGES
    compared = [shown for _, shown in python_blocks(text) if shown is not None]
    assert len(compared) == sum(block[:2] == OUTPUT for block in found)
    for target in LINK.findall(text):
        assert (page.parent / target).exists(), target
    for path in PATH.findall(text):
        assert (ROOT / path).exists() or "NAME" in path, path


def test_every_picture_is_shown():
    shown = {
        Path(name).name for page in PAGES for name in LINK.findall(page.read_text())
    }
    assert {path.name for path in (ROOT / "docs/images").iterdir()} <= shown


def test_ci_runs_the_readmes_test_command():
    commands = [line for line in shell_lines(ROOT / "README.md") if "pytest" in line]
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci/run").read_text().splitlines()
