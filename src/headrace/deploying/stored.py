"""The definitions that a database has, as the statements that made them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import FUNCTION_VIEW
from headrace.deploying.forms import statements_of
from headrace.errors import Code, HeadraceError
from headrace.sql import CreateSource, Insert, quote, quote_dotted
from headrace.sql.definitions import CREATED, name_of

if TYPE_CHECKING:
    from headrace.connecting import AnyDatabase
    from headrace.sql import Statement

_HIDDEN: Final = "__"


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """A definition of a database; ``statements`` are empty if they are not known.

    ``own``: whether the statement names it; otherwise another object has made it, such as the sink
    of a table with a connector.
    """

    name: str
    """As :func:`headrace.sql.definitions.name_of` has it."""
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
