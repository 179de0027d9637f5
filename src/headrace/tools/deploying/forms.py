"""What a definition says, without how it is written: two definitions of equal form are the same.

White space, comments, the case of keywords and the order of options do not count; nor do OR REPLACE
and IF NOT EXISTS. An ALTER after a CREATE counts as if the CREATE had said it. The values of secret
options are masked in a database, so they are not compared; the names of secrets are.

The texts of statements to run, each at the line that it has in its file.

Errors in them then name this line, and :func:`in_its_file` makes them quote the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError, Span, masked
from headrace.interfaces.statements.defining.stream_options import AUTO_SWAP
from headrace.io.connectors import Given
from headrace.io.connectors.options import given_again, read_options, stored_options
from headrace.io.connectors.registry import connection_kind
from headrace.planning.sql import (
    AlterSink,
    AlterStream,
    AlterView,
    ColumnDefinition,
    CreateConnection,
    CreateIndex,
    CreateSecret,
    FromSource,
    Name,
    Option,
    Query,
    SecretSource,
    Statement,
    parse_statement,
    quote,
    quote_dotted,
    quoted,
    split,
)
from headrace.planning.sql.altered_columns import with_altered_columns
from headrace.planning.sql.lexer import NOT_NAMES, WORDS, TokenKind, identifier_value, tokens
from headrace.planning.sql.parts import Fragment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.planning.sql import CreateMaterializedView, CreateTableAs
    from headrace.planning.sql.lexer import Token


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


_KEYWORDS: Final = NOT_NAMES | frozenset(WORDS)
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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


class FormPart(StrEnum):
    """What kind of a part of a definition it is in which two differ."""

    KIND = "kind"
    CLAUSE = "clause"
    COLUMNS = "columns"
    OPTION = "option"


@dataclass(frozen=True, slots=True)
class FormDifference:
    """A part in which two definitions differ: its name, and for columns which of them."""

    part: FormPart
    name: str
    detail: str = ""

    def __str__(self) -> str:
        """Return it for people."""
        shown = f'option "{self.name}"' if self.part is FormPart.OPTION else self.name
        return f"{shown} ({self.detail})" if self.detail else shown


@dataclass(frozen=True, slots=True)
class DefinitionForm:
    """What a definition says: its kind, its parts by name, columns in order, options by key."""

    kind: str
    parts: dict[str, Any]
    columns: tuple[Any, ...]
    options: dict[str, tuple[str, bool]]

    def differences(self, other: DefinitionForm) -> tuple[FormDifference, ...]:
        """Return the parts in which a later definition differs."""
        if self.kind != other.kind:
            return (FormDifference(FormPart.KIND, "kind"),)
        found = [
            FormDifference(FormPart.CLAUSE, _LABELS.get(name, name.replace("_", " ")))
            for name, value in self.parts.items()
            if value != other.parts[name]
        ]
        if self.columns != other.columns:
            detail = _other_columns(self.columns, other.columns)
            found.append(FormDifference(FormPart.COLUMNS, "columns", detail))
        options = (FormDifference(FormPart.OPTION, key) for key in self.options_that_differ(other))
        return (*found, *options)

    def options_that_differ(self, other: DefinitionForm) -> list[str]:
        """Return the keys of the options that differ, sorted."""
        keys = {*self.options, *other.options}
        return sorted(key for key in keys if self.options.get(key) != other.options.get(key))


def _other_columns(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    """Return which columns are gone or new, and which have another type or other clauses."""
    former, present = ({_name(each): each for each in some} for some in (before, after))
    new = [name for name in present if name not in former]
    gone = [name for name in former if name not in present]
    found = [f"new {', '.join(new)}"] if new else []
    found += [f"gone {', '.join(gone)}"] if gone else []
    for name in (each for each in present if each in former and former[each] != present[each]):
        types = [_type_text(each[name]) for each in (former, present)]
        found.append(
            f"{name} {' to '.join(types)}" if types[0] != types[1] else f"clauses of {name}"
        )
    return "; ".join(found) or "in another order"


def _name(column: Any) -> str:
    return column if isinstance(column, str) else str(column[0])


def _type_text(column: Any) -> str:
    return "" if isinstance(column, str) else "".join(column[1]).replace(",", ", ")


def form_of(statements: Sequence[Statement]) -> DefinitionForm:
    """Return the form of a CREATE statement and the ALTERs after it."""
    created, *altered = (_masked(each) for each in statements)
    options = _options(getattr(created, "options", ()))
    if isinstance(created, CreateConnection):
        options = _of_connection(created)
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
    if isinstance(created, CreateSecret) and created.source is SecretSource.FILE:
        parts["where"] = str(Path(created.where).expanduser().resolve())
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


def _of_connection(created: CreateConnection) -> dict[str, tuple[str, bool]]:
    """Return the options of a connection under the keys, and with the values, that are stored."""
    given = Given.of(created.options)
    try:
        kind = connection_kind(created.kind)
        stored = stored_options(read_options(kind.options, given, "a connection"))
        return {each.key: (each.value, each.secret) for each in given_again(kind.options, stored)}
    except HeadraceError:  # it is refused when it is created
        return _options(created.options)


def _plain(value: Any) -> Any:
    """Return a value that equals that of a statement which says the same."""
    match value:
        case FromSource():
            return (value.source.dotted, value.reference.dotted.removeprefix("public."))
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
    """Return the tokens of SQL, keywords and the names of functions in upper case.

    A name in backquotes is the same as without, unless it is a word of its own then.
    """
    found = list(tokens(text))
    after = [*(each.text for each in found), ""][1:]
    return tuple(_word(each, following) for each, following in zip(found, after, strict=True))


def _word(token: Token, following: str) -> str:
    if token.word in _KEYWORDS or (token.word and following == "("):
        return token.word
    if token.kind is TokenKind.BACKQUOTED:
        name = identifier_value(token)
        if _PLAIN.fullmatch(name) and name.upper() not in _KEYWORDS:
            return name
    return token.text
