# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Malformed and extreme command lines, made from the tables of a binary's flags.

A line is a small one that is right, with one to three flags added or changed: to a
value at or beyond the ends of the flag's type, to one of another type, or to words that
are no flags at all. Values that are paths lead into a folder of the line's own, or to
what nobody can write.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SMALL_TRAINING = (
    "--task=synthetic",
    "--model=small_cnn",
    "--num_clients=12",
    "--examples_per_client=4",
    "--num_test_examples=4",
    "--cohort_size=4",
    "--rounds=2",
    "--noprogress",
)
_ONCE = ("--participation=once_per_epoch",)
# Lines that are right and small, by binary.
BASES: Mapping[str, Sequence[Sequence[str]]] = {
    "train": (
        SMALL_TRAINING,
        (*SMALL_TRAINING, "--mechanism=none"),
        (*SMALL_TRAINING, "--mechanism=gaussian", "--noise_multiplier=1"),
        (
            *SMALL_TRAINING,
            "--mechanism=distributed_discrete_gaussian",
            "--bits=18",
            "--noise_source=helpers",
        ),
        (*SMALL_TRAINING, *_ONCE, "--mechanism=dome", "--sketch_size=8"),
        (*SMALL_TRAINING, *_ONCE, "--mechanism=matrix_factorization"),
        ("--task=digits", "--model=tiny_cnn", "--rounds=2", "--mechanism=gaussian"),
    ),
    "privacy": (
        ("epsilon", "--noise_multiplier=1"),
        ("epsilon", "--noise_multiplier=1", "--population=1000", "--rounds=5"),
        (
            "epsilon",
            "--mechanism=distributed_discrete_gaussian",
            "--bits=16",
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
SHARES: Mapping[str, int] = {
    "privacy": 10,
    "factorize": 5,
    "reproduce": 1,
    "benchmark": 1,
    "train": 3,
}
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
_PATH_NAMES = ("output", "plot", "heat_maps", "dir", "cache", "file")


def _values(flag: Any) -> Sequence[str]:
    """Returns values at and beyond the ends of what a flag takes."""
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


def change(random_: random.Random, flag: Any) -> str:
    """Returns a word that sets a flag to a value, often to one that is refused."""
    if flag.boolean:
        return random_.choice(_BOOLEANS).format(flag.name)
    values = _values(flag)
    if random_.random() < 0.1:
        values = [*_WORDS, *_INTEGERS, *_FLOATS]
    return f"--{flag.name}={random_.choice(values)}"


def _relevant(line: Sequence[str], table: Sequence[Any]) -> list[Any]:
    """Returns the flags that a line has, or that its mechanism and task have.

    A flag's help ends with who has it: "Of gaussian, l2_csgm."
    """
    given = dict(word.lstrip("-").partition("=")[::2] for word in line)
    users = {given.get("mechanism", "l2_csgm"), given.get("task", "digits")}
    users.update(given.get("mechanisms", "").split(","))
    found = []
    for flag in table:
        has = re.search(r"\bOf ([\w, ]+)\.$", flag.help or "")
        if flag.name in given or has is None or users & set(has[1].split(", ")):
            found.append(flag)
    return found


def lines(binary: str, table: Sequence[Any], seed: int) -> Iterator[list[str]]:
    """Yields command lines without end, the same ones for the same seed.

    Args:
      binary: A key of `BASES`.
      table: The binary's own flags, of absl.
      seed: Of the choice.
    """
    random_ = random.Random(f"{seed} {binary}")
    while True:
        line = list(random_.choice(BASES[binary]))
        relevant = _relevant(line, table)
        for _ in range(random_.choice((1, 1, 2, 3))):
            flags = relevant if random_.random() < 0.85 else table
            word = change(random_, random_.choice(flags))
            if random_.random() < 0.05:
                word = random_.choice(_JUNK)
            name = word.partition("=")[0]
            line = [other for other in line if other.partition("=")[0] != name]
            line.append(word)
        if random_.random() < 0.02:
            line.remove(random_.choice(line))
        yield line
