"""Parameters of statements: ``?`` by position and ``:name`` by name, bound to values.

Parameters are found as tokens, so strings, quoted names and comments contain none. A value becomes
a literal of its type, surrounded by spaces, so that it cannot merge with other text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from headrace.errors import Code, HeadraceError, Span, meant
from headrace.planning.sql.lexer import Token, TokenKind, split, tokens
from headrace.planning.sql.parser import parse_statement
from headrace.planning.sql.parts import Query
from headrace.planning.sql.rewritten import Rewriting, Rewritten
from headrace.planning.sql.statements import Delete, Explain, Insert, Subscribe, Update

if TYPE_CHECKING:
    from headrace.planning.sql.lexer import StatementText
    from headrace.planning.sql.parts import Statement


Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""Values for ``?``, in order, or for ``:name``, by name."""

_LARGEST = 38
"""The maximum precision of DECIMAL."""
_MOST_KEPT = 4096
"""The longest script whose statements are kept."""
_TAKING = (Query, Insert, Update, Delete, Subscribe, Explain)


@dataclass(frozen=True, slots=True)
class Bound:
    """A script with its parameters bound, and the ranges of their literals in the new text."""

    rewritten: Rewritten
    places: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """The script with a literal for each parameter."""
        return self.rewritten.text

    def statements(self, file: str | None = None) -> list[Statement]:
        """Return the statements of the script.

        Raises:
            HeadraceError: ``invalid`` for a malformed statement; ``unsupported`` for a parameter
                in a statement that does not take any.
        """
        return [statement for _, statement in self.parsed(file)]

    def parsed(self, file: str | None = None) -> list[tuple[StatementText, Statement]]:
        """Return the statements of the script, each with its source; see :meth:`statements`."""
        read = _parsed if len(self.text) <= _MOST_KEPT else _parsed.__wrapped__
        with self.rewritten.mapping_errors():
            found = read(self.text, file)
            for source, statement in found:
                self._require_taken(source, statement)
        return list(found)

    def _require_taken(self, source: StatementText, statement: Statement) -> None:
        """Refuse a parameter in a statement whose text is stored, or that takes no values.

        Raises:
            HeadraceError: ``unsupported``, at the parameter.
        """
        explained = isinstance(statement, Explain) and not isinstance(statement.target, Query)
        if isinstance(statement, _TAKING) and not explained:
            return
        for place in self.places:
            if source.start <= place.start < source.end:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    "a parameter in this statement is not supported",
                    detail="Queries, INSERT, UPDATE, DELETE, SUBSCRIBE and EXPLAIN of a query take"
                    " parameters. Definitions take none: their text is stored.",
                    hint="Write the value into the statement.",
                    span=place,
                )


@lru_cache(maxsize=256)
def _parsed(text: str, file: str | None) -> tuple[tuple[StatementText, Statement], ...]:
    """Return the statements of a script: clients run the same ones again and again."""
    return tuple((source, parse_statement(source)) for source in split(text, file))


def bind(text: str, parameters: Parameters | None, file: str | None = None) -> Bound:
    """Return a script with its parameters bound to values.

    Raises:
        HeadraceError: ``invalid`` for a parameter without a value, a value without a parameter, and
            a value that has no literal.
    """
    whole = Span(text, 0, len(text), file)
    if parameters is None:
        return Bound(Rewritten(whole, whole))
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence | Mapping):
        raise HeadraceError(
            Code.INVALID,
            f"parameters are a {type(parameters).__name__}",
            hint="Give a sequence of values for ?, or a mapping of values for :name.",
        )
    places = _places(whole)
    by_name = isinstance(parameters, Mapping)
    values: dict[Any, Any] = (
        dict(parameters) if isinstance(parameters, Mapping) else dict(enumerate(parameters, 1))
    )
    used: set[Any] = set()
    rewriting = Rewriting(whole)
    found: list[tuple[int, int]] = []
    length = last = 0
    for number, place in enumerate(places, 1):
        key = place.source[1:] if by_name else number
        if by_name == (place.source == "?"):
            raise _other_kind(place)
        if key not in values:
            raise _missing(key, list(values), place)
        used.add(key)
        made = f" {literal_text(values[key], place)} "
        rewriting.replace(place, [made])
        length += place.start - last
        found.append((length, length + len(made)))
        length, last = length + len(made), place.end
    surplus = [key for key in values if key not in used]
    if surplus:
        raise HeadraceError(
            Code.INVALID,
            f"parameter {_shown(surplus[0])} is given, but the statement has no such parameter",
            detail=f"It has {len(used)}: {', '.join(map(_shown, used))}." if used else None,
            hint=None
            if places
            else "Write ? for each value of a sequence, or :name for a value of a mapping:"
            " $1 and %s are not parameters here.",
            span=whole,
        )
    rewritten = rewriting.done()
    text = rewritten.text
    return Bound(rewritten, tuple(Span(text, start, end, file) for start, end in found))


