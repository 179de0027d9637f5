"""The types whose values DuckDB compares and orders exactly as Spark does."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headrace.engine.reading.scans.refused import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import DataType

INTEGERS: Final[Mapping[type, str]] = {
    ByteType: "TINYINT",
    ShortType: "SMALLINT",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
}
FLOATS: Final[Mapping[type, str]] = {FloatType: "FLOAT", DoubleType: "DOUBLE"}
_OTHERS: Final[Mapping[type, str]] = {
    BooleanType: "BOOLEAN",
    DateType: "DATE",
    TimestampNTZType: "TIMESTAMP",
    TimestampType: "TIMESTAMPTZ",
}


def name_of(type_: DataType) -> str:
    """Return DuckDB's name of a type.

    Raises: Refused: DuckDB represents its values differently.
    """
    for names in (INTEGERS, FLOATS, _OTHERS):
        if type(type_) in names:
            return names[type(type_)]
    match type_:
        case DecimalType():
            return f"DECIMAL({type_.precision}, {type_.scale})"
        case StringType() if type(type_) is StringType and type_.isUTF8BinaryCollation():
            return "VARCHAR"
    raise Refused(f"type {type_.simpleString()}")


def is_exact(type_: DataType) -> bool:
    """Whether equal values of a type are identical: not for floats, where -0.0 equals 0.0."""
    name_of(type_)
    return type(type_) not in FLOATS


def is_lossless_to_decimal(source: DataType, target: DataType) -> bool:
    """Whether a cast to a decimal keeps all digits of a value, unless it overflows."""
    if not isinstance(target, DecimalType):
        return False
    wider = isinstance(source, DecimalType) and target.scale >= source.scale
    return wider or type(source) in INTEGERS


def constant(type_: DataType, value: Any) -> str:
    """Return a constant as SQL of DuckDB; None is NULL."""
    if value is None:
        return "NULL" if isinstance(type_, NullType) else f"CAST(NULL AS {name_of(type_)})"
    name = name_of(type_)
    match type_:
        case BooleanType():
            text = "true" if value else "false"
        case ByteType() | ShortType() | IntegerType() | LongType():
            text = f"'{int(value)}'"
        case DecimalType():
            text = f"'{Decimal(value):f}'"
        case FloatType() | DoubleType():
            text = f"'{value!r}'"
        case StringType():
            text = quoted(value)
        case DateType():
            return f"(DATE '1970-01-01' + CAST('{int(value)}' AS INTEGER))"
        case TimestampType():
            return f"make_timestamptz(CAST('{int(value)}' AS BIGINT))"
        case TimestampNTZType():
            return f"make_timestamp(CAST('{int(value)}' AS BIGINT))"
        case _:
            raise Refused(f"a constant of type {type_.simpleString()}")
    return f"CAST({text} AS {name})"


def quoted(text: str) -> str:
    """Return a string literal of SQL."""
    if "\0" in text:
        raise Refused("a text with a zero character")
    return "'" + text.replace("'", "''") + "'"
