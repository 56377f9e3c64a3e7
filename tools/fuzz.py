# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs malformed and extreme command lines: each must end well, or with a sentence.

  .venv/bin/python -m tools.soak --only --lines=5000 --seed=1
  .venv/bin/python -m tools.fuzz --serve=privacy --lines=100 --seed=1

A line must end within 20 minutes, with exit code 0, or with exit code 2 and a sentence
on stderr that names a flag or the word that is wrong. A traceback, a warning of numpy,
"nan" in what is printed, another exit code, a kill by the memory limit or a device that
was replaced is a fault. Each binary is imported once, and a process forked for each
line. Trainings, measurements and figures stop where their work would begin, since the
arguments are all checked then.

A line is a small one that is right, with one to three flags added or changed: to a
value at or beyond the ends of the flag's type, to one of another type, or to words that
are no flags at all. Values that are paths lead into the line's own folder, or to
unwritable places.

The soak counts the faults, and prints each with the line to run again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from tools.soaks import runs

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 1200.0
_MEMORY = 4 * 2**30
_DEVICES = ("/dev/full", "/dev/null")
_SMALL = (
    "--task=synthetic --model=small_cnn --num_clients=12 --cohort_size=4 --noprogress "
    "--examples_per_client=4 --num_test_examples=4 --rounds=2"
)
_ONCE = "--participation=once_per_epoch"
_EPSILON = "epsilon --noise_multiplier=1"
# Valid small lines, by binary.
BASES: Mapping[str, Sequence[str]] = {
    "train": (
        _SMALL,
        f"{_SMALL} --mechanism=none",
        f"{_SMALL} --mechanism=distributed_discrete_gaussian --bits=18 "
        "--noise_source=helpers",
        f"{_SMALL} --mechanism=dome --sketch_size=8 --server_momentum=0 {_ONCE}",
        f"{_SMALL} --mechanism=matrix_factorization {_ONCE}",
        "--task=digits --model=tiny_cnn --rounds=2 --mechanism=gaussian",
    ),
    "privacy": (
        f"{_EPSILON} --population=1000 --rounds=5",
        f"{_EPSILON} --mechanism=sketched_ddg --bits=16 {_ONCE}",
        f"{_EPSILON} --mechanism=matrix_factorization {_ONCE} --rounds_per_epoch=4 "
        "--population=400",
        f"{_EPSILON} --mechanism=dome --sketch_size=10 --participation=fixed",
        "calibrate --mechanism=linf_csgm --keep_fraction=0.1 --epsilon=8",
        "compare --epsilon=8 --mechanisms=gaussian,project_and_perturb",
        "compare --equal=error --mean_squared_error=9 --mechanisms=gaussian",
    ),
    "factorize": (
        "compute --rounds=8 --epochs=2 --separation=4",
        "compute --rounds=8 --matrix_method=banded --matrix_bands=3",
        "compute --rounds=8 --matrix_method=blt --matrix_buffers=2",
        "compute --rounds=8 --matrix_schedule=drop",
        "compare --rounds=8",
    ),
    "benchmark": ("--quick --repeats=1", "--rows=plain --quick", "--peers=tff"),
    "reproduce": ("--figure=list", "--figure=csgm_fig1 --jobs=1"),
}
_WHOLE = (
    *"0 -1 1 2 3 7 64 1000 100000 1000000 1000000000 100000000000".split(),
    *(str(2**bits - 1) for bits in (31, 63)),
    *(str(2**bits) for bits in (31, 32, 62, 63, 64)),
    *(str(10**23), str(-(2**63)), str(10**400)),
    *"1.5 1e3 nan 0x10 1_0 ٣".split(),
)
_REAL = (
    "0 -0.0 0.5 1 1.0000000000000002 2 -1 10 1000 1e-9 1e-30 1e-100 1e-300 5e-324 "
    "0.9999999999999999 1e6 1e9 1e15 1e23 1e30 1e38 1e100 1e300 1e308 -1e308 1e400 "
    "1.7976931348623157e308 nan inf -inf"
).split()
_WORDS = (
    *("", " ", "x", "none", "None", "true", "no", "-", "--", "é", "a b", "\t", "1,2"),
    *("a\nb", "%s", "{0}", "$HOME", "a" * 5000, "\udcff", "x.abc", "../x", "'", "1"),
)
_PATHS = (
    *"out out.png out.npz out.json out.abc folder folder/ folder/x missing/x".split(),
    *"file/x pipe full dangling loop . .. ~x/y /proc/x/y /proc/version".split(),
    *(*_DEVICES, "a" * 300, ""),
)
_LISTS = (
    *"1 2,3 1,,2 , 1,2, -1,2 0 1e9 1e400,1 nan inf 1000000000 1;2 1.5,2.5 ٣".split(),
    *(" 4 , 5 ", "8,8,8,8,8,8,8,8,8,8"),
)
# Values at and beyond the limits of a flag, by a pattern of its name and type.
_VALUES: Mapping[str, Sequence[str]] = {
    "output|plot|_dir |_cache |_file ": _PATHS,
    "layers|layer_rates| list": _LISTS,
    " int": _WHOLE,
    " float": _REAL,
    "": _WORDS,
}
_JUNK = (
    *"--no_such_flag --no_such_flag=1 -x junk -- --= --=1 --verbosity=x ---".split(),
    *"--flagfile=/proc/x --flagfile=file --flagfile=folder --flagfile".split(),
    *"--undefok=a --noundefok épsilon epsilon compute --rounds --epsilon".split(),
    *("--output", "--seed", "--help=1", ""),
)
_BOOLEANS = ("--{0}", "--no{0}", "--{0}=true", "--{0}=0", "--{0}=maybe", "--no{0}=1")


