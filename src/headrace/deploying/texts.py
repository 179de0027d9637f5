"""The texts of statements to run, each at the line that it has in its file.

Errors in them then name this line, and :func:`in_its_file` makes them quote the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError, Span
from headrace.sql import quote, quote_dotted, quoted
from headrace.sql.lexer import tokens
from headrace.statements.defining.flags import AUTO_SWAP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sql import (
        ColumnDefinition,
        CreateMaterializedView,
        CreateTableAs,
        Option,
        Statement,
    )
    from headrace.sql.lexer import Token

_MODE: Final = ("IF", "NOT", "EXISTS")


def as_written(statement: Statement, before: str = "") -> str:
    """Return the text of a statement at its place, after some words."""
    return _at(statement.span, before + statement.span.source)


def replacing(statement: Statement, before: str = "") -> str:
    """Return the text of a CREATE with OR REPLACE, after some words."""
    return _at(statement.span, before + _edited(statement.span, _with_replace(statement.span)))


def as_candidate(statement: CreateMaterializedView | CreateTableAs) -> str:
    """Return the text that fills a candidate of a view, which waits for SWAP VIEW."""
    span = statement.span
    found = [each for each in _tokens(span) if each.start < statement.query.span.start]
    given = f"{AUTO_SWAP} = false"
    at = max((each.span.end for each in statement.options), default=0)
    follows = next((each for each in found if each.start >= at), None)
    if at and follows is not None and follows.text == ")":
        edit = (follows.start, follows.start, f", {given}")
    else:  # before AS
        edit = (found[-1].start, found[-1].start, f"WITH ({given}) ")
    named = [each for each in statement.options if each.key.lower() == AUTO_SWAP]
    edits = [(named[0].span.start, named[0].span.end, given)] if named else [edit]
    return _at(span, _edited(span, [*_with_replace(span), *edits]))


def altering(kind: str, name: str, option: Option | None, key: str) -> str:
    """Return the statement that sets an option, or resets it."""
    if option is None:
        return f"ALTER {kind} {quote_dotted(name)} RESET ({key})"
    return f"ALTER {kind} {quote_dotted(name)} SET ({key} = {quoted(option.value)})"


def dropping(kind: str, name: str) -> str:
    """Return the statement that drops something of a kind, by its name as in a database."""
    return f"DROP {kind.upper()} {quote_dotted(name.removeprefix(f'{kind} '))}"


def in_its_file(error: HeadraceError, text: str, span: Span) -> HeadraceError:
    """Return an error in such a text with its place in the file, where the statement has a span.

    What is added to a statement is before its query, so places are counted from the end.
    """
    found = error.span
    if found is None or found.text != text:
        return error
    shift = span.end - len(text)
    start = max(span.start, found.start + shift)
    place = Span(span.text, start, max(start, found.end + shift), span.file)
    return HeadraceError(error.code, error.primary, error.detail, error.hint, place)


def explained_script(statements: Sequence[str]) -> tuple[str, list[int]]:
    """Return the script of some statements, and where each of them begins in it."""
    found, begins = "", list[int]()
    for each in statements:
        begins.append(len(found))
        found += f"{each.strip()}\n;\n"
    return found, begins


def column_text(column: ColumnDefinition) -> str:
    """Return the definition of a plain column, as ADD COLUMNS takes it."""
    default = "" if column.default is None else f" DEFAULT {column.default.text}"
    comment = "" if column.comment is None else f" COMMENT {quoted(column.comment)}"
    return f"{quote(column.name)} {column.type.span.source}{default}{comment}"


def _tokens(span: Span) -> list[Token]:
    return list(tokens(span.text, span.start, span.end))


def _with_replace(span: Span) -> list[tuple[int, int, str]]:
    """Return the edits by which a CREATE replaces: OR REPLACE in place of IF NOT EXISTS."""
    found = _tokens(span)
    edits = []
    if found[1].word != "OR":
        edits.append((found[0].end, found[0].end, " OR REPLACE"))
    words = [each.word for each in found]
    for at in range(1, len(words) - 2):
        if tuple(words[at : at + 3]) == _MODE:
            start, end = found[at].start, found[at + 2].end
            edits.append((start, end, " " * (end - start)))
            break
        if words[at] in {"AS", ""}:
            break
    return edits


def _edited(span: Span, edits: Sequence[tuple[int, int, str]]) -> str:
    text = span.source
    for start, end, new in sorted(edits, reverse=True):
        text = text[: start - span.start] + new + text[end - span.start :]
    return text


def _at(span: Span, text: str) -> str:
    line, column = span.position
    return "\n" * (line - 1) + " " * (column - 1) + text
