"""Which Java Spark is started with, and the archive of its classes."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs import session
from headrace.execution.engine.jobs.java import ClassArchive, Java, find_java
from headrace.execution.engine.jobs.lease import SparkSettings
from headrace.execution.engine.jobs.session import start_spark
from headrace.interfaces.settings import Settings

JARS = Path(pyspark.__file__).parent / "jars"


def fake(folder, told: str):
    """Put a Java that tells a version into a folder, as ``bin/java``."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)


def java(*arguments: str) -> subprocess.CompletedProcess[str]:
    home = find_java().home
    return subprocess.run(
        ["java" if home is None else str(home / "bin" / "java"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_bundled_java_takes_the_place_of_a_missing_one(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    home = find_java().home
    assert home is not None
    started = subprocess.run(
        ["/bin/sh", home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    assert "version" in started.stderr


def test_an_old_java_is_passed_over(monkeypatch, tmp_path):
    fake(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    home = find_java().home
    assert home is not None
    assert home != tmp_path


def test_a_java_that_is_new_enough_is_used(monkeypatch, tmp_path):
    fake(tmp_path, 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().home is None


def test_one_jvm_archives_its_classes_and_the_next_maps_them(tmp_path):
    archive = ClassArchive.of(find_java(), tmp_path / "not there yet")
    if archive is None:
        pytest.skip("this Java has no archive of its own classes, which others are over")
    program = ("-cp", str(next(JARS.glob("spark-launcher*.jar"))), "org.apache.spark.launcher.Main")
    assert not archive.there
    first = java(*archive.options(), *program)
    assert archive.there
    second = java(*archive.options(), "-Xlog:class+load=info:stdout", *program)
    loaded = [line for line in second.stdout.splitlines() if "spark.launcher.Main " in line]
    assert "shared objects file (top)" in loaded[0]
    assert first.returncode == second.returncode
    assert first.stderr == second.stderr  # nothing but the program's own words
    with archive.file.open("r+b") as file:
        file.truncate(archive.file.stat().st_size // 2)
    damaged = java("-XX:ErrorFile=/dev/null", *archive.options(), *program)
    assert damaged.returncode < 0, "it dies before it does anything"


def test_each_java_and_spark_has_an_archive_of_its_own(tmp_path):
    told = ["17 (mixed mode, sharing)", "21 (mixed mode, sharing)"]
    archives = {ClassArchive.of(Java(None, each), tmp_path) for each in told}
    assert len(archives) == 2
    assert None not in archives


def test_archives_that_are_not_used_for_a_month_are_deleted(tmp_path):
    used, left, new = (
        ClassArchive.of(Java(None, f"{version} (sharing)"), tmp_path) for version in (17, 21, 25)
    )
    assert used is not None and left is not None and new is not None  # noqa: PT018
    long_ago = time.time() - 31 * 24 * 60 * 60
    for archive in (used, left):
        archive.file.write_bytes(b"classes")
        os.utime(archive.file, (long_ago, long_ago))
    used.options()
    assert left.there
    new.options()
    assert used.there
    assert not left.there


def test_of_many_archives_the_last_used_are_kept(tmp_path):
    made = [ClassArchive.of(Java(None, f"{i} (sharing)"), tmp_path) for i in range(12)]
    now = time.time()
    for age, archive in enumerate(made):
        archive.file.write_bytes(b"classes")
        os.utime(archive.file, (now - age, now - age))
    ClassArchive.of(Java(None, "new (sharing)"), tmp_path).options()
    assert [archive.there for archive in made] == [True] * 8 + [False] * 4


def test_a_java_without_sharing_has_no_archive(tmp_path):
    assert ClassArchive.of(Java(None, "17 (mixed mode)"), tmp_path) is None


def test_a_folder_that_cannot_be_made_is_no_hindrance(tmp_path):
    (tmp_path / "file").write_text("")
    assert ClassArchive.of(Java(None, "sharing"), tmp_path / "file" / "folder") is None


@pytest.mark.parametrize("starts", [True, False])
def test_an_archive_without_which_spark_starts_is_deleted(monkeypatch, tmp_path, starts):
    archive = ClassArchive.of(Java(None, "sharing"), tmp_path)
    assert archive is not None
    archive.file.write_bytes(b"damaged")
    tried = []

    def started(_settings, _scratch, flags):
        tried.append(flags)
        if flags or not starts:
            raise HeadraceError(Code.UNAVAILABLE, "Spark could not be started")
        return "spark"

    monkeypatch.setattr(session, "_started", started)
    monkeypatch.setattr(session, "_start_workers", lambda _spark: None)
    monkeypatch.setattr(session, "find_java", lambda: Java(None, "sharing"))
    settings = SparkSettings("local[1]", 1, "1g", tmp_path)
    if starts:
        assert start_spark(settings) == "spark"
    else:
        with pytest.raises(HeadraceError, match="could not be started"):
            start_spark(settings)
    assert [bool(flags) for flags in tried] == [True, False]
    assert archive.file.exists() != starts


def test_the_archive_is_in_the_users_cache_unless_another_folder_or_none_is_set(tmp_path):
    user = {"XDG_CACHE_HOME": str(tmp_path)}
    assert Settings.of({}, user).spark.cache == tmp_path / "headrace"
    assert Settings.of({}, {"XDG_CACHE_HOME": "not/absolute"}).spark.cache.is_absolute()
    assert Settings.of({}, {**user, "HEADRACE_CACHE": "/elsewhere"}).spark.cache == Path(
        "/elsewhere"
    )
    assert Settings.of({"cache": "none"}, user).spark.cache is None


def test_with_few_partitions_one_thread_collects_garbage_in_a_small_heap():
    flags = {n: SparkSettings("", n, "2g", flags=("-Xlog:gc",)).driver_flags for n in (1, 2, 3, 8)}
    assert "-XX:+UseSerialGC" in flags[2]
    assert flags[1] == flags[2] != flags[3] == flags[8]
    assert all(each[-1] == "-Xlog:gc" for each in flags.values())
    assert all(sum(flag.endswith("GC") for flag in each) == 1 for each in flags.values())
