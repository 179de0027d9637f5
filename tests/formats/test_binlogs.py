"""Maxwell's and Canal's messages, as their documentation has them."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as t

from headrace.io.formats.captured import Canal, CapturedMessages, Maxwell
from headrace.types import Column, Schema

PRODUCTS = Schema(
    (
        Column("id", t.LongType(), nullable=False),
        Column("name", t.StringType()),
        Column("weight", t.DecimalType(10, 2)),
        Column("sold", t.BooleanType()),
        Column("picture", t.BinaryType()),
        Column("day", t.DateType()),
        Column("at", t.TimestampNTZType()),
    )
)
NAMES = ("id", "name", "weight", "sold", "picture", "day", "at")


def changes(made: CapturedMessages, *messages: Any) -> tuple[list[tuple], list[tuple]]:
    """Return the changes of messages, each with its weight and without trailing NULLs."""
    values = [m if isinstance(m, bytes | None) else json.dumps(m).encode() for m in messages]
    found = made.changes([None] * len(values), values)
    rows = []
    for weight, row in zip(found.weights.tolist(), found.rows.to_pylist(), strict=True):
        cells = list(row.values())
        while cells and cells[-1] is None:
            cells.pop()
        rows.append((weight, *cells))
    for place in reversed(found.emptied):
        rows.insert(place, ("empty",))
    return rows, [(r.line, r.column, r.reason) for r in found.rejects]


def maxwell(*key: str) -> CapturedMessages:
    return CapturedMessages(PRODUCTS, key, Maxwell(PRODUCTS.columns))


def canal(*key: str, **patterns: Any) -> CapturedMessages:
    return CapturedMessages(PRODUCTS, key, Canal(PRODUCTS.columns, **patterns))


def of_maxwell(type_: str, data: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    sent = {"database": "shop", "table": "products", "type": type_, "ts": 1477053217, "data": data}
    return sent | ({} if old is None else {"old": old}) | more


def of_canal(type_: str, data: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "data": data,
        "database": "shop",
        "es": 1589373560000,
        "id": 9,
        "isDdl": False,
        "mysqlType": {"id": "INTEGER", "name": "VARCHAR(255)"},
        "old": old,
        "pkNames": ["id"],
        "sql": "",
        "table": "products",
        "ts": 1589373560798,
        "type": type_,
        **more,
    }


def test_maxwell_by_key() -> None:
    row = {
        "id": 111,
        "name": "scooter",
        "weight": 5.15,
        "sold": 1,
        "picture": "3q2+7w==",
        "day": "2026-01-01",
        "at": "2026-01-01 10:00:00.5",
    }
    rows, rejects = changes(
        maxwell("id"),
        of_maxwell("bootstrap-start", {}),
        of_maxwell("bootstrap-insert", row),
        of_maxwell("bootstrap-complete", {}),
        of_maxwell("insert", {"id": 112, "name": "bike"}, xid=23396, commit=True),
        of_maxwell("update", {"id": 112, "name": "tandem"}, {"name": "bike"}),
        of_maxwell("update", {"id": 113, "name": "tandem"}, {"id": 112}),
        of_maxwell("delete", {"id": 113, "name": "tandem"}),
        of_maxwell("table-alter", None, old={"columns": []}),
        None,
    )
    assert rejects == []
    moment = datetime(2026, 1, 1, 10, 0, 0, 500000)  # noqa: DTZ001 - it has no zone
    assert rows == [
        (1, 111, "scooter", Decimal("5.15"), True, b"\xde\xad\xbe\xef", date(2026, 1, 1), moment),
        (1, 112, "bike"),
        (1, 112, "tandem"),
        (-1, 112),
        (1, 113, "tandem"),
        (-1, 113),
    ]


def test_maxwell_without_a_key_has_whole_rows_before() -> None:
    rows, rejects = changes(
        maxwell(),
        of_maxwell("update", {"id": 1, "name": "b", "weight": None}, {"name": None, "weight": 2}),
        of_maxwell("delete", {"id": 1, "name": "b"}),
    )
    assert rejects == []
    assert rows == [(-1, 1, None, Decimal("2.00")), (1, 1, "b"), (-1, 1, "b")]


def test_canal_has_several_rows_in_a_message_all_of_them_text() -> None:
    data = [
        {
            "id": "111",
            "name": "scooter",
            "weight": "5.18",
            "sold": "1",
            "picture": "\u00de\u00ad",
            "day": "2026-01-01",
            "at": "2026-01-01 10:00:00",
        },
        {"id": "112", "name": None, "sold": "0"},
    ]
    rows, rejects = changes(
        canal("id"),
        of_canal("INSERT", data),
        of_canal(
            "UPDATE",
            [{"id": "112", "name": "bike"}, {"id": "113", "name": "x"}],
            [{"name": None}, {"id": "111"}],
        ),
        of_canal("DELETE", [{"id": "112"}, {"id": "113"}]),
        of_canal("ALTER", None, isDdl=True, sql="ALTER TABLE products ADD x INT"),
        of_canal("TRUNCATE", None, isDdl=True, sql="TRUNCATE TABLE products"),
    )
    assert rejects == []
    moment = datetime(2026, 1, 1, 10)  # noqa: DTZ001 - it has no zone
    assert rows == [
        (1, 111, "scooter", Decimal("5.18"), True, b"\xde\xad", date(2026, 1, 1), moment),
        (1, 112, None, None, False),
        (1, 112, "bike"),
        (-1, 111),
        (1, 113, "x"),
        (-1, 112),
        (-1, 113),
        ("empty",),
    ]
    rows, _ = changes(canal(), of_canal("UPDATE", [{"id": "1", "name": "b"}], [{"name": "a"}]))
    assert rows == [(-1, 1, "a"), (1, 1, "b")]


def test_canal_reads_the_databases_and_tables_that_are_included() -> None:
    made = canal("id", database=re.compile("sh.p"), table=re.compile("prod.*|orders"))
    sent = [
        of_canal("INSERT", [{"id": "1"}]),
        of_canal("INSERT", [{"id": "2"}], database="shop2"),
        of_canal("INSERT", [{"id": "3"}], table="old_products"),
        of_canal("TRUNCATE", None, table="other"),
        of_canal("INSERT", [{"id": "4"}], table="orders"),
    ]
    assert changes(made, *sent) == ([(1, 1), (1, 4)], [])


@pytest.mark.parametrize(
    ("made", "message", "column", "reason"),
    [
        (maxwell("id"), b"{", None, "not JSON"),
        (maxwell("id"), {"data": {}}, "type", "no type of change is in it"),
        (maxwell("id"), of_maxwell("upsert", {"id": 1}), "type", "type 'upsert': a change has"),
        (maxwell("id"), of_maxwell("insert", None), "data", "data is not an object"),
        (maxwell("id"), of_maxwell("update", {"id": 1}, [1]), "old", "old is not an object"),
        (maxwell("id"), of_maxwell("insert", {"id": "x"}), "id", '"x" is not a BIGINT'),
        (maxwell("id"), of_maxwell("insert", {"name": "x"}), "id", "NULL in a NOT NULL column"),
        (maxwell("id"), of_maxwell("insert", {"id": 1, "sold": 2}), "sold", "2 is not a BOOLEAN"),
        (canal("id"), of_canal("REPLACE", []), "type", "type 'REPLACE'"),
        (canal("id"), of_canal("INSERT", {"id": "1"}), "data", "data is not a list"),
        (canal("id"), of_canal("UPDATE", [{"id": "1"}], []), "old", "0 rows in old, 1 in data"),
        (canal("id"), of_canal("INSERT", [{"id": "1"}, {"id": "x"}]), "id", '"x" is not a BIGINT'),
        (canal("id"), of_canal("INSERT", [{"id": "1", "sold": "y"}]), "sold", "not a BOOLEAN"),
        (canal("id"), of_canal("INSERT", [{"id": "1", "picture": "\u20ac"}]), "picture", "BINARY"),
    ],
)
def test_a_message_that_does_not_fit_is_a_reject_as_a_whole(made, message, column, reason) -> None:
    rows, rejects = changes(made, message)
    assert rows == []
    ((line, found, why),) = rejects
    assert (line, found) == (0, column)
    assert reason in why


def test_maxwell_says_which_transaction_goes_on() -> None:
    def of(**message: Any) -> str | None:
        return maxwell("id").transaction(json.dumps({"type": "insert", **message}).encode())

    assert of(xid=23396) == "23396"
    assert of(xid=23396, commit=True) is None
    assert of() is None
    assert maxwell("id").transaction(b"{") is None
    assert canal("id").transaction(b"{}") is None
