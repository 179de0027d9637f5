"""Runs the tests of files.

The outcomes of tests in the XML of JUnit, which servers for continuous integration read.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, assert_never
from xml.etree import ElementTree as ET

import pyarrow as pa

from headrace.errors import Code, HeadraceError, unexpected
from headrace.io.formats.values import RejectedValueError, from_json
from headrace.planning.catalog import Stream, title
from headrace.planning.sql import Query, parse, parse_statement
from headrace.testing.clock import with_clock
from headrace.testing.comparing import columns_of
from headrace.testing.database import TestDatabase, definitions_of
from headrace.testing.script import (
    EndEpoch,
    ExpectChanges,
    ExpectCount,
    ExpectRows,
    MoveClock,
    RunSql,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.errors import Span
    from headrace.planning.functions import Function
    from headrace.testing.prepared import PreparedDatabases
    from headrace.testing.script import Script, ScriptStep, ScriptTest


_NOT_XML: Final = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(file: Path, outcomes: Sequence[TestOutcome]) -> None:
    """Write a report with one suite for each file of tests.

    Raises:
        OSError: if it cannot be written.
    """
    root = ET.Element("testsuites")
    suites: dict[str, list[TestOutcome]] = {}
    for each in outcomes:
        suites.setdefault(str(each.script.file), []).append(each)
    for name, found in suites.items():
        failures = [each.failure for each in found if each.failure is not None]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(found)),
            failures=str(sum(not each.is_error for each in failures)),
            errors=str(sum(each.is_error for each in failures)),
            time=f"{sum(each.seconds for each in found):.3f}",
        )
        for each in found:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=name,
                name=each.test.name,
                file=name,
                line=str(each.test.line),
                time=f"{each.seconds:.3f}",
            )
            if each.failure is not None:
                text = _NOT_XML.sub("\ufffd", str(each.failure))
                kind = "error" if each.failure.is_error else "failure"
                ET.SubElement(case, kind, message=text.split("\n", 1)[0]).text = text
    file.parent.mkdir(parents=True, exist_ok=True)
    ET.indent(root)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)


@dataclass(frozen=True, slots=True)
class TestFailure:
    """Why a test has failed: a message, and the place in its file, if known.

    ``is_error``: something was refused, in place of a comparison that failed.
    """

    message: str
    place: Span | None
    is_error: bool = False

    def __str__(self) -> str:
        """Return the message after its file and line."""
        if self.place is None:
            return self.message
        return f"{self.place.file}:{self.place.position[0]}: {self.message}"


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The outcome of one test."""

    script: Script
    test: ScriptTest
    seconds: float
    failure: TestFailure | None = None


def run(
    script: Script,
    test: ScriptTest,
    prepared: PreparedDatabases,
    functions: Sequence[Function] = (),
) -> TestOutcome:
    """Run one test in a database of its own."""
    began = time.monotonic()
    database = TestDatabase(prepared, script.file.parent)
    failure: TestFailure | None = None
    try:
        loaded = definitions_of(script.loads).replaced_by(script.definitions)
        database.define(loaded, test.only, test.alone, functions, test.at)
        for step in test.steps:
            failure = _failure(database, step)
            if failure is not None:
                break
    except Exception as error:  # noqa: BLE001  (a defect is the failure of the test)
        failure = TestFailure(str(unexpected(error)), None, is_error=True)
    finally:
        database.close()
    return TestOutcome(script, test, time.monotonic() - began, failure)


def _failure(database: TestDatabase, step: ScriptStep) -> TestFailure | None:
    """Do a step; return why it failed, or did not fail as it must."""
    try:
        _do(database, step)
    except AssertionError as error:
        return TestFailure(str(error), step.place)
    except HeadraceError as error:
        if step.fails is None:
            return TestFailure(str(error), step.place, is_error=True)
        if step.fails.lower() in str(error).lower():
            return None
        return TestFailure(f"the error has no {step.fails!r}:\n{error}", step.place)
    if step.fails is not None:
        return TestFailure(
            f"there was no error{step.fails and f' with {step.fails!r}'}", step.place
        )
    return None


def _do(database: TestDatabase, step: ScriptStep) -> None:
    match step.action:
        case RunSql():
            _run_sql(database, step.action)
        case Write(name, table, deletes):
            (database.delete if deletes else database.insert)(name, table)
        case ExpectRows(name, table, tolerance, rejects):
            if rejects:
                _expect_rejects(database, step.action)
            else:
                database.expect(name, table, tolerance=tolerance)
        case ExpectChanges(name, table, tolerance):
            database.expect_changes(name, table, tolerance=tolerance)
        case ExpectCount():
            _expect_count(database, step.action)
        case MoveClock(by, to):
            if by is not None:
                database.clock.advance(by)
            if to is not None:
                database.clock.set(to)
        case EndEpoch():
            database.epoch()
        case _:
            assert_never(step.action)


def _run_sql(database: TestDatabase, action: RunSql) -> None:
    source = action.statement
    statement = parse_statement(source)
    changed = with_clock(source.sql, database.clock.now)
    if changed != source.sql:
        (statement,) = parse(changed, source.file)
    if isinstance(statement, Query):
        rows, what = database.queried(statement), "rows of the query"
    else:
        rows, what = database.run(statement).to_arrow(), "rows of the statement"
    if action.table is not None:
        database.expect_table(rows, columns_of(rows), what, action.table)


def _expect_count(database: TestDatabase, action: ExpectCount) -> None:
    match action.what:
        case "late":
            found = database.late(action.name)
        case "duplicates":
            found = database.duplicates(action.name)
        case _:
            found = sum(each["copies"] or 1 for each in database.quarantined(action.name))
    if found != action.count:
        raise AssertionError(
            f"{found} rows of {action.name} are {action.what}, and {action.count} are expected"
        )


def _expect_rejects(database: TestDatabase, action: ExpectRows) -> None:
    """Compare the rows that a stream has rejected, as rows of the stream."""
    relation = database.relation(action.name)
    if not isinstance(relation, Stream):
        raise HeadraceError(Code.INVALID, f"{title(relation)} rejects no rows")
    rows: list[dict[str, Any]] = [each["row"] for each in database.rejects(action.name)]
    arrays = []
    for column, field in zip(relation.schema.columns, relation.schema.arrow, strict=True):
        convert = from_json(column)
        try:
            values = [
                None if row.get(column.name) is None else convert(row[column.name]) for row in rows
            ]
        except RejectedValueError as why:
            raise HeadraceError(Code.UNSUPPORTED, f'column "{column.name}": {why}') from why
        arrays.append(pa.array(values, field.type))
    table = pa.Table.from_arrays(arrays, schema=relation.schema.arrow)
    what = f"rejected rows of {action.name}"
    database.expect_table(
        table, relation.schema.columns, what, action.table, tolerance=action.tolerance
    )
