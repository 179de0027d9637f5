"""Functions of other dialects that are one expression of Spark's: the table, as data.

A template has ``{0}``, ``{1}``, ... for the arguments, and ``{filter}`` where a FILTER clause
goes that follows the call of an aggregate function; without it, what follows simply stays.
"""

from __future__ import annotations

from dataclasses import dataclass

FLINK = "Flink"
KSQL = "ksqlDB"
POSTGRES = "PostgreSQL"
BIGQUERY = "BigQuery"
SNOWFLAKE = "Snowflake"


@dataclass(frozen=True, slots=True)
class Call:
    """A function and what a call of it, with as many arguments as the template, stands for."""

    name: str
    dialects: tuple[str, ...]
    template: str
    note: str = ""
    arity: int | None = None
    """The number of arguments; by default, one more than the highest of the template."""

    @property
    def arguments(self) -> int:
        """How many arguments a call has that the template is for."""
        if self.arity is not None:
            return self.arity
        return max((i + 1 for i in range(9) if f"{{{i}}}" in self.template), default=0)


def _call(
    name: str, dialects: str, template: str, note: str = "", arity: int | None = None
) -> Call:
    return Call(name, tuple(dialects.split()), template, note, arity)


_TOP = "slice(sort_array({collected}({{0}}){{filter}}, false), 1, {{1}})"

_DIV0 = "CASE WHEN ({1}) = 0 AND ({0}) IS NOT NULL THEN 0 ELSE ({0}) / ({1}) END"

_HALF = "pow(sin(radians(({{{0}}}) - ({{{1}}})) / 2), 2)"
_AROUND = f"cos(radians({{0}})) * cos(radians({{2}})) * {_HALF.format(3, 1)}"
_GREAT_CIRCLE = f"(2 * 6371 * asin(sqrt({_HALF.format(2, 0)} + {_AROUND})))"

