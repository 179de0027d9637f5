"""Syntax highlighting of the statement that is being typed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]
from pygments.token import Keyword, Name  # type: ignore[import-untyped]

from headrace.sql import KEYWORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMAND = re.compile(r"\\\S*")
_OURS = frozenset(KEYWORDS)


class StatementLexer(SqlLexer):  # type: ignore[misc]
    r"""A lexer of SQL with the keywords of Headrace's statements, and ``\`` commands."""

    def get_tokens_unprocessed(self, text: str, *args: Any) -> Iterator[tuple[int, Any, str]]:
        """Yield the positions, kinds and texts of tokens."""
        command = _COMMAND.match(text)
        if command is not None:
            yield 0, Keyword, command[0]
            yield command.end(), Name, text[command.end() :]
            return
        for at, kind, value in super().get_tokens_unprocessed(text, *args):
            ours = kind in Name and value.upper() in _OURS
            yield at, Keyword if ours else kind, value
