# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers without bounds, options without meaning, files that are none: refused."""

import errno
import functools
import io
import json
import os
import re
import shlex
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
WORDS = {
    **{"ENDLESS": str(10**400), "HUGE": str(10**23)},
    **{"LONGEST": "a" * 300, "LONG": "a" * 250},
}
# Names and values that the one-line error holds, by binary and command line.
REFUSED = {}
for _row in files.read_csv(Path(__file__).with_name("refused.csv")):
    REFUSED.setdefault(_row["binary"], []).append((_row["line"], _row["names"]))


@pytest.mark.parametrize("binary", REFUSED)
def test_bad_command_line_is_a_one_line_error(binary, tmp_path):
    out, text = tmp_path / "out", json.dumps(REFUSED[binary])
    for word, value in {**WORDS, "OUT": str(out)}.items():
        text = re.sub(rf"\b{word}\b", value, text)
    lines, parts = zip(*json.loads(text))
    (tmp_path / "lines").write_text(
        "".join(f"{json.dumps(x.split())}\n" for x in lines)
    )
    words = ("tools.fuzz", binary, "--given")
    if binary in ("privacy", "factorize"):
        # A fork with libraries that they never import takes longer than their imports.
        with (tmp_path / "lines").open() as read:
            done = in_python(*words, stdin=read)
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
    assert not wrong and not out.exists()


def in_python(*words, **options):
    """A module's run in a process of its own."""
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=programs.ROOT, **options
    )


def results(text):
    """What the fuzzer prints of each line."""
    return [json.loads(x) for x in text.splitlines() if x.startswith("{")]


def privacy(**options):
    words = programs.command("privacy", *EPSILON.split())
    return subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, cwd=programs.ROOT, **options
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_full_disk_under_stdout_is_an_error():
    with open("/dev/full", "w") as full, privacy(stdout=full) as process:
        said = process.stderr.read()
        assert names(said, "error", "stdout", os.strerror(errno.ENOSPC))
        assert said.count("\n") == 1
    assert process.returncode == 1


def test_closed_stdout_reader_exits_with_141():
    reader, writer = os.pipe()
    os.close(reader)
    with privacy(stdout=writer) as process:
        os.close(writer)
        assert process.stderr.read() == ""
    assert process.returncode == 141


def ended(line, **options):
    """How dpfl-privacy ends, started by a shell with one line in front of its own."""
    words = shlex.join([sys.executable, "-m", "dpfl", "privacy", *EPSILON.split()])
    return subprocess.run(
        ["bash", "-c", line.format(words)],
        capture_output=True,
        cwd=programs.ROOT,
        env={**programs.environment(), **options},
    )


@pytest.mark.parametrize(
    ("line", "code", "start"),
    [
        (f"{{}} --{'a' * 1200}=1", 2, b"error: --a"),
        (f"{{}} --rounds={'9' * 5000}", 2, b"error: --rounds"),
        ("{} >&-", 1, b"error: stdout"),
        ("{} 2>&- >&- <&-", 1, b""),
        # Neither is taken for the file.
        ("{} --output=$OUT 2>&- >&- <&-; cat $OUT >&2", 0, b"mechanism"),
        ("{} --nosuch 2>/dev/full", 2, b""),
        ("ulimit -v 100000; exec {}", 1, b"error: "),
        ("ulimit -f 0; exec {} --output=$OUT", 2, b"error: /"),
        ("{} --flagfile=<(printf -- '--output=a\\0b')", 2, b"error: --flagfile"),
        (
            "printf -- '--output=a\\0b' > $OUT; {} --flagfile=$OUT",
            2,
            b"error: --output",
        ),
        ("printf -- '--output=\\xff' > $OUT; {} --flagfile=$OUT", 2, b"error: --flagf"),
    ],
)
def test_closed_or_redirected_streams_are_handled(line, code, start, tmp_path):
    done = ended(line, OUT=str(tmp_path / "out"))
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(start)
    assert b"Traceback" not in done.stderr and len(done.stderr) < 2000


