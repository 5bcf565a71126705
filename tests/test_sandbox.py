"""What a process in `fixtures.sandbox` can do. `tests/e2e/test_serverless.py` runs Spark in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are made of what Linux has")
ROOT = Path(__file__).parent.parent
MEMORY = 2**28
CODE = """
import ctypes, json, mmap, os, resource, subprocess, sys, threading
LIBC = ctypes.CDLL(None, use_errno=True)

def called(answer):
    if answer == -1:
        raise OSError(ctypes.get_errno(), "")
    return answer

def written(path):
    with open(path, "w") as file:
        return file.write("new")

def in_thread():
    said = []
    thread = threading.Thread(target=lambda: said.append("ran"))
    thread.start()
    thread.join()
    return said[0]

found = {}
for name, attempt in ATTEMPTS.items():
    try:
        found[name] = repr(eval(attempt))
    except BaseException as error:
        found[name] = type(error).__name__
print(json.dumps(found))
"""
MIB = 2**20
ATTEMPTS = {
    "cutting a file": ("os.truncate('read/file', 0)", "PermissionError"),
    "emptying a file": ("os.open('read/file', os.O_RDONLY | os.O_TRUNC)", "PermissionError"),
    "writing a file": ("written('read/file')", "PermissionError"),
    "writing elsewhere": ("written('file')", "PermissionError"),
    "reading elsewhere": ("open('file').read()", "PermissionError"),
    "reading": ("open('read/file').read()", "'kept'"),
    "writing": ("written('own/file')", "3"),
    "memory as a device": ("written('/dev/shm/mirrorfeed')", "PermissionError"),
    "no device": ("written('/dev/null')", "3"),
    "chance": ("len(os.urandom(5) + open('/dev/urandom', 'rb').read(5))", "10"),
    "memory": (f"len(bytearray({MEMORY}))", "MemoryError"),
    "less memory": (f"len(bytearray({MEMORY // 2}))", str(MEMORY // 2)),
    "more memory": ("resource.setrlimit(resource.RLIMIT_DATA, (2**40, 2**40))", "ValueError"),
    "shared memory": (f"len(mmap.mmap(-1, {MIB}))", "PermissionError"),
    "private memory": (f"len(mmap.mmap(-1, {MIB}, mmap.MAP_PRIVATE))", str(MIB)),
    "shared memory of a file": (f"len(mmap.mmap(os.open('/dev/zero', os.O_RDWR), {MIB}))", "PermissionError"),
    "shared memory without a name": ("os.memfd_create('mirrorfeed')", "PermissionError"),
    "shared memory of a segment": (f"called(LIBC.shmget(0, {MIB}, 0o1600))", "PermissionError"),
    "a child": ("os.fork() or os._exit(0)", "PermissionError"),
    "a command": ("subprocess.run(['true'])", "PermissionError"),
    "a thread": ("in_thread()", "'ran'"),
    "a ring of calls": ("called(LIBC.syscall(425, 8, ctypes.create_string_buffer(200)))", "PermissionError"),
    "a socket": ("__import__('socket').socket()", "PermissionError"),
    "a socket of this machine": ("__import__('socket').socket(1).family.name", "'AF_UNIX'"),
    "the environment of the parent": (f"open('/proc/{os.getpid()}/environ').read()", "PermissionError"),
    "the memory of the parent": (f"called(LIBC.process_vm_readv({os.getpid()}, 0, 0, 0, 0, 0))", "PermissionError"),
    "a secret of the parent": ("os.environ['HIDDEN_SECRET']", "KeyError"),
    "the processors": ("'processor' in open('/proc/cpuinfo').read()", "True"),
}
if os.uname().machine == "x86_64":
    ATTEMPTS["a socket in other words"] = ("called(LIBC.syscall(2**30 + 41, 2, 1, 0))", "PermissionError")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("wall")
    for folder in ("own", "read"):
        (place / folder).mkdir()
    for file in ("file", "read/file"):
        (place / file).write_text("kept")
    code = CODE.replace("ATTEMPTS", repr({name: attempt for name, (attempt, _) in ATTEMPTS.items()}))
    opened = "\n".join([f"{place}/own", f"{place}/read", str(ROOT / ".venv")])
    wall = {"WALL_PYTHON": sys.executable, "WALL_OPEN": opened, "WALL_MEMORY": str(MEMORY), "HIDDEN_SECRET": "x"}
    answer = subprocess.run(
        [sys.executable, str(ROOT / "fixtures/sandbox.py"), "-c", code],
        env=os.environ | wall,
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, str] = json.loads(answer.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("what", ATTEMPTS)
def test_sandboxed_process_cannot_leave_the_sandbox(found: dict[str, str], what: str) -> None:
    _, answer = ATTEMPTS[what]
    assert found[what] == answer