def fault_of(
    line: Sequence[str], code: Optional[int], out: str, err: str, names: Sequence[str]
) -> Optional[str]:
    """The fault in how a command line ended; None if there is none.

    Args:
      line: The words of the command line.
      code: Exit code; None if time was up.
      out: Text on stdout.
      err: Text on stderr.
      names: Names of all flags.
    """
    if code is None:
        return "no end"
    if "Traceback" in err or "Fatal Python error" in err:
        return "traceback"
    if re.search(r"\w+Warning: ", err):
        return "warning"
    if code == 0:
        return "nan" if re.search(r"\bnan\b", out, re.I) else None
    if code != 2:
        return f"exit code {code}"
    sentences = [text for text in err.splitlines() if text.startswith("error: ")]
    if len(sentences) != 1 or not err.endswith(f"{sentences[0]}\n"):
        return "no sentence"
    known = {*names, *(word.lstrip("-").partition("=")[0] for word in line), "command"}
    words = set(re.findall(r"[\w./-]+", sentences[0].replace("--", " ")))
    if (known - {""}) & words or any(repr(word) in sentences[0] for word in line):
        return None
    return "no name"


def _change(random_: random.Random, flag: Any) -> str:
    """A word that sets a flag to a value, often to one that is refused."""
    if flag.boolean:
        return random_.choice(_BOOLEANS).format(flag.name)
    kind = f"{flag.name} {flag.flag_type()}"
    values = next(own for part, own in _VALUES.items() if re.search(part, kind))
    if "enum" in kind:
        values = [*flag.parser.enum_values, *values]
    if random_.random() < 0.1:
        values = [*_WORDS, *_WHOLE, *_REAL]
    return f"--{flag.name}={random_.choice(values)}"


def _relevant(line: Sequence[str], table: Sequence[Any]) -> list[Any]:
    """The flags of a line, and those of its mechanism and task.

    A flag's help lists its users: "Used by gaussian, l2_csgm."
    """
    given = dict(word.lstrip("-").partition("=")[::2] for word in line)
    users = {"all", given.get("mechanism", "l2_csgm"), given.get("task", "digits")}
    users.update(given.get("mechanisms", "").split(","))
    relevant = []
    for flag in table:
        has = re.search(r"\bUsed by ([\w, ]+)\.", flag.help or "")
        if flag.name in given or has is None or users & set(has[1].split(", ")):
            relevant.append(flag)
    return relevant


