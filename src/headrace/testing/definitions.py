"""A project's definitions for a test: files of SQL, without the systems that they name.

A stream or table that reads from another system becomes a plain one with the same columns, key,
watermark and clauses, to which the test writes rows; its METADATA columns become plain ones. Sinks
to other systems, connections, secrets, tokens and indexes are left out, and so is every statement
that defines nothing, such as INSERT.

A definition comes after those that it reads, whatever the order of files. Which these are is found
by the names in its text: a name that is also that of a column counts, which adds a relation that is
not needed and is harmless otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.errors import Code, HeadraceError, unknown
from headrace.sql import (
    AddColumns,
    AlterStream,
    AlterView,
    CreateFunction,
    CreateMaterializedView,
    CreateSink,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    Drop,
    DropFunction,
    Name,
    Option,
    Statement,
    parse_statement,
    split,
)
from headrace.sql.lexer import TokenKind, identifier_value, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.errors import Span
    from headrace.sql.lexer import Token

TESTS: Final = ".test.sql"
"""The end of the names of files with tests."""

_Created: TypeAlias = (
    CreateStream
    | CreateTable
    | CreateTableAs
    | CreateView
    | CreateMaterializedView
    | CreateFunction
    | CreateSink
)
_CREATED: Final = (
    CreateStream, CreateTable, CreateTableAs, CreateView, CreateMaterializedView, CreateFunction,
    CreateSink,
)  # fmt: skip
_ALTERED: Final = (AddColumns, AlterStream, AlterView)
DEFINING: Final = (*_CREATED, *_ALTERED, CreateSource, Drop, DropFunction)
"""The statements that are taken from the files of a project."""
_KEPT_OPTIONS: Final = frozenset({
    "effective_from", "retention", "timestamp", "description", "friendly_name", "topic",
    "kafka_topic",
})  # fmt: skip
"""Options of streams and tables that do not name another system, or say what their rows mean."""
_BEFORE_RELATIONS: Final = frozenset({"FROM", "JOIN", "TABLE", "INTO"})


@dataclass(frozen=True, slots=True)
class Definition:
    """A relation or a SQL function: its CREATE, and the ALTERs after it.

    ``reads`` are the names of definitions in its text, ``surely`` those that stand where only a
    relation can.
    """

    name: str
    """Parts joined by dots, in lower case."""
    statements: tuple[Statement, ...]
    reads: frozenset[str] = frozenset()
    surely: frozenset[str] = frozenset()

    @property
    def created(self) -> Statement:
        """The CREATE statement."""
        return self.statements[0]

    @property
    def is_view(self) -> bool:
        """Whether its rows are those of a query."""
        return isinstance(self.created, CreateMaterializedView | CreateView | CreateTableAs)

    @property
    def is_function(self) -> bool:
        """Whether it is a function."""
        return isinstance(self.created, CreateFunction)

    @property
    def fills(self) -> str | None:
        """The table or stream into which it writes the rows of a view; None for all but sinks."""
        into = self.created.into if isinstance(self.created, CreateSink) else None
        return into.dotted if isinstance(into, Name) else None


@dataclass(slots=True)
class Definitions:
    """The definitions of a project by name, and the tables whose columns are not known here."""

    by_name: dict[str, Definition] = field(default_factory=dict)
    _unknown: dict[str, Span] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Iterable[Path], text: str = "", file: str | None = None) -> Definitions:
        """Return the definitions in files and directories, and in a text that replaces some.

        Of a directory, these are all its files ``*.sql`` except tests.

        Raises:
            HeadraceError: ``invalid`` for a path without definitions, and a name that is defined
                twice; the parser's errors, with their places.
        """
        statements = [
            statement
            for path in paths
            for each in _files(path)
            for statement in defining_statements(each.read_text(encoding="utf-8"), str(each))
        ]
        found = cls()
        found.add(statements)
        return found.replaced_by(defining_statements(text, file))

    def replaced_by(self, statements: Sequence[Statement]) -> Definitions:
        """Return these definitions with those of statements, which replace others by name."""
        found = Definitions()
        found.add(statements)
        kept = {n: d for n, d in self.by_name.items() if n not in found.by_name}
        missing = {n: s for n, s in self._unknown.items() if n not in found.by_name}
        made = Definitions({**kept, **found.by_name}, {**missing, **found._unknown})
        made._find_reads()
        return made

    def add(self, statements: Sequence[Statement]) -> None:
        """Add the definitions of statements, in their order."""
        for statement in statements:
            match statement:
                case Drop() | DropFunction():
                    self.by_name.pop(statement.name.dotted, None)
                case CreateSource():
                    for each in statement.tables:
                        self._unknown[(each.name or each.reference).dotted] = statement.span
                case AddColumns() | AlterStream() | AlterView():
                    self._alter(statement)
                case _ if isinstance(statement, _CREATED):
                    self._create(statement)
        self._find_reads()

    def _alter(self, statement: AddColumns | AlterStream | AlterView) -> None:
        name = statement.name.dotted
        found = self.by_name.get(name)
        if found is None:
            raise unknown("relation", name, self.by_name, span=statement.name.span)
        self.by_name[name] = replace(found, statements=(*found.statements, statement))

    def _create(self, statement: _Created) -> None:
        name = statement.name.dotted
        former = self.by_name.get(name)
        if former is not None and statement.if_not_exists:
            return
        if former is not None and not statement.or_replace:
            before = former.created.span
            raise HeadraceError(
                Code.INVALID,
                f'"{name}" is defined twice',
                detail=f"It is also defined in {before.file or 'the test'}, line"
                f" {before.position[0]}.",
                hint="Load one of the files, or write CREATE OR REPLACE in the later one.",
                span=statement.name.span,
            )
        if isinstance(statement, CreateTable) and statement.captured and not statement.columns:
            self._unknown[name] = statement.span
            return
        if isinstance(statement, CreateSink) and not isinstance(statement.into, Name):
            return
        if isinstance(statement, CreateStream | CreateTable):
            statement = without_systems(statement)
        self._unknown.pop(name, None)
        self.by_name[name] = Definition(name, (_created_once(statement),))

    def _find_reads(self) -> None:
        """Find which definitions the text of each contains."""
        names = {*self.by_name, *self._unknown}
        called = {name for name, each in self.by_name.items() if each.is_function}
        for name, each in self.by_name.items():
            reads: set[str] = set()
            surely: set[str] = set()
            plain = isinstance(each.created, CreateStream | CreateTable)
            for found, before in _names_in(each.created.span, called if plain else names):
                reads.add(found)
                if before in _BEFORE_RELATIONS or found in called:
                    surely.add(found)
            self.by_name[name] = replace(
                each, reads=frozenset(reads - {name}), surely=frozenset(surely - {name})
            )

    def named(self, name: str) -> Definition:
        """Return the definition of a name.

        Raises:
            HeadraceError: ``invalid`` if there is none.
        """
        found = self.by_name.get(name.lower())
        if found is None:
            raise unknown("view", name, self.by_name, "Is its file loaded?")
        return found

    def below(self, names: Iterable[str]) -> list[Definition]:
        """Return definitions with all that they read, each after those.

        Sinks into their tables and streams are included, with what they read.

        Raises:
            HeadraceError: ``invalid`` for a name without a definition, if some read each other, or
                for a table of another database whose columns are not declared.
        """
        sinks = [each for each in self.by_name.values() if each.fills]
        found: dict[str, Definition] = {}
        pending = [self.named(name) for name in names]
        while pending:
            each = pending.pop()
            if each.name in found:
                continue
            found[each.name] = each
            for name in each.reads:
                if name in self.by_name:
                    pending.append(self.by_name[name])
                elif name in each.surely:
                    raise _no_columns(name, self._unknown[name])
            pending += [sink for sink in sinks if sink.fills == each.name]
        return _in_order([each for name, each in self.by_name.items() if name in found])

    def every(self) -> list[Definition]:
        """Return all definitions, each after those that it reads; see :meth:`below`."""
        return self.below(self.by_name)


def defining_statements(text: str, file: str | None) -> list[Statement]:
    """Return the statements of a script that define something, without the others."""
    parsed = (parse_statement(each) for each in split(text, file))
    return [statement for statement in parsed if isinstance(statement, DEFINING)]


def without_systems(statement: CreateStream | CreateTable) -> CreateStream | CreateTable:
    """Return the statement for a plain stream or table, to which a test writes rows."""
    options = tuple(each for each in statement.options if each.key.lower() in _KEPT_OPTIONS)
    given = {each.key.lower() for each in statement.options}
    if "value_format" in given and "kafka_topic" not in given:  # a relation of ksqlDB
        options = (*options, Option("kafka_topic", statement.name.dotted, statement.name.span))
    columns = tuple(replace(each, metadata=None) for each in statement.columns)
    taken = replace(statement.taken, stops=False)
    if isinstance(statement, CreateTable):
        return replace(statement, columns=columns, options=options, taken=taken, captured=None)
    return replace(statement, columns=columns, options=options, taken=taken)


def _created_once(statement: _Created) -> _Created:
    """Return a CREATE without OR REPLACE and IF NOT EXISTS: nothing of the name exists."""
    return replace(statement, or_replace=False, if_not_exists=False)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.rglob("*.sql") if not each.name.endswith(TESTS))
        if found:
            return found
    elif path.is_file():
        return [path]
    raise HeadraceError(
        Code.INVALID,
        f'there are no definitions at "{path}"',
        hint="Name a file of SQL, or a directory of files *.sql.",
    )


def _names_in(span: Span, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that occur in a statement, each with the word before it, in upper case.

    A dotted name counts for its longest prefix that is one: ``gold.orders.id`` for ``gold.orders``.
    """
    known = frozenset(names)
    found = list(tokens(span.text, span.start, span.end))
    at = 0
    while at < len(found):
        parts, end = _dotted(found, at)
        if not parts:
            at += 1
            continue
        before = found[at - 1] if at else None
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length]).lower()
            if name in known:
                yield name, "" if before is None else before.word
                break
        at = end


