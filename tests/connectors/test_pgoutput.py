"""PostgreSQL's messages: decoded from bytes, its types and text, and rows that do not fit."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.postgres.access import PgType, can_read, elements, inferred, read
from headrace.io.connectors.postgres.changes import TableChanges, lsn_number, lsn_text
from headrace.io.connectors.postgres.pgoutput import (
    UNSENT,
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    OtherMessage,
    RelationColumn,
    RelationMessage,
    TruncateMessage,
    UpdateMessage,
    decoded,
)
from headrace.io.connectors.postgres.tables import CapturedTable, Reference, bound
from headrace.types import Column as OurColumn
from headrace.types import RelationId, Schema


def cell(value: object) -> bytes:
    if value is None:
        return b"n"
    if value is UNSENT:
        return b"u"
    assert isinstance(value, bytes)
    return b"t" + struct.pack(">I", len(value)) + value


def row(*values: object) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(map(cell, values))


BEGIN = b"B" + struct.pack(">QQI", 0x16B3748, 7, 4242)
COMMIT = b"C" + struct.pack(">BQQQ", 0, 0x16B3748, 0x16B3778, 7)
RELATION = (
    b"R" + struct.pack(">I", 9) + b"public\0orders\0d" + struct.pack(">H", 2)
    + b"\1id\0" + struct.pack(">Ii", 23, -1)
    + b"\0n\0" + struct.pack(">Ii", 1700, 655366)
)  # fmt: skip
MESSAGES = [
    (BEGIN, BeginMessage(0x16B3748, 4242)),
    (COMMIT, CommitMessage(0x16B3778)),
    (
        RELATION,
        RelationMessage(
            9,
            "public",
            "orders",
            "d",
            (RelationColumn("id", 23, -1, True), RelationColumn("n", 1700, 655366, False)),  # noqa: FBT003
        ),
    ),
    (b"I\0\0\0\tN" + row(b"1", None), InsertMessage(9, (b"1", None))),
    (b"U\0\0\0\tN" + row(b"1", UNSENT), UpdateMessage(9, None, (b"1", UNSENT))),
    (
        b"U\0\0\0\tK" + row(b"1", None) + b"N" + row(b"2", b""),
        UpdateMessage(9, (b"1", None), (b"2", b"")),
    ),
    (
        b"U\0\0\0\tO" + row(b"1", b"x") + b"N" + row(b"1", b"y"),
        UpdateMessage(9, (b"1", b"x"), (b"1", b"y")),
    ),
    (b"D\0\0\0\tK" + row(b"1", None), DeleteMessage(9, (b"1", None))),
    (b"T" + struct.pack(">IBII", 2, 1, 9, 10), TruncateMessage((9, 10))),
    (b"O" + struct.pack(">Q", 1) + b"elsewhere\0", OtherMessage("O")),
    (b"Y" + struct.pack(">I", 5) + b"public\0mood\0", OtherMessage("Y")),
]


@pytest.mark.parametrize(("data", "message"), MESSAGES, ids=[type(m).__name__ for _, m in MESSAGES])
def test_a_message_is_decoded_and_none_that_is_cut_off(data: bytes, message: object) -> None:
    assert decoded(data) == message
    for end in range(
        1, len(data) if isinstance(message, InsertMessage | UpdateMessage | DeleteMessage) else 1
    ):
        with pytest.raises(HeadraceError) as error:
            decoded(data[:end])
        assert error.value.code is Code.CORRUPT


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_as_corrupt(data: bytes) -> None:
    try:
        decoded(data)
    except HeadraceError as error:
        assert error.code is Code.CORRUPT  # noqa: PT017 - most are refused, some are messages


@given(st.integers(0, 2**64 - 1))
def test_a_position_is_written_as_postgresql_does(lsn: int) -> None:
    assert lsn_number(lsn_text(lsn)) == lsn


# -- types and text ----------------------------------------------------------------------------

NUMERIC_10_2 = ((10 << 16) | 2) + 4


@pytest.mark.parametrize(
    ("found", "ours"),
    [
        (PgType(23), t.IntegerType()),
        (PgType(1700), t.DecimalType(38, 9)),
        (PgType(1700, NUMERIC_10_2), t.DecimalType(10, 2)),
        (PgType(1114), t.TimestampNTZType()),
        (PgType(1184), t.TimestampType()),
        (PgType(2950), t.StringType()),
        (PgType(70000, enumerated=True), t.StringType()),
        (PgType(1231, NUMERIC_10_2, "", PgType(1700, NUMERIC_10_2)), t.ArrayType(t.DecimalType(10, 2))),
    ],
)  # fmt: skip
def test_a_type_has_an_exact_form(found: PgType, ours: t.DataType) -> None:
    assert inferred(found) == ours
    assert can_read(found, ours)
    assert can_read(found, t.StringType())


@pytest.mark.parametrize(
    "found", [PgType(790, name="money"), PgType(600, name="point"), PgType(1700, (50 << 16) + 4)]
)
def test_a_type_without_an_exact_form_is_refused_with_a_way_out(found: PgType) -> None:
    with pytest.raises(HeadraceError, match="has no exact form") as error:
        inferred(found)
    assert "STRING" in (error.value.hint or "")


def test_columns_take_wider_values_of_their_kind_and_no_others() -> None:
    assert can_read(PgType(20), t.IntegerType())
    assert can_read(PgType(21), t.DecimalType(10, 2))
    assert not can_read(PgType(25), t.IntegerType())
    assert not can_read(PgType(1184), t.TimestampNTZType())
    assert not can_read(PgType(701), t.DecimalType(10, 2))


@pytest.mark.parametrize(
    ("type_", "texts", "values", "refused"),
    [
        (t.BooleanType(), ["t", "f", None], [True, False, None], []),
        (t.IntegerType(), ["-1", "2147483648", None], [-1, None, None], [1]),
        (t.DecimalType(5, 2), ["1.50", "NaN", "1000.00"], [Decimal("1.50"), None, None], [1, 2]),
        (t.DecimalType(38, 9), ["0.0000000001"], [None], [0]),
        (t.BinaryType(), ["\\x00ff", "\\x"], [b"\0\xff", b""], []),
        (t.DateType(), ["2024-02-29", "infinity"], [date(2024, 2, 29), None], [1]),
        (
            t.TimestampType(),
            ["2024-01-01 10:00:00.5+00", "infinity"],
            [datetime(2024, 1, 1, 10, 0, 0, 500_000, UTC), None],
            [1],
        ),
        (t.TimestampNTZType(), ["2024-01-01 10:00:00"], [datetime(2024, 1, 1, 10)], []),  # noqa: DTZ001
        (t.FloatType(), ["1.5", "Infinity"], [1.5, float("inf")], []),
        (
            t.ArrayType(t.IntegerType()),
            ["{1,NULL}", None, "{}", "{1,x}", "{{1}}", "[0:1]={1,2}"],
            [[1, None], None, [], None, None, None],
            [3, 4, 5],
        ),
    ],
)
def test_text_becomes_values_and_what_does_not_fit_is_said(type_, texts, values, refused) -> None:
    found = read(pa.array(texts, pa.string()), OurColumn("c", type_))
    assert found.values.to_pylist() == values
    assert sorted(found.refused) == refused


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"))))
def test_an_array_of_texts_survives_postgresqls_notation(texts: list[str | None]) -> None:
    def quoted(text: str | None) -> str:
        if text is None:
            return "NULL"
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    assert elements("{" + ",".join(map(quoted, texts)) + "}") == texts


# -- changes -------------------------------------------------------------------------------------

SCHEMA = Schema(
    (OurColumn("id", t.IntegerType(), nullable=False), OurColumn("v", t.DecimalType(4, 1)))
)
KEYED = CapturedTable(RelationId(1), Reference("public", "t"), SCHEMA, ("id",))
KEYLESS = CapturedTable(RelationId(1), Reference("public", "t"), SCHEMA, ())


def changes(table: CapturedTable) -> TableChanges:
    made = TableChanges(table)
    made.bind((0, 1))
    return made


def rows_of(made: TableChanges) -> list[tuple[object, ...]]:
    return [tuple(each.values()) for each in made.part({}).rows.to_pylist()]


def test_an_update_that_moves_a_row_deletes_it_under_its_former_key() -> None:
    made = changes(KEYED)
    made.insert((b"1", b"1.0"), (1, 1))
    made.update(None, (b"1", b"2.0"), (1, 2))
    made.update((b"1", None), (b"2", UNSENT), (1, 3))
    made.update((b"2", b"2.0"), (b"2", b"3.0"), (1, 4))
    part = made.part({})
    assert [tuple(r.values()) for r in part.rows.to_pylist()] == [
        (1, Decimal("1.0"), 1),
        (1, Decimal("2.0"), 1),
        (1, None, -1),
        (2, None, 1),
        (2, Decimal("3.0"), 1),
    ]
    assert part.unchanged["v"].to_pylist() == [False, False, False, True, False]
    assert part.origin(2) == part.origin(3) == ("public.t@0/1", 3)


def test_without_a_key_the_row_before_is_deleted_whole_and_gives_what_was_not_sent() -> None:
    made = changes(KEYLESS)
    made.update((b"1", b"2.0"), (b"5", UNSENT), (1, 1))
    made.delete((b"5", b"2.0"), (1, 2))
    two = Decimal("2.0")
    assert rows_of(made) == [(1, two, -1), (5, two, 1), (5, two, -1)]


def test_a_row_that_does_not_fit_is_a_reject_and_deletes_the_one_it_replaces() -> None:
    made = changes(KEYED)
    made.insert((b"1", b"1.0"), (9, 1))
    made.update(None, (b"1", b"12345.6"), (9, 2))
    made.insert((b"99999999999", b"1.0"), (9, 3))
    part = made.part({})
    assert [tuple(r.values()) for r in part.rows.to_pylist()] == [
        (1, Decimal("1.0"), 1),
        (1, None, -1),
    ]
    first, second = part.rejects
    assert (first.file, first.line, first.column) == ("public.t@0/9", 2, "v")
    assert (second.column, second.raw) == ("id", "id=99999999999, v=1.0")
    whole = changes(KEYLESS)
    whole.insert((b"1", b"12345.6"), (9, 1))
    whole.delete((b"1", b"12345.6"), (9, 2))
    part = whole.part({})
    assert (part.rows.num_rows, len(part.rejects)) == (0, 1)


def test_where_a_table_is_emptied_is_counted_in_the_rows_that_are_left() -> None:
    made = changes(KEYED)
    made.insert((b"x", b"1.0"), (9, 1))
    made.insert((b"1", b"1.0"), (9, 2))
    made.truncate()
    made.insert((b"2", b"1.0"), (9, 3))
    part = made.part({})
    assert (part.rows["id"].to_pylist(), part.emptied) == ([1, 2], (1,))
    assert rows_of(made) == []


@pytest.mark.parametrize(
    ("identity", "columns", "how"),
    [
        ("d", [("id", 23, True)], '"v" was dropped'),
        ("d", [("id", 23, True), ("v", 25, False)], '"v" is text now'),
        ("d", [("id", 23, False), ("v", 1700, True)], "primary key"),
    ],
)
def test_a_table_that_has_changed_is_refused_with_how(identity, columns, how) -> None:
    class Types:
        def find(self, oid: int, modifier: int) -> PgType:
            return PgType(oid, modifier, {25: "text"}.get(oid, "other"))

    there = RelationMessage(
        9, "public", "t", identity, tuple(RelationColumn(n, o, -1, k) for n, o, k in columns)
    )
    with pytest.raises(HeadraceError, match="has changed in PostgreSQL") as error:
        bound(KEYED, there, Types())
    assert (error.value.code, how in error.value.detail) == (Code.CONFLICT, True)


def test_columns_are_found_by_name_wherever_they_are() -> None:
    there = (("V", 20), ("new", 25), ("id", 23))
    columns = tuple(RelationColumn(name, oid, -1, identifies=True) for name, oid in there)
    assert bound(KEYLESS, RelationMessage(9, "public", "t", "f", columns), _Named()) == (2, 0)


class _Named:
    def find(self, oid: int, modifier: int) -> PgType:
        return PgType(oid, modifier)
