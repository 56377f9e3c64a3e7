# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs malformed and extreme command lines: each must end well, or with a sentence.

  .venv/bin/python -m tools.fuzz --lines=5000 --seed=1

A line must end within a minute, with exit code 0, or with exit code 2 and one sentence
on stderr that names a flag or the word that is wrong. A traceback, a warning of numpy,
"nan" in what is printed, another exit code, a kill by the memory limit or a device that
was replaced is a fault. Each binary is imported once, and a process forked for each
line. Trainings, measurements and figures stop where their work would begin, since the
arguments are all checked then.

A line is a small one that is right, with one to three flags added or changed: to a
value at or beyond the ends of the flag's type, to one of another type, or to words that
are no flags at all. Values that are paths lead into a folder of the line's own, or to
what nobody can write.

Prints a row for each binary, and each fault with the line to run again. The exit code
is 1 if there is a fault.
"""

from __future__ import annotations

import argparse
import collections
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
from typing import Any, NamedTuple, Optional

from tools.soaks import runs

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600.0
_MEMORY = 4 * 2**30
_DEVICES = ("/dev/full", "/dev/null")
_SMALL_TRAINING = (
    *("--task=synthetic", "--model=small_cnn", "--num_clients=12", "--noprogress"),
    *("--examples_per_client=4", "--num_test_examples=4", "--cohort_size=4"),
    "--rounds=2",
)
_ONCE = ("--participation=once_per_epoch",)
# Lines that are right and small, by binary.
BASES: Mapping[str, Sequence[Sequence[str]]] = {
    "train": (
        _SMALL_TRAINING,
        (*_SMALL_TRAINING, "--mechanism=none"),
        (*_SMALL_TRAINING, "--mechanism=gaussian", "--noise_multiplier=1"),
        (
            *(*_SMALL_TRAINING, "--mechanism=distributed_discrete_gaussian"),
            *("--bits=18", "--noise_source=helpers"),
        ),
        (*_SMALL_TRAINING, *_ONCE, "--mechanism=dome", "--sketch_size=8"),
        (*_SMALL_TRAINING, *_ONCE, "--mechanism=matrix_factorization"),
        ("--task=digits", "--model=tiny_cnn", "--rounds=2", "--mechanism=gaussian"),
    ),
    "privacy": (
        ("epsilon", "--noise_multiplier=1"),
        ("epsilon", "--noise_multiplier=1", "--population=1000", "--rounds=5"),
        (
            *("epsilon", "--mechanism=distributed_discrete_gaussian", "--bits=16"),
            "--noise_multiplier=1",
        ),
        (
            *("epsilon", "--mechanism=sketched_ddg", "--bits=16", *_ONCE),
            "--noise_multiplier=1",
        ),
        (
            *("epsilon", "--mechanism=matrix_factorization", *_ONCE),
            *("--noise_multiplier=1", "--rounds_per_epoch=4", "--population=400"),
        ),
        (
            *("epsilon", "--mechanism=dome", "--participation=fixed"),
            *("--sketch_size=10", "--noise_multiplier=1"),
        ),
        ("calibrate", "--epsilon=8"),
        ("calibrate", "--mechanism=linf_csgm", "--keep_fraction=0.1", "--epsilon=8"),
        ("compare", "--epsilon=8", "--mechanisms=gaussian,project_and_perturb"),
        ("compare", "--equal=error", "--mean_squared_error=9", "--mechanisms=gaussian"),
    ),
    "factorize": (
        ("compute", "--rounds=8"),
        ("compute", "--rounds=8", "--matrix_method=banded", "--matrix_bands=3"),
        ("compute", "--rounds=8", "--matrix_method=blt", "--matrix_buffers=2"),
        ("compute", "--rounds=8", "--epochs=2", "--separation=4"),
        ("compute", "--rounds=8", "--matrix_schedule=drop"),
        ("compare", "--rounds=8"),
        ("time", "--rounds=8", "--repeats=1"),
    ),
    "benchmark": (("--quick", "--repeats=1"), ("--rows=plain", "--quick")),
    "reproduce": (("--figure=list",), ("--figure=csgm_fig1", "--jobs=1")),
}
# What a run of the tool has of each binary, in parts of the whole.
SHARES = {"privacy": 10, "factorize": 5, "reproduce": 1, "benchmark": 1, "train": 3}
_INTEGERS = (
    *("0", "-1", "1", "2", "3", "7", "64", "1000", "100000", "1000000"),
    *(str(2**31 - 1), str(2**31), str(2**32), str(2**62), str(2**63 - 1)),
    *(str(2**63), str(2**64), str(10**23), str(-(2**63)), str(10**400)),
    *("1000000000", "100000000000", "1.5", "1e3", "nan", "0x10", "1_0", "٣"),
)
_FLOATS = (
    *("0", "-0.0", "0.5", "1", "1.0000000000000002", "2", "-1", "10", "1000"),
    *("1e-9", "1e-30", "1e-100", "1e-300", "5e-324", "0.9999999999999999"),
    *("1e6", "1e9", "1e15", "1e23", "1e30", "1e38", "1e100", "1e300"),
    *("1.7976931348623157e308", "1e308", "-1e308", "1e400", "nan", "inf", "-inf"),
)
_LISTS = (
    *("1", "2,3", "1,,2", ",", "1,2,", " 4 , 5 ", "-1,2", "0", "1e9", "1e400,1"),
    *("nan", "inf", "1000000000", "1;2", "8,8,8,8,8,8,8,8,8,8", "1.5,2.5", "٣"),
)
_WORDS = (
    *("", " ", "x", "none", "None", "true", "no", "-", "--", "é", "a b", "\t", "1,2"),
    *("a\nb", "%s", "{0}", "$HOME", "a" * 5000, "\udcff", "x.abc", "../x", "'", "1"),
)
_PATHS = (
    *("out", "out.png", "out.npz", "out.json", "out.abc", "folder", "folder/", "pipe"),
    *("folder/x", "missing/x", "file/x", "/dev/full", "/dev/null", "/proc/x/y"),
    *("/proc/version", "full", "dangling", "loop", ".", "..", "a" * 300, "", "~x/y"),
)
_JUNK = (
    *("--no_such_flag", "--no_such_flag=1", "-x", "junk", "", "--", "--=", "--=1"),
    *("--flagfile=/proc/x", "--flagfile=file", "--flagfile=folder", "--flagfile"),
    *("--verbosity=x", "--undefok=a", "--noundefok", "---", "épsilon", "epsilon"),
    *("compute", "--rounds", "--epsilon", "--output", "--seed", "--help=1"),
)
_BOOLEANS = ("--{0}", "--no{0}", "--{0}=true", "--{0}=0", "--{0}=maybe", "--no{0}=1")
_LINKS = {"full": "/dev/full", "dangling": "missing/x", "loop": "loop"}
_PATH_NAMES = ("output", "plot", "heat_maps", "dir", "cache", "file")


class Result(NamedTuple):
    """How a line, the words behind the binary's name, ended."""

    line: Sequence[str]
    # The exit code, or minus the signal that ended it; None if time was up.
    code: Optional[int]
    seconds: float
    fault: Optional[str]
    # The end of what it wrote to stderr.
    said: str


