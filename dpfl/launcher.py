# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Child processes that end with the thread that started them, behind a barrier.

This file is also the script that such a child runs, without site packages, before it
executes the requested program: its system calls must not be made between fork and exec
of a process that has TensorFlow's threads. Its arguments are

    PARENT CONTROL PROGRAM [ARGUMENT ...]

PARENT is the process id of the parent; the kernel kills the child when the thread that
started it ends. With the descriptor CONTROL of a socket, and not -1, every call of
bind() waits for an answer through a seccomp listener, whose descriptor is sent over the
socket beside `ok`. Without that listener the kernel itself fails the call, so that an
unattended program has no address. If the barrier cannot be put up CONTROL receives one
sentence on the reason, and the program does not run.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38

_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
_SECCOMP_RET_KILL_PROCESS = 0x80000000
_SECCOMP_RET_ERRNO = 0x00050000
_SECCOMP_RET_USER_NOTIF = 0x7FC00000
_SECCOMP_RET_ALLOW = 0x7FFF0000
_BPF_LOAD_WORD = 0x20
_BPF_JUMP_IF_EQUAL = 0x15
_BPF_JUMP_IF_AT_LEAST = 0x35
_BPF_RETURN = 0x06
# Offsets of the fields of struct seccomp_data.
_SYSTEM_CALL = 0
_ARCHITECTURE = 4

# The only architecture that TFF's worker is built for.
_MACHINE = "x86_64"
_AUDIT_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_NR_BIND = 49
_NR_SECCOMP = 317
_NR_IO_URING_SETUP = 425

_libc = ctypes.CDLL(None, use_errno=True)


def ends_with_parent(command: Sequence[str], control: int = -1) -> list[str]:
    """The command that runs `command` until the thread that starts it ends.

    This process must start it. With `control`, a socket's descriptor that is passed on,
    its calls of bind() wait for an answer.
    """
    head = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(control)]
    return [*head, *command]


def main(arguments: Sequence[str]) -> NoReturn:
    """Puts up the barrier and becomes the program."""
    parent, control = (int(text) for text in arguments[:2])
    program = list(arguments[2:])
    end_with(parent)
    if control >= 0:
        os.set_inheritable(control, False)
        channel = socket.socket(fileno=control)
        try:
            _send_listener(channel)
        except OSError as error:
            channel.sendall(f"{error.strerror} ({error.filename})".encode())
            sys.exit(1)
    os.execv(program[0], program)


def end_with(parent: int) -> None:
    """Asks the kernel to kill this process when the thread that started it ends."""
    _check(
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0),
        "prctl(PR_SET_PDEATHSIG)",
    )
    # The parent may have ended before the request.
    if os.getppid() != parent:
        sys.exit("the parent process has ended")


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)
    return result


def _send_listener(channel: socket.socket) -> None:
    """Makes bind() wait for an answer, and sends the descriptor to answer with."""
    descriptor = _install_filter()
    channel.sendmsg(
        [b"ok"],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))],
    )
    os.close(descriptor)


def _install_filter() -> int:
    if os.uname().machine != _MACHINE:
        raise OSError(
            errno.ENOSYS, f"the system call filter needs {_MACHINE}", os.uname().machine
        )
    # Other ways to make a system call (32 bits, x32, io_uring) have other numbers,
    # which a filter of bind() alone would let pass.
    steps = [
        (_BPF_LOAD_WORD, 0, 0, _ARCHITECTURE),
        (_BPF_JUMP_IF_EQUAL, 0, 6, _AUDIT_ARCH_X86_64),
        (_BPF_LOAD_WORD, 0, 0, _SYSTEM_CALL),
        (_BPF_JUMP_IF_AT_LEAST, 4, 0, _X32_BIT),
        (_BPF_JUMP_IF_EQUAL, 4, 0, _NR_BIND),
        (_BPF_JUMP_IF_EQUAL, 1, 0, _NR_IO_URING_SETUP),
        (_BPF_RETURN, 0, 0, _SECCOMP_RET_ALLOW),
        (_BPF_RETURN, 0, 0, _SECCOMP_RET_ERRNO | errno.ENOSYS),
        (_BPF_RETURN, 0, 0, _SECCOMP_RET_KILL_PROCESS),
        (_BPF_RETURN, 0, 0, _SECCOMP_RET_USER_NOTIF),
    ]
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("=HBBI", *step) for step in steps)
    )
    program = ctypes.create_string_buffer(
        struct.pack("@HP", len(steps), ctypes.addressof(code))
    )
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    return _check(
        _libc.syscall(
            ctypes.c_long(_NR_SECCOMP),
            ctypes.c_long(_SECCOMP_SET_MODE_FILTER),
            ctypes.c_long(_SECCOMP_FILTER_FLAG_NEW_LISTENER),
            program,
        ),
        "seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
