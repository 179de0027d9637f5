"""A program of a user, which type checkers read and nobody runs; see ``test_script.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import headrace
from headrace.testing import TestDatabase


def readme() -> None:
    with headrace.connect("data") as db:
        db.sql("CREATE STREAM readings (sensor STRING, area STRING, reading INT)")
        rows = db.sql("SELECT * FROM readings WHERE sensor = ?", ["s1"]).fetchall()
        assert_type(rows, list[tuple[Any, ...]])
        with db.subscribe("SELECT * FROM avg_readings") as changes:
            for change in changes:
                print(change.epoch, change.operation, change.weight, change.row["sensor"])
                break


def opens(path: Path) -> None:
    db = headrace.connect(path, partitions=4, continuous=False, reconcile_budget=0.5)
    assert_type(db, headrace.Database)
    headrace.connect(path, partitons=4)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    headrace.connect(path, partitions="4")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]
    served: headrace.AnyDatabase = headrace.connect("http://127.0.0.1:8088", token="secret")
    served.close()


def reads(db: headrace.AnyDatabase) -> list[str]:
    result = db.sql("SELECT 1 AS a")
    assert_type(result, headrace.Result)
    assert_type(result.to_pylist(), list[dict[str, Any]])
    if result.freshness is not None:
        print(result.freshness.pending, result.epoch + 1, len(result), result.columns)
    db.sql("SELECT 1").poll()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    found: list[str] = []
    for each in db.script("SELECT 1; SUBSCRIBE totals"):
        if isinstance(each, headrace.Subscription):
            found += [change.word for change in each.poll(1.0) or ()]
            each.close()
        else:
            found += each.columns
    for each in db.results("FLUSH; SHOW TABLES", progress=lambda made: print(made.done)):
        print(each.kind == "rows", [row[0] for row in each])
    return found


def writes(db: headrace.Database) -> None:
    assert_type(db.insert("readings", [{"sensor": "s1", "reading": 1}]), int)
    with db.session() as session:
        session.insert("readings", [("s1", "wheel", 1)], producer="p", sequence=1)
        assert_type(session.as_of([{"sensor": "s1"}], ["totals"], time="at"), headrace.Result)
        assert_type(session.flush() + 0, int)
    for change in db.subscribe("SUBSCRIBE totals WITH (SNAPSHOT = false)"):
        if change.word == "INSERT":
            break
    try:
        db.verify("totals").to_pandas()
    except headrace.HeadraceError as error:
        print(error.code is headrace.Code.INVALID, error.primary, error.hint)


def serves(url: str) -> None:
    db = headrace.connect(url)
    if isinstance(db, headrace.RemoteDatabase):
        assert_type(db.session(), headrace.RemoteSession)
        assert_type(db.session().sql("SELECT 1").fetchall(), list[tuple[Any, ...]])


@headrace.function(returns="INT", deterministic=True)
def doubled(x: int) -> int:
    return 2 * x


@headrace.fold(key=["account"], order_by=["at"], returns="balance BIGINT", start=0)
def balance(state: int, event: Any) -> int:
    return state + int(event.amount)


def registers(db: headrace.Database) -> None:
    assert_type(doubled, headrace.Function)
    db.register(balance)
    assert_type(db.register("length", len, returns="INT"), headrace.Function)
    by: Callable[[Callable[..., Any]], headrace.Function] = db.register(returns="INT")
    by(len)


def test_totals(headrace_db: TestDatabase) -> None:
    db = headrace_db.load("views", define="CREATE VIEW v AS SELECT 1 AS a", only="v")
    db.insert("readings", [{"sensor": "s1", "reading": 1}])
    assert_type(db.sql("SELECT * FROM v").fetchall(), list[tuple[Any, ...]])
    db.clock.advance("1 hour")
    db.expect("v", [{"a": 1}])
    db.expect_changes("v", "+/- a")
    assert [change.row for change in db.changes("v")] == []
