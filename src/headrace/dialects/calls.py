"""A table of functions of other dialects that translate to one Spark expression.

A template has ``{0}``, ``{1}``, ... for the arguments, and ``{filter}`` at the place of the FILTER
clause that follows the call of an aggregate function. Without it, the clause stays after the call.
"""

from __future__ import annotations

from dataclasses import dataclass

FLINK = "Flink"
KSQL = "ksqlDB"
POSTGRES = "PostgreSQL"
BIGQUERY = "BigQuery"
SNOWFLAKE = "Snowflake"
MYSQL = "MySQL"
TRINO = "Trino"
CALCITE = "Calcite"
DUCKDB = "DuckDB"


@dataclass(frozen=True, slots=True)
class CallTemplate:
    """A function, and the translation of calls with as many arguments as the template has."""

    name: str
    dialects: tuple[str, ...]
    template: str
    note: str = ""
    arity: int | None = None
    """The number of arguments; by default, one more than the highest of the template."""

    @property
    def arguments(self) -> int:
        """The number of arguments of the calls that the template translates."""
        if self.arity is not None:
            return self.arity
        return max((i + 1 for i in range(9) if f"{{{i}}}" in self.template), default=0)


def call_of(
    name: str, dialects: str, template: str, note: str = "", arity: int | None = None
) -> CallTemplate:
    """Return an entry of the table; the dialects are separated by spaces."""
    return CallTemplate(name, tuple(dialects.split()), template, note, arity)


_TOP = "slice(sort_array({collected}({{0}}){{filter}}, false), 1, {{1}})"

_DIV0 = "CASE WHEN ({1}) = 0 AND ({0}) IS NOT NULL THEN 0 ELSE ({0}) / ({1}) END"

_HALF = "pow(sin(radians(({{{0}}}) - ({{{1}}})) / 2), 2)"
_AROUND = f"cos(radians({{0}})) * cos(radians({{2}})) * {_HALF.format(3, 1)}"
_GREAT_CIRCLE = f"(2 * 6371 * asin(sqrt({_HALF.format(2, 0)} + {_AROUND})))"

_PORT = "try_cast(regexp_extract(try_parse_url({0}, 'AUTHORITY'), ':([0-9]+)$', 1) AS INT)"
_RECORDS = (
    "transform_values(try_cast(try_parse_json({0}) AS MAP<STRING, VARIANT>),"
    " (__k, __v) -> to_json(__v))"
)
_ITEMS = "transform(try_cast(try_parse_json({0}) AS ARRAY<VARIANT>), __v -> to_json(__v))"
_JSON = (
    "regexp_extract(to_json(named_struct('v', {0}), map('ignoreNullFields', 'false')),"
    " '^.....(.*).$', 1)"
)
_BYTES = (
    "CASE lower({1}) WHEN 'hex' THEN unhex({0}) WHEN 'base64' THEN unbase64({0})"
    " WHEN 'utf8' THEN encode({0}, 'UTF-8') WHEN 'ascii' THEN encode({0}, 'US-ASCII') END"
)
_TEXT = (
    r"CASE lower({1}) WHEN 'hex' THEN hex({0}) WHEN 'base64' THEN replace(base64({0}), '\r\n', '')"
    " WHEN 'utf8' THEN decode({0}, 'UTF-8') WHEN 'ascii' THEN decode({0}, 'US-ASCII') END"
)
_ZONED = "CAST(convert_timezone({1}, {2}, CAST({0} AS TIMESTAMP_NTZ)) AS TIMESTAMP)"
_PAIR = r"split(__p, concat('\\Q', {2}, '\\E'), -1)"
_PAIRS = (
    r"aggregate(filter(split({0}, concat('\\Q', {1}, '\\E'), -1), __p -> contains(__p, {2})),"
    " CAST(map() AS MAP<STRING, STRING>), (__m, __p) -> map_concat("
    f"map_filter(__m, (__k, __v) -> __k <> {_PAIR}[0]), map({_PAIR}[0], {_PAIR}[1])))"
)
_HISTOGRAM = (
    "map_from_entries(transform(array_sort(collect_set(CAST({0} AS STRING)){filter}), __v ->"
    " struct(__v, CAST(size(filter(sort_array(collect_list(CAST({0} AS STRING)){filter}),"
    " __w -> __w = __v)) AS BIGINT))))"
)
_SIGNED = (
    "CASE WHEN length({{0}}) = {} THEN CAST(conv(concat(if(hex({{0}}) >= '8', '{}', ''),"
    " hex({{0}})), 16, -10) AS {}) END"
)
_UNION = (
    "CASE WHEN ({0}) IS NULL THEN {1} WHEN ({1}) IS NULL THEN {0} ELSE map_concat("
    "map_filter({0}, (__k, __v) -> NOT map_contains_key({1}, __k)), {1}) END"
)
_KEYED = "transform(map_entries({0}), __e -> named_struct('K', __e.key, 'V', __e.value))"
_ENTRIES = f"if({{1}}, sort_array({_KEYED}), {_KEYED})"
_CONTAINED = (
    "coalesce(exists(try_cast(try_parse_json({0}) AS ARRAY<VARIANT>),"
    " __v -> coalesce(to_json(__v), 'null') = " + _JSON.replace("{0}", "{1}") + "), false)"
)
_CUBED = (
    "explode(aggregate({0}, array(slice({0}, 1, 0)), (__r, __x) -> flatten(transform(__r,"
    " __c -> if(__x IS NULL, array(concat(__c, array(__x))),"
    " array(concat(__c, array(nullif(__x, __x))), concat(__c, array(__x))))))))"
)
_MASK = "mask({}, 'X', 'x', 'n', '-')"
_REST = "substring({0}, ({1}) + 1)"
_BEGINNING = "left({0}, greatest(length({0}) - ({1}), 0))"
_ATTRIBUTE = (
    "CASE WHEN min({0}){filter} = max({0}){filter} AND count({0}){filter} = count(*){filter}"
    " THEN min({0}){filter} END"
)

