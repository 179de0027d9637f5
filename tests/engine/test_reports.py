"""Reports come back with the results of tasks, and one that is lost is no partition without rows."""

from __future__ import annotations

import base64
import os
import pickle

import pyarrow as pa
import pytest

from headrace.algebra.spine import RunFile, Spine
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs import reports
from headrace.execution.engine.jobs.reports import (
    Note,
    TaskReports,
    in_this_process,
    leave_nothing,
    leave_report,
    write_run_of,
)
from headrace.execution.runtime.attempt import Widths
from headrace.execution.runtime.step import Report, Step
from headrace.types import ArrangementId

A = ArrangementId("a")
RUN = RunFile("run-1.arrow", 0, 1, 4, "c", 0, 0)


def report(partition, operator="sum", runs=None):
    return Report(operator, partition, runs or {}, 1, 1, 0, 0.1)


def note(given):
    return Note(given.operator, "there", given)


def refusal(call):
    with pytest.raises(HeadraceError) as refused:
        call()
    return refused.value


def test_a_lost_report_fails_the_attempt():
    notes = [note(report(1)), Note("sum", "there"), note(report(0, "join")), note(report(2))]
    with_all = reports.reports_in(notes, ["sum"], 3)
    assert [(r.operator, r.partition) for r in with_all] == [("join", 0), ("sum", 1), ("sum", 2)]
    for lost in (notes[:3], notes[2:], []):
        error = refusal(lambda lost=lost: reports.reports_in(lost, ["sum"], 3))
        assert error.code is Code.UNAVAILABLE
        assert 'of 3 reports of operator "sum" were lost' in error.primary


def test_an_operator_that_ran_twice_in_a_partition_fails_the_attempt():
    twice = [note(report(0)), note(report(1)), note(report(1))]
    assert refusal(lambda: reports.reports_in(twice, ["sum"], 2)).code is Code.UNAVAILABLE
    # A task that reports what it found by partition, as often as it found something.
    assert refusal(lambda: reports.reports_in(twice, [], 2)).code is Code.INTERNAL


def test_a_run_that_the_driver_does_not_see_fails_the_attempt(tmp_path):
    notes = [Note("sum", "there"), note(report(0, runs={A: RUN}))]
    missing = refusal(lambda: reports.require_seen(tmp_path, notes))
    assert missing.code is Code.UNAVAILABLE
    assert 'Host "there" wrote' in missing.detail
    assert "same contents" in missing.hint
    (tmp_path / RUN.pack).write_bytes(b"123")
    assert "3 of its 4 bytes" in refusal(lambda: reports.require_seen(tmp_path, notes)).detail
    (tmp_path / RUN.pack).write_bytes(b"1234")
    reports.require_seen(tmp_path, notes)


class Context:
    """Both ends in one process: the driver's context, and that of a task."""

    def __init__(self):
        self.properties = {}
        self.sparkContext = self

    def accumulator(self, value, param):
        return _Accumulator((value, param))

    def getLocalProperty(self, name):  # noqa: N802  (Spark's name)
        return self.properties.get(name)


class _Accumulator:
    """Adds to what it was made for, also after it was pickled."""

    known = ()

    def __init__(self, known):
        type(self).known = known

    def __reduce__(self):
        return _Accumulator._again, ()

    @staticmethod
    def _again():
        return object.__new__(_Accumulator)

    def add(self, sent):
        value, param = self.known
        sent = pickle.dumps(param.addInPlace(param.zero(value), sent))
        param.addInPlace(value, pickle.loads(sent))  # noqa: S301


def test_notes_reach_the_step_that_awaits_them_and_late_ones_are_discarded(tmp_path, monkeypatch):
    context = Context()
    driver = TaskReports(context)
    assert base64.b64decode(driver.address)
    monkeypatch.setattr(reports.TaskContext, "get", lambda: context)
    assert "outside of a step" in refusal(lambda: leave_nothing("sum")).primary
    steps = [Step(f"attempt {i}", tmp_path, 1, {}, {}) for i in range(2)]
    context.properties |= {reports.NOTES: driver.address}
    with driver.awaited() as first, driver.awaited() as second:
        context.properties[reports.JOB] = first.job
        leave_report(report(0, runs={A: RUN}))
        context.properties[reports.JOB] = second.job
        leave_nothing("sum")
    leave_report(report(1))
    assert [each.report for each in first.notes] == [report(0, runs={A: RUN})]
    assert [(each.task, each.report) for each in second.notes] == [("sum", None)]
    with in_this_process(steps[0]) as found:
        leave_report(report(0))
        leave_nothing("join")
    assert found == [report(0)]


def test_a_step_in_this_process_has_one_pack_that_is_synced_once_and_goes_if_the_step_fails(
    tmp_path, monkeypatch
):
    layout = Layout(("k",), pa.schema([("k", pa.int64())]), pa.schema([(WEIGHT, pa.int64())]))
    step = Step("attempt", tmp_path, 1, {}, {})
    runs = step.runs_directory
    runs.mkdir()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))

    def rows(*keys):
        table = pa.table({HASH: keys, "k": keys, WEIGHT: [1] * len(keys)})
        return ZSet(layout, table.cast(layout.schema))

    with in_this_process(step):
        files = [write_run_of(step, rows(1)), write_run_of(step, rows(2, 3))]
        found = Spine.open(runs, layout, files)
        assert found.rows_upper_bound == 3, "read by the same step"
        assert synced == []
    (pack,) = runs.iterdir()
    assert {file.pack for file in files} == {pack.name}
    assert synced[0] == pack.stat().st_size
    assert len(synced) == 2, "the pack and its directory"
    with in_this_process(step):
        pass
    assert len(synced) == 2, "a step without runs has no file"

    def fails():
        with in_this_process(step):
            write_run_of(step, rows(4))
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert list(runs.iterdir()) == [pack]
    assert write_run_of(step, rows(5)).pack != pack.name


@pytest.mark.spark
def test_an_epoch_whose_report_is_lost_is_made_again_and_loses_no_row(db, monkeypatch):
    monkeypatch.setattr(db.parts.loop, "widths", Widths(0))
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1)")
    whole, lost = reports._Inbox.extend, []

    def losing(inbox, sent):
        if not lost:
            lost.extend(sent)
        else:
            whole(inbox, sent)

    monkeypatch.setattr(reports._Inbox, "extend", losing)
    db.flush()
    assert lost
    assert db.sql("SELECT * FROM m").fetchall() == [(1, 2)]
    runs = {path.name for path in (db.directory / "runs").iterdir()}
    assert runs == set(db.parts.ledger.files.known().packs)  # those of the failed attempt are gone
