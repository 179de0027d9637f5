"""Whether a value never falls as the time from which it is computed rises."""

from __future__ import annotations

from typing import Any, Final

from headrace.catalyst.scala import items, kind_of

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