def _dotted(found: Sequence[Token], at: int) -> tuple[list[str], int]:
    """Return the parts of the dotted name that begins at a token, and the place after it."""
    parts: list[str] = []
    kinds = (TokenKind.WORD, TokenKind.BACKQUOTED, TokenKind.DQUOTED)
    while at < len(found) and found[at].kind in kinds:
        parts.append(identifier_value(found[at]))
        at += 1
        if at + 1 >= len(found) or found[at].text != "." or found[at + 1].kind not in kinds:
            break
        at += 1
    return parts, at


def _in_order(definitions: Sequence[Definition]) -> list[Definition]:
    by_name = {each.name: each for each in definitions}
    for reads in ("reads", "surely"):  # a name may be that of a column
        graph: dict[str, list[str]] = {}
        for each in definitions:
            found = [*getattr(each, reads), *((each.fills,) if each.fills else ())]
            graph[each.name] = sorted(name for name in found if name in by_name)
        try:
            return [by_name[name] for name in TopologicalSorter(graph).static_order()]
        except CycleError as error:
            cycle = error.args[1]
    raise HeadraceError(
        Code.INVALID,
        f'"{cycle[0]}" reads itself',
        detail=f"The definitions read each other: {' reads '.join(reversed(cycle))}.",
        span=by_name[cycle[0]].created.span,
    )


def _no_columns(name: str, span: Span) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f'the columns of table "{name}" are not known without its source',
        hint=f"Declare it for the test: CREATE TABLE {name} (columns, PRIMARY KEY (...)).",
        span=span,
    )
