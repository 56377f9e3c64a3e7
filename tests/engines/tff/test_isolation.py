# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Who reaches a server behind each barrier; the server asks nobody, as TFF's does."""

import contextlib
import errno
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from dpfl import launcher
from dpfl.engines.tff import isolation
from tests import forks
from tests.refusals import names, refuses

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIRST_WORDS = b"anybody may come in"
# Listens on every address, as gRPC does: a trial of the loopback address, then [::].
SERVER = """
import select, socket, sys
with socket.socket(socket.AF_INET6) as trial:
    trial.bind(("::1", 0))
server = socket.socket(socket.AF_INET6)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(("::", int(sys.argv[-1].split("=")[1])))
server.listen()
while True:
    select.select([server], [], [])
    connection, _ = server.accept()
    connection.sendall(b"anybody may come in")
    while (data := connection.recv(65536)):
        connection.sendall(data)
"""
NOBODY = 65534
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")


def command(code, *arguments):
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def connect(target):
    """A connection to a target as gRPC writes it."""
    if target.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(target[len("unix:") :])
        return connection
    host, port = target.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def first_words(isolated):
    """The server's first words, which are waited for."""
    while isolated.process.poll() is None:
        isolated.attend(0.02)
        with (
            contextlib.suppress(ConnectionRefusedError),
            connect(isolated.target) as connection,
        ):
            while isolated.process.poll() is None:
                isolated.attend(0.02)
                # Not select(), which knows no descriptor above 1023.
                poll = select.poll()
                poll.register(connection, select.POLLIN)
                if poll.poll(0):
                    return connection.recv(100)
    raise AssertionError("the server does not answer")


@contextlib.contextmanager
def running(kind, code=SERVER, *arguments, log_path=None):
    program = command(code, *arguments)
    with isolation.started(program, dict(os.environ), kind, log_path) as isolated:
        assert first_words(isolated) == FIRST_WORDS
    with contextlib.closing(isolated):
        yield isolated


@contextlib.contextmanager
def launched(*program):
    """A server that is left alone once it has been launched."""
    with contextlib.closing(isolation.Isolated("socket")) as isolated:
        isolated.launch(program, dict(os.environ), subprocess.DEVNULL)
        yield isolated


def leave(isolated):
    """Ends the supervision of a server."""
    isolated._forget_notifications()


@pytest.fixture
def protected():
    with running("socket") as isolated:
        yield isolated


