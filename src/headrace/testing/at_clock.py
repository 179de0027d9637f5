"""``now()`` in the statements of a test: the test's clock, in place of the machine's.

Views read the clock of their epochs. A statement that runs once reads that of the machine, so calls
of the clock in it are replaced by literals before it is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError
from headrace.sql import Delete, Insert, Query, Update, parse_statement, split
from headrace.sql.lexer import TokenKind, tokens

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.sql.lexer import Token

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
