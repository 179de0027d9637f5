"""A table of functions of other dialects that translate to one Spark expression.

A template has ``{0}``, ``{1}``, ... for the arguments, and ``{filter}`` at the place of the FILTER
clause that follows the call of an aggregate function. Without it, the clause stays after the call.

A table of forms that Spark and other dialects share with different meanings.

Spark's meaning applies. Functions that have ksqlDB's meaning in a query of ksqlDB are in
:mod:`headrace.planning.dialects.ksqldb`.
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