def literal_text(value: Any, place: Span) -> str:
    """Return a literal of Spark SQL for a Python value.

    Raises:
        HeadraceError: ``invalid``, at the parameter, if its type has no literal.
    """
    if hasattr(value, "dtype") and hasattr(value, "item"):
        value = value.item()  # a number of NumPy's
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return _number(value, str(abs(int(value))), place)
        case float():
            return _float(value)
        case Decimal() if value.is_finite():
            return _number(value, format(abs(value), "f"), place, "BD")
        case str():
            return _string(value, place)
        case UUID():
            return _string(str(value), place)
        case bytes() | bytearray():
            return f"X'{value.hex()}'"
        case datetime():
            moment = value.astimezone(UTC) if value.tzinfo else value
            return f"TIMESTAMP '{moment.replace(tzinfo=None).isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case time() if value.tzinfo is None:
            return f"TIME '{value.isoformat()}'"
        case timedelta():
            return _interval(value)
        case list() | tuple():
            return f"array({', '.join(literal_text(item, place) for item in value)})"
    raise HeadraceError(
        Code.INVALID,
        f"a parameter of type {type(value).__name__} has no literal",
        hint="Give NULL (None), a bool, number, str, bytes, date, datetime, time without a time"
        " zone, timedelta or list.",
        span=place,
    )


def _number(value: int | Decimal, digits: str, place: Span, suffix: str = "") -> str:
    if len(digits.replace(".", "").lstrip("0")) > _LARGEST:
        raise HeadraceError(
            Code.INVALID, f"a number of more than {_LARGEST} digits has no literal", span=place
        )
    return f"(-{digits}{suffix})" if value < 0 else f"{digits}{suffix}"


def _float(value: float) -> str:
    if math.isfinite(value):
        digits = float.__repr__(abs(value))
        return f"(-{digits}D)" if math.copysign(1.0, value) < 0 else f"{digits}D"
    name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"CAST('{name}' AS DOUBLE)"


def _string(value: str, place: Span) -> str:
    """Return a string literal without backslashes, since not all dialects read them as escapes."""
    try:
        octets = value.encode()
    except UnicodeEncodeError as error:
        raise HeadraceError(
            Code.INVALID, "half of a surrogate pair is not a string", span=place
        ) from error
    if "\\" in value or "\0" in value:
        return f"CAST(X'{octets.hex()}' AS STRING)"
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def _interval(value: timedelta) -> str:
    sign = "-" if value < timedelta() else ""
    value = abs(value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{value.days} {hours:02}:{minutes:02}:{seconds:02}.{value.microseconds:06}"
    return f"INTERVAL '{sign}{text}' DAY TO SECOND"


def _places(whole: Span) -> list[Span]:
    """Return the spans of the parameters of a script, in order."""
    places: list[Span] = []
    before: Token | None = None
    colon: Token | None = None
    for token in tokens(whole.text, 0, None, whole.file):
        if colon is not None and token.kind is TokenKind.WORD and token.start == colon.end:
            places.append(Span(whole.text, colon.start, token.end, whole.file))
        colon = None
        if token.kind is TokenKind.SYMBOL:
            if token.text == "?":
                places.append(Span(whole.text, token.start, token.end, whole.file))
            elif token.text == ":" and not _continues(before, token):
                colon = token
        before = token
    return places


def _continues(before: Token | None, colon: Token) -> bool:
    """Return whether a colon continues an expression: ``value:path``, ``a[1:2]``, ``x:INT``."""
    if before is None or before.end != colon.start:
        return False
    return before.kind is not TokenKind.SYMBOL or before.text in {")", "]"}


def _other_kind(place: Span) -> HeadraceError:
    wanted, given = "a mapping", "a sequence"
    if place.source == "?":
        wanted, given = given, wanted
    return HeadraceError(
        Code.INVALID,
        f"parameter {place.source} takes its value from {wanted}, but {given} is given",
        span=place,
    )


def _missing(key: Any, known: list[Any], place: Span) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f"parameter {_shown(key)} has no value",
        hint=meant(key, known, shown='":{}"') if isinstance(key, str) else None,
        span=place,
    )


def _shown(key: Any) -> str:
    return f'"{key}"' if isinstance(key, str) else str(key)
