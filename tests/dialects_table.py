"""What is read of other dialects, as a page: ``python tests/dialects_table.py``.

The page is made from the tables in ``headrace.planning.dialects``; each reading is what the code makes of
the example beside it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql.types import StructType

from headrace.errors import Span
from headrace.planning.catalog import Declaration, Stream
from headrace.planning.dialects import (
    CALLS,
    DIFFERENCES,
    FURTHER,
    MEANINGS,
    REFUSED_CALLS,
    spark_text,
)
from headrace.types import RelationId, Schema

PAGE = Path(__file__).parents[1] / "docs/sql/dialects.md"

_COLUMNS = (
    StructType()
    .add("k", "string")
    .add("v", "integer")
    .add("ts", "timestamp")
    .add("wall", "timestamp_ntz")
)
_SAID = Declaration(watermark=("ts", "ts"))
RELATIONS = {
    name: Stream(RelationId(id_), name, Schema.of_spark(_COLUMNS), _SAID)
    for id_, name in enumerate("sr", 1)
}
"""Streams that declare their event time."""

DECLARED = {
    name: replace(stream, declaration=Declaration(ksqldb=True))
    for name, stream in RELATIONS.items()
}
"""Streams that were declared as in ksqlDB."""

FORMS = (
    (
        "Flink",
        "SELECT TUMBLE_END(ts, INTERVAL '1' HOUR) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
    ),
    (
        "Flink",
        "SELECT HOP_START(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) FROM s GROUP BY HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
    ),
    ("Flink", "SELECT k FROM s GROUP BY k, SESSION(ts, INTERVAL '5' MINUTE)"),
    ("Flink", "SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR))"),
    (
        "Materialize, RisingWave",
        "SELECT * FROM HOP(s, ts, INTERVAL '1 minute', INTERVAL '5 minutes')",
    ),
    ("Flink", "FLOOR(ts TO HOUR)"),
    ("Flink", "CEIL(ts TO HOUR)"),
    ("Flink", "CEILING(ts TO DAY)"),
    ("Flink", "TO_TIMESTAMP_LTZ(ms, 3)"),
    ("Flink", "TIMESTAMPDIFF(HOURS, a, b)"),
    ("ksqlDB", "TIMESTAMPADD(DAYS, 1, ts)"),
    ("ksqlDB", "s->field->inner"),
    ("ksqlDB", "s->field[1]->inner"),
    ("ksqlDB", "TRANSFORM(a, (x) => x + 1)"),
    ("ksqlDB", "SELECT s->l[1], l[1], 'C:\\new' FROM t"),
    ("ksqlDB", "DATEADD(DAYS, 1, day)"),
    ("ksqlDB", "DATESUB(HOUR, 1, ts)"),
    ("ksqlDB", "TIMESTAMPSUB(DAYS, 1, ts)"),
    ("RisingWave, DuckDB", "SELECT * FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t"),
    ("ksqlDB", "STRUCT(a := 1, b := 'x')"),
    ("ksqlDB", "MAP('k' := 1)"),
    ("ksqlDB", "ARRAY_MAX(GENERATE_SERIES(1, n))"),
    ("ksqlDB", "FORMAT_TIMESTAMP(ts, 'yyyy-MM-dd')"),
    ("ksqlDB", "PARSE_TIMESTAMP(s, 'yyyy-MM-dd')"),
    ("PostgreSQL", "x::numeric"),
    ("PostgreSQL", "x::jsonb -> 'a' ->> 'b'"),
    ("PostgreSQL", "s ~* '^a'"),
    ("PostgreSQL", "s !~ '^a'"),
    ("PostgreSQL", "EXTRACT(EPOCH FROM ts)"),
    ("PostgreSQL", "DATE_PART('isodow', ts)"),
    ("PostgreSQL", "DATE_TRUNC('hours', ts)"),
    ("PostgreSQL", "TO_CHAR(ts, 'YYYY-MM-DD HH24:MI:SS')"),
    ("PostgreSQL", "TO_DATE(s, 'YYYY-MM-DD')"),
    ("PostgreSQL", "STRING_AGG(s, ', ' ORDER BY k DESC)"),
    ("PostgreSQL", "ARRAY_AGG(s ORDER BY k)"),
    ("PostgreSQL", "ARRAY_LENGTH(a, 1)"),
    ("PostgreSQL", "REGEXP_REPLACE(s, 'a', 'b', 'g')"),
    ("PostgreSQL", "SELECT DISTINCT ON (k) k, v FROM t ORDER BY k, v DESC"),
    ("PostgreSQL", "SELECT n FROM generate_series(1, 9) AS g(n)"),
    ("PostgreSQL, Flink", "SELECT k, x FROM t CROSS JOIN UNNEST(a) AS u(x)"),
    ("PostgreSQL, Calcite", "SELECT k, x, n FROM t, UNNEST(a) WITH ORDINALITY AS u(x, n)"),
    ("Spark", "SELECT id FROM range(5)"),
    ("any", "SELECT k FROM s WHERE EXISTS (SELECT v FROM r WHERE r.k = s.k LIMIT 1)"),
    ("BigQuery, Snowflake", "ts + INTERVAL v DAY"),
    ("Calcite", "ts + INTERVAL '1' QUARTER"),
    ("Calcite", "INTERVAL '5' DAY(3)"),
    ("Calcite", "(a - b) DAY > INTERVAL '1' DAY"),
    ("Calcite", "CAST(x AS INT ARRAY)"),
    ("PostgreSQL, Flink", "ARRAY[1, 2]"),
    ("Flink", "MAP['a', 1]"),
    ("PostgreSQL, ksqlDB", "TRUNC(x)"),
    ("PostgreSQL, Snowflake", "TRUNC(x, 2)"),
    ("ksqlDB, MySQL", "FIELD(x, 'a', 'b')"),
    ("PostgreSQL", "INT '5'"),
    ("PostgreSQL", "FIRST_VALUE(s ORDER BY k)"),
    ("PostgreSQL", "LAST_VALUE(s ORDER BY k)"),
    ("PostgreSQL", "STRING_AGG(s, t ORDER BY k)"),
    ("BigQuery, Snowflake", "FIRST_VALUE(x IGNORE NULLS) OVER (ORDER BY k)"),
    ("ksqlDB", "SELECT s.v, r.v FROM s JOIN r WITHIN 1 HOUR ON s.k = r.k"),
    (
        "RisingWave",
        "SELECT window.end, COUNT(*) FROM s GROUP BY window(ts, '1 hour') EMIT ON WINDOW CLOSE",
    ),
    ("BigQuery", "SAFE_CAST(x AS INT64)"),
    ("BigQuery", "[1, 2][OFFSET(0)]"),
    ("BigQuery", "a[SAFE_ORDINAL(1)]"),
    ("BigQuery", "STRUCT<a INT64, b STRING>(1, 'x')"),
    ("BigQuery", "DATE_TRUNC(day, MONTH)"),
    ("BigQuery", "TIMESTAMP_TRUNC(ts, WEEK)"),
    ("BigQuery", "TIME_TRUNC(t, HOUR)"),
    ("BigQuery", "DATE_DIFF(b, a, DAY)"),
    ("BigQuery", "TIMESTAMP_DIFF(b, a, HOUR)"),
    ("BigQuery", "DATE_ADD(day, INTERVAL 1 DAY)"),
    ("BigQuery", "TIMESTAMP_SUB(ts, INTERVAL 1 HOUR)"),
    ("BigQuery", "FORMAT_TIMESTAMP('%Y-%m-%d', ts)"),
    ("BigQuery", "PARSE_DATE('%Y-%m-%d', s)"),
    ("Snowflake", "TO_VARCHAR(ts, 'YYYY-MM-DD')"),
    ("Snowflake", "DATEADD('day', 1, ts)"),
    ("Snowflake", "DATE_TRUNC(MONTH, ts)"),
    ("Snowflake", "SELECT * EXCLUDE (a) FROM t"),
    ("Snowflake", "SELECT TOP 3 k FROM s ORDER BY v"),
    ("PostgreSQL", "k = ANY (SELECT k FROM r)"),
    ("PostgreSQL", "v <> ALL (ARRAY[1, 2])"),
    (
        "ksqlDB",
        "SELECT WINDOWSTART, COUNT(*) FROM s WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 DAY) GROUP BY k",
    ),
    ("ksqlDB", "SELECT WINDOWEND FROM s WINDOW SESSION (5 MINUTES) GROUP BY k"),
    ("ksqlDB", "FILTER(m, (k, v) => v > 1)"),
    ("ksqlDB", "TRANSFORM(m, (k, v) => UCASE(k), (k, v) => v + 1)"),
    ("ksqlDB", "REDUCE(m, 0, (t, k, v) => t + v)"),
    ("ksqlDB", "SELECT LATEST_BY_OFFSET(v) FROM s"),
    ("ksqlDB", "SELECT EARLIEST_BY_OFFSET(v, 2, false) FROM s"),
    ("ksqlDB", "SELECT COLLECT_LIST(v) FROM s"),
    ("Flink", "SELECT LISTAGG(k, ',') FROM s"),
    ("ksqlDB", "SELECT ROWTIME, ROWOFFSET, * FROM s"),
    ("Headrace", "LATEST_BY_EVENT_TIME(v, ts)"),
    ("Headrace", "SELECT EARLIEST_BY_EVENT_TIME(v) FROM s"),
    ("ksqlDB", "SELECT s.k FROM s JOIN r WITHIN 1 HOUR ON s.k = r.k"),
    (
        "ksqlDB",
        "SELECT s.k FROM s LEFT JOIN r WITHIN (1 HOUR, 2 DAYS) GRACE PERIOD 1 DAY ON s.k = r.k",
    ),
    ("ksqlDB", "SELECT k, v FROM s PARTITION BY v"),
    ("PostgreSQL, Flink", "SELECT k FROM s ORDER BY v OFFSET 2 ROWS FETCH NEXT 5 ROWS ONLY"),
    ("PostgreSQL", "SELECT ts AT TIME ZONE 'Europe/Berlin' AS shown FROM s"),
    ("PostgreSQL", "SELECT wall AT TIME ZONE 'Europe/Berlin' AS moment FROM s"),
    ("any", "\u2018typographic quotes\u2019"),
)
"""Forms that are more than a call, each with the dialect that has it."""

FURTHER_FORMS = (
    ("AVG(a)", "0 if all are NULL"),
    ("SUM(a)", "0 if all are NULL"),
    ("REDUCE(a, 0, (s, x) => s + x)", "the start where a is NULL"),
    ("ROUND(a, 2)", "halves go up"),
    ("SPLIT(a, TO_BYTES(b, 'utf8'))", "bytes"),
)
"""Functions that mean something else in a query over relations of ksqlDB, likewise."""

MEANT_FORMS = (
    ("ARRAY_SORT(a, 'DESC')", "NULLs last"),
    ("DATEADD(DAY, 1, a)", "a date stays a date"),
    ("ELT(a, b, c)", "NULL where there is no such value"),
    ("TRIM(a)", "control characters, too"),
)
"""Functions that mean something else in ksqlDB, with more than a template."""

_HEAD = """\
# Other dialects

