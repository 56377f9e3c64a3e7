# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Full disks of every size that a run needs: small file systems in memory.

They are mounted in a namespace of this process, which needs no privileges on most
systems.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pathlib
import subprocess

from tools.soaks import kills, runs

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_PAGE = 4096
_ENOUGH_PAGES = 100_000
_LOOP_ROUNDS = 200


def full_at_every_page(name: str) -> kills.Outcome:
    """Runs the loop on disks of every size up to a sufficient one, in a fork.

    The process is a stub, so that each run takes milliseconds; checkpoints and files
    are real. After each failure the disk grows and the run resumes. `name` is that of a
    mount point.
    """
    from experiments.benchmarks import programs

    # Done first, while this process has a single thread.
    _own_namespace()
    folder = pathlib.Path(name)
    folder.mkdir()
    plan = programs.make_plan(folder, _LOOP_ROUNDS, checkpoint_every=3)
    _mount(folder, _ENOUGH_PAGES)
    programs.run_stub(plan, folder)
    expected = runs.results(folder)
    count, faults = 0, []
    for pages in range(1, _ENOUGH_PAGES):
        _call("umount", str(folder))
        _mount(folder, pages)
        try:
            programs.run_stub(plan, folder)
            break
        except OSError as error:
            count += 1
            if error.errno != errno.ENOSPC:
                faults.append(f"{pages} pages: {error!r}")
        _mount(folder, _ENOUGH_PAGES, ",remount")
        programs.run_stub(plan, folder)
        if runs.results(folder) != expected:
            faults.append(f"{pages} pages: the resumed run differs")
    return count, faults


def _own_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare")
    maps = {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}
    for file, text in maps.items():
        pathlib.Path("/proc/self", file).write_text(text)


def _mount(folder: pathlib.Path, pages: int, more: str = "") -> None:
    size = f"size={pages * _PAGE}{more}"
    _call("mount", "-t", "tmpfs", "-o", size, "none", str(folder))


def _call(*words: str) -> None:
    subprocess.run(words, check=True)