def _prepare(folder: Path) -> None:
    """Fills a folder with what a path may lead to."""
    (folder / "folder").mkdir()
    (folder / "file").write_text("--rounds=2\n")
    os.mkfifo(folder / "pipe")
    for name, target in _LINKS.items():
        (folder / name).symlink_to(target)


def fault_of(
    line: Sequence[str], code: Optional[int], out: str, err: str, names: Sequence[str]
) -> Optional[str]:
    """What is wrong with how a line ended, with the names of all flags, if anything."""
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


def _values(flag: Any) -> Sequence[str]:
    """Values at and beyond the ends of what a flag takes."""
    kind = flag.flag.flag_type() if hasattr(flag, "flag") else flag.flag_type()
    if any(part in flag.name for part in _PATH_NAMES):
        return _PATHS
    if kind.startswith("int"):
        return _INTEGERS
    if kind.startswith("float"):
        return _FLOATS
    if "list" in kind:
        return _LISTS
    if "enum" in kind:
        return [*flag.parser.enum_values, *_WORDS]
    if flag.name in ("layers", "layer_rates"):
        return _LISTS
    return _WORDS


def _change(random_: random.Random, flag: Any) -> str:
    """A word that sets a flag to a value, often to one that is refused."""
    if flag.boolean:
        return random_.choice(_BOOLEANS).format(flag.name)
    values = _values(flag)
    if random_.random() < 0.1:
        values = [*_WORDS, *_INTEGERS, *_FLOATS]
    return f"--{flag.name}={random_.choice(values)}"


def _relevant(line: Sequence[str], table: Sequence[Any]) -> list[Any]:
    """The flags that a line has, or that its mechanism and task have.

    A flag's help says who has it: "Used by gaussian, l2_csgm."
    """
    given = dict(word.lstrip("-").partition("=")[::2] for word in line)
    users = {"all", given.get("mechanism", "l2_csgm"), given.get("task", "digits")}
    users.update(given.get("mechanisms", "").split(","))
    found = []
    for flag in table:
        has = re.search(r"\bUsed by ([\w, ]+)\.", flag.help or "")
        if flag.name in given or has is None or users & set(has[1].split(", ")):
            found.append(flag)
    return found