This page is generated by `python tests/dialects_table.py` from the tables in the code. A query is Spark SQL; the forms on this page are
translated to Spark SQL before Spark parses the query. Functions that Spark has under the same name with the same meaning need no
translation and are not listed. Every row is compared with plain Spark in `tests/views/test_dialects.py`, `test_dialect_windows.py`,
`test_dialect_streams.py` and `test_dialect_clauses.py`.

## Functions

| dialect | written | read as | |
|---|---|---|---|
"""

_MEANINGS_HEAD = """
## In a query of ksqlDB

A query is read as ksqlDB as a whole if it has one of the forms that only ksqlDB has: `struct->field`; `x => ...` in a function such as
`TRANSFORM`; `STRUCT(a := 1)` and `MAP('k' := 1)`; `WINDOW TUMBLING (...)`, `HOPPING` and `SESSION`; `JOIN ... WITHIN 1 HOUR`; a function
that only ksqlDB has in the table above; `LATEST_BY_OFFSET` or `EARLIEST_BY_OFFSET`. Or if it reads a stream or table that was declared with
`kafka_topic` or `value_format`, or one that `CREATE STREAM ... AS` or `CREATE TABLE ... AS` made by a query of ksqlDB. In such a query,

- array indexes begin at 1: `l[1]` is the first element, `l[-1]` the last, an index out of range gives NULL, and `l[0]` is refused;
- a backslash in a string is a plain character, as in `'\\d+'`;
- `COLLECT_LIST` and `COLLECT_SET` over a stream keep NULLs;
- `s.v, r.v` of a join are named `s_v` and `r_v`, and so are all columns of `*`;
- `STDDEV_SAMP`, which is the variance in older versions, is refused: use `STDDEV_SAMPLE`;
- these functions, which have another meaning in Spark, have their meaning in ksqlDB:

