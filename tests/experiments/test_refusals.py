# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers without bounds, options without meaning, files that are none: refused."""

import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpfl import files
from experiments import cli, commands
from tests import forks
from tests.experiments import programs
from tests.refusals import names
from tools import fuzz

EPSILON = "epsilon --noise_multiplier=1"
# What stands for words in the table of refused command lines.
WORDS = {"HUGE": str(10**23)}
# Names and values that the one-line error holds, by binary and command line; the first
# line of each is refused before heavy imports.
REFUSED = {}
for _row in files.read_csv(Path(__file__).with_name("refused.csv")):
    REFUSED.setdefault(_row["binary"], []).append((_row["line"], _row["names"]))


@pytest.mark.parametrize("binary", REFUSED)
def test_bad_command_line_is_a_one_line_error(binary, tmp_path):
    text = json.dumps(REFUSED[binary])
    for word, value in {**WORDS, "OUT": str(tmp_path / "out")}.items():
        text = re.sub(rf"\b{word}\b", value, text)
    lines, parts = zip(*json.loads(text))
    (tmp_path / "lines").write_text(
        "".join(f"{json.dumps(x.split())}\n" for x in lines)
    )
    words = ("tools.fuzz", binary, "--given")
    if binary in ("privacy", "factorize"):
        # A fork with libraries that they never import takes longer than their imports.
        with (tmp_path / "lines").open() as read:
            done = programs.python("-m", *words, stdin=read)
    else:
        first = functools.partial(programs.read_from, tmp_path / "lines")
        done = forks.run(*words, first=first)
    every = results(done.stdout)
    assert len(every) == len(lines), done.stderr
    wrong = [
        (found, own)
        for found, own in zip(every, parts)
        if found["code"] != 2
        or not names(found["said"], *own.split())
        or found["fault"]
    ]
    assert not wrong


def results(text):
    """What the fuzzer prints of each line."""
    return [json.loads(x) for x in text.splitlines() if x.startswith("{")]


def test_closed_stdout_reader_exits_with_141():
    reader, writer = os.pipe()
    os.close(reader)
    words = programs.command("privacy", "epsilon", "--noise_multiplier=1")
    options = {"stdout": writer, "stderr": subprocess.PIPE, "cwd": programs.ROOT}
    with subprocess.Popen(words, text=True, **options) as process:
        os.close(writer)
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_any_character_is_printed_in_any_encoding(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["dpfl-privacy"])
    monkeypatch.setattr(cli.app, "run", lambda *_, **__: print("\u00e9\udcff"))
    cli.run(None)
    assert stream.buffer.getvalue() == b"\\xe9\\udcff\n"


@pytest.mark.parametrize("begins", [False, True])
def test_refusals_are_one_line_and_faults_are_raised(monkeypatch, capsys, begins):
    def ended_by(error):
        def main(argv):
            if begins:
                cli.work_begins()
            raise error

        with pytest.raises((SystemExit, ValueError, RuntimeError)) as ended:
            cli.run(main)
        return ended.value

    monkeypatch.setattr(cli.app, "run", lambda main, **_: main([]))
    wrong, another = ValueError("rounds must be 1"), RuntimeError("another")
    found = ended_by(wrong)
    assert found is wrong if begins else found.code == 2
    assert ended_by(another) is another
    assert ended_by(MemoryError("of all")).code == 1
    assert capsys.readouterr().err.count("\n") == (1 if begins else 2)


HEAVY = ("tensorflow", "tensorflow_federated", "keras", "jax", "tensorboard.compat")
HEAVY += (
    "scipy.stats._distn_infrastructure",
    "scipy.signal._signaltools",
    "matplotlib",
)


@pytest.mark.parametrize("binary", commands.COMMANDS)
def test_bad_flags_are_refused_before_heavy_imports(binary):
    first, _ = REFUSED[binary.replace("-", "_")][0]
    line = [binary, *first.split()]
    done = programs.python("-X", "importtime", "-m", "dpfl", *line)
    said = done.stderr.splitlines()
    assert done.returncode == 2 and "error: " in done.stderr
    imported = {x.split("|")[-1].strip() for x in said if x.startswith("import time:")}
    assert "absl.flags" in imported and not imported & set(HEAVY)


# As the script `dpfl-privacy`, with a module that never ends its import.
INTERRUPTED = """
import sys, types
from experiments import commands
sys.path.insert(0, {folder!r})
commands.PACKAGE = "slow"
sys.argv = ["dpfl-privacy"]
commands.privacy()
"""


def test_an_interrupt_during_imports_has_no_traceback(tmp_path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "__init__.py").write_text("")
    (tmp_path / "slow" / "privacy.py").write_text(
        "import time\nprint('begun', flush=True)\ntime.sleep(10000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(folder=str(tmp_path))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=programs.ROOT,
    )
    with process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "interrupted\n"
    assert process.returncode == 130


def test_fuzzed_command_lines_exit_cleanly():
    found = []
    for name in ("privacy", "factorize"):
        done = programs.python("-m", "tools.fuzz", name, "--lines=20", "--seed=7")
        found += results(done.stdout)
    assert len(found) == 40 and not [each for each in found if each["fault"]]


@pytest.mark.parametrize(
    ("code", "out", "err", "fault"),
    [
        (0, "epsilon 1.5", "", None),
        (0, "epsilon nan", "", "nan"),
        (0, "", "a.py:1: RuntimeWarning: overflow encountered in exp\n", "warning"),
        (1, "", "Traceback (most recent call last):\nValueError: no\n", "traceback"),
        (-9, "", "", "exit code -9"),
        (None, "", "", "no end"),
        (2, "", "error: rounds must be at least 1, found 0\n", None),
        (2, "", "error: a\nerror: rounds\n", "no sentence"),
        (2, "", "error: it must be at least 1, found 0\n", "no name"),
    ],
)
def test_fuzzer_fault_classification(code, out, err, fault):
    line = ["--output=x", "junk"]
    assert fuzz.fault_of(line, code, out, err, ["rounds", "output"]) == fault
