# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Helpers of the binaries: their start, and one-line errors.

def main(argv):
    config = Config(...)      # ValueError here: 'error: ...', exit code 2
    cli.work_begins()
    train(config)             # an exception here is a fault: traceback, exit code 1

cli.run(main)
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from absl import app, flags, logging

from dpfl import __version__, checks, files

from . import exits, flag_files

_HELP = {"help", "helpshort", "h", "?"}
# Pattern of the names in front of "must": one, or several.
_HEAD = re.compile(r"(?:\w+(?:, | and ))*\w+(?= must )")
# Pattern of a name of several words, outside of paths and values, or of a setting that
# has changed.
_LONG_NAME = re.compile(
    r"(?<![\w./=('\"-])[a-z0-9]+(?:_[a-z0-9]+)+(?![\w./=('\"])"
    r"|\b(?<!-)\w+(?= \((?:was |not shown))"
)

# Limit of the runs of a command, beyond which they would never be done.
MOST_RUNS = 10**4

_working = False
# The heading of flags in the help of a binary, by name.
_headings: dict[str, str] = {}


def work_begins() -> None:
    """Marks the arguments as good: from here on an exception is a fault."""
    global _working
    _working = True


def help_module(name: str) -> str:
    """The module under whose name absl keeps the flags of a binary's `__name__`."""
    return sys.argv[0] if name == "__main__" else name


@contextlib.contextmanager
def headed(heading: str) -> Iterator[None]:
    """Shows the flags that a block defines under a heading of the help."""
    before = set(flags.FLAGS)
    yield
    _headings.update((name, heading) for name in flags.FLAGS if name not in before)


def _help(module: str, is_short: bool) -> str:
    """The text of a binary and its flags; short help has only the flags it names."""
    about = (sys.modules[module].__doc__ or "").strip()
    own = flags.FLAGS.get_flags_for_module(help_module(module))
    named = [flag for flag in own if re.search(rf"--{flag.name}\b", about)]
    parts: dict[str, list[str]] = {heading: [] for heading in _headings.values()}
    for flag in named if is_short and named else own:
        heading = "" if is_short else _headings.get(flag.name, "")
        parts.setdefault(heading or "Flags", []).append(_of_flag(flag))
    shown = [f"{head}:\n\n" + "\n".join(of) for head, of in parts.items() if of]
    if is_short and len(named) < len(own):
        shown.append(f"--help shows all {len(own)} flags.")
    return "\n\n".join([about, *shown])


def _of_flag(flag: flags.Flag) -> str:
    dashes = "--[no]" if flag.boolean else "--"
    about = [f"{dashes}{flag.name}: {flag.help}"]
    if flag.default_as_str is not None:
        about.append(f"(default: {flag.default_as_str})")
    if flag.parser.syntactic_help:
        about.append(f"({flag.parser.syntactic_help})")
    return "\n".join(
        flags.text_wrap(line, 80, "    ", "    " if i else "  ")
        for i, line in enumerate(about)
    )


def check_flag(name: str, check: Callable[..., Any], **bounds: Any) -> None:
    """Validates a flag by check(name, value, **bounds); None is allowed.

    The check's ValueError or TypeError is the message; `dpfl.checks` has several
    checks.

    Args:
      name: Name of the flag.
      check: Function that raises ValueError or TypeError for a bad value.
      **bounds: More arguments of the check.
    """

    def is_good(value: Any) -> bool:
        if value is None:
            return True
        try:
            check(f"--{name}", value, **bounds)
        except (TypeError, ValueError) as error:
            # The exception is kept: absl would prepend the flag and its value to a
            # ValidationError.
            raise flags.IllegalFlagValueError(str(error)) from error
        return True

    flags.register_validator(name, is_good)


def check_outputs(endings: Mapping[str, Collection[str]]) -> None:
    """Refuses files that could not be written, before anything is computed.

    A file that is there is replaced.

    Args:
      endings: The allowed endings of a file's path by flag; empty for any. Flags that
        were not given are skipped.

    Raises:
      ValueError: As for `files.output_path`.
    """
    for name, allowed in endings.items():
        path = flags.FLAGS[name].value
        if path is not None:
            files.output_path(f"--{name}", path, allowed)


def no_arguments(argv: Sequence[str]) -> None:
    """Raises ValueError for a positional argument."""
    if len(argv) > 1:
        raise ValueError(f"positional arguments are not allowed, found {argv[1]!r}")


def command(
    argv: Sequence[str], names: Collection[str], with_argument: Collection[str] = ()
) -> str:
    """The subcommand, which is the first positional argument.

    Args:
      argv: The program's name and the positional arguments.
      names: The subcommands.
      with_argument: Those of them that may be followed by another argument.

    Raises:
      ValueError: If it is none of them, or too much follows.
    """
    most = 3 if argv[1:] and argv[1] in with_argument else 2
    if not 2 <= len(argv) <= most or argv[1] not in names:
        given = " ".join(argv[1:]) or "nothing"
        raise ValueError(
            f"the command must be one of {', '.join(names)}, found {given}"
        )
    return argv[1]


def integers(name: str, wanted: str) -> list[int]:
    """Parses a flag that is a list of integers; ValueError names what is `wanted`."""
    texts = flags.FLAGS[name].value
    try:
        return [int(text) for text in texts]
    except ValueError:
        message = checks.message(f"--{name}", wanted, ",".join(texts))
        raise ValueError(message) from None


def seeds(name: str) -> list[int]:
    """The seeds of a flag; see `seeds_in`."""
    return seeds_in(f"--{name}", flags.FLAGS[name].value)


