"""Sums of BIGINT beyond 64 bits, as sums of the upper and of the lower halves of the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, DecimalType, LongType

from headrace.catalyst.scala import EXPRESSIONS

if TYPE_CHECKING:
    from headrace.catalyst.scala import Scala

_BITS = 32
_TOP = 1 << 31
_LOWER = (1 << 32) - 1
_TOO_LARGE = "a sum of BIGINT is too large for its type: cast the argument to DECIMAL(38, 0)"


def halves(scala: Scala, value: Any) -> tuple[Any, Any]:
    """Return the upper 32 bits of a BIGINT, with its sign, and the lower ones."""
    bits = scala.module(f"{EXPRESSIONS}.Literal").apply(_BITS)
    lower = scala.expression("BitwiseAnd", value, scala.long(_LOWER))
    return scala.expression("ShiftRight", value, bits), lower


def whole(scala: Scala, upper: Any, lower: Any, type_: DataType) -> Any:
    """Return the sum of two halves; an overflow is an error.

    The lower half may have more than 32 bits. Sums of at most 64 bits are computed without
    decimals.
    """
    expression, long = scala.expression, scala.long
    carry, low = halves(scala, lower)
    high, base = expression("Add", upper, carry), long(_LOWER + 1)
    short = expression("Add", expression("Multiply", high, base), low)
    fits = expression(
        "And",
        expression("GreaterThanOrEqual", high, long(-_TOP)),
        expression("LessThan", high, long(_TOP)),
    )
    if isinstance(type_, LongType):
        said = scala.module(f"{EXPRESSIONS}.Literal").apply(_TOO_LARGE)
        failed = _cast(scala, expression("RaiseError", said), type_)
        return expression("If", fits, short, failed)
    digits, factor = DecimalType(20, 0), _cast(scala, base, DecimalType(10, 0))
    shifted = expression("Multiply", _cast(scala, high, digits), factor, scala.exact)
    wide = expression("Add", shifted, _cast(scala, low, digits), scala.exact)
    return expression("If", fits, _cast(scala, short, type_), _cast(scala, wide, type_))


def _cast(scala: Scala, value: Any, type_: DataType) -> Any:
    return scala.cast(value, scala.type(type_.json()))
