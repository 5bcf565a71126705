"""Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirrorfeed.cli import output
from mirrorfeed.cli.output import Interruption
from mirrorfeed.orchestration import follow
from mirrorfeed.orchestration.follow import stop_after
from mirrorfeed.orchestration.scheduler import Clock
from mirrorfeed.source.table_info import commit_name
from tests.support.clock import Time

pytestmark = pytest.mark.process

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("first", SIGNALS)
def test_first_signal_requests_a_stop_and_a_later_interrupt_exits(
    first: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before, codes = [signal.getsignal(each) for each in SIGNALS], list[int]()
    with Interruption(codes.append).handle_signals() as stop:
        stop.defer()
        assert not stop()
        os.kill(os.getpid(), first)
        assert stop()
        Clock().sleep(3600, stop)  # returns immediately
        os.kill(os.getpid(), signal.SIGTERM)
        assert (codes, capfd.readouterr().err.count("Stopping after the current publication.")) == ([], 1)
        os.kill(os.getpid(), signal.SIGINT)
        assert codes == [1]
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_sigterm_ends_a_command_that_does_not_stop_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_GRACE_SECONDS", 0.2)
    codes: list[int] = []
    with Interruption(codes.append).handle_signals() as stop:
        stop.defer()
        os.kill(os.getpid(), signal.SIGTERM)
        Clock().sleep(30, lambda: bool(codes))
        assert codes == [1]
    with Interruption(codes.append).handle_signals() as stop:
        stop.defer()
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)  # the command ended before


@pytest.mark.parametrize("first", SIGNALS)
def test_command_without_safe_stops_exits_at_the_first_signal(first: signal.Signals) -> None:
    codes: list[int] = []
    with Interruption(codes.append).handle_signals():
        os.kill(os.getpid(), first)
    assert codes == [1]


INTERRUPTED = "Interrupted. The next run completes unfinished publications.\n"
STARTING_SPARK = """if True:
    import os, signal, sys, threading, time
    from mirrorfeed.cli import main
    from mirrorfeed.runtime import spark_session
    def handle(*_):
        print("Traceback", file=sys.stderr)
        raise KeyboardInterrupt
    def start():
        if threading.current_thread() is threading.main_thread():  # as Spark does
            signal.signal(signal.SIGINT, handle)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
    spark_session.get_session = start
    main(sys.argv[1:])
    """
SPARK_COMMANDS = (
    ("enable-cdf",),
    ("verify", "--mirror", "mirror"),
    ("publish",),
    ("publish", "--follow"),
    ("rebuild", "a", "--yes"),
    ("repair", "a", "--where", "id = 1", "--source-only"),
    ("changes", "a", "--from", "0"),
    ("doctor",),
    ("archive", "show", "orders"),
)


def _run_in(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "orders/_delta_log").mkdir(parents=True)
    (folder / "orders/_delta_log" / commit_name(0)).write_text("{}\n")  # only Spark can decide what this is
    (folder / "mirrorfeed.yml").write_text("landing_zone: z\ntables: [{source: ./orders, target: a, keys: [id]}]\n")
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("command", SPARK_COMMANDS, ids=" ".join)
def test_interrupt_while_spark_starts_ends_the_command_at_once(command: tuple[str, ...], tmp_path: Path) -> None:
    ended = _run_in(tmp_path, STARTING_SPARK, *command)
    assert (ended.returncode, ended.stderr.count("Traceback")) == (1, 0)
    assert ended.stderr.endswith(INTERRUPTED)
    assert "Stopping" not in ended.stderr


def test_signal_before_or_in_a_part_without_safe_stops_exits() -> None:
    codes: list[int] = []
    with Interruption(codes.append).handle_signals() as stop:
        stop.defer()
        with stop.without_deferral():
            os.kill(os.getpid(), signal.SIGINT)
        assert codes == [1]
        os.kill(os.getpid(), signal.SIGINT)
        assert (codes, stop()) == ([1], True)
        with stop.without_deferral():
            assert codes == [1, 1]


def test_interrupt_raised_by_sparks_handler_exits() -> None:
    codes: list[int] = []

    def interrupted() -> None:
        with Interruption(codes.append).handle_signals():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert codes == [1]


def test_immediate_exit_waits_for_no_thread_and_prints_one_line() -> None:
    code = """if True:
        import os, signal, threading
        from mirrorfeed.cli.output import Interruption
        threading.Thread(target=threading.Event().wait).start()
        with Interruption().handle_signals() as stop:
            stop.defer()
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()
        """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "Stopping after the current publication. Press Ctrl-C again to stop immediately.\nInterrupted. The next run"
        " completes unfinished publications.\n"
    )


def test_interrupt_before_a_command_starts_prints_one_line() -> None:
    code = """if True:
        import os, signal
        from mirrorfeed.cli import main
        main.resolve_command = lambda *given: os.kill(os.getpid(), signal.SIGINT)
        main(["status"])
        """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "Interrupted. The next run completes unfinished publications.\n"


def test_interrupt_while_the_commands_are_imported_prints_one_line() -> None:
    code = """if True:
        import os, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in background jobs
        sys.setprofile(lambda frame, *_: frame.f_globals.get("__name__") == "mirrorfeed.api.errors" and stop())
        def stop():
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGINT)
        import mirrorfeed.cli
        """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "Interrupted.\n")


def test_message_replaces_the_line_of_progress_on_a_terminal() -> None:
    parent_end, child_end = pty.openpty()
    code = """if True:
        import os, signal, sys
        from mirrorfeed.cli.output import Interruption
        sys.stderr.write("Starting Spark"); sys.stderr.flush()
        with Interruption().handle_signals():
            os.kill(os.getpid(), signal.SIGINT)
        """
    subprocess.run([sys.executable, "-c", code], stderr=child_end, timeout=60, check=False)
    output = os.read(parent_end, 1000)
    os.close(parent_end)
    os.close(child_end)
    assert output == b"Starting Spark\x1b[?25h\r\x1b[KInterrupted. The next run completes unfinished publications.\r\n"


def test_other_threads_run_without_a_signal_handler() -> None:
    def publish() -> bool:
        with Interruption().handle_signals() as stop:
            return not stop()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(publish).result()


def test_run_stops_after_its_duration_or_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, requested = Time(100.0), [False]
    monkeypatch.setattr(follow, "time", clock)
    limited = stop_after(2, lambda: requested[0])
    unlimited = stop_after(None, None)
    for clock.now, over in ((100.0, False), (219.9, False), (220.0, True)):
        assert (limited(), unlimited()) == (over, False)
    clock.now, requested[0] = 100.0, True
    assert limited()