@pytest.mark.parametrize(
    ("rest", "part"), [(">&-", "closed"), (">/dev/full", os.strerror(errno.ENOSPC))]
)
def test_unprintable_command_list_is_an_error(rest, part):
    words = shlex.join([sys.executable, "-m", "dpfl"])
    line = ["bash", "-c", f"{words} {rest}"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=programs.ROOT)
    assert done.returncode == 1
    assert names(done.stderr, "error", "stdout", part)


def test_any_character_is_printed_in_any_encoding(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["dpfl-privacy"])
    monkeypatch.setattr(cli.app, "run", lambda *_, **__: print("\u00e9\udcff"))
    cli.run(None)
    assert stream.buffer.getvalue() == b"\\xe9\\udcff\n"


def test_exit_before_work_is_a_failure(monkeypatch):
    monkeypatch.setattr(cli.app, "run", lambda main, **_: main([]))
    for code, told in ((0, 1), (None, 1), (3, 3)):
        with pytest.raises(SystemExit) as ended:
            cli.run(lambda _, code=code: sys.exit(code))
        assert ended.value.code == told


def test_exhausted_resources_are_one_line_errors(monkeypatch):
    def ended_by(error):
        def main(argv):
            cli.work_begins()
            raise error

        with pytest.raises((SystemExit, RuntimeError, OSError)) as ended:
            cli.run(main)
        return ended.value

    monkeypatch.setattr(cli.app, "run", lambda main, **_: main([]))
    assert ended_by(MemoryError()).code == 1
    assert ended_by(RuntimeError("can't start new thread")).code == 1
    assert ended_by(OSError(errno.ENOSPC, "No space left", "x.npz")).code == 1
    another = RuntimeError("another")
    assert ended_by(another) is another


HEAVY = ("tensorflow", "tensorflow_federated", "keras", "jax", "tensorboard.compat")
HEAVY += (
    "scipy.stats._distn_infrastructure",
    "scipy.signal._signaltools",
    "matplotlib",
)
REFUSED_EARLY = {
    "train": "--task=synthetic --mechanism=gaussian --compression_rate=2",
    "privacy": "calibrate --epsilon=-1",
    "factorize": "compute --rounds=0",
    "audit": "--mechanisms=magic",
    "compare": "nowhere",
    "search": "--runs=0",
    "prepare": "femnist nowhere",
    "sweep": "--seeds=x --output_dir=nowhere",
    "new-task": "mine",
}


@pytest.mark.parametrize("binary", commands.COMMANDS)
def test_bad_flags_are_refused_before_heavy_imports(binary):
    line = [binary, *REFUSED_EARLY[binary].split()]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dpfl", *line],
        cwd=programs.ROOT,
        env=programs.environment(),
        capture_output=True,
        text=True,
    )
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
        "import time\nprint('begun', flush=True)\n"
        "try:\n  time.sleep(10000)\nexcept BaseException:\n  raise ImportError('lost')\n"
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
        done = in_python("tools.fuzz", name, "--lines=20", "--seed=7")
        found += results(done.stdout)
    assert len(found) == 40 and not [each for each in found if each["fault"]]


@pytest.mark.parametrize(
    ("code", "out", "err", "fault"),
    [
        (0, "epsilon 1.5", "", None),
        (0, "epsilon nan", "", "nan"),
        (0, "", "a.py:1: RuntimeWarning: overflow encountered in exp\n", "warning"),
        (1, "", "Traceback (most recent call last):\nValueError: no\n", "traceback"),
        (1, "", "", "exit code 1"),
        (-9, "", "", "exit code -9"),
        (None, "", "", "no end"),
        (2, "", "error: rounds must be at least 1, found 0\n", None),
        (2, "", "error: rounds must be at least 1\nand more\n", "no sentence"),
        (2, "", "error: a\nerror: rounds\n", "no sentence"),
        (2, "", "error: it must be at least 1, found 0\n", "no name"),
        (2, "", "error: there are no words, found 'junk'\n", None),
    ],
)
def test_fuzzer_fault_classification(code, out, err, fault):
    line = ["--output=x", "junk"]
    assert fuzz.fault_of(line, code, out, err, ["rounds", "output"]) == fault