CALLS: tuple[CallTemplate, ...] = (
    # -- ksqlDB
    call_of("AS_VALUE", KSQL, "({0})"),
    call_of("COUNT_DISTINCT", KSQL, "count(DISTINCT {0})"),
    call_of("TOPK", KSQL, _TOP.format(collected="collect_list"), "the largest, without NULLs"),
    call_of("TOPKDISTINCT", KSQL, _TOP.format(collected="collect_set"), "the largest, each once"),
    call_of("STRINGTOTIMESTAMP", KSQL, "unix_millis(try_to_timestamp({0}, {1}))", "milliseconds"),
    call_of("TIMESTAMPTOSTRING", KSQL, "date_format(timestamp_millis({0}), {1})", "in UTC"),
    call_of(
        "TIMESTAMPTOSTRING",
        KSQL,
        "date_format(from_utc_timestamp(timestamp_millis({0}), {2}), {1})",
    ),
    call_of("STRINGTODATE", KSQL, "unix_date(try_to_date({0}, {1}))", "days"),
    call_of("DATETOSTRING", KSQL, "date_format(date_from_unix_date({0}), {1})"),
    call_of("EXTRACTJSONFIELD", KSQL, "get_json_object({0}, {1})"),
    call_of("URL_EXTRACT_HOST", f"{KSQL} {TRINO}", "try_parse_url({0}, 'HOST')"),
    call_of("URL_EXTRACT_PATH", f"{KSQL} {TRINO}", "try_parse_url({0}, 'PATH')"),
    call_of("URL_EXTRACT_PROTOCOL", f"{KSQL} {TRINO}", "try_parse_url({0}, 'PROTOCOL')"),
    call_of("URL_EXTRACT_QUERY", f"{KSQL} {TRINO}", "try_parse_url({0}, 'QUERY')"),
    call_of("URL_EXTRACT_PARAMETER", f"{KSQL} {TRINO}", "try_parse_url({0}, 'QUERY', {1})"),
    call_of("CORRELATION", KSQL, "corr({0}, {1})"),
    call_of("GEO_DISTANCE", KSQL, _GREAT_CIRCLE, "kilometres"),
    call_of("URL_EXTRACT_PORT", f"{KSQL} {TRINO}", _PORT),
    call_of("URL_EXTRACT_FRAGMENT", f"{KSQL} {TRINO}", "try_parse_url({0}, 'REF')"),
    call_of("URL_ENCODE_PARAM", KSQL, "url_encode({0})"),
    call_of("URL_DECODE_PARAM", KSQL, "try_url_decode({0})"),
    call_of("JSON_KEYS", f"{KSQL} {MYSQL}", "json_object_keys({0})"),
    call_of("JSON_RECORDS", KSQL, _RECORDS, "each value as JSON"),
    call_of("JSON_ITEMS", KSQL, _ITEMS, "each value as JSON"),
    call_of("IS_JSON_STRING", KSQL, "(try_parse_json({0}) IS NOT NULL)"),
    call_of("TO_JSON_STRING", f"{KSQL} {BIGQUERY}", _JSON),
    call_of("TO_BYTES", KSQL, _BYTES),
    call_of("FROM_BYTES", KSQL, _TEXT),
    call_of("FROM_DAYS", KSQL, "date_from_unix_date({0})"),
    call_of("CONVERT_TZ", f"{KSQL} {MYSQL}", _ZONED),
    call_of("SPLIT_TO_MAP", f"{KSQL} {TRINO}", _PAIRS, "the last value of a repeated key"),
    call_of("INT_FROM_BYTES", KSQL, _SIGNED.format(4, "FFFFFFFF", "INT"), "NULL unless 4 bytes"),
    call_of("BIGINT_FROM_BYTES", KSQL, _SIGNED.format(8, "", "BIGINT"), "NULL unless 8 bytes"),
    call_of("HISTOGRAM", KSQL, _HISTOGRAM, "rows by value, as text"),
    call_of("COUNT", f"{KSQL} {DUCKDB}", "count(*)", arity=0),
    call_of("REGEXP_SPLIT_TO_ARRAY", f"{KSQL} {POSTGRES}", "split({0}, {1})"),
    call_of("AS_MAP", KSQL, "map_from_arrays({0}, {1})"),
    call_of("MAP_UNION", f"{KSQL} {FLINK}", _UNION, "the second one's values stay"),
    call_of("ENTRIES", KSQL, _ENTRIES),
    call_of("JSON_ARRAY_CONTAINS", KSQL, _CONTAINED, "numbers by their values"),
    call_of("CUBE_EXPLODE", KSQL, _CUBED, "all combinations with NULL"),
    call_of("MASK_LEFT", KSQL, f"concat({_MASK.format('left({0}, {1})')}, {_REST})"),
    call_of("MASK_RIGHT", KSQL, f"concat({_BEGINNING}, {_MASK.format('right({0}, {1})')})"),
    call_of("MASK_KEEP_LEFT", KSQL, f"concat(left({{0}}, {{1}}), {_MASK.format(_REST)})"),
    call_of("MASK_KEEP_RIGHT", KSQL, f"concat({_MASK.format(_BEGINNING)}, right({{0}}, {{1}}))"),
    call_of("STDDEV_SAMPLE", KSQL, "stddev_samp({0})"),
    call_of("ATTR", KSQL, _ATTRIBUTE, "NULL where rows differ"),
    # -- Calcite, Spark
    call_of("ARG_MAX", f"{CALCITE} {DUCKDB}", "max_by({0}, {1})"),
    call_of("ARG_MIN", f"{CALCITE} {DUCKDB}", "min_by({0}, {1})"),
    call_of("UNIX_TIMESTAMP", "Spark", "unix_seconds(now())", "the clock", 0),
    # -- Flink
    call_of("SPLIT_INDEX", FLINK, r"get(split({0}, concat('\\Q', {1}, '\\E'), -1), {2})", "from 0"),
    call_of("SUM0", FLINK, "zeroifnull(sum({0}){filter})"),
    call_of("ROW", f"{FLINK} {POSTGRES}", "struct({*})"),
    # -- PostgreSQL
    call_of("STRPOS", f"{POSTGRES} {BIGQUERY}", "instr({0}, {1})"),
    call_of("ARRAY_TO_STRING", f"{POSTGRES} {BIGQUERY} {SNOWFLAKE}", "array_join({0}, {1})"),
    call_of("ARRAY_TO_STRING", f"{POSTGRES} {BIGQUERY}", "array_join({0}, {1}, {2})"),
    call_of("ARRAY_CAT", f"{POSTGRES} {SNOWFLAKE}", "concat({0}, {1})"),
    call_of("STARTS_WITH", f"{POSTGRES} {BIGQUERY}", "startswith({0}, {1})"),
    call_of("ENDS_WITH", BIGQUERY, "endswith({0}, {1})"),
    call_of("MZ_NOW", "Materialize", "now()", "the clock"),
    call_of("GEN_RANDOM_UUID", POSTGRES, "uuid()", "in INSERT, UPDATE and SELECT"),
    # -- BigQuery
    call_of("GENERATE_UUID", BIGQUERY, "uuid()", "in INSERT, UPDATE and SELECT"),
    call_of("SAFE_DIVIDE", BIGQUERY, "try_divide({0}, {1})"),
    call_of("SAFE_ADD", BIGQUERY, "try_add({0}, {1})"),
    call_of("SAFE_SUBTRACT", BIGQUERY, "try_subtract({0}, {1})"),
    call_of("SAFE_MULTIPLY", BIGQUERY, "try_multiply({0}, {1})"),
    call_of("COUNTIF", BIGQUERY, "count_if({0})"),
    call_of("LOGICAL_AND", BIGQUERY, "bool_and({0})"),
    call_of("LOGICAL_OR", BIGQUERY, "bool_or({0})"),
    call_of("DIV", f"{BIGQUERY} {POSTGRES}", "(({0}) div ({1}))"),
    call_of("ARRAY_LENGTH", f"{BIGQUERY} {KSQL}", "array_size({0})"),
    call_of("ARRAY_REVERSE", BIGQUERY, "reverse({0})"),
    call_of("ARRAY_CONCAT", f"{BIGQUERY} {FLINK}", "concat({*})"),
    call_of("BYTE_LENGTH", BIGQUERY, "octet_length({0})"),
    call_of("REGEXP_CONTAINS", BIGQUERY, "regexp_like({0}, {1})"),
    call_of("TO_HEX", BIGQUERY, "lower(hex({0}))"),
    call_of("FROM_HEX", BIGQUERY, "unhex({0})"),
    call_of("TO_BASE64", BIGQUERY, r"replace(base64({0}), '\r\n', '')"),
    call_of("FROM_BASE64", BIGQUERY, "unbase64({0})"),
    # -- Snowflake
    call_of("UUID_STRING", SNOWFLAKE, "uuid()", "in INSERT, UPDATE and SELECT"),
    call_of("IFF", SNOWFLAKE, "if({0}, {1}, {2})"),
    call_of("DIV0", SNOWFLAKE, _DIV0),
    call_of("TO_VARCHAR", SNOWFLAKE, "CAST({0} AS STRING)"),
    call_of("TO_CHAR", SNOWFLAKE, "CAST({0} AS STRING)"),
    call_of("TO_DOUBLE", SNOWFLAKE, "CAST({0} AS DOUBLE)"),
    call_of("TO_BOOLEAN", SNOWFLAKE, "CAST({0} AS BOOLEAN)"),
    call_of("TO_DECIMAL", SNOWFLAKE, "CAST({0} AS DECIMAL({1}, {2}))"),
    call_of("TO_NUMBER", SNOWFLAKE, "CAST({0} AS DECIMAL({1}, {2}))"),
    call_of("CHARINDEX", SNOWFLAKE, "locate({0}, {1})"),
    call_of("CHARINDEX", SNOWFLAKE, "locate({0}, {1}, {2})"),
    call_of("BOOLAND_AGG", SNOWFLAKE, "bool_and({0})"),
    call_of("BOOLOR_AGG", SNOWFLAKE, "bool_or({0})"),
    call_of("EDITDISTANCE", SNOWFLAKE, "levenshtein({0}, {1})"),
    call_of("ARRAY_CONSTRUCT", SNOWFLAKE, "array({*})"),
    call_of("DATE_FROM_PARTS", SNOWFLAKE, "make_date({0}, {1}, {2})"),
)  # fmt: skip
