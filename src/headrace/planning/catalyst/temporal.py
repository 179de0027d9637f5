"""Solves conditions on the clock for the times at which a row enters and leaves.

With all times as whole microseconds, every comparison is ``now < bound`` or ``now >= bound``: a row
leaves, or enters, at the bound. Operations on the clock are inverted on the other side: an interval
added to it is subtracted from the bound; a date, which is the clock rounded down to days, is below
a bound while the clock is below the bound rounded up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalyst.clock import MARK, has_mark
from headrace.planning.catalyst.fence import origin
from headrace.planning.catalyst.plan import Temporal
from headrace.planning.catalyst.scala import TYPES, Scala, items, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.planning.catalyst.plan import Expression, Plan


_DAY = 86_400_000_000
_MARK_TEXT = re.compile(rf"{MARK}\([^()]*\)", re.IGNORECASE)
_COMPARISONS = {
    "LessThan": (True, False),
    "LessThanOrEqual": (True, True),
    "GreaterThan": (False, True),
    "GreaterThanOrEqual": (False, False),
}
"""For each comparison, whether the left side must be below the right one, and whether the bound is
1 µs later.
"""

_MIRRORED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
_ADDS_INTERVAL = ("TimestampAddInterval", "TimeAdd")

_ALONE = "Compare it by itself, as in ts > now() - INTERVAL 5 MINUTES, with the rest on the row."
_HINTS = {
    "Or": (
        "Write p OR q as two SELECTs under UNION ALL that share no row: WHERE p, and"
        " WHERE q AND (p) IS NOT TRUE, where p does not use the clock."
    ),
    "EqualTo": "Use two bounds, as in d >= current_date() AND d <= current_date().",
    "EqualNullSafe": "Use two bounds, as in d >= current_date() AND d <= current_date().",
    "In": "Use two bounds, as in d >= current_date() AND d <= current_date().",
    "InSet": "Use two bounds, as in d >= current_date() AND d <= current_date().",
}
_MONTHS = "Use days, or move the months to the row: ts + INTERVAL 1 MONTH > now()."
_WHY = (
    "The times at which a row enters and leaves the view must follow from the row: compare the "
    "clock, plus or minus days or an interval of days to seconds, with a time by <, <=, >, >= or "
    "BETWEEN."
)


@dataclass(frozen=True, slots=True)
class _Inequality:
    """``clock < bound`` if ``below``, else ``clock >= bound``, in microseconds."""

    clock: Any
    below: bool
    bound: Any


@dataclass(slots=True)
class Temporals:
    """Reads the conditions on the clock of one query."""

    scala: Scala
    query: Span
    expression: Callable[[Any], Expression]

    def node(self, child: Plan, conditions: list[Any]) -> Temporal:
        """Return the rows of a plan while all of the conditions are true."""
        enters: list[Any] = []
        leaves: list[Any] = []
        for condition in conditions:
            below, bound = self._solved(condition)
            (leaves if below else enters).append(bound)
        texts = [_MARK_TEXT.sub("now()", str(condition.sql())) for condition in conditions]
        return Temporal(
            child,
            self._one(enters, "Greatest"),
            self._one(leaves, "Least"),
            " AND ".join(texts),
        )

    def refusal(self, what: str, hint: str, place: Any) -> HeadraceError:
        """Return the refusal of a condition that cannot be maintained as time passes."""
        span = origin(place, self.query)
        return HeadraceError(Code.UNSUPPORTED, what, _WHY, hint, span)

    def _one(self, bounds: list[Any], choice: str) -> Expression | None:
        """Return the deciding bound; NULL if any bound is NULL, which Spark's functions ignore."""
        if len(bounds) < 2:  # noqa: PLR2004
            return self.expression(bounds[0]) if bounds else None
        expression = self.scala.expression
        chosen = expression(choice, self.scala.seq(bounds))
        for bound in bounds:
            if bound.nullable():
                nothing = expression("Literal", None, bound.dataType())
                chosen = expression("If", expression("IsNull", bound), nothing, chosen)
        return self.expression(chosen)

    def _solved(self, condition: Any) -> tuple[bool, Any]:
        """Return whether the clock must be below the bound, and the bound in microseconds."""
        kind = kind_of(condition)
        if kind not in _COMPARISONS:
            raise self._refused(condition, _HINTS.get(kind, _ALONE))
        left, right = items(condition.children())
        if has_mark(left) and has_mark(right):
            raise self._refused(condition, _ALONE)
        if has_mark(right):
            left, right, kind = right, left, _MIRRORED[kind]
        below, later = _COMPARISONS[kind]
        bound = self._micros(right, condition)
        if later:
            bound = self._plus(bound, self.scala.long(1))
        solved = _Inequality(left, below, bound)
        while kind_of(solved.clock) != MARK:
            solved = self._undone(solved, condition)
        return solved.below, solved.bound

    def _undone(self, given: _Inequality, condition: Any) -> _Inequality:
        """Move the outermost operation on the clock to the bound."""
        kind, parts = kind_of(given.clock), items(given.clock.children())
        first = parts[0] if parts else None
        second = parts[1] if len(parts) > 1 else None
        below, bound = given.below, given.bound
        if first is None or (second is not None and has_mark(first) and has_mark(second)):
            raise self._refused(condition, _ALONE)
        match kind:
            case "TimestampAddInterval" | "TimeAdd" | "DateAdd" if has_mark(first):
                bound = self._minus(bound, self._micros(second, condition))
                return _Inequality(first, below, bound)
            case "DateSub" if has_mark(first):
                bound = self._plus(bound, self._micros(second, condition))
                return _Inequality(first, below, bound)
            case "SubtractTimestamps" | "SubtractDates" | "DateDiff" if has_mark(first):
                bound = self._plus(bound, self._micros(second, condition))
                return _Inequality(first, below, bound)
            case "SubtractTimestamps" | "SubtractDates" | "DateDiff":
                # The condition e - now < b is now >= e - b + 1.
                turned = self._minus(self._micros(first, condition), bound)
                return _Inequality(second, not below, self._plus(turned, self.scala.long(1)))
            case "Cast":
                return _Inequality(first, below, self._uncast(given, first, condition))
            case "TimestampAddYMInterval" | "DateAddYMInterval" | "AddMonths":
                raise self._refused(condition, _MONTHS)
            case _:
                raise self._refused(condition, _ALONE)

    def _uncast(self, given: _Inequality, inner: Any, condition: Any) -> Any:
        before, after, bound = _type(inner), _type(given.clock), given.bound
        if after == "date" and before in ("timestamp", "timestamp_ntz"):
            # Round up to a whole day: b + pmod(-b, day).
            rest = self.scala.expression("UnaryMinus", bound, True)  # noqa: FBT003
            rest = self.scala.expression("Pmod", rest, self.scala.long(_DAY))
            return self._plus(bound, rest)
        if before in ("date", "timestamp", "timestamp_ntz") and after.startswith("timestamp"):
            return bound
        if before.startswith("interval day") and after == "interval day to second":
            return bound
        raise self._refused(condition, _ALONE)

    def _micros(self, value: Any, condition: Any) -> Any:
        """Return a time, an interval or a number of days as microseconds."""
        expression, type_ = self.scala.expression, _type(value)
        if has_mark(value):
            raise self._refused(condition, _ALONE)
        if type_ == "timestamp":
            return expression("UnixMicros", value)
        if type_ in ("timestamp_ntz", "date"):
            return expression("UnixMicros", self._cast(value, "TimestampType"))
        if type_ in ("int", "smallint", "tinyint", "bigint"):
            return expression("Multiply", self._cast(value, "LongType"), self.scala.long(_DAY))
        if re.match(r"interval (day|hour|minute|second)", type_):
            zero = expression("MicrosToTimestamp", self.scala.long(0))
            utc = self.scala.option("UTC")
            return expression("UnixMicros", expression(_ADDS_INTERVAL[0], zero, value, utc))
        raise self._refused(condition, _MONTHS if "interval" in type_ else _ALONE)

    def _plus(self, left: Any, right: Any) -> Any:
        return self.scala.expression("Add", left, right)

    def _minus(self, left: Any, right: Any) -> Any:
        return self.scala.expression("Subtract", left, right)

    def _cast(self, value: Any, type_: str) -> Any:
        """Return a value as the type whose object has that name."""
        return self.scala.cast(value, self.scala.module(f"{TYPES}.{type_}"))

    def _refused(self, condition: Any, hint: str) -> HeadraceError:
        return self.refusal(
            "a condition on the clock of this form is not supported", hint, condition
        )


def _type(value: Any) -> str:
    return str(value.dataType().simpleString())
