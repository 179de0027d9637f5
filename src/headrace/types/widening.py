"""Which types hold all values of another one, unchanged: what the type of a column may become.

These are Spark's up-casts without those that may lose digits (BIGINT to DOUBLE) or depend on the
time zone of a session (DATE to TIMESTAMP).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ByteType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
)

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_DIGITS: Final = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}
"""The digits of a DECIMAL that holds each integer type, as Spark counts them."""
_EXACT_IN: Final = {
    FloatType: (ByteType, ShortType),
    DoubleType: (ByteType, ShortType, IntegerType, FloatType),
}
_WIDER: Final = {
    ByteType: "SMALLINT, INT, BIGINT, FLOAT, DOUBLE, or DECIMAL with 3 digits before the point",
    ShortType: "INT, BIGINT, FLOAT, DOUBLE, or DECIMAL with 5 digits before the point",
    IntegerType: "BIGINT, DOUBLE, or DECIMAL with 10 digits before the point",
    LongType: "DECIMAL with 20 digits before the point",
    FloatType: "DOUBLE",
}

_STORED_ALIKE: Final = {
    ByteType: "SMALLINT, INT or BIGINT",
    ShortType: "INT or BIGINT",
    IntegerType: "BIGINT",
    FloatType: "DOUBLE",
}


def widens(former: DataType, present: DataType) -> bool:
    """Whether a type holds all values of another one as they are."""
    match present:
        case DecimalType() if isinstance(former, DecimalType):
            whole = former.precision - former.scale
            return bool(
                present.scale >= former.scale and present.precision - present.scale >= whole
            )
        case DecimalType():
            digits = _DIGITS.get(type(former))
            return digits is not None and bool(present.precision - present.scale >= digits)
        case FloatType() | DoubleType():
            return isinstance(former, _EXACT_IN[type(present)])
        case _ if isinstance(former, _INTEGERS) and isinstance(present, _INTEGERS):
            return _INTEGERS.index(type(present)) > _INTEGERS.index(type(former))
        case _:
            return False


def wider_than(type_: DataType, *, stored_alike: bool) -> str:
    """Return the types that a column of a type may get, for messages; "" if there are none.

    ``stored_alike``: without those whose values a table stores in another form.
    """
    if stored_alike and not isinstance(type_, DecimalType):
        return _STORED_ALIKE.get(type(type_), "")
    if isinstance(type_, DecimalType):
        whole, scale = type_.precision - type_.scale, type_.scale
        if stored_alike:
            return (
                f"DECIMAL with at least {whole} digits before the point and just {scale} after it"
            )
        return f"DECIMAL with at least {whole} digits before the point and {scale} after it"
    return _WIDER.get(type(type_), "")
