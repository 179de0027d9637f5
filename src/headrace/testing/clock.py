"""The clock of a test: it stands still until the test moves it.

``now()`` in the statements of a test: the test's clock, in place of the machine's.

Views read the clock of their epochs. A statement that runs once reads that of the machine, so calls
of the clock in it are replaced by literals before it is parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.planning.dialects import duration_of
from headrace.planning.sql import Delete, Insert, Query, Update, parse_statement, split
from headrace.planning.sql.lexer import TokenKind, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.planning.sql.lexer import Token


_TIMES: Final = frozenset({"NOW", "CURRENT_TIMESTAMP"})
_DAYS: Final = frozenset({"CURRENT_DATE", "CURDATE"})
_WITHOUT_PARENTHESES: Final = frozenset({"CURRENT_TIMESTAMP", "CURRENT_DATE"})


def with_clock(text: str, now: datetime) -> str:
    """Return a script in which queries and changes of rows have a literal for each clock call.

    Definitions stay as written: their queries are maintained.
    """
    upper = text.upper()
    if not any(word in upper for word in (*_TIMES, *_DAYS)):
        return text
    time = f"TIMESTAMP '{now.replace(tzinfo=None).isoformat(' ')}Z'"
    day = f"DATE '{now.date().isoformat()}'"
    made, end = [], 0
    for source in split(text):
        try:
            statement = parse_statement(source)
        except HeadraceError:
            continue  # it is reported when it is run
        if not isinstance(statement, Query | Insert | Update | Delete):
            continue
        found = list(tokens(text, source.start, source.end))
        for at, token in enumerate(found):
            length = _call(found, at)
            if length:
                made += [text[end : token.start], time if token.word in _TIMES else day]
                end = found[at + length - 1].end
    return "".join([*made, text[end:]])


def _call(found: list[Token], at: int) -> int:
    """Return the number of tokens of the call of the clock that begins at a token; 0 for none."""
    word = found[at].word
    if word not in _TIMES | _DAYS or (at and found[at - 1].text == "."):
        return 0
    after = [each.text for each in found[at + 1 : at + 3]]
    if after == ["(", ")"]:
        return 3
    plain = after[:1] not in (["("], ["."]) and found[at].kind is TokenKind.WORD
    return int(plain and word in _WITHOUT_PARENTHESES)


BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which a test begins if it gives no other."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def instant_of(time: str | datetime) -> datetime:
    """Return a time in UTC; without a zone, it is in UTC already.

    Raises:
        HeadraceError: ``invalid`` for a text that is not a time in ISO 8601, and before 1970.
    """
    if isinstance(time, str):
        try:
            found = datetime.fromisoformat(time.strip())
        except ValueError as error:
            raise HeadraceError(
                Code.INVALID,
                f"'{time}' is not a time",
                hint="Write it as in '2026-01-01 10:00:00'; without a zone, it is in UTC.",
            ) from error
    else:
        found = time
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    if found < _EPOCH:
        raise HeadraceError(Code.INVALID, f"time '{time}' is before 1970")
    return found


def length_of(time: str | timedelta) -> timedelta:
    """Return a positive length of time, such as '10 minutes' or '1 day 2 hours'.

    Raises:
        HeadraceError: ``invalid`` for a text that is not one, and for one that is not positive.
    """
    if isinstance(time, timedelta):
        found = time
    else:
        text = time.strip().upper().removeprefix("INTERVAL ").replace("'", "")
        micros = duration_of(f"INTERVAL '{text}'") or duration_of(f"INTERVAL {text}")
        found = timedelta(microseconds=micros or 0)
    if found <= timedelta(0):
        raise HeadraceError(
            Code.INVALID,
            f"'{time}' is not a length of time",
            hint="Write it as in '10 minutes', '1 day' or '1 hour 30 minutes'.",
        )
    return found


@dataclass(slots=True)
class ControlledClock:
    """The clock of one test: ``now()`` in views, and the time at which rows arrive.

    ``ends_epoch`` makes an epoch of what was written so far; it is called before and after each
    move, so rows are seen at the time at which they were written.
    """

    now: datetime = BEGINNING
    """The time, in UTC."""
    ends_epoch: Callable[[], object] = lambda: None

    def advance(self, by: str | timedelta) -> datetime:
        """Move the clock forward by a length of time, such as '10 minutes'; return the time.

        Raises:
            HeadraceError: ``invalid`` for a text that is not a positive length of time.
        """
        return self._move(self.now + length_of(by))

    def set(self, to: str | datetime) -> datetime:
        """Move the clock forward to a time; return it.

        Raises:
            HeadraceError: ``invalid`` for a text that is not a time, and for an earlier time.
        """
        time = instant_of(to)
        if time < self.now:
            raise HeadraceError(
                Code.INVALID,
                f"the clock cannot go back from {shown(self.now)} to {shown(time)}",
                hint="Begin the test at an earlier time.",
            )
        return self._move(time)

    def micros(self) -> int:
        """Return the time in microseconds since 1970, UTC."""
        return (self.now - _EPOCH) // _MICROSECOND

    def _move(self, to: datetime) -> datetime:
        self.ends_epoch()
        self.now = to
        self.ends_epoch()
        return to


def shown(time: datetime) -> str:
    """Return a time in UTC as text without its zone."""
    return time.replace(tzinfo=None).isoformat(" ")
