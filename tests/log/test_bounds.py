"""Bounds of segments: what a restriction leaves unread has no row that meets it."""

from __future__ import annotations

import json
import operator
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset import Restriction, Test
from headrace.storage.ledger import AppendRecord, EpochCommit, Ledger
from headrace.storage.log import Pruning, bounds_of, read_bounds
from headrace.storage.log.appender import write_segment
from headrace.types import Epoch, Offset
from ledger.building import relation as a_relation

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {
    "number": (pa.int32(), st.integers(-9, 9)),
    "text": (pa.string(), st.text("abc", max_size=3)),
    "day": (pa.date32(), st.integers(-9, 9).map(lambda n: date(2026, 1, 15) + timedelta(n))),
    "time": (
        pa.timestamp("us", tz="UTC"),
        st.integers(-9, 9).map(lambda n: START + timedelta(hours=n)),
    ),
}

PASSES = {"low": operator.ge, "high": operator.le, "above": operator.gt, "below": operator.lt}


@st.composite
def rows_and_tests(draw: st.DrawFn) -> tuple[pa.Table, Restriction]:
    """Return rows with NULLs, and tests of some of their columns."""
    size = draw(st.integers(1, 6))
    columns, tests = {}, []
    for name, (type_, values) in COLUMNS.items():
        given = draw(st.lists(st.none() | values, min_size=size, max_size=size))
        columns[name] = pa.array(given, type_)
        if draw(st.booleans()):
            chosen = draw(st.lists(values, max_size=2))
            ends = draw(st.dictionaries(st.sampled_from([*PASSES]), values, max_size=2))
            bounds = {end: pa.scalar(value, type_) for end, value in ends.items()}
            given_values = draw(st.booleans())
            tests.append(
                Test(name, pa.array(chosen, type_)) if given_values else Test(name, **bounds)
            )
    return pa.table(columns), Restriction(tuple(tests))


@given(rows_and_tests())
def test_rows_within_bounds_that_cannot_pass_do_not_pass(
    given: tuple[pa.Table, Restriction],
) -> None:
    rows, restriction = given
    passed = restriction.rows(rows)
    some = rows.num_rows if passed is None else int(passed.sum())
    bounds = read_bounds(bounds_of(rows), rows.schema)
    assert bounds.keys() == COLUMNS.keys()
    assert restriction.may_hold(bounds) or not some
    pruning, stored = Pruning.of(restriction), json.loads(json.dumps(bounds_of(rows)))
    assert pruning.may_hold(stored) or not some
    if pruning.holds_all(stored):
        tested = [test.column for test in restriction.tests]
        assert some == sum(all(row[c] is not None for c in tested) for row in rows.to_pylist())
    expected = [row for row in rows.to_pylist() if all(_passes(row, t) for t in restriction.tests)]
    assert some == len(expected)


@given(rows_and_tests())
def test_a_restriction_is_the_same_once_it_was_written_to_a_manifest(
    given: tuple[pa.Table, Restriction],
) -> None:
    rows, restriction = given
    read = Restriction.of_json(json.loads(json.dumps(restriction.to_json())))
    assert read == restriction
    before, after = restriction.rows(rows), read.rows(rows)
    assert (before is None) == (after is None)
    assert before is None or before.tolist() == after.tolist()


def _passes(row: dict[str, object], test: Test) -> bool:
    value = row[test.column]
    if value is None:
        return False
    if test.values is not None:
        return value in test.values.to_pylist()
    return all(PASSES[end](value, bound.as_py()) for end, bound in test.bounds.items())


def test_long_text_and_other_types_have_no_bounds() -> None:
    rows = pa.table({"long": ["x" * 99], "list": [[1]], "__weight": [1], "kept": [3]})
    assert bounds_of(rows) == {"kept": [3, 3]}


def test_the_ledger_keeps_bounds_apart_from_segments(tmp_path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.acquire()
    made = a_relation(ledger, "orders")
    ledger.commit(EpochCommit(Epoch(0), "first", created=(made,)))
    relation = made.relation
    for low in (0, 10):
        file = write_segment(tmp_path, pa.table({"k": [low, low + 5]}))
        ledger.log.append_all([AppendRecord(relation, file)])
    found = ledger.log.bounds(relation, Offset(4))
    assert [(r.first, r.end, b) for r, b in found] == [
        (0, 2, {"k": [0, 5]}),
        (2, 4, {"k": [10, 15]}),
    ]
    assert all(not s.file.bounds for s in ledger.log.segments(relation, Offset(0), Offset(4)))
    ledger.close()
