"""The databases of a process share one Spark, which the last one to close stops."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from headrace.engine.jobs import session
from headrace.engine.jobs.session import SparkLease


@pytest.fixture
def process(monkeypatch):
    """A process whose Spark is made of names: it starts one, or joins the one that runs."""
    monkeypatch.setattr(session, "_LEASES", session._Leases())
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    stopped = []

    def start(_settings=None):
        if SparkContext._active_spark_context is None:
            name = f"application {len(stopped)}"
            SparkContext._active_spark_context = SimpleNamespace(applicationId=name)
        return SimpleNamespace(sparkContext=SparkContext._active_spark_context, stop=stop)

    def stop():
        stopped.append(SparkContext._active_spark_context.applicationId)
        SparkContext._active_spark_context = None

    monkeypatch.setattr(session, "start_spark", start)
    return SimpleNamespace(start=start, stopped=stopped)


def test_the_last_database_to_close_stops_the_spark_that_one_has_started(process):
    first, second = SparkLease.of(None, None), SparkLease.of(None, None)
    assert first.started
    first.release()
    assert process.stopped == []
    third = SparkLease.of(None, None)
    second.release()
    assert process.stopped == []
    third.release()
    assert process.stopped == ["application 0"]
    SparkLease.of(None, None).release()
    assert process.stopped == ["application 0", "application 1"]


def test_a_spark_of_the_program_is_never_stopped(process):
    theirs = process.start()
    joined = SparkLease.of(None, None)
    given = SparkLease.of(theirs, None)
    joined.release()
    given.release()
    assert not joined.started
    assert process.stopped == []
