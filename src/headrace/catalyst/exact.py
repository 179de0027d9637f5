"""What is known of expressions of Spark that other evaluators have with the same meaning.

Scans by DuckDB and evaluation over Arrow columns both rely on this; each has its own list of the
expressions that it evaluates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ByteType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items, kind_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

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
