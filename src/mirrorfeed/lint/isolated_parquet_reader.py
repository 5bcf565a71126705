"""Read Parquet files of any publisher in a child process with limits on time and memory.

On a damaged file, the Parquet library can abort its process, run forever, or allocate unlimited memory. The child
(`serve`) opens no data files, but requests bytes of the file from the parent. The child returns its result as JSON, so
a response cannot run code in the parent.
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import asdict
from threading import Timer
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from mirrorfeed.errors import TransientError, problem
from mirrorfeed.lint.duplicate_keys import KeyIndex
from mirrorfeed.lint.file_rules import UNREADABLE, UNSAFE
from mirrorfeed.lint.landing_zone import Contents, Unreadable
from mirrorfeed.lint.specification import TRUNCATED

_SECONDS = 60.0
"""Time limit of the child for an empty file, in seconds. Larger files get more, and waiting does not count."""
_BYTES_PER_SECOND = 10 << 20
"""Minimum speed of the child, in bytes per second. The file's size divided by the speed is added to the time limit."""
_KEY_BYTES_PER_SECOND = 1 << 20
"""Minimum speed of the child, in bytes per second, if it also sends keys."""
_MAX_PART = 1 << 20
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables that limit the child to one thread. Each thread uses part of the limited address space."""
_MAX_ANSWER_BYTES = 64 << 20
_PROGRAM = "from mirrorfeed.lint.isolated_parquet_reader import serve; serve()"
_MEMORY = 4 << 30
_PART = 256 << 10
_RULES = (TRUNCATED, UNREADABLE, UNSAFE)
"""Rules that a finding of the child may have."""
_ANSWER: TypeAdapter[Contents | Unreadable] = TypeAdapter(Contents | Unreadable)


class IsolatedParquetReader:
    """Reads Parquet files in a child process. Context manager that ends the child process on exit.

    Starts a child process for the first file and after each crash.
    """

    def __init__(self, seconds: float = _SECONDS, program: str = _PROGRAM) -> None:
        self._seconds, self._program = seconds, program
        self._child: subprocess.Popen[bytes] | None = None
        self._left = 0.0

    def __enter__(self) -> IsolatedParquetReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def read(
        self,
        file: BinaryIO,
        size: int,
        keys: tuple[str, ...],
        required: frozenset[str] = frozenset(),
        index: KeyIndex | None = None,
    ) -> Contents | Unreadable:
        """Return column names, column types and counts of a file, or the reason why the file cannot be read.

        `size` is the size of the file in bytes. Counts the rows, the row markers, and the NULLs in the columns `keys`
        and `required`. If `index` is set, adds the keys of the rows to `index`. After each call with an `index`, the
        caller must call `index.end`. Raises `parquet_reader_not_started` if the child process cannot start.
        """
        is_new, child = self._child is None, self._child or self._start()
        seconds = self._left = self._seconds + size / (_KEY_BYTES_PER_SECOND if index else _BYTES_PER_SECOND)
        if index:
            index.discard()
        try:
            request = {
                "size": size,
                "keys": keys,
                "required": sorted(required),
                "key_rows": bool(index),
                "seconds": int(seconds) + 1,
            }
            data = json.dumps(request).encode() + b"\n"
            while True:
                line = self._exchange(child, data)
                try:
                    match json.loads(line):
                        case [int(offset), int(length)]:
                            pass
                        case {"key_rows": str(rows)} if index:
                            index.add(b64decode(rows))
                            data = b""
                            continue
                        case answer:
                            contents = _ANSWER.validate_python(answer)
                            if isinstance(contents, Unreadable) and contents.rule not in _RULES:
                                raise ValueError("the rule is unknown")
                            return contents
                except (ValueError, struct.error):
                    unsafe = Unreadable(UNSAFE, self._stop())
                    # Maybe an earlier file caused the crash of an old child, so a new child reads the file again.
                    return unsafe if is_new else self.read(file, size, keys, required, index)
                file.seek(min(max(offset, 0), size))
                part = file.read(min(max(length, 0), _MAX_PART))
                data = len(part).to_bytes(8, "big") + part
        except BaseException:  # the child is still waiting for bytes of this file
            self._stop()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", self._program],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | _ONE_THREAD,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # messages of the library can contain values of the file
            )
        except OSError as error:
            raise parquet_reader_not_started(reason=error.strerror or str(error)) from error
        self._left = _SECONDS
        if self._exchange(self._child, b"") != b"ready\n":
            raise parquet_reader_not_started(reason=self._stop())
        return self._child

    def _exchange(self, child: subprocess.Popen[bytes], data: bytes) -> bytes:
        """Send `data` to the child and return the next line of its output.

        Kills the child if the line does not arrive in time. After a kill or a crash, the line is empty or incomplete.
        """
        assert child.stdin
        assert child.stdout
        started = time.monotonic()
        timer = Timer(max(0.0, self._left), child.kill)
        timer.start()
        try:
            with suppress(OSError):  # the child ended before it read all of the data
                child.stdin.write(data)
                child.stdin.flush()
            return child.stdout.readline(_MAX_ANSWER_BYTES)
        finally:
            timer.cancel()
            self._left -= time.monotonic() - started

    def _stop(self) -> str:
        """Kill the child if it still runs. Return how it ended, as text for a finding, or "" if there is no child."""
        child, self._child = self._child, None
        if child is None:
            return ""
        child.kill()
        child.communicate()
        code = child.returncode
        if self._left <= 0 or code == -signal.SIGXCPU:
            return "reading it takes too long"
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"reading it ends the process with {ended}"


def serve() -> None:
    """Process the requests of `IsolatedParquetReader` in its child process, until standard input ends."""
    from mirrorfeed.lint.file_contents import read_parquet  # slow to import

    _limit("RLIMIT_AS", _MEMORY)
    _limit("RLIMIT_CORE", 0)  # a core file would contain rows
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        request = json.loads(line)
        # The parent ends slow requests. This limit is for a child whose parent was killed.
        _limit("RLIMIT_CPU", int(time.process_time()) + request["seconds"])
        file = io.BufferedReader(_Remote(requests, answers, request["size"]), _PART)

        def emit(rows: bytes) -> None:
            answers.write(json.dumps({"key_rows": b64encode(rows).decode()}).encode() + b"\n")

        keys, required = tuple(request["keys"]), frozenset(request["required"])
        contents = read_parquet(file, request["size"], keys, required, emit if request["key_rows"] else None)
        answers.write(json.dumps(asdict(contents), default=list).encode() + b"\n")
        answers.flush()


class _Remote(io.RawIOBase):
    """File object that requests its bytes from the parent process."""

    def __init__(self, answers: BinaryIO, requests: BinaryIO, size: int) -> None:
        self._answers, self._requests, self._size, self._at = answers, requests, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if self._at < 0:
            raise OSError("the offset is negative")
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._requests.write(json.dumps([self._at, len(buffer)]).encode() + b"\n")
        self._requests.flush()
        length = int.from_bytes(self._answers.read(8), "big")
        buffer[:length] = self._answers.read(length)
        self._at += length
        return length


def _limit(name: str, maximum: int) -> None:
    """Set the limit `name` of this process to `maximum`, unless the operating system has no such limit."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (maximum if hard == resource.RLIM_INFINITY else min(maximum, hard), hard))


@problem(TransientError, "MF1011")
def parquet_reader_not_started(*, reason: str) -> None:
    """The process that reads Parquet files cannot start: {reason}.

    Free memory, or increase the limit on processes, and run `mirrorfeed lint` again.
    """