def lines(binary: str, table: Sequence[Any], seed: int) -> Iterator[list[str]]:
    """Command lines of a binary without end, the same ones for the same seed."""
    random_ = random.Random(f"{seed} {binary}")
    while True:
        line = list(random_.choice(BASES[binary]))
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


class Binary:
    """A binary that is imported and waits to be forked."""

    def __init__(self, name: str):
        """Imports a module of `experiments`, which stops where its work would begin."""
        self._name = name
        self._module = importlib.import_module(f"experiments.{name}")
        from absl import flags

        by_module = flags.FLAGS.flags_by_module_dict()
        self.table = by_module[self._module.__name__]
        self._names = sorted(flags.FLAGS)
        if name in ("train", "benchmark", "reproduce"):
            import tensorflow  # noqa: F401
        module = self._module
        begins = {
            "train": lambda: (module.training.Run, "train"),
            "factorize": lambda: (module.factorizations, "measure"),
            "benchmark": lambda: (module.cli, "work_begins"),
            "reproduce": lambda: (module, "_do_work"),
        }
        if name in begins:
            setattr(*begins[name](), lambda *arguments, **options: sys.exit(0))

    def run(self, line: Sequence[str], seconds: float = SECONDS) -> Result:
        """Runs a line, and again if it did not end: a busy machine may be why."""
        found = self._run_once(line, seconds)
        return self._run_once(line, seconds) if found.code is None else found

    def _run_once(self, line: Sequence[str], seconds: float) -> Result:
        """Runs a line in a folder of its own."""
        # Not a TemporaryDirectory: the fork would remove it at its end.
        folder = Path(tempfile.mkdtemp())
        _prepare(folder)
        out, err = folder / ".out", folder / ".err"

        def be() -> None:
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            self._module.cli.run(self._module.main)

        begun = time.monotonic()
        child = runs.fork_program(be, [f"dpfl-{self._name}", *line], out, err)
        code = runs.ended(child, seconds)
        # The line's session has its number, and all that it left behind is in there.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if code is None:
            os.waitpid(child, 0)
        taken = time.monotonic() - begun
        printed, said = (path.read_text("utf-8", "replace") for path in (out, err))
        shutil.rmtree(folder, ignore_errors=True)
        fault = fault_of(line, code, printed, said, self._names)
        for device in _DEVICES:
            if not stat.S_ISCHR(os.stat(device).st_mode):
                fault = f"{device} was replaced"
        return Result(line, code, round(taken, 3), fault, said[-600:])


def _serve(options: Any) -> None:
    """Prints the results of a binary's lines, chosen or as stdin gives them."""
    binary = Binary(options.serve)
    chosen = lines(options.serve, binary.table, options.seed)
    if options.given:
        chosen = (json.loads(line) for line in sys.stdin)
    for line in itertools.islice(chosen, options.lines):
        # What a line writes goes elsewhere, but not what libraries say at import.
        print(json.dumps(binary.run(line)._asdict()), flush=True)


def shares(count: int, names: Sequence[str] = tuple(SHARES)) -> dict[str, int]:
    """So many lines in all, by binary, and one of each at the least."""
    whole = sum(SHARES[name] for name in names)
    return {name: max(1, round(count * SHARES[name] / whole)) for name in names}


def results(name: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """The results of a binary from a process of its own, as they come.

    Raises:
      RuntimeError: If that process fails.
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


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binaries", default=",".join(SHARES))
    parser.add_argument("--serve", help="a binary of which to print each result")
    parser.add_argument(
        "--given", action="store_true", help="with --serve: lines of JSON from stdin"
    )
    return parser.parse_args()


def main() -> int:
    """Runs the lines; returns the exit code."""
    options = _arguments()
    if options.serve:
        _serve(options)
        return 0
    print("binary        lines  seconds  exit 0  exit 2  faults")
    faults = []
    for name, count in shares(options.lines, options.binaries.split(",")).items():
        begun, codes = time.monotonic(), collections.Counter()
        for found in results(name, count, options.seed):
            codes[found["code"]] += 1
            if found["fault"]:
                codes["faults"] += 1
                faults.append({"binary": name, **found})
                print(json.dumps(faults[-1]), file=sys.stderr, flush=True)
        seconds = time.monotonic() - begun
        cells = f"{codes[0]:8}{codes[2]:8}{codes['faults']:8}"
        print(f"{name:12}{count:7}{seconds:9.0f}{cells}", flush=True)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
