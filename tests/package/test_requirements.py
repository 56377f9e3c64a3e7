# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib
import re

import pytest

from tools import write_requirements

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGEST = r" \\\n    --hash=sha256:[0-9a-f]{64}"


@pytest.mark.parametrize("name", ["requirements.txt", "dpfl/requirements-tff.txt"])
def test_every_pin_has_the_digests_of_its_files_and_no_address(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "//" not in text and "--index" not in text and "--find-links" not in text
    pin = rf"[a-z0-9-]+==[^ \n]+(?: ; [^\\\n]+)?(?:{DIGEST})+\n"
    head = r"# Made by .*\n(?:-r dpfl/requirements-tff\.txt\n)?"
    assert re.fullmatch(f"{head}(?:{pin})+", text)


def test_pins_for_other_systems_are_left_out_and_markers_shortened():
    text = (
        "a==1 ; python_full_version < '3.10' \\\n"
        "    --hash=sha256:12 \\\n    --hash=sha256:34\n"
        "b==2 ; sys_platform == 'win32' \\\n    --hash=sha256:56\n"
    )
    (pin,) = write_requirements.parsed(text)
    assert str(pin) == (
        "a==1 ; python_version < '3.10' \\\n"
        "    --hash=sha256:12 \\\n    --hash=sha256:34"
    )


def test_a_pin_without_a_digest_is_refused():
    with pytest.raises(ValueError, match="must have a digest, found 'a==1'"):
        list(write_requirements.parsed("a==1\n"))