| written | read as | |
|---|---|---|
"""

_FURTHER_HEAD = """
A query over relations that were declared as in ksqlDB (by this version or a later one) has these meanings, too:

| written | read as | |
|---|---|---|
"""

_FURTHER_END = """
`CREATE STREAM ... AS` is a statement of ksqlDB alone, as is `CREATE TABLE ... AS` with `kafka_topic` or `value_format`. Where nothing that its
query reads or has says that it is ksqlDB's, the functions of these two tables are refused, since ksqlDB and Spark give them different meanings.

A NULL within an array does not make `TRANSFORM` or `REDUCE` fail, as it may in ksqlDB: `TRANSFORM(ARRAY[5, NULL], x => x * 2)` is `[10, NULL]`
here, and NULL there. `SPLIT` takes bytes if its delimiter is written as `TO_BYTES(...)`.

Where an array is indexed by a constant and no `[0]` shows where indexes begin, `EXPLAIN` and the message of `CREATE` say it.
"""

_FORMS_HEAD = """
## Other forms

| dialect | written | read as |
|---|---|---|
"""

_REFUSED_HEAD = """
## What is refused

A form of another dialect without an equivalent in Spark is refused at its place, with an alternative in the hint: for example patterns
of `TO_CHAR` with fields that Java's patterns do not have, and windows of months. A few forms are refused because Spark and other dialects
give them different meanings, so that the query could silently return other rows than its author meant:

| form | as in Spark | as elsewhere |
|---|---|---|
| `EXTRACT(DOW FROM x)`, Sunday is 1 in Spark, 0 in PostgreSQL and Snowflake | `dayofweek(x)` | `dayofweek(x) - 1` |
| `DATEDIFF(MONTH, a, b)`, whole units in Spark, boundaries crossed in Snowflake | `TIMESTAMPDIFF(MONTH, a, b)` | parts subtracted, as `year(b) - year(a)`; `datediff(b, a)` for days |
| `SPLIT(x, '.')`, a regular expression in Spark, a text elsewhere | `SPLIT(x, '')` has a text's characters | `SPLIT(x, '[.]')` |
| `REGEXP_EXTRACT('pattern', x)`, the text first in Spark, the pattern first in ksqlDB | | `REGEXP_EXTRACT(x, 'pattern')` |
| `CAST(x AS VARCHAR(3))`, which Spark does not cut off | `CAST(x AS STRING)` | `left(CAST(x AS STRING), 3)` |

These functions have no equivalent:

| function | of | why | instead |
|---|---|---|---|
"""

_DIFFERENT_HEAD = """
## Same form, different meaning

If Spark and another dialect use the same form with different meanings, and the text does not show which one is meant, the form has
Spark's meaning.

| written | here | elsewhere |
|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    calls = [
        f"| {', '.join(call.dialects)} | {_code(written)} | {_code(_reading(written))} | {call.note} |"
        for call in CALLS
        for written in [_written(call)]
    ]
    meanings = [
        f"| {_code(written)} | {_code(_meaning(written))} | {note} |"
        for written, note in (*((_written(call), call.note) for call in MEANINGS), *MEANT_FORMS)
    ]
    further = [
        f"| {_code(written)} | {_code(_declared(written))} | {note} |"
        for written, note in (*((_written(call), call.note) for call in FURTHER), *FURTHER_FORMS)
    ]
    forms = [f"| {dialect} | {_code(text)} | {_code(_reading(text))} |" for dialect, text in FORMS]
    refused = [
        f"| {_code(name)} | {why.dialects} | {why.reason} | {why.hint} |"
        for name, why in REFUSED_CALLS.items()
    ]
    different = [f"| {_code(d.written)} | {d.here} | {d.elsewhere} |" for d in DIFFERENCES]
    parts = [
        _HEAD,
        *calls,
        _MEANINGS_HEAD,
        *meanings,
        _FURTHER_HEAD,
        *further,
        _FURTHER_END,
        _FORMS_HEAD,
        *forms,
        _REFUSED_HEAD,
        *refused,
        _DIFFERENT_HEAD,
        *different,
    ]
    return "\n".join(part.removesuffix("\n") for part in parts) + "\n"


def _written(call):
    arguments = ["a", "b"] if "{*}" in call.template else list("abcdef"[: call.arguments])
    return f"{call.name}({', '.join(arguments)})"


def _reading(text: str) -> str:
    whole = text if text.startswith("SELECT") else f"SELECT {text}"
    return " ".join(
        spark_text(Span(whole, 0, len(whole)), RELATIONS)
        .text.removeprefix(whole[: -len(text)])
        .split()
    )


def _meaning(text: str) -> str:
    """Return how a call is read in a query of ksqlDB."""
    return _reading(f"SELECT s->f, {text}").removeprefix("SELECT s.f, ")


def _declared(text: str) -> str:
    """Return how a call is read in a query over a relation of ksqlDB."""
    whole = f"SELECT {text} FROM s"
    read = spark_text(Span(whole, 0, len(whole)), DECLARED).text
    return " ".join(read.split()).removeprefix("SELECT ").removesuffix(" FROM s")


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