CALLS: tuple[Call, ...] = (
    # -- ksqlDB
    _call("AS_VALUE", KSQL, "({0})"),
    _call("COUNT_DISTINCT", KSQL, "count(DISTINCT {0})"),
    _call("TOPK", KSQL, _TOP.format(collected="collect_list"), "the largest, without NULLs"),
    _call("TOPKDISTINCT", KSQL, _TOP.format(collected="collect_set"), "the largest, each once"),
    _call("STRINGTOTIMESTAMP", KSQL, "unix_millis(try_to_timestamp({0}, {1}))", "milliseconds"),
    _call("TIMESTAMPTOSTRING", KSQL, "date_format(timestamp_millis({0}), {1})", "in UTC"),
    _call(
        "TIMESTAMPTOSTRING",
        KSQL,
        "date_format(from_utc_timestamp(timestamp_millis({0}), {2}), {1})",
    ),
    _call("STRINGTODATE", KSQL, "unix_date(to_date({0}, {1}))", "days"),
    _call("DATETOSTRING", KSQL, "date_format(date_from_unix_date({0}), {1})"),
    _call("EXTRACTJSONFIELD", KSQL, "get_json_object({0}, {1})"),
    _call("URL_EXTRACT_HOST", KSQL, "try_parse_url({0}, 'HOST')"),
    _call("URL_EXTRACT_PATH", KSQL, "try_parse_url({0}, 'PATH')"),
    _call("URL_EXTRACT_PROTOCOL", KSQL, "try_parse_url({0}, 'PROTOCOL')"),
    _call("URL_EXTRACT_QUERY", KSQL, "try_parse_url({0}, 'QUERY')"),
    _call("URL_EXTRACT_PARAMETER", KSQL, "try_parse_url({0}, 'QUERY', {1})"),
    _call("CORRELATION", KSQL, "corr({0}, {1})"),
    _call("GEO_DISTANCE", KSQL, _GREAT_CIRCLE, "kilometres"),
    # -- Flink
    _call("SPLIT_INDEX", FLINK, r"get(split({0}, concat('\\Q', {1}, '\\E'), -1), {2})", "from 0"),
    _call("SUM0", FLINK, "zeroifnull(sum({0}){filter})"),
    _call("ROW", f"{FLINK} {POSTGRES}", "struct({*})"),
    # -- PostgreSQL
    _call("STRPOS", f"{POSTGRES} {BIGQUERY}", "instr({0}, {1})"),
    _call("ARRAY_TO_STRING", f"{POSTGRES} {BIGQUERY} {SNOWFLAKE}", "array_join({0}, {1})"),
    _call("ARRAY_TO_STRING", f"{POSTGRES} {BIGQUERY}", "array_join({0}, {1}, {2})"),
    _call("ARRAY_CAT", f"{POSTGRES} {SNOWFLAKE}", "concat({0}, {1})"),
    _call("STARTS_WITH", f"{POSTGRES} {BIGQUERY}", "startswith({0}, {1})"),
    _call("ENDS_WITH", BIGQUERY, "endswith({0}, {1})"),
    _call("MZ_NOW", "Materialize", "now()", "the clock"),
    _call("GEN_RANDOM_UUID", POSTGRES, "uuid()", "in INSERT, UPDATE and SELECT"),
    # -- BigQuery
    _call("GENERATE_UUID", BIGQUERY, "uuid()", "in INSERT, UPDATE and SELECT"),
    _call("SAFE_DIVIDE", BIGQUERY, "try_divide({0}, {1})"),
    _call("SAFE_ADD", BIGQUERY, "try_add({0}, {1})"),
    _call("SAFE_SUBTRACT", BIGQUERY, "try_subtract({0}, {1})"),
    _call("SAFE_MULTIPLY", BIGQUERY, "try_multiply({0}, {1})"),
    _call("COUNTIF", BIGQUERY, "count_if({0})"),
    _call("LOGICAL_AND", BIGQUERY, "bool_and({0})"),
    _call("LOGICAL_OR", BIGQUERY, "bool_or({0})"),
    _call("DIV", f"{BIGQUERY} {POSTGRES}", "(({0}) div ({1}))"),
    _call("ARRAY_LENGTH", f"{BIGQUERY} {KSQL}", "array_size({0})"),
    _call("ARRAY_REVERSE", BIGQUERY, "reverse({0})"),
    _call("ARRAY_CONCAT", f"{BIGQUERY} {FLINK}", "concat({*})"),
    _call("BYTE_LENGTH", BIGQUERY, "octet_length({0})"),
    _call("REGEXP_CONTAINS", BIGQUERY, "regexp_like({0}, {1})"),
    _call("TO_HEX", BIGQUERY, "lower(hex({0}))"),
    _call("FROM_HEX", BIGQUERY, "unhex({0})"),
    _call("TO_BASE64", BIGQUERY, r"replace(base64({0}), '\r\n', '')"),
    _call("FROM_BASE64", BIGQUERY, "unbase64({0})"),
    # -- Snowflake
    _call("UUID_STRING", SNOWFLAKE, "uuid()", "in INSERT, UPDATE and SELECT"),
    _call("IFF", SNOWFLAKE, "if({0}, {1}, {2})"),
    _call("DIV0", SNOWFLAKE, _DIV0),
    _call("TO_VARCHAR", SNOWFLAKE, "CAST({0} AS STRING)"),
    _call("TO_CHAR", SNOWFLAKE, "CAST({0} AS STRING)"),
    _call("TO_DOUBLE", SNOWFLAKE, "CAST({0} AS DOUBLE)"),
    _call("TO_BOOLEAN", SNOWFLAKE, "CAST({0} AS BOOLEAN)"),
    _call("TO_DECIMAL", SNOWFLAKE, "CAST({0} AS DECIMAL({1}, {2}))"),
    _call("TO_NUMBER", SNOWFLAKE, "CAST({0} AS DECIMAL({1}, {2}))"),
    _call("CHARINDEX", SNOWFLAKE, "locate({0}, {1})"),
    _call("CHARINDEX", SNOWFLAKE, "locate({0}, {1}, {2})"),
    _call("BOOLAND_AGG", SNOWFLAKE, "bool_and({0})"),
    _call("BOOLOR_AGG", SNOWFLAKE, "bool_or({0})"),
    _call("EDITDISTANCE", SNOWFLAKE, "levenshtein({0}, {1})"),
    _call("ARRAY_CONSTRUCT", SNOWFLAKE, "array({*})"),
    _call("DATE_FROM_PARTS", SNOWFLAKE, "make_date({0}, {1}, {2})"),
)  # fmt: skip
