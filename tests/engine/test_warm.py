"""Spark is warmed up while a process waits to take over."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs import session
from headrace.execution.engine.jobs.lease import SparkSettings

SETTINGS = SparkSettings("spark://elsewhere:7077", 2, "1g")
ERROR = HeadraceError(Code.CONFLICT, "it is open elsewhere")


def test_spark_is_warmed_up_once_while_it_is_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed, done = list[SparkSettings](), threading.Event()

    def warm_up(settings: SparkSettings) -> None:
        warmed.append(settings)
        done.set()

    monkeypatch.setattr(session, "warm_up", warm_up)
    monkeypatch.setattr(session, "_AFTER_SECONDS", 0.0)
    for answer, times in ((False, 0), (True, 1)):
        with session.warm_while_waiting(lambda _error, answer=answer: answer, SETTINGS) as waits:
            assert [waits(ERROR), waits(ERROR)] == [answer, answer]
            assert not times or done.wait(30)
        assert warmed == [SETTINGS] * times


def test_spark_is_not_warmed_up_where_it_starts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def warm_up(_settings: SparkSettings) -> None:
        raise AssertionError

    monkeypatch.setattr(session, "warm_up", warm_up)
    with session.warm_while_waiting(lambda _error: True, SETTINGS) as waits:
        assert waits(ERROR)
    for each in threading.enumerate():
        if each.name == "headrace-spark-warm":
            each.join(30)
            assert not each.is_alive()


@pytest.mark.long
def test_a_spark_that_starts_in_a_warm_jvm_has_its_own_settings() -> None:
    script = """
from headrace.execution.engine.jobs.lease import SparkSettings
from headrace.execution.engine.jobs.session import jvm_of, start_spark, warm_up
settings = SparkSettings("local[2]", 3, "1g")
warm_up(settings)
warm_up(settings)
spark = start_spark(settings)
assert spark.sparkContext.master == "local[2]"
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
print(jvm_of(spark).pid, spark.range(5).count())
spark.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[1] == "5"
