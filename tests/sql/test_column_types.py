from __future__ import annotations

import pytest

from headrace.planning.sql import CreateStream
from headrace.planning.sql.column_types import ALIASES
from sql.statement_text import one


@pytest.mark.parametrize(
    ("written", "spark"),
    [
        ("VARCHAR", "STRING"),
        ("VARCHAR(20)", "VARCHAR(20)"),
        ("VARCHAR(MAX)", "STRING"),
        ("CHARACTER VARYING(9)", "VARCHAR(9)"),
        ("CHARACTER VARYING", "STRING"),
        ("CHAR", "CHAR(1)"),
        ("CHAR(3)", "CHAR(3)"),
        ("TEXT", "STRING"),
        ("INTEGER", "INT"),
        ("INT8", "BIGINT"),
        ("INT64", "BIGINT"),
        ("BOOL", "BOOLEAN"),
        ("BYTES", "BINARY"),
        ("REAL", "FLOAT"),
        ("FLOAT8", "DOUBLE"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("double", "DOUBLE"),
        ("DECIMAL", "DECIMAL(38,9)"),
        ("NUMERIC", "DECIMAL(38,9)"),
        ("DECIMAL(10)", "DECIMAL(10,0)"),
        ("NUMERIC ( 10 , 2 )", "DECIMAL(10,2)"),
        ("TIMESTAMP(3)", "TIMESTAMP"),
        ("TIMESTAMP_LTZ(6)", "TIMESTAMP"),
        ("TIMESTAMPTZ", "TIMESTAMP"),
        ("TIMESTAMP(3) WITH TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP WITH LOCAL TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP_NTZ"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("DATETIME", "TIMESTAMP_NTZ"),
        ("TIME", "TIME(6)"),
        ("time(0)", "TIME(0)"),
        ("TIME(3) WITHOUT TIME ZONE", "TIME(3)"),
        ("TIME[]", "ARRAY<TIME(6)>"),
        ("INTERVAL DAY TO SECOND", "INTERVAL DAY TO SECOND"),
        ("interval year", "INTERVAL YEAR"),
        ("INTERVAL", "INTERVAL"),
        ("INT[]", "ARRAY<INT>"),
        ("TEXT[][]", "ARRAY<ARRAY<STRING>>"),
        ("ARRAY<STRUCT<a: INT, `b c` VARCHAR>>", "ARRAY<STRUCT<`a`: INT, `b c`: STRING>>"),
        ("MAP<VARCHAR, ARRAY<BYTES>>", "MAP<STRING, ARRAY<BINARY>>"),
        (
            "ROW(a INT, b ROW<c TEXT NOT NULL>)",
            "STRUCT<`a`: INT, `b`: STRUCT<`c`: STRING NOT NULL>>",
        ),
        ("STRUCT<>", "STRUCT<>"),
        ("VARIANT", "VARIANT"),
    ],
)
def test_a_type_is_written_as_spark_spells_it(written: str, spark: str) -> None:
    statement = one(f"CREATE STREAM s (a {written} NOT NULL, b {written} KEY, c {written})")
    assert isinstance(statement, CreateStream)
    assert [column.type.text for column in statement.columns] == [spark] * 3
    assert [column.type.span.source for column in statement.columns] == [written] * 3


def test_every_alias_stands_for_a_type_that_is_its_own_alias() -> None:
    assert {ALIASES[spark] for spark in ALIASES.values()} == set(ALIASES.values())
