"""The definitions that a database has, as the statements that made them.

The statements by which a stream or table gets the columns of its definition.

Whether a column has another name, or is gone while another one is new, does not follow from the two
definitions alone. Where it could be either, a comment behind the new column says it: ``-- was old``
or ``-- new``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.planning.catalog import FUNCTION_VIEW
from headrace.planning.sql import ColumnDefinition, CreateSource, Insert, quote, quote_dotted
from headrace.planning.sql.definitions import CREATED, name_of
from headrace.planning.sql.lexer import tokens
from headrace.tools.deploying.forms import column_text, columns_of, statements_of, type_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.errors import Span
    from headrace.interfaces.connecting import AnyDatabase
    from headrace.planning.sql import Statement


_HIDDEN: Final = "__"


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """A definition of a database; ``statements`` are empty if they are not known.

    ``own``: whether the statement names it; otherwise another object has made it, such as the sink
    of a table with a connector.
    """

    name: str
    """As :func:`headrace.planning.sql.definitions.name_of` has it."""
    kind: str
    statements: tuple[Statement, ...] = ()
    own: bool = True


@dataclass(slots=True)
class StoredDefinitions:
    """The definitions of a database by name, and what reads each, by name."""

    by_name: dict[str, StoredDefinition] = field(default_factory=dict)
    read_by: dict[str, set[str]] = field(default_factory=dict)

    def add(self, kind: str, name: str, text: str | None) -> None:
        """Add what a text defines, or a name whose text is not known."""
        try:
            statements = statements_of(text or "")
        except HeadraceError:  # written by a version that read more
            statements = ()
        first = statements[0] if statements else None
        own = first is None or (isinstance(first, CREATED) and name_of(first) == name)
        if isinstance(first, Insert):
            kind, own = "job", True
        elif not own and isinstance(first, CreateSource):  # it has made its tables
            statements = _followed(name, first)
        self.by_name[name] = StoredDefinition(name, kind, statements, own)

    def redefined(self, name: str, text: str) -> None:
        """Replace the definition of a name by that of another text."""
        self.add(self.by_name[name].kind, name, text)


def _followed(name: str, source: CreateSource) -> tuple[Statement, ...]:
    """Return the statement that would create a table that was created with its source."""
    named = [(each.name or each.reference).dotted.rpartition(".")[2] for each in source.tables]
    found = (e.reference.dotted for e, n in zip(source.tables, named, strict=True) if n == name)
    reference = quote_dotted(next(found, name))
    return statements_of(
        f"CREATE TABLE {quote_dotted(name)} FROM SOURCE {quote_dotted(source.name.dotted)}"
        f" (REFERENCE {reference})"
    )


def read_definitions(database: AnyDatabase) -> StoredDefinitions:
    """Return the definitions of a database, without what reads each.

    None of the statements waits for Spark.
    """
    found = StoredDefinitions()
    for kind, name in database.relations():
        (row,) = _rows(database, f"SHOW CREATE {quote_dotted(name)}")
        found.add(kind.removeprefix("plain "), name, row["statement"])
    for each in _rows(database, "SHOW FUNCTIONS"):
        if each["kind"] == "sql":
            _read_created(database, found, "function", each["name"])
    for each in _rows(database, "SHOW INDEXES"):
        columns = ", ".join(quote(name) for name in each["columns"].split(", "))
        named = quote_dotted(each["name"])
        on = quote_dotted(each["relation"])
        name = f"index {each['name']}"
        found.add("index", name, f"CREATE INDEX {named} ON {on} ({columns})")
        found.read_by.setdefault(each["relation"], set()).add(name)
    for kind in ("secret", "connection"):
        for each in _rows_of_owners(database, f"SHOW {kind.upper()}S"):
            _read_created(database, found, kind, each["name"])
    for each in _rows(database, "SHOW SOURCES"):
        if each["kind"] == "source":  # of several tables
            _read_created(database, found, "source", each["name"])
    for each in _rows(database, "SHOW SCHEMAS"):
        found.add("schema", f"schema {each['name']}", f"CREATE SCHEMA {quote_dotted(each['name'])}")
    return found


def _rows_of_owners(database: AnyDatabase, text: str) -> list[dict[str, Any]]:
    """Return what owners of the database see; nothing to others, who can create none of it."""
    try:
        return _rows(database, text)
    except HeadraceError as error:
        if error.code is not Code.FORBIDDEN:
            raise
        return []


def _read_created(database: AnyDatabase, found: StoredDefinitions, kind: str, name: str) -> None:
    """Add the definition of what is named apart from relations, as far as it may be seen."""
    rows = _rows_of_owners(database, f"SHOW CREATE {kind.upper()} {quote_dotted(name)}")
    text = next((row["statement"] for row in rows), None)
    found.add(kind, name if kind == "function" else f"{kind} {name}", text)


def read_dependencies(database: AnyDatabase, found: StoredDefinitions) -> None:
    """Add what reads each relation; hidden views are passed through."""
    rows = _rows(database, "SELECT name, depends_on FROM information_schema.dependencies")
    above: dict[str, set[str]] = {}
    for row in rows:
        above.setdefault(_shown(row["depends_on"]), set()).add(_shown(row["name"]))
    for name in found.by_name:
        seen: set[str] = set()
        pending = [*above.get(name, ())]
        while pending:
            reader = pending.pop()
            if reader not in seen:
                seen.add(reader)
                pending += above.get(reader, ()) if reader.startswith(_HIDDEN) else ()
        shown = {each for each in seen if not each.startswith(_HIDDEN)}
        found.read_by.setdefault(name, set()).update(shown)


def _shown(name: str) -> str:
    return name.removeprefix(FUNCTION_VIEW)


def _rows(database: AnyDatabase, text: str) -> list[dict[str, Any]]:
    return database.sql(text).to_pylist()


_COMMENT: Final = re.compile(
    r"(?im)(?:--|/\*)[ \t]*(?:was[ \t]+`?(?P<was>[^\s`*,;]+)`?|new)[ \t]*(?:\*/|$)"
)
_NUMBERS: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})


@dataclass(frozen=True, slots=True)
class ColumnSteps:
    """The statements that change columns, in order; those in ``dropping`` come last.

    They can wait until what uses the columns is changed.
    """

    statements: tuple[str, ...] = ()
    dropping: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[str, ...]:
        """All statements, in order."""
        return (*self.statements, *self.dropping)


def column_steps(
    kind: str, name: str, former: Sequence[Statement], wanted: Sequence[Statement]
) -> ColumnSteps:
    """Return the statements after which a relation has the columns of its definition.

    The order of columns is not considered. ``former`` and ``wanted`` are its CREATE and the ALTERs
    after it: those of the database, and of the files. A column that both have is the same one,
    whatever a comment says, so that a comment may stay.

    Raises:
        HeadraceError: ``unsupported`` if it is not certain which column has another name.
    """
    alter = f"ALTER {kind.upper()} {quote_dotted(name)}"
    after = columns_of(wanted)
    origins = _origins(f'{kind} "{name}"', columns_of(former), after)
    kept = {origin.name for origin in origins.values()}
    gone = [each.name for each in columns_of(former) if each.name not in kept]
    wider, renamed, new = list[str](), list[str](), list[ColumnDefinition]()
    for each in after:
        origin = origins.get(each.name)
        if origin is None:
            new.append(each)
            continue
        if type_of(origin) != type_of(each):
            type_ = each.type.span.source
            wider.append(f"{alter} ALTER COLUMN {quote(origin.name)} TYPE {type_}")
        if origin.name != each.name:
            renamed.append(f"{alter} RENAME COLUMN {quote(origin.name)} TO {quote(each.name)}")
    added = [f"{alter} ADD COLUMNS ({', '.join(map(column_text, new))})"] if new else []
    dropped = tuple(f"{alter} DROP COLUMN {quote(each)}" for each in gone)
    return ColumnSteps((*wider, *renamed, *added), dropped)


def _origins(
    title: str, before: Sequence[ColumnDefinition], after: Sequence[ColumnDefinition]
) -> Mapping[str, ColumnDefinition]:
    """Return the former column of each present one that is not new, by its present name.

    Raises:
        HeadraceError: ``unsupported`` if that is not certain.
    """
    known = {each.name.lower(): each for each in before}
    found = {each.name: known[each.name.lower()] for each in after if each.name.lower() in known}
    gone = {key: each for key, each in known.items() if each not in found.values()}
    for at, each in enumerate(after):
        if each.name in found:
            continue
        following = after[at + 1].span.start if at + 1 < len(after) else len(each.span.text)
        said = _said(each.span, following)
        old = None if said is None or said["was"] is None else gone.pop(said["was"].lower(), None)
        if old is not None:
            found[each.name] = old
            continue
        alike = [other.name for other in gone.values() if said is None and _may_be(other, each)]
        if alike:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'column "{each.name}" of {title} is new, and "{alike[0]}" is gone: it may have'
                " another name, or be another column",
                "Its values would be kept, or lost.",
                f"Write behind it which it is: -- was {alike[0]}, or -- new.",
                each.span,
            )
    return found


def _said(span: Span, following: int) -> re.Match[str] | None:
    """Return the comment that says where a column comes from: behind it, on its last line."""
    line = span.text.find("\n", span.end)
    end = min(following, len(span.text) if line < 0 else line)
    at = span.start
    for token in tokens(span.text, span.start, max(end, span.end)):
        found = _COMMENT.search(span.text[at : token.start])
        if found is not None:
            return found
        at = token.end
    return _COMMENT.search(span.text[at:end])


def _may_be(former: ColumnDefinition, present: ColumnDefinition) -> bool:
    """Whether a column may be a former one under another name: by its type, perhaps a wider one."""
    types = type_of(former), type_of(present)
    return types[0] == types[1] or all(type_[:1] and type_[0] in _NUMBERS for type_ in types)