def python(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(code, *arguments):
    """What a program of Python prints, which must succeed."""
    process = python(code, *arguments)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


def addresses():
    """The machine's addresses besides 127.0.0.1 and ::1."""
    found = {"127.0.0.2"}
    for addresses in psutil.net_if_addrs().values():
        for entry in addresses:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                found.add(entry.address)
    return sorted(found - {"127.0.0.1", "::1"})


def reached(host, port):
    try:
        with socket.create_connection((host, port)) as connection:
            return connection.recv(100) == FIRST_WORDS
    except OSError:
        return False


def test_no_address_of_the_machine_answers(protected):
    assert protected.port is None
    hosts = ("127.0.0.1", "::1", *addresses())
    assert not any(reached(host, 8000) for host in hosts)


def test_the_bare_server_is_reached_at_every_address():
    # What the tests above would see without a barrier.
    with running("anyone_can_connect") as isolated:
        assert reached("127.0.0.1", isolated.port) and reached("::1", isolated.port)
        assert all(
            reached(host, isolated.port)
            for host in addresses()
            if not host.startswith("fe80")
        )
        assert isolation.listening(isolated.process.pid) == [("::", isolated.port)]


@is_root
def test_other_users_cannot_connect(protected):
    code = """
import os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
for target in sys.argv[2:]:
    is_path = target.startswith("/")
    connection = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
    try:
        connection.connect(target if is_path else ("127.0.0.1", int(target)))
        print(connection.recv(100).decode())
    except OSError as error:
        print(type(error).__name__)
"""
    path = protected.target[len("unix:") :].replace("self", str(os.getpid()))
    said = printed(code, str(NOBODY), path, "8000").splitlines()
    assert said == ["PermissionError", "ConnectionRefusedError"]


def test_leaves_no_file_or_descriptor(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    with running("socket"):
        assert not list(tmp_path.iterdir())
    with running("anyone_can_connect"):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_long_temporary_directory_is_supported(tmp_path, monkeypatch):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with running("socket"):
        pass


def test_bind_is_blocked_after_startup(tmp_path):
    # The first connection is that of the start; half a second later it is over.
    code = SERVER.replace(
        "while (data",
        "__import__('time').sleep(0.5)\n"
        "    late = socket.socket()\n"
        "    try:\n        late.bind(('', 0))\n"
        "    except OSError as error:\n"
        "        open(sys.argv[1], 'w').write(str(error.errno))\n"
        "    while (data",
    )
    path = tmp_path / "errno"
    with running("socket", code, str(path)):
        forks.until(lambda: path.exists() and path.read_text())
    assert int(path.read_text()) == errno.ENOSYS


def test_worker_listening_on_other_address_is_killed(monkeypatch):
    looked_at = []

    def listening(pid):
        looked_at.append(pid)
        return [("::", 8000)]

    monkeypatch.setattr(isolation, "listening", listening)
    with refuses(isolation.IsolationError, 8000):
        with running("socket"):
            pass
    assert not psutil.pid_exists(looked_at[0])


# Forbids a system call to a process and its children, as a container's profile does.
FORBID = """
import ctypes, struct, sys
kind, number = sys.argv[1], int(sys.argv[2])
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
steps.append((0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(
    b"".join(struct.pack("=HBBI", *step) for step in steps)
)
program = ctypes.create_string_buffer(
    struct.pack("@HP", len(steps), ctypes.addressof(code))
)
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
from dpfl.engines.tff import isolation
from tests.engines.tff import test_isolation
try:
    with test_isolation.running(kind) as isolated:
        print(isolated.isolation)
except isolation.IsolationError as error:
    print(error)
"""
SECCOMP = 317


def forbidding(number, kind):
    return printed(FORBID, kind, str(number))


def test_forbidden_isolation_is_refused_and_not_replaced():
    said = forbidding(SECCOMP, "socket")
    assert said.count("\n") == 1
    parts = "seccomp", "Operation not permitted"
    assert names(said, "isolation", "socket", "anyone_can_connect", *parts)


def test_the_risk_can_be_accepted():
    assert forbidding(SECCOMP, "anyone_can_connect") == "anyone_can_connect\n"


def test_legacy_32_bit_system_calls_are_blocked():
    # int 0x80 on x86-64 calls bind() as number 361 of the 32-bit table.
    code = (
        "import ctypes, mmap\n"
        "m = mmap.mmap(-1, 4096, prot=7)\n"
        "m.write(bytes.fromhex('b869010000 cd80 c3'))\n"
        "f = ctypes.CFUNCTYPE(ctypes.c_long)\n"
        "f(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\n"
    )
    with launched(*command(code)) as isolated:
        assert isolated.process.wait() == -signal.SIGSYS


def test_a_wrong_isolation_is_named():
    with refuses(ValueError, "isolation", "none"), running("none"):
        pass


def test_launcher_without_its_parent_starts_nothing():
    arguments = launcher.ends_with_parent(["/bin/echo", "ran"])
    arguments[arguments.index(str(os.getpid()))] = "1"
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert "parent" in done.stderr


LAUNCHING = """
import subprocess
from dpfl import launcher
child = subprocess.Popen(launcher.ends_with_parent(["/bin/sleep", "10000"]))
print(child.pid, flush=True)
child.wait()
"""


def test_child_ends_when_parent_is_killed():
    parent = python(LAUNCHING)
    pid = int(parent.stdout.readline())
    time.sleep(0.3)
    assert not forks.has_ended(pid)
    parent.kill()
    parent.wait()
    forks.until(lambda: forks.has_ended(pid))


def test_launcher_passes_arguments_and_exit_code():
    command = launcher.ends_with_parent(
        ["/bin/sh", "-c", 'echo "$0 $1"; exit 3', "a b"]
    )
    done = subprocess.run([*command, "c"], capture_output=True, text=True, check=False)
    assert done.stdout == "a b c\n"
    assert done.returncode == 3
