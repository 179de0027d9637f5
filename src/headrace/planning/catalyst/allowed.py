"""The functions that a query may call, and the reasons why others are refused.

Only functions and plan nodes that are named here, and deterministic expressions, reach an epoch.
Spark's other functions read the machine, the session or the clock, or run arbitrary code.

Spark's operations on dates, timestamps and intervals that never fail.

Such an operation can be evaluated before it is known whether its result is needed. The value added
to a time must be a constant of at most about 10,000 years: larger or computed values may overflow.
Truncation to an unknown unit returns NULL.

What is known of expressions of Spark that other evaluators have with the same meaning.

Scans by DuckDB and evaluation over Arrow columns both rely on this; each has its own list of the
expressions that it evaluates.

Whether a value never falls as the time from which it is computed rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ByteType,
    CalendarIntervalType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
    StringType,
    YearMonthIntervalType,
)

from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import items, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType


FUNCTIONS = frozenset(
    """
    ! % & * + - / < << <= <=> = == > >= >> >>> ^ abs acos acosh add_months aes_decrypt
    aes_encrypt aggregate and any any_value approx_count_distinct approx_percentile
    approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array
    array_agg array_append array_compact array_contains array_distinct array_except
    array_insert array_intersect array_join array_max array_min array_position array_prepend
    array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip
    ascii asin asinh atan atan2 atanh avg base64 between bigint bin binary bit_and bit_count
    bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position
    bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or
    boolean bround btrim cardinality cast cbrt ceil ceiling char char_length
    character_length chr coalesce collate collation collect_list collect_set collect_union
    concat concat_ws contains conv convert_timezone corr cos cosh cot count count_if
    count_min_sketch counter_diff covar_pop covar_samp crc32 csc cume_dist date date_add
    date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff
    datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank
    div double e element_at elt encode endswith equal_null every exists exp explode
    explode_outer expm1 extract factorial filter find_in_set first first_value flatten float
    floor forall format_number format_string from_base32 from_csv from_json from_unixtime
    from_utc_timestamp from_xml get get_json_object getbit greatest grouping grouping_id
    hash hex histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg
    hmac hour hypot if ifnull ilike in initcap inline inline_outer instr int is_valid_utf8
    is_valid_variant is_variant_null isnan isnotnull isnull jaro_winkler_similarity
    json_array_length json_object_keys json_tuple kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
    kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
    kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double
    kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead least left
    len length levenshtein like listagg ln locate log log10 log1p log2 lower lpad ltrim
    luhn_check make_date make_dt_interval make_interval make_time make_timestamp
    make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
    map_values map_zip_with mask max max_by md5 mean median min min_by minute mod mode month
    monthname months_between named_struct nanvl negative next_day not nth_value ntile nullif
    nullifzero nvl nvl2 octet_length or overlay parse_json parse_url percent_rank percentile
    percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer
    position positive pow power printf quarter quote radians rank reduce regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy repeat replace reverse right rint rlike round row_number rpad rtrim
    schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg schema_of_xml sec
    second sentences sequence session_window sha sha1 sha2 shiftleft shiftright
    shiftrightunsigned sign signum sin sinh size skewness slice smallint some sort_array
    soundex space split split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid
    st_srid stack startswith std stddev stddev_pop stddev_samp str_to_map string string_agg
    struct substr substring substring_index sum tan tanh theta_difference theta_intersection
    theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union
    theta_union_agg time time_bucket time_diff time_from_micros time_from_millis
    time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp
    timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint to_base32
    to_binary to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz
    to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml
    transform transform_keys transform_values translate trim trunc try_add try_aes_decrypt
    try_avg try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json
    try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time
    try_to_timestamp try_url_decode try_validate_utf8 try_variant_array_append
    try_variant_get try_variant_insert try_variant_set tuple_difference_double
    tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double
    tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer
    tuple_union_theta_double tuple_union_theta_integer typeof ucase unbase64 unhex unix_date
    unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper url_decode
    url_encode validate_utf8 var_pop var_samp variance variant_array_append variant_delete
    variant_get variant_insert variant_set variant_strip_nulls vector_avg
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm
    vector_normalize vector_sum weekday weekofyear when width_bucket window window_time
    xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number
    xpath_short xpath_string xxhash64 year zeroifnull zip_with | ~
    """.split()  # noqa: SIM905
)
"""Spark's deterministic built-in functions, by SQL name."""


@dataclass(frozen=True, slots=True)
class FunctionRefusal:
    """The reason why a function is refused, and an alternative."""

    reason: str
    hint: str


