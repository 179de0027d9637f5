"""Functions of other dialects that are refused, and those whose name means two things: data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A function that is refused wherever it is called: why, and what to use instead."""

    dialects: str
    reason: str
    hint: str


_PROCESSING = "It is the time of processing, so the same rows would give another answer each time."
_EVENT = "Use a time in the data; compare it with now() in WHERE."
_JSON_HINT = "Use get_json_object(x, '$.path'), or parse_json(x):path."
_JSON_REASON = "Objects and arrays give NULL there, and their text in Spark's functions."

REFUSED_CALLS: dict[str, RefusedCall] = {
    "PROCTIME": RefusedCall("Flink", _PROCESSING, _EVENT),
    "CURRENT_ROW_TIMESTAMP": RefusedCall("Flink", _PROCESSING, _EVENT),
    "CURRENT_WATERMARK": RefusedCall(
        "Flink", "Late rows are not dropped, so nothing depends on a watermark.", _EVENT
    ),
    "COLLECT": RefusedCall(
        "Flink", "Spark has no multisets.", "Use sort_array(collect_list(x)), or count by value."
    ),
    "JSON_VALUE": RefusedCall("Flink, BigQuery", _JSON_REASON, _JSON_HINT),
    "JSON_QUERY": RefusedCall("Flink, BigQuery", _JSON_REASON, _JSON_HINT),
    "JSON_EXTRACT_SCALAR": RefusedCall("BigQuery", _JSON_REASON, _JSON_HINT),
    "AGE": RefusedCall(
        "PostgreSQL",
        "Its result has months and days at once, which Spark's intervals have not.",
        "Use timestampdiff(unit, start, end), or end - start.",
    ),
    "IEEE_DIVIDE": RefusedCall(
        "BigQuery",
        "It gives infinity and NaN where a divisor is 0.",
        "Use try_divide(a, b), which gives NULL.",
    ),
}
"""Functions by name; those that Spark itself has and we refuse are in the fence of the planner."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is written alike in Spark and elsewhere, where Spark's meaning stands."""

    written: str
    here: str
    elsewhere: str


DIFFERENCES: tuple[Difference, ...] = (
    Difference("5 / 2", "2.5, as in BigQuery and Snowflake", "2 in PostgreSQL and Flink: use DIV"),
    Difference("ORDER BY x", "NULLs first, last with DESC", "the other way round in PostgreSQL"),
    Difference(
        '"x"',
        "a text, as in BigQuery; a name in a query that has one beside FROM, JOIN, AS or a dot",
        "always a name in PostgreSQL and Snowflake: use `x`",
    ),
    Difference("concat(a, b)", "NULL if one is", "PostgreSQL and ksqlDB pass over NULLs"),
    Difference(
        "greatest(a, b)", "NULLs are passed over", "NULL if one is, in BigQuery and Snowflake"
    ),
    Difference("log(x)", "the natural logarithm", "to base 10 in PostgreSQL"),
    Difference(
        "a[1]",
        "the second element; after an arrow, as in s->a[1], the first",
        "the first in PostgreSQL, Flink and ksqlDB",
    ),
    Difference("a ^ b", "exclusive or, as in BigQuery", "a power in PostgreSQL: use pow(a, b)"),
    Difference("array_agg(x)", "without NULLs", "with them in PostgreSQL; with ORDER BY, here too"),
    Difference("regexp_replace(x, p, r)", "all matches", "the first one in PostgreSQL"),
    Difference("CAST(2.5 AS INT)", "2: cuts off", "3 in PostgreSQL and BigQuery: use round(x)"),
    Difference("array_to_string(x, ',')", "passes over NULLs", "'' for each in Snowflake"),
    Difference("array_position(x, y)", "0 if it is not there", "NULL in PostgreSQL"),
    Difference("left(x, -2), right(x, -2)", "''", "without two characters in PostgreSQL"),
    Difference("initcap('a-b')", "A-b", "A-B in PostgreSQL and Snowflake"),
    Difference("dayofweek(x)", "1 on Sundays", "0 in Snowflake"),
    Difference("add_months(x, n)", "keeps the day", "keeps the last of a month in Snowflake"),
    Difference("mask(x)", "other signs stay", "they become - in ksqlDB"),
    Difference("url_extract_path(x), ...", "as written", "decoded in ksqlDB: use url_decode(x)"),
    Difference("x ->> 'a'", "1.5 of 1.50: a number", "as written in PostgreSQL"),
    Difference(
        "regexp_extract(x, p)", "group 1, '' without a match", "NULL without a match in BigQuery"
    ),
    Difference(
        "regexp_like(x, p)", "true if a part matches", "only if the whole does, in Snowflake"
    ),
    Difference("from_unixtime(x)", "a text, of seconds", "a timestamp, of milliseconds, in ksqlDB"),
    Difference("unix_timestamp(x)", "seconds", "milliseconds in ksqlDB"),
    Difference("substr(x, 0)", "begins at the first character", "before it in PostgreSQL"),
    Difference("timestampdiff(u, a, b)", "whole units that passed", "boundaries in Snowflake"),
    Difference("EXTRACT(WEEK FROM x)", "ISO weeks", "weeks from Sunday in BigQuery"),
    Difference(
        "ts TIMESTAMP, ts AT TIME ZONE z",
        "a moment, and what the clocks show then",
        "the other way round in PostgreSQL, whose TIMESTAMP is TIMESTAMP_NTZ here",
    ),
    Difference(
        "CAST(x AS TIMESTAMP(3))", "keeps microseconds", "rounds to milliseconds in PostgreSQL"
    ),
    Difference(
        "CAST(x AS DECIMAL)", "DECIMAL(38,9): cents are kept", "DECIMAL(10,0) in Flink and Spark"
    ),
    Difference(
        "first_value(x), last_value(x)",
        "by the values of all columns",
        "by arrival in Flink: use LATEST_BY_OFFSET",
    ),
)
"""What a reader of another dialect may expect otherwise."""