def lines(binary: str, table: Sequence[Any], seed: int) -> Iterator[list[str]]:
    """Yields endless command lines of a binary, a function of the seed.

    Args:
      binary: Name of the binary.
      table: The binary's flags.
      seed: The seed.
    """
    random_ = random.Random(f"{seed} {binary}")
    while True:
        line = random_.choice(BASES[binary]).split()
        relevant = _relevant(line, table)
        for _ in range(random_.choice((1, 1, 2, 3))):
            flags = relevant if random_.random() < 0.85 else table
            word = _change(random_, random_.choice(flags))
            if random_.random() < 0.05:
                word = random_.choice(_JUNK)
            name = word.partition("=")[0]
            line = [other for other in line if other.partition("=")[0] != name]
            line.append(word)
        if random_.random() < 0.02:
            line.remove(random_.choice(line))
        yield line


def _imported(name: str) -> Any:
    """Imports a module of `experiments` that stops where its work would begin."""
    module: Any = importlib.import_module(f"experiments.{name}")
    if name in ("train", "benchmark", "reproduce"):
        import tensorflow  # noqa: F401
    begins = {
        "train": lambda: (module.training.Run, "train"),
        "benchmark": lambda: (module.cli, "work_begins"),
        "reproduce": lambda: (module, "_do_work"),
    }
    if name in begins:
        setattr(*begins[name](), lambda *arguments, **options: sys.exit(0))
    return module


def _run(name: str, module: Any, line: Sequence[str]) -> dict[str, Any]:
    """Runs a line, the words after the binary's name, in a folder of its own.

    The resulting code is the exit code, or minus the signal that ended it; None if time
    was up.
    """
    from absl import flags

    # A TemporaryDirectory would be removed by the fork at its end.
    folder = Path(tempfile.mkdtemp())
    (folder / "folder").mkdir()
    (folder / "file").write_text("--rounds=2\n")
    os.mkfifo(folder / "pipe")
    links = {"full": "/dev/full", "dangling": "missing/x", "loop": "loop"}
    for link, target in links.items():
        (folder / link).symlink_to(target)
    out, err = folder / ".out", folder / ".err"

    def be() -> None:
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        module.cli.run(module.main)

    begun = time.monotonic()
    child = runs.fork_program(be, [f"dpfl-{name}", *line], out, err)
    code = runs.ended(child, SECONDS)
    # The line's session has its process id, and contains everything that it left
    # behind.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    seconds = round(time.monotonic() - begun, 3)
    printed, said = (path.read_text("utf-8", "replace") for path in (out, err))
    shutil.rmtree(folder, ignore_errors=True)
    fault = fault_of(line, code, printed, said, sorted(flags.FLAGS))
    for device in _DEVICES:
        if not stat.S_ISCHR(os.stat(device).st_mode):
            fault = f"{device} was replaced"
    result = {"line": line, "code": code, "seconds": seconds, "fault": fault}
    return {**result, "said": said[-600:]}


def _serve(name: str, count: int, seed: int, is_given: bool) -> None:
    """Prints the results of a binary's lines, random or given on stdin."""
    from absl import flags

    module = _imported(name)
    table = flags.FLAGS.flags_by_module_dict()[module.__name__]
    chosen = map(json.loads, sys.stdin) if is_given else lines(name, table, seed)
    for line in itertools.islice(chosen, count):
        # A line's output goes elsewhere, but not that of libraries at import.
        print(json.dumps(_run(name, module, line)), flush=True)


def results(name: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yields the results of a binary from a process of its own.

    Args:
      name: Name of the binary.
      count: Number of lines.
      seed: The seed.

    Raises:
      RuntimeError: If the process fails.
    """
    command = [sys.executable, "-m", "tools.fuzz", f"--serve={name}"]
    command += [f"--lines={count}", f"--seed={seed}"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{name} must be there to be run, found {process}")


def main() -> None:
    """Prints the result of each line of a binary, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", required=True, help="the binary, without dpfl-")
    parser.add_argument("--given", action="store_true", help="lines of JSON from stdin")
    options = parser.parse_args()
    _serve(options.serve, options.lines, options.seed, options.given)


if __name__ == "__main__":
    main()