def seeds_in(name: str, text: str) -> list[int]:
    """The seeds in a text such as 1-3,7; ValueError, with a name, for another text."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = [first, last] if dash else [first, first]
        is_range = all(end.strip().isdecimal() for end in ends)
        low, high = map(int, ends) if is_range else (1, 0)
        checks.require(low <= high, name, "as 1-5 or 1,4,7", text)
        wanted = f"at most {MOST_RUNS} seeds"
        checks.require(len(found) + high - low < MOST_RUNS, name, wanted, text)
        found += range(low, high + 1)
    checks.require(len({*found}) == len(found), name, "distinct seeds", text)
    return found


@contextlib.contextmanager
def bar(items: Sequence[Any]) -> Iterator[Any]:
    """Wraps items in a progress bar, on stderr after a second, for a block.

    The flag --progress, which the binary defines, turns it on or off.
    """
    import tqdm

    shown = flags.FLAGS["progress"].value
    # Cleared at the end, so that what is printed then stands alone.
    with tqdm.tqdm(items, disable=not shown, delay=1, leave=False) as shown_items:
        yield shown_items


def refuse(where: str, *names: str) -> None:
    """Raises ValueError for the first of the flags that was given without effect."""
    for name in names:
        if flags.FLAGS[name].present:
            raise ValueError(f"--{name} has no meaning for {where}")


def require(where: str, *names: str) -> None:
    """Raises ValueError for the first of the flags that has no value."""
    for name in names:
        if flags.FLAGS[name].value is None:
            raise ValueError(f"--{name} must be given for {where}")


def is_by_hand(name: str) -> bool:
    """Whether a flag is on the command line, and not only in a flag file."""
    pattern = re.compile(rf"--?(no)?{name}(=.*)?", re.DOTALL)
    return any(pattern.fullmatch(word) for word in sys.argv[1:])


def forget_from_files(names: Collection[str]) -> list[str]:
    """Resets flags that only flag files have set to their defaults; returns them."""
    reset = [n for n in names if flags.FLAGS[n].present and not is_by_hand(n)]
    for name in reset:
        flags.FLAGS[name].unparse()
    return reset


def run(main: Callable[[Sequence[str]], Any]) -> None:
    """Runs a binary: absl's `app.run` with errors of the command line in one line.

    The exit code is 2 for a flag that is unknown or refused, and for a ValueError,
    TypeError or OSError that `main` raises before it calls `work_begins`; 1 for another
    exception, or if memory runs out; 130 after Ctrl-C; 141 if nobody reads its output.
    With --verbosity=1 the traceback of a refusal is logged too.

    Args:
      main: The binary's function, called with its name and the positional arguments.
    """

    def parse(argv: Sequence[str]) -> Sequence[str]:
        asked = {argument.partition("=")[0].lstrip("-") for argument in argv[1:]}
        if asked & _HELP:
            print(_help(main.__module__, "helpshort" in asked))
            sys.exit(0)
        if "--version" in argv[1:]:
            print(f"dpfl {__version__}")
            sys.exit(0)
        try:
            return flags.FLAGS(flag_files.words(argv))
        except (flags.Error, OSError, ValueError) as error:
            exits.fail(_of_parsing(error))
        except SystemExit:
            # absl's own help flags have shown the help.
            sys.exit(0)

    def guarded(argv: Sequence[str]) -> Any:
        try:
            return main(argv)
        except BrokenPipeError:
            raise
        except (OSError, TypeError, ValueError) as error:
            logging.debug("Refused:", exc_info=True)
            if _working:
                raise
            exits.fail(_of_argument(error, set(flags.FLAGS)))
        except MemoryError as error:
            exits.fail(f"memory ran out ({error})", exits.FAULT_EXIT_CODE)

    global _working
    _working = False
    with exits.exit_codes():
        app.run(guarded, flags_parser=parse)


def _of_argument(error: Exception, names: Collection[str]) -> str:
    """The message of a library's exception, with dashes before the names of flags.

    A name of one word, such as "rounds", is taken for the flag only as the subject of
    the sentence; elsewhere it may be the plain word.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"

    def dashed(match: re.Match[str]) -> str:
        word = match.group()
        return f"--{word}" if word in names else word

    text = str(error)
    head = _HEAD.match(text)
    if head is not None:
        text = re.sub(r"\w+", dashed, head.group()) + text[head.end() :]
    return _LONG_NAME.sub(dashed, text)


def _of_parsing(error: Exception) -> str:
    """The message of absl, or of a flag's check, about a command line."""
    text, cause = str(error), error.__context__
    if isinstance(error, flags.UnrecognizedFlagError):
        return f"--{error.flagname} is not a flag of this command"
    # absl's form: the value given, and why its parser refused it.
    match = re.match(r"flag --(\w+)=", text)
    ending = f": {cause}"
    if match is None or cause is None or not text.endswith(ending):
        return text
    name, value = match.group(1), text[match.end() : -len(ending)]
    parser = flags.FLAGS[name].parser
    found = getattr(parser, "found", value)
    return checks.message(f"--{name}", wanted(parser), found)


def wanted(parser: flags.ArgumentParser) -> str:
    """Words on the values that a flag accepts, or on each of several."""
    parser = getattr(parser, "one", parser)
    if isinstance(parser, flags.EnumParser):
        return f"one of {', '.join(parser.enum_values)}"
    if isinstance(parser, flags.BooleanParser):
        return "true or false"
    return parser.syntactic_help
