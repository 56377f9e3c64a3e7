# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Child processes that end with the thread that started them, behind a barrier.

This file is also the script that such a child runs, without site packages, before it
executes the requested program: its system calls must not be made between fork and exec
of a process that has TensorFlow's threads. Its arguments are

    PARENT BARRIER CONTROL LISTENER PORT PROGRAM [ARGUMENT ...]

PARENT is the process id of the parent; the kernel kills the child when the thread that
started it ends. BARRIER separates the program from the network:

- `open`: no barrier.
- `bind`: every call of bind() waits for an answer through a seccomp listener, whose
  descriptor is sent over the socket CONTROL. Without that listener the kernel itself
  fails the call, so that an unattended program has no address.
- `namespace`: a network namespace with only a loopback interface. A second process
  inside it accepts connections from the unix socket LISTENER and forwards their bytes
  to PORT; it holds CONTROL open for as long as it lives.

CONTROL receives `ok`, or one sentence on why the barrier could not be put up; in that
case the program does not run.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

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

_BUFFER_BYTES = 1 << 20
_POLL_SECONDS = 0.01

_libc = ctypes.CDLL(None, use_errno=True)


def ends_with_parent(command: Sequence[str]) -> list[str]:
    """The command that runs `command` until the thread that starts it ends."""
    return behind("open", command)


def behind(
    barrier: str,
    command: Sequence[str],
    *,
    control: int = -1,
    listener: int = -1,
    port: int = 0,
) -> list[str]:
    """The command that runs `command` behind a barrier.

    This process must start it, with the descriptors passed on. It ends with the thread
    that starts it.

    Args:
      barrier: "open", "bind" or "namespace"; see the module's text.
      command: The program's path and its arguments.
      control: Descriptor of the socket CONTROL; unused by "open".
      listener: Descriptor of the socket LISTENER, of "namespace" alone.
      port: The program's own port, of "namespace" alone.
    """
    numbers = [str(number) for number in (os.getpid(), control, listener, port)]
    head = [sys.executable, "-I", "-S", __file__, numbers[0], barrier]
    return [*head, *numbers[1:], *command]


def main(arguments: Sequence[str]) -> NoReturn:
    """Puts up the barrier and becomes the program."""
    parent, barrier = int(arguments[0]), arguments[1]
    control, listener, port = (int(text) for text in arguments[2:5])
    program = list(arguments[5:])
    end_with(parent)
    if barrier != "open":
        for descriptor in (control, listener):
            if descriptor >= 0:
                os.set_inheritable(descriptor, False)
        channel = socket.socket(fileno=control)
        try:
            if barrier == "namespace":
                _enter_network_namespace()
                _fork_forwarder(channel, listener, port)
                # New credentials may have cleared the request above.
                end_with(parent)
                channel.sendall(b"ok")
            else:
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


def _enter_network_namespace() -> None:
    """Leaves the machine's network for one with only a loopback interface.

    A process that may not do so directly does it inside a user namespace, without a
    table of user ids: to the kernel the user stays the same, with the same files, and
    the worker, which never asks, would see itself as the user nobody.
    """
    before = os.readlink("/proc/self/ns/net")
    if _libc.unshare(_CLONE_NEWNET) != 0:
        _check(
            _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET),
            "unshare(CLONE_NEWUSER | CLONE_NEWNET)",
        )
    if os.readlink("/proc/self/ns/net") == before:
        raise OSError(errno.EPERM, "the network namespace is unchanged", "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        # struct ifreq: the name in 16 bytes, the flags, and room up to 40 bytes.
        request = bytearray(struct.pack("@16sh22x", b"lo", 0))
        fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        name, flags = struct.unpack_from("@16sh", request)
        fcntl.ioctl(
            any_socket, _SIOCSIFFLAGS, struct.pack("@16sh22x", name, flags | _IFF_UP)
        )


def _fork_forwarder(channel: socket.socket, listener: int, port: int) -> None:
    """Forks the process that forwards connections; it ends with this one."""
    pid = os.getpid()
    if os.fork() != 0:
        return
    try:
        end_with(pid)
        # CONTROL stays open until this process ends, which tells the other side that it
        # has.
        channel.set_inheritable(False)
        own = socket.socket(fileno=listener)
        while True:
            client, _ = own.accept()
            threading.Thread(target=_serve, args=(client, port), daemon=True).start()
    finally:
        os._exit(1)


def _serve(client: socket.socket, port: int) -> None:
    try:
        server = _connect(client, port)
    except OSError:
        client.close()
        return
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_pump, args=(server, client), daemon=True)
    back.start()
    _pump(client, server)
    back.join()
    client.close()
    server.close()


def _connect(client: socket.socket, port: int) -> socket.socket:
    """A connection to the program, which may take a while until it listens."""
    gone = select.poll()
    gone.register(client, select.POLLRDHUP)
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if gone.poll(0):
                raise
            time.sleep(_POLL_SECONDS)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copies bytes until either side ends, then ends both."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    try:
        while True:
            count = source.recv_into(buffer)
            if count == 0:
                break
            sink.sendall(buffer[:count])
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
