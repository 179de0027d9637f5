"""The databases of a process share one Spark, which the last one to close stops."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs import lease
from headrace.execution.engine.jobs.lease import SparkLease
from headrace.execution.runtime.cancelling import Cancellation
from waiting import until


@pytest.fixture
def process(monkeypatch):
    """A process whose Spark is made of names: it starts one, or joins the one that runs."""
    monkeypatch.setattr(lease, "_LEASES", lease._Leases())
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    stopped = []

    def start():
        if SparkContext._active_spark_context is None:
            name = f"application {len(stopped)}"
            SparkContext._active_spark_context = SimpleNamespace(applicationId=name)
        return SimpleNamespace(sparkContext=SparkContext._active_spark_context, stop=stop)

    def stop():
        stopped.append(SparkContext._active_spark_context.applicationId)
        SparkContext._active_spark_context = None

    def leased():
        made = SparkLease(start)
        assert made.session is made.running
        return made

    return SimpleNamespace(start=start, stopped=stopped, leased=leased)


def test_the_last_database_to_close_stops_the_spark_that_one_has_started(process):
    first, second = process.leased(), process.leased()
    first.release()
    assert process.stopped == []
    third = process.leased()
    second.release()
    assert process.stopped == []
    third.release()
    assert process.stopped == ["application 0"]
    process.leased().release()
    assert process.stopped == ["application 0", "application 1"]


def test_a_spark_of_the_program_is_never_stopped(process):
    theirs = process.start()
    joined = process.leased()
    given = SparkLease.of(theirs)
    joined.release()
    given.release()
    assert process.stopped == []


def test_spark_is_not_started_for_a_database_that_does_not_need_it():
    def start():
        raise AssertionError

    unused = SparkLease(start)
    unused.begin_after(60)
    assert unused.running is None
    unused.release()
    with pytest.raises(HeadraceError, match="the database is closed"):
        unused.session  # noqa: B018


def test_all_who_need_a_spark_that_cannot_be_started_get_the_error(process):
    def fails():
        raise HeadraceError(Code.UNAVAILABLE, "Spark could not be started")

    called = []
    for failing in (SparkLease(fails), SparkLease(process.start, lambda _session: fails())):
        failing.then(lambda: called.append(1))
        for _ in range(2):
            with pytest.raises(HeadraceError, match="could not be started"):
                failing.session  # noqa: B018
        failing.release()
    assert called == []
    assert process.stopped == ["application 0"]


def test_a_spark_that_could_not_be_started_is_started_when_it_is_needed_later(process, monkeypatch):
    problems, called = ["its JVM was killed", None], []

    def start():
        problem = problems.pop(0)
        if problem is not None:
            raise HeadraceError(Code.UNAVAILABLE, problem)
        return process.start()

    leased = SparkLease(start)
    leased.then(lambda: called.append(1))
    for _ in range(2):
        with pytest.raises(HeadraceError, match="its JVM was killed"):
            leased.session  # noqa: B018
    monkeypatch.setattr(lease, "_AGAIN_SECONDS", 0.0)
    assert leased.session is leased.running
    until(lambda: called == [1])
    leased.release()
    assert process.stopped == ["application 0"]


def test_a_statement_that_waits_for_spark_can_be_cancelled_and_closing_ends_its_wait(process):
    begun, go = threading.Event(), threading.Event()

    def slow():
        begun.set()
        go.wait()
        return process.start()

    slowly, cancellation = SparkLease(slow), Cancellation()
    slowly.begin()
    begun.wait()
    with cancellation.statement():
        cancellation.asked = True
        with pytest.raises(HeadraceError, match="cancelled"):
            slowly.session  # noqa: B018
    slowly.close()
    with pytest.raises(HeadraceError, match="the database is closed"):
        slowly.session  # noqa: B018
    go.set()
    slowly.release()
    assert process.stopped == ["application 0"]


def test_all_who_need_a_spark_that_has_ended_get_the_error_and_another_one_can_start(
    process, monkeypatch
):
    monkeypatch.setattr(lease, "_WATCH_SECONDS", 0.01)
    why, seen, forgotten = [None], [], []

    def forget(session):
        forgotten.append(session)
        SparkContext._active_spark_context = None

    def leased():
        return SparkLease(
            process.start, fails=seen.append, why_ended=lambda _: why[0], forget=forget
        )

    first, second = leased(), leased()
    spark = first.session
    assert second.session.sparkContext is spark.sparkContext
    why[0] = "Its JVM was killed by SIGKILL."
    while len(seen) < 2:
        pass
    for each in (first, second):
        assert each.running is None
        with pytest.raises(HeadraceError, match="Spark has ended") as raised:
            each.session  # noqa: B018
        assert raised.value.code is Code.UNAVAILABLE
        assert raised.value.detail == why[0]
    assert sorted(seen, key=id) == sorted([first.lost, second.lost], key=id)
    first.release()
    assert forgotten == []
    second.release()
    assert len(forgotten) == 1
    assert process.stopped == [], "it cannot be asked to stop"
    why[0] = None
    process.leased().release()
    assert process.stopped == ["application 0"]


def test_who_runs_jobs_waits_for_executors_that_fit_and_who_plans_does_not(process):
    go, problems = threading.Event(), ["another version", None]

    def check(_session):
        assert go.wait(30)
        problem = problems.pop(0)
        if problem is not None:
            raise HeadraceError(Code.UNAVAILABLE, problem)

    registered = []
    leased = SparkLease(process.start, check=check, has_executors=lambda _: bool(registered))
    assert not leased.is_ready
    assert leased.session is leased.running
    cancellation = Cancellation()
    with cancellation.statement():
        cancellation.asked = True
        with pytest.raises(HeadraceError, match="cancelled"):
            leased.for_jobs  # noqa: B018
    go.set()
    with pytest.raises(HeadraceError, match="another version"):
        leased.for_jobs  # noqa: B018
    registered.append("an executor of another version")
    assert not leased.is_ready
    assert leased.for_jobs is leased.session, "executors are checked again"
    assert leased.is_ready
    registered.clear()
    assert not leased.is_ready
    assert problems == []
    leased.release()