_CLOCK = FunctionRefusal(
    "its value changes with the clock, so the view would change with no event",
    "Compare now() with a time of the row in WHERE or ON, or store the time in a column.",
)
_RANDOM = FunctionRefusal(
    "its value differs at every evaluation, so a view over it has no defined contents",
    "Compute the value before inserting it, or derive it from columns, for instance with xxhash64.",
)
_CONTEXT = FunctionRefusal(
    "its value depends on the session or on how Spark runs the query, not on the data",
    "Store the value in a column.",
)
_UNSAFE = FunctionRefusal(
    "it can run code or read files of the machine",
    "Use Spark's built-in functions.",
)
_ERROR = FunctionRefusal(
    "it would stop the view at the first row that fails",
    "Keep the rows that fail in a view of their own, with a WHERE clause.",
)
_PACKAGE = FunctionRefusal(
    "it needs a package that is not part of Spark", "Decode before inserting."
)

REFUSED: dict[str, FunctionRefusal] = {
    **dict.fromkeys(
        [
            "curdate",
            "current_date",
            "current_time",
            "current_timestamp",
            "localtime",
            "localtimestamp",
            "now",
            "unix_timestamp",
        ],
        _CLOCK,
    ),
    **dict.fromkeys(
        [
            "rand",
            "randn",
            "random",
            "randstr",
            "uniform",
            "uuid",
            "shuffle",
            "monotonically_increasing_id",
        ],
        _RANDOM,
    ),
    **dict.fromkeys(
        [
            "current_catalog",
            "current_database",
            "current_schema",
            "current_path",
            "current_timezone",
            "current_user",
            "session_user",
            "user",
            "version",
            "input_file_block_length",
            "input_file_block_start",
            "input_file_name",
            "spark_partition_id",
        ],
        _CONTEXT,
    ),
    **dict.fromkeys(["java_method", "reflect", "try_reflect"], _UNSAFE),
    **dict.fromkeys(["raise_error", "assert_true"], _ERROR),
    **dict.fromkeys(
        ["from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "measure"],
        _PACKAGE,
    ),
}
"""Built-in functions that are refused by name. ``unix_timestamp`` only without arguments."""

ONCE = frozenset(
    """
    curdate current_date current_time current_timestamp localtime localtimestamp now rand randn
    random randstr shuffle uniform unix_timestamp uuid
    """.split()  # noqa: SIM905
)
"""Functions that are refused in a view, and allowed in a query that is evaluated once.

Such queries are SELECT, and those of INSERT, UPDATE and DELETE, which write the resulting values.
"""

ALWAYS_CLOCK = frozenset(
    {
        "CurrentDate",
        "CurrentTime",
        "CurrentTimestamp",
        "Now",
        "LocalTimestamp",
        "CurrentBatchTimestamp",
    }
)
"""Expression classes that read the clock, whatever function they come from."""

OUTSIDE = {
    "CurrentUser": "current_user",
    "CurrentDatabase": "current_database",
    "CurrentCatalog": "current_catalog",
    "CurrentPath": "current_path",
    "CurrentTimeZone": "current_timezone",
    "SparkVersion": "version",
    "SparkPartitionID": "spark_partition_id",
    "InputFileName": "input_file_name",
    "InputFileBlockStart": "input_file_block_start",
    "InputFileBlockLength": "input_file_block_length",
    "CallMethodViaReflection": "reflect",
    "RaiseError": "raise_error",
    "AssertTrue": "assert_true",
    "ScalaUDF": "a function of the session",
    "PythonUDAF": "a function of the session",
}
"""Expression classes that are refused, by the function that they come from.

Functions are checked by name before Spark resolves a query; these have forms without a name.
"""

SPECIAL_TIMES = ("now", "today", "tomorrow", "yesterday")
"""Strings that Spark reads as the time at which a query is planned."""


_DAYS: Final = 3_660_000
_MONTHS: Final = 120_000
_MICROSECONDS: Final = _DAYS * 86_400_000_000
_QUANTITY: Final = 10_000
"""The most units that may be added; the largest supported unit is a year."""

_ADDING = (
    "AddMonths",
    "DateAdd",
    "DateAddYMInterval",
    "DateSub",
    "TimestampAddInterval",
    "TimestampAddYMInterval",
)
"""The operations on a time and a value that is added or subtracted."""

_ON_ANY_VALUE = frozenset(
    {
        "DateDiff",
        "DateFromUnixDate",
        "DayOfMonth",
        "DayOfWeek",
        "DayOfYear",
        "Greatest",
        "Hour",
        "LastDay",
        "Least",
        "Minute",
        "Month",
        "Quarter",
        "Second",
        "SecondWithFraction",
        "TruncDate",
        "TruncTimestamp",
        "UnixDate",
        "UnixMicros",
        "UnixMillis",
        "UnixSeconds",
        "WeekDay",
        "WeekOfYear",
        "Year",
        "YearOfWeek",
    }
)
_UNITS = frozenset(
    {"MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "DAYOFYEAR"}
    | {"WEEK", "MONTH", "QUARTER", "YEAR"}
)


def is_total(value: Any, kind: str, parts: Sequence[Any]) -> bool:
    """Return whether an operation on some operands fails for no values of these."""
    if kind in _ADDING:
        return _is_small(parts[1])
    if kind == "TimestampAdd":
        return str(value.unit()).upper() in _UNITS and _is_small(parts[0], _QUANTITY)
    return kind in _ON_ANY_VALUE


def _is_small(added: Any, most: int = _DAYS) -> bool:
    """Return whether an added value is a constant of at most ``most`` in magnitude."""
    if kind_of(added) != "Literal":
        return False
    value = added.value()
    if value is None:
        return True
    match type_of(added):
        case IntegralType():
            return abs(int(value)) <= min(most, _MONTHS)
        case DayTimeIntervalType():
            return abs(int(value)) <= _MICROSECONDS
        case YearMonthIntervalType():
            return abs(int(value)) <= _MONTHS
        case CalendarIntervalType():
            months = abs(int(value.extractAsPeriod().toTotalMonths()))
            days = abs(int(value.extractAsPeriod().getDays()))
            rest = abs(int(value.extractAsDuration().toDays()))
            return months <= _MONTHS and days <= _DAYS and rest <= _DAYS
        case _:
            return False


INTEGERS: Final = frozenset({ByteType, ShortType, IntegerType, LongType})
"""The classes of the types of whole numbers."""
_ADDED: Final = 28
"""The most digits of decimals whose sum has ten digits more, enough for any number of rows."""
SIGNED_DIGITS: Final = 34
"""The digits to which Spark rounds a decimal when it changes its sign, in ``abs`` and ``-``."""


def keeps_all_digits(handle: Any) -> bool:
    """Whether arithmetic is on integers or decimals, and its result exact or an overflow.

    Spark rounds decimals if the exact result would have more digits than a DECIMAL has, and where
    it changes the sign of one, to 34 digits.
    """
    of = type_of(handle)
    if type(of) in INTEGERS:
        return True
    if not isinstance(of, DecimalType):
        return False
    if kind_of(handle) == "UnaryMinus":
        return bool(of.precision <= SIGNED_DIGITS)
    sides = [type_of(each) for each in items(handle.children())]
    scales = [side.scale for side in sides if isinstance(side, DecimalType)]
    exact = sum(scales) if kind_of(handle) == "Multiply" else max(scales, default=0)
    return len(scales) == len(sides) and bool(of.scale == exact)


def is_plain_text(type_: DataType) -> bool:
    """Whether a type is STRING with values of any length that are compared by their bytes."""
    return type(type_) is StringType and bool(type_.isUTF8BinaryCollation())


def plain_pattern(handle: Any) -> str | None:
    """Return the pattern of a LIKE, if it is a constant without an escape character, or None."""
    pattern = handle.right()
    if kind_of(pattern) != "Literal" or pattern.value() is None:
        return None
    text = str(pattern.value().toString())
    return None if str(handle.escapeChar()) in text or "\\" in text else text


def adds_in_order(function: Any) -> bool:
    """Whether an aggregate function is NULL if it overflows before its last row is added.

    The sum of all rows may fit even so, so that its value depends on the order of the rows.
    """
    if not str(function.prettyName()).startswith("try_"):
        return False
    if kind_of(function) not in ("Average", "Sum"):
        return False
    of, given = type_of(function.child()), kind_of(function.child())
    if given == "UnscaledValue":  # of a decimal of few digits
        return False
    return isinstance(of, LongType) or (isinstance(of, DecimalType) and of.precision > _ADDED)


_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_CASTS: Final = _TIMES | {"long"}
"""The types between which casts that succeed preserve the order."""


def rises(value: Any) -> bool:
    """Whether an expression over one column, a time, never falls as the time rises.

    True for constants. False if it is not known.
    """
    if value.references().isEmpty():
        return True
    children = items(value.children())
    match kind_of(value):
        case "AttributeReference":
            return _type(value) in _TIMES
        case "Add" | "KnownNotNull" | "KnownNullable" | "TruncDate" | "TruncTimestamp":
            return all(map(rises, children))
        case "UnixMicros":
            return rises(children[0])
        case "Cast":
            return {_type(value), _type(children[0])} <= _CASTS and rises(children[0])
        case "Subtract" | "TimestampAddInterval":
            return rises(children[0]) and bool(children[1].references().isEmpty())
        case "PreciseTimestampConversion":
            return rises(children[0]) if _type(value) == "long" else _bounds(children[0])
        case _:
            return False


def _bounds(value: Any) -> bool:
    """Whether a bound of a window never falls, which holds if the time of the window rises.

    Spark computes the bounds of windows from a time as a number, with functions that queries cannot
    call.
    """
    match kind_of(value):
        case "AttributeReference":
            return False
        case "PreciseTimestampConversion":
            return rises(value)
        case _:
            return all(map(_bounds, items(value.children())))


def _type(value: Any) -> str:
    return str(value.dataType().typeName())
