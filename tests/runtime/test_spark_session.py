from __future__ import annotations

import os
import pickle
import shlex
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from mirrorfeed.errors import SparkSessionLostError
from mirrorfeed.runtime import spark_session
from mirrorfeed.runtime.errors import (
    install_command,
    java_unusable,
    spark_cache_unusable,
    spark_did_not_start,
    spark_missing,
)
from mirrorfeed.runtime.local_spark import (
    cache_folder,
    cached_jars,
    check_java,
    class_archive_options,
    java_command,
    local_options,
    record_jars,
)
from mirrorfeed.runtime.spark_session import (
    Kind,
    connect_failed,
    get_session,
    kind,
    no_connect_compute,
    renew_session,
)
from tests.raised import raises

RUNTIME = {"DATABRICKS_RUNTIME_VERSION": "17.3"}
REMOTE = {"SPARK_REMOTE": "sc://localhost"}


def find_kind(environment: dict[str, str], connect_installed: bool, connect_configured: bool) -> Kind:
    with pytest.MonkeyPatch.context() as patch:
        for name in (*RUNTIME, *REMOTE):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(spark_session, "_is_connect_installed", lambda: connect_installed)
        patch.setattr(spark_session, "_is_connect_configured", lambda: connect_configured)
        return kind()


@pytest.mark.parametrize(
    ("environment", "connect_installed", "connect_configured", "expected"),
    [
        ({}, False, False, Kind.LOCAL),
        (REMOTE, False, False, Kind.REMOTE),
        (REMOTE, True, False, Kind.REMOTE),
        ({}, True, True, Kind.CONNECT),
        (REMOTE, True, True, Kind.CONNECT),
        (RUNTIME, False, False, Kind.RUNTIME),
        (RUNTIME, True, False, Kind.RUNTIME),
        ({**RUNTIME, **REMOTE}, True, True, Kind.RUNTIME),
        ({"DATABRICKS_RUNTIME_VERSION": "", "SPARK_REMOTE": ""}, False, False, Kind.LOCAL),
    ],
)
def test_session_is_runtime_then_connect_then_local(
    environment: dict[str, str], connect_installed: bool, connect_configured: bool, expected: Kind
) -> None:
    assert find_kind(environment, connect_installed, connect_configured) is expected


def test_databricks_connect_without_compute_is_refused() -> None:
    with raises(no_connect_compute, match=r"no compute is configured.*DATABRICKS_CLUSTER_ID"):
        find_kind({}, connect_installed=True, connect_configured=False)


