# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What is wrong with a command line, in one sentence that names the flag.

    --delta must be greater than 0 and less than 1, found 1.0

The library speaks of arguments, absl of how it failed: here both become flags.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from absl import flags

from dpfl import checks

# The names in front of "must": one, or several.
_HEAD = re.compile(r"(?:\w+(?:, | and ))*\w+(?= must )")
# A name of more than one word, where it stands neither in a path nor in a value.
_LONG_NAME = re.compile(r"(?<![\w./=('\"-])[a-z0-9]+(?:_[a-z0-9]+)+(?![\w./=('\"])")


def of_argument(error: Exception, names: Collection[str]) -> str:
    """What an exception of the library says, with dashes before the names of flags.

    A name of one word, such as "rounds", is taken for the flag where the sentence is
    about it; elsewhere it may be the word.
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


def of_parsing(error: Exception) -> str:
    """What absl, or a check of a flag, has against a command line."""
    text = str(error)
    cause = error.__context__
    if isinstance(error, flags.UnrecognizedFlagError):
        guesses = text.partition("Did you mean: ")[2].rstrip(" ?").split(", ")
        guess = f"; did you mean --{' or --'.join(guesses)}" if guesses[0] else ""
        return f"--{error.flagname} is no flag of this command{guess}"
    if isinstance(error, flags.CantOpenFlagFileError) and isinstance(cause, OSError):
        found = f"{cause.filename} ({cause.strerror})"
        return f"--flagfile must be a file that can be read, found {found}"
    missing = "Missing value for flag "
    if text.startswith(missing):
        return f"{text[len(missing) :]} must have a value, found none"
    # As absl says it: what was given, and why its parser did not take it.
    match = re.match(r"flag --(\w+)=", text)
    ending = f": {cause}"
    if match is None or cause is None or not text.endswith(ending):
        return text
    name, value = match.group(1), text[match.end() : -len(ending)]
    return checks.message(f"--{name}", _wanted(flags.FLAGS[name].parser), value)


def _wanted(parser: flags.ArgumentParser) -> str:
    """What a flag's value must be."""
    if isinstance(parser, flags.EnumParser):
        return f"one of {', '.join(parser.enum_values)}"
    if isinstance(parser, flags.BooleanParser):
        return "true or false"
    return parser.syntactic_help
