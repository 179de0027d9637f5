"""A table of forms that Spark and other dialects share with different meanings.

Spark's meaning applies. Functions that have ksqlDB's meaning in a query of ksqlDB are in
:mod:`headrace.dialects.ksqldb`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A form that Spark and other dialects share with different meanings. Spark's applies."""

    written: str
    here: str
    elsewhere: str
    functions: str = ""
    """The names of the described functions, separated by spaces, in lower case."""


DIFFERENCES: tuple[Difference, ...] = (
    Difference("5 / 2", "2.5, as in BigQuery and Snowflake", "2 in PostgreSQL and Flink: use DIV"),
    Difference("ORDER BY x", "NULLs first, last with DESC", "the other way round in PostgreSQL"),
    Difference(
        '"x"',
        "a text, as in BigQuery; a name in a query that has one beside FROM, JOIN, AS or a dot",
        "always a name in PostgreSQL and Snowflake: use `x`",
    ),
    Difference("concat(a, b)", "NULL if one is", "PostgreSQL skips NULLs", "concat"),
    Difference(
        "greatest(a, b)",
        "NULLs are passed over",
        "NULL if one is, in BigQuery, Snowflake and Flink",
        "greatest least",
    ),
    Difference(
        "arg_max(x, y), arg_min(x, y)",
        "NULL if x is NULL there, as max_by and min_by",
        "rows in which x is NULL are skipped in DuckDB",
    ),
    Difference(
        "transform(a, x -> x * 2)",
        "a NULL element gives a NULL",
        "the whole array is NULL in ksqlDB, where the expression fails on it",
        "transform",
    ),
    Difference("log(x)", "the natural logarithm", "to base 10 in PostgreSQL", "log"),
    Difference(
        "a[1]",
        "the second element; the first in a query of ksqlDB",
        "the first in PostgreSQL and Flink",
    ),
    Difference("a ^ b", "exclusive or, as in BigQuery", "a power in PostgreSQL: use pow(a, b)"),
    Difference(
        "array_agg(x)",
        "without NULLs",
        "with them in PostgreSQL and Flink; with ORDER BY, here, too",
        "array_agg collect_list collect_set",
    ),
    Difference(
        "regexp_replace(x, p, r)", "all matches", "the first one in PostgreSQL", "regexp_replace"
    ),
    Difference("CAST(2.5 AS INT)", "2: cuts off", "3 in PostgreSQL and BigQuery: use round(x)"),
    Difference("array_to_string(x, ',')", "skips NULLs", "'' for each in Snowflake"),
    Difference(
        "array_position(x, y)",
        "from 1; 0 if it is not there",
        "NULL in PostgreSQL; from 0 in Snowflake",
        "array_position",
    ),
    Difference(
        "left(x, -2), right(x, -2)", "''", "without two characters in PostgreSQL", "left right"
    ),
    Difference(
        "initcap('a-b')", "A-b", "A-B in PostgreSQL, Snowflake, BigQuery and Flink", "initcap"
    ),
    Difference("dayofweek(x)", "1 on Sundays", "0 in Snowflake", "dayofweek"),
    Difference(
        "add_months(x, n)", "keeps the day", "keeps the last of a month in Snowflake", "add_months"
    ),
    Difference(
        "a stream JOIN a table", "rows change as the table does", "keep what they met, in ksqlDB"
    ),
    Difference("GROUP BY x", "NULL is a group", "rows with NULL are left out in ksqlDB"),
    Difference("a group without rows", "goes", "stays, with a count of 0, in a table of ksqlDB"),
    Difference("x = NULL, x <> NULL", "NULL, so no row", "false, and true, in ksqlDB"),
    Difference(
        "a hopping window", "may begin before 1970", "begins in 1970 at the earliest, in ksqlDB"
    ),
    Difference("an expression that fails", "stops its view", "is NULL, and in the log, in ksqlDB"),
    Difference("url_extract_path(x), ...", "as written", "decoded in ksqlDB: use url_decode(x)"),
    Difference("x ->> 'a'", "1.5 of 1.50: a number", "as written in PostgreSQL"),
    Difference(
        "regexp_like(x, p)",
        "true if a part matches",
        "only if the whole does, in Snowflake",
        "regexp_like rlike regexp",
    ),
    Difference(
        "substr(x, 0)",
        "begins at the first character",
        "before it in PostgreSQL",
        "substr substring",
    ),
    Difference(
        "timestampdiff(u, a, b)",
        "whole units that passed",
        "boundaries in Snowflake",
        "timestampdiff",
    ),
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
        "first_value last_value",
    ),
    Difference(
        r"'\d'",
        "a backslash escapes, as in BigQuery and Snowflake",
        r"it is itself in PostgreSQL and Flink: write r'\d', or '\\d'",
    ),
    Difference(
        "chr(n)",
        "the character n % 256; a literal beyond is refused",
        "that of any code in ksqlDB, PostgreSQL and Snowflake",
        "chr",
    ),
    Difference(
        "trim(x)",
        "takes blanks",
        "white space of any kind in BigQuery and ksqlDB",
        "trim ltrim rtrim",
    ),
    Difference(
        "slice(x, 2, 3)",
        "three elements from the second",
        "the second and the third in ksqlDB",
        "slice",
    ),
    Difference(
        "DATEADD(DAY, n, x)",
        "a timestamp",
        "a date where x is one, in ksqlDB and Snowflake: DATEADD('day', n, x) keeps it",
        "dateadd",
    ),
    Difference(
        "stddev_samp(x)",
        "the standard deviation",
        "the variance in older versions of ksqlDB",
        "stddev_samp",
    ),
    Difference(
        "unix_timestamp(x), from_unixtime(x)",
        "seconds, and a text of them",
        "milliseconds, and a timestamp of them, in ksqlDB",
        "unix_timestamp from_unixtime",
    ),
    Difference(
        "ceil(x), floor(x), sign(x)",
        "BIGINT for DOUBLE; sign is DOUBLE",
        "the type of x elsewhere",
        "ceil ceiling floor sign",
    ),
    Difference(
        "round(x)",
        "halves go away from zero",
        "up in ksqlDB; to even for DOUBLE in PostgreSQL",
        "round",
    ),
    Difference(
        "avg(x)",
        "DOUBLE for integers",
        "an integer in Flink; an exact number in PostgreSQL and Snowflake",
        "avg",
    ),
    Difference(
        "ln(0), log10(0), log2(0)",
        "NULL, and of less than 0",
        "an error in PostgreSQL, BigQuery and Snowflake; infinity and NaN in Flink and ksqlDB",
        "ln log10 log2 log",
    ),
    Difference("log(a, b)", "the base is a", "the base is b in BigQuery", "log"),
    Difference("sqrt(-1)", "NaN", "an error in PostgreSQL, BigQuery and Snowflake", "sqrt"),
    Difference(
        "factorial(21)",
        "NULL: beyond BIGINT",
        "an exact number in PostgreSQL and Snowflake",
        "factorial",
    ),
    Difference(
        "lpad(x, -1, 'a')", "''", "NULL in ksqlDB and Flink; an error in BigQuery", "lpad rpad"
    ),
    Difference("repeat(x, -1)", "''", "an error in BigQuery", "repeat"),
    Difference("mask(x)", "other signs stay", "they become - in ksqlDB", "mask"),
    Difference(
        "array_contains(x, NULL)",
        "NULL",
        "true where x has a NULL, in Flink and ksqlDB",
        "array_contains",
    ),
    Difference("array_join(x, ',')", "skips NULLs", "shows them as null in ksqlDB", "array_join"),
    Difference(
        "array_remove(x, NULL)",
        "NULL",
        "x without its NULLs in PostgreSQL, Flink and ksqlDB",
        "array_remove",
    ),
    Difference(
        "array_append(NULL, y)",
        "NULL",
        "[y] in PostgreSQL, whose array_prepend has the element first",
        "array_append array_prepend",
    ),
    Difference(
        "array_insert(x, 1, y)", "at the first place", "at the second in Snowflake", "array_insert"
    ),
    Difference(
        "array_except(x, y)",
        "each element once",
        "as often as it is more in x, in Snowflake",
        "array_except",
    ),
    Difference(
        "arrays_overlap(x, y)",
        "NULL where only NULLs are in both",
        "true in Snowflake",
        "arrays_overlap",
    ),
    Difference("array_sort(x)", "NULLs last", "first in Flink", "array_sort"),
    Difference("elt(5, 'a')", "an error", "NULL in ksqlDB and Flink", "elt"),
    Difference("str_to_map(x)", "at , and :", "at , and = in Flink", "str_to_map"),
    Difference(
        "regexp_extract(x, p)",
        "group 1, '' without a match",
        "the whole match, NULL without one, in Flink and ksqlDB; NULL in BigQuery",
        "regexp_extract",
    ),
    Difference(
        "regexp_extract_all(x, p)", "group 1", "the pattern first in ksqlDB", "regexp_extract_all"
    ),
    Difference("concat_ws(',', a, b)", "skips NULLs", "NULL if one is, in Snowflake", "concat_ws"),
    Difference(
        "string_agg(x), listagg(x)",
        "nothing between the texts",
        "a comma in BigQuery and Flink",
        "string_agg listagg",
    ),
    Difference(
        "encode(x, c), decode(x, c)",
        "c is a character set; of hex, an error",
        "hex or base64 in PostgreSQL",
        "encode decode",
    ),
    Difference("from_base64(x)", "bytes, as in BigQuery", "a text in Flink"),
    Difference("md5(x), sha1(x)", "hexadecimal digits", "bytes in BigQuery", "md5 sha1"),
    Difference("hash(x)", "Spark's hash, an INT", "another one, of 64 bits, in Snowflake", "hash"),
    Difference(
        "to_json(x)",
        "leaves out fields that are NULL",
        "null in PostgreSQL and BigQuery",
        "to_json",
    ),
    Difference("json_object_keys(x)", "an array", "rows in PostgreSQL", "json_object_keys"),
    Difference(
        "typeof(x)",
        "Spark's name of the type",
        "another one elsewhere; that of a VARIANT's content in Snowflake",
        "typeof",
    ),
    Difference(
        "url_decode(x)",
        "an error where x is not encoded: try_url_decode",
        "NULL in Flink",
        "url_decode",
    ),
    Difference("approx_top_k(x, k)", "structs", "arrays in Snowflake", "approx_top_k"),
    Difference("kurtosis(x)", "of the population", "of a sample in Snowflake", "kurtosis"),
    Difference(
        "months_between(a, b)", "8 digits after the point", "6 in Snowflake", "months_between"
    ),
    Difference("xpath(xml, path)", "the text first", "the path first in PostgreSQL", "xpath"),
)
"""Forms with a meaning that users of other dialects may not expect."""
