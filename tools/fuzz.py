# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs malformed and extreme command lines: each must end well, or with a sentence.

  .venv/bin/python -m tools.soak --only --lines=5000 --seed=1
  .venv/bin/python -m tools.fuzz privacy --lines=100 --seed=1

A line must end within 20 minutes, with exit code 0, or with exit code 2 and a sentence
on stderr that names a flag or the word that is wrong. A traceback, a warning of numpy,
"nan" in what is printed or another exit code is a fault. Each binary is imported once,
and a process forked for each line, in a folder of its own. Trainings, measurements and
figures stop where their work would begin, since the arguments are all checked then.

A line is a small one that is right, with one to three flags that hypothesis adds or
changes: to a value of the flag's type, to any text, or to words that are no flags at
all. The soak counts the faults, and prints each with the line to run again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import hypothesis
from hypothesis import strategies as st

from dpfl import files
from tools.soaks import runs

SECONDS = 1200.0
# Valid small lines, by binary.
BASES: dict[str, list[str]] = {}
for _row in files.read_csv(Path(__file__).with_suffix(".csv")):
    BASES.setdefault(_row["binary"], []).append(_row["line"])
_PATHS = ("out", "out.png", "out.json", "out.abc", "folder", "missing/x", "file/x", "")
_JUNK = (
    *"--no_such_flag --no_such_flag=1 -x junk -- --= --flagfile=file".split(),
    *"--flagfile=folder --flagfile --rounds --epsilon épsilon".split(),
    "",
)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
_BOOLEANS = ("--{0}", "--no{0}", "--{0}=true", "--{0}=maybe", "--no{0}=1")


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
    if "Traceback" in err:
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


def _words(flag: Any) -> st.SearchStrategy[str]:
    """Words that set a flag: to a value of its type, or to any text."""
    if flag.boolean:
        return st.sampled_from([form.format(flag.name) for form in _BOOLEANS])
    integers = (st.integers(-1, 100) | st.integers()).map(str)
    reals = st.floats().map(repr)
    kind = flag.flag_type()
    if re.search("output|plot|_(dir|file)$", flag.name):
        own: st.SearchStrategy[str] = st.sampled_from(_PATHS)
    elif "list" in kind:
        own = st.lists(integers | reals, max_size=9).map(",".join)
    elif "enum" in kind:
        own = st.sampled_from(getattr(flag.parser, "enum_values", [""]))
    else:
        own = reals if "float" in kind else integers
    values = st.one_of(*[own] * 9, integers, _TEXT)
    return values.map(f"--{flag.name}={{}}".format)


@st.composite
def lines(draw: st.DrawFn, binary: str, table: Sequence[Any]) -> list[str]:
    """Command lines of a binary.

    Args:
      draw: Function that draws from a strategy, which hypothesis passes.
      binary: Name of the binary.
      table: The binary's flags.
    """
    line = draw(st.sampled_from(BASES[binary])).split()
    flags = st.sampled_from(table)
    words = st.one_of(*[flags.flatmap(_words)] * 9, st.sampled_from(_JUNK))
    for word in draw(st.lists(words, min_size=1, max_size=3)):
        name = word.partition("=")[0]
        line = [other for other in line if other.partition("=")[0] != name]
        line.append(word)
    return line


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
    out, err = folder / ".out", folder / ".err"

    def be() -> None:
        os.chdir(folder)
        module.cli.run(module.main)

    child = runs.fork_program(be, [f"dpfl-{name}", *line], out, err)
    code = runs.ended(child, SECONDS)
    printed, said = (path.read_text("utf-8", "replace") for path in (out, err))
    shutil.rmtree(folder, ignore_errors=True)
    fault = fault_of(line, code, printed, said, sorted(flags.FLAGS))
    return {"line": line, "code": code, "fault": fault, "said": said[-600:]}


def main() -> None:
    """Prints the result of each line of a binary, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("binary", help="the binary, without dpfl-")
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--given", action="store_true", help="lines of JSON from stdin")
    asked = parser.parse_args()
    from absl import flags

    module = _imported(asked.binary)
    table = flags.FLAGS.flags_by_module_dict()[module.__name__]

    def run(line: Sequence[str]) -> None:
        print(json.dumps(_run(asked.binary, module, line)), flush=True)

    if asked.given:
        for line in sys.stdin:
            run(json.loads(line))
        return
    drawn = hypothesis.given(lines(asked.binary, table))(run)
    settings = hypothesis.settings(
        max_examples=asked.lines,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    settings(hypothesis.seed(asked.seed)(drawn))()


if __name__ == "__main__":
    main()
