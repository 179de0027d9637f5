"""What a definition says, without how it is written: two definitions of equal form are the same.

White space, comments, the case of keywords and the order of options do not count; nor do OR REPLACE
and IF NOT EXISTS. An ALTER after a CREATE counts as if the CREATE had said it. The values of secret
options are masked in a database, so they are not compared; the names of secrets are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import masked
from headrace.sql import (
    AlterSink,
    AlterStream,
    AlterView,
    ColumnDefinition,
    CreateIndex,
    Name,
    Option,
    Query,
    Statement,
    parse_statement,
    split,
)
from headrace.sql.altered_columns import with_altered_columns
from headrace.sql.keywords import NOT_NAMES, WORDS
from headrace.sql.lexer import tokens
from headrace.sql.parts import Fragment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.errors import Span

_KEYWORDS: Final = NOT_NAMES | frozenset(WORDS)
_NOT_COMPARED: Final = frozenset({"span", "or_replace", "if_not_exists", "options", "columns"})
_LABELS: Final = {
    "primary_key": "key",
    "taken": "admitted rows",
    "message_key": "message key",
    "captured": "source",
    "body": "expression",
}
_HOW: Final = frozenset({"auto_swap", "reuse"})
"""Options of a view that say how it is filled, not what it is."""


@dataclass(frozen=True, slots=True)
class DefinitionForm:
    """What a definition says: its kind, its parts by name, columns in order, options by key."""

    kind: str
    parts: dict[str, Any]
    columns: tuple[Any, ...]
    options: dict[str, tuple[str, bool]]

    def differences(self, other: DefinitionForm) -> tuple[str, ...]:
        """Return the names of the parts that differ, such as ``query`` or ``option "refresh"``."""
        if self.kind != other.kind:
            return ("kind",)
        found = [
            _LABELS.get(name, name.replace("_", " "))
            for name, value in self.parts.items()
            if value != other.parts[name]
        ]
        if self.columns != other.columns:
            found.append("columns")
        return (*found, *(f'option "{key}"' for key in self.options_that_differ(other)))

    def options_that_differ(self, other: DefinitionForm) -> list[str]:
        """Return the keys of the options that differ, sorted."""
        keys = {*self.options, *other.options}
        return sorted(key for key in keys if self.options.get(key) != other.options.get(key))


def form_of(statements: Sequence[Statement]) -> DefinitionForm:
    """Return the form of a CREATE statement and the ALTERs after it."""
    created, *altered = (_masked(each) for each in statements)
    options = _options(getattr(created, "options", ()))
    created = with_altered_columns(created, altered)
    columns = [_plain(each) for each in getattr(created, "columns", ())]
    if isinstance(created, CreateIndex):
        columns = [name.lower() for name in created.columns]
    for each in altered:
        match each:
            case AlterStream() if each.resets:
                for option in each.options:
                    options.pop(option.key.lower(), None)
            case AlterStream() | AlterView() | AlterSink():
                options |= _options(each.options)
            case _:
                pass
    parts = {
        each.name: _plain(getattr(created, each.name))
        for each in fields(created)  # type: ignore[arg-type]  # each statement is a dataclass
        if each.name not in _NOT_COMPARED
    }
    return DefinitionForm(type(created).__name__, parts, tuple(columns), options)


def columns_of(statements: Sequence[Statement]) -> tuple[ColumnDefinition, ...]:
    """Return the columns of a stream or table: of its CREATE, as ALTERs after it change them."""
    created, *altered = statements
    return tuple(getattr(with_altered_columns(created, altered), "columns", ()))


def type_of(column: ColumnDefinition) -> tuple[str, ...]:
    """Return the words of a column's type, equal for types that are written differently."""
    return tuple(word.upper() for word in _words(column.type.text))


def statements_of(text: str) -> tuple[Statement, ...]:
    """Return the statements of a text."""
    return tuple(parse_statement(each) for each in split(text))


def has_secret(span: Span) -> bool:
    """Whether a statement has the value of a secret option in its text."""
    return masked(span.source) != span.source


def _masked(statement: Statement) -> Statement:
    """Return a statement as a database shows it."""
    if not has_secret(statement.span):
        return statement
    (found,) = statements_of(masked(statement.span.source))
    return found


def _options(given: Iterable[Option]) -> dict[str, tuple[str, bool]]:
    return {
        each.key.lower(): ("*" if each.value and set(each.value) == {"*"} else each.value,
                           each.secret)
        for each in given
        if each.key.lower() not in _HOW
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a value that equals that of a statement which says the same."""
    match value:
        case Name():
            return value.dotted
        case Fragment():
            return _words(value.text)
        case Query():
            return (_words(value.text), value.emit_changes, _plain(value.as_of), value.limit)
        case ColumnDefinition():
            type_ = type_of(value)
            rest = _fields(replace(value, type=Fragment("", value.span)))
            return (value.name, type_, rest)
        case Option():
            return tuple(_options([value]).items())
        case Enum():
            return value.value
        case tuple():
            return tuple(map(_plain, value))
        case _ if is_dataclass(value):
            return _fields(value)
        case _:
            return value


def _fields(value: Any) -> tuple[Any, ...]:
    named = (each.name for each in fields(value) if each.name != "span")
    return tuple((name, _plain(getattr(value, name))) for name in named)


def _words(text: str) -> tuple[str, ...]:
    """Return the tokens of SQL, keywords and the names of functions in upper case."""
    found = list(tokens(text))
    after = [*(each.text for each in found), ""][1:]
    return tuple(
        each.word if each.word in _KEYWORDS or (each.word and following == "(") else each.text
        for each, following in zip(found, after, strict=True)
    )