class _RpcError(Exception):
    def details(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"<_RpcError of RPC that terminated with:\n{self.details()}>"


@pytest.mark.parametrize("kind_of_error", [Exception, _RpcError])
def test_databricks_connect_that_cannot_start_a_session_is_reported(
    monkeypatch: pytest.MonkeyPatch, kind_of_error: type[Exception]
) -> None:
    reason = "Unsupported combination of Databricks Runtime & Databricks Connect versions: 17.3 < 18.3.7"

    class Builder:
        def getOrCreate(self) -> None:
            raise kind_of_error(f"{reason}.")

    def inactive() -> None:
        raise PySparkRuntimeError(errorClass="NO_ACTIVE_SESSION", messageParameters={})

    connect: Any = ModuleType("databricks.connect")
    connect.DatabricksSession = SimpleNamespace(builder=Builder())
    monkeypatch.setitem(sys.modules, "databricks.connect", connect)
    monkeypatch.setattr(SparkSession, "active", inactive)
    monkeypatch.setattr(spark_session, "kind", lambda: Kind.CONNECT)
    with raises(connect_failed, match=reason.replace(".", r"\.")) as caught:
        get_session()
    assert caught.value.facts == {"reason": reason}


@pytest.mark.parametrize(("environment", "expected"), [({}, "2g"), ({"MIRRORFEED_DRIVER_MEMORY": "5g"}, "5g")])
def test_driver_memory_is_environment_then_two_gigabytes(environment: dict[str, str], expected: str) -> None:
    assert local_options(environment)["spark.driver.memory"] == expected


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    at_home = executable(tmp_path / "home/bin/java", "")
    on_path = executable(tmp_path / "bin/java", "")
    assert java_command({"PATH": str(on_path.parent), "JAVA_HOME": str(tmp_path / "home")}) == str(at_home)
    assert java_command({"PATH": str(on_path.parent)}) == str(on_path)


def test_missing_java_is_reported_with_install_instructions() -> None:
    with raises(java_unusable, match=r"there is no Java on PATH\. Install JDK 17 or 21"):
        java_command({"PATH": ""})


def test_java_home_without_java_is_reported_even_with_java_on_path(tmp_path: Path) -> None:
    on_path = executable(tmp_path / "bin/java", "")
    with raises(java_unusable, match=r"no bin/java in JAVA_HOME \(/nowhere\)\. Install JDK"):
        java_command({"PATH": str(on_path.parent), "JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1", "21-ea"])
def test_java_17_and_21_are_accepted(tmp_path: Path, version: str) -> None:
    check_java(str(executable(tmp_path / "java", f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")))


@pytest.mark.parametrize(
    ("version_output", "words"),
    [
        (
            'openjdk version "25.0.3" 2026-04-21 LTS',
            r"Java 17 or 21, but .*java is Java 25\. Install JDK 17 or 21",
        ),
        ('openjdk version "11.0.2" 2019-01-15', r"java is Java 11\."),
        ('java version "1.8.0_402"', r"java is Java 8\."),
        ("Unable to locate a Java Runtime", r"java does not report its version\. Install JDK 17 or 21"),
    ],
)
def test_unsupported_java_is_refused_with_its_release(tmp_path: Path, version_output: str, words: str) -> None:
    with raises(java_unusable, match=words):
        check_java(str(executable(tmp_path / "java", f"echo '{version_output}' >&2")))


def test_jars_are_cached_only_after_a_start(tmp_path: Path) -> None:
    jars = [tmp_path / "jars" / name for name in ("a.jar", "b.jar")]
    jars[0].parent.mkdir()
    for jar in jars:
        jar.touch()
    assert cached_jars(tmp_path) == []
    record_jars(tmp_path)
    assert cached_jars(tmp_path) == jars


def test_jars_are_resolved_again_if_one_is_missing(tmp_path: Path) -> None:
    jar = tmp_path / "jars/a.jar"
    jar.parent.mkdir()
    jar.touch()
    record_jars(tmp_path)
    jar.unlink()
    assert cached_jars(tmp_path) == []


def test_unwritable_cache_is_reported_with_a_fix(tmp_path: Path) -> None:
    assert cache_folder({"MIRRORFEED_CACHE": str(tmp_path / "new")}, ["4.4", "4.2"]) == tmp_path / "new/ivy-4.4-4.2"
    (tmp_path / "file").touch()
    with raises(spark_cache_unusable) as caught:
        cache_folder({"MIRRORFEED_CACHE": str(tmp_path / "file")}, ["4.4", "4.2"])
    assert caught.value.facts == {"folder": f"{tmp_path}/file", "reason": "Not a directory"}


def test_missing_spark_is_reported_with_install_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/a tool/bin/python")
    monkeypatch.setitem(sys.modules, "pip", SimpleNamespace(__spec__=object()))
    assert "`'/a tool/bin/python' -m pip install pyspark==" in str(spark_missing(install=install_command()))
    monkeypatch.setitem(sys.modules, "pip", None)  # as in an environment that uv created
    assert "`uv pip install --python '/a tool/bin/python' pyspark==" in str(spark_missing(install=install_command()))


def test_failed_spark_start_is_reported_with_its_message_and_log() -> None:
    error = spark_did_not_start(log="/c/spark.log", last_words="no space left")
    assert "did not start on this machine: no space left." in str(error)
    assert "See /c/spark.log for the full output." in str(error)
    assert "check that Maven Central can be reached" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_active_session_is_used_unchanged(spark: SparkSession) -> None:
    assert get_session(options={"spark.sql.shuffle.partitions": "77"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_local_session_reads_and_writes_delta(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 3


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files of a process are listed on Linux only")
def test_jvm_output_goes_to_the_log_not_to_standard_output(spark: SparkSession) -> None:
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert [Path(f"/proc/{java}/fd/{number}").readlink().name.split()[0] for number in (1, 2)] == ["spark.log"] * 2


class _Answering:
    def __init__(self, answers: bool) -> None:
        self.answers, self.stopped = answers, False

    def sql(self, _: str) -> _Answering:
        if not self.answers:
            raise ConnectionError("the session is not there any more")
        return self

    def collect(self) -> list[int]:
        return [1]

    def stop(self) -> None:
        self.stopped = True
        raise ConnectionError("nobody is there to be stopped")


class _Remote(_Answering):
    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize("kind", [_Answering, _Remote])
def test_responding_session_is_reused(kind: type[_Answering]) -> None:
    session: Any = kind(True)
    assert renew_session(session) is session


def test_expired_remote_session_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    expired: Any = _Remote(False)
    new = _Remote(True)
    monkeypatch.setattr("mirrorfeed.runtime.spark_session.get_session", lambda: new)
    assert renew_session(expired) is new
    assert expired.stopped


@pytest.mark.parametrize("kind", [_Answering, _Remote])
def test_lost_session_without_a_replacement_is_reported(
    kind: type[_Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrorfeed.runtime.spark_session.get_session", lambda: kind(False))
    lost: Any = kind(False)
    with pytest.raises(SparkSessionLostError, match=r"The Spark session ended: .* Run the same command again"):
        renew_session(lost)
    assert lost.stopped is (kind is _Remote)  # a session of the runtime must not be stopped


def test_jvm_starts_from_a_complete_archive_of_classes_and_otherwise_writes_one(tmp_path: Path) -> None:
    (spark := tmp_path / "spark").mkdir()
    (folder := tmp_path / "a folder").mkdir()

    def option(java: str = "17.0.15") -> tuple[str, Path]:
        name, _, archive = (
            shlex.split(class_archive_options(folder, java, spark))[0].removeprefix("-XX:").partition("=")
        )
        return name, Path(archive)

    name, archive = option()
    assert name == "ArchiveClassesAtExit"
    archive.write_bytes(bytes(8))
    assert option() == ("ArchiveClassesAtExit", archive), "a JVM was killed while it wrote the archive"
    archive.write_bytes(b"\xf0\x0b\xab\xa8")
    assert option() == ("SharedArchiveFile", archive)
    assert option("21.0.1")[0] == "ArchiveClassesAtExit"


def test_archives_that_were_not_used_for_a_month_are_deleted(tmp_path: Path) -> None:
    old, used = tmp_path / "a.jsa", tmp_path / "b.jsa"
    for archive, days in ((old, 31), (used, 29)):
        archive.touch()
        os.utime(archive, (0, time.time() - days * 86_400))
    class_archive_options(tmp_path, "17", tmp_path)
    assert [old.exists(), used.exists()] == [False, True]
