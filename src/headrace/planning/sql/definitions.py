"""The definitions of a project: files of SQL, in any order.

A definition comes after those that it reads, whatever the order of files. Which these are is found
by the names in its text: a name that is also that of a column counts, which adds a relation that is
not needed and is harmless otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace.errors import Code, HeadraceError, unknown
from headrace.planning.sql import (
    AddColumns,
    AlterSink,
    AlterStream,
    AlterView,
    CreateConnection,
    CreateFunction,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    Drop,
    DropColumns,
    DropFunction,
    Insert,
    Name,
    Query,
    RenameColumn,
    RetypeColumn,
    Statement,
    parse_statement,
    split,
)
from headrace.planning.sql.lexer import TokenKind, identifier_value, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.errors import Span
    from headrace.planning.sql.lexer import Token


TESTS: Final = ".test.sql"
"""The end of the names of files with tests."""

Named: TypeAlias = (
    CreateStream
    | CreateTable
    | CreateTableAs
    | CreateView
    | CreateMaterializedView
    | CreateFunction
    | CreateSink
    | CreateIndex
    | CreateSchema
    | CreateSecret
    | CreateConnection
    | CreateSource
)
"""The statements that create what a project defines, under a name or over named columns."""
Created: TypeAlias = Named | Insert
"""The statements that create what a project defines."""
_NAMED: Final = (
    CreateStream, CreateTable, CreateTableAs, CreateView, CreateMaterializedView, CreateFunction,
    CreateSink, CreateIndex, CreateSchema, CreateSecret, CreateConnection, CreateSource,
)  # fmt: skip
CREATED: Final = (*_NAMED, Insert)
"""INSERT INTO what has a connector SELECT creates a job; other INSERTs define nothing."""
Altered: TypeAlias = (
    AddColumns | DropColumns | RenameColumn | RetypeColumn | AlterStream | AlterView | AlterSink
)
"""The statements that alter one of these."""
_ALTERED: Final = (
    AddColumns, DropColumns, RenameColumn, RetypeColumn, AlterStream, AlterView, AlterSink,
)  # fmt: skip
DEFINING: Final = (*_NAMED, *_ALTERED, Drop, DropFunction)
"""The statements that are taken from the files of a project; of INSERTs, only jobs are."""
_CONNECTING: Final = frozenset({"connector", "type", "topic", "kafka_topic"})
"""The options of what has a connector."""
_APART: Final = {
    CreateIndex: "index", CreateSchema: "schema", CreateSecret: "secret",
    CreateConnection: "connection", CreateSource: "source",
}  # fmt: skip
"""What is named apart from relations and functions."""
_BEFORE_RELATIONS: Final = frozenset({"FROM", "JOIN", "TABLE", "INTO"})


@dataclass(frozen=True, slots=True)
class Definition:
    """A relation, a SQL function or another named object: its CREATE, and the ALTERs after it.

    ``reads`` are the names of definitions in its text, ``surely`` those that stand where only a
    relation can.
    """

    name: str
    """Parts joined by dots, in lower case; see :func:`name_of`."""
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
        if isinstance(self.created, Insert):
            return self.created.target.dotted
        into = self.created.into if isinstance(self.created, CreateSink) else None
        return into.dotted if isinstance(into, Name) else None

    @property
    def over(self) -> tuple[str, ...]:
        """The relations that it needs by its form: those of a sink or an index."""
        created, fills = self.created, self.fills
        found = (fills,) if fills else ()
        if isinstance(created, CreateIndex):
            return (*found, created.relation.dotted)
        if isinstance(created, CreateSink) and isinstance(created.source, Name):
            return (*found, created.source.dotted)
        return found


@dataclass(slots=True)
class Definitions:
    """The definitions of a project by name, and the tables whose columns are not known here.

    ``adapt`` returns the statement to keep for a CREATE, or None to leave it out; without it, all
    are kept as they are.
    """

    by_name: dict[str, Definition] = field(default_factory=dict)
    adapt: Callable[[Named], Named | None] | None = None
    _unknown: dict[str, Span] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        paths: Iterable[Path],
        text: str = "",
        file: str | None = None,
        adapt: Callable[[Named], Named | None] | None = None,
    ) -> Definitions:
        """Return the definitions in files and directories, and in a text that replaces some.

        Of a directory, these are all its files ``*.sql`` except tests.

        Raises:
            HeadraceError: ``invalid`` for a path without definitions, and a name that is defined
                twice; the parser's errors, with their places.
        """
        statements = [
            statement
            for path in paths
            for each in files_of(path)
            for statement in defining_statements(each.read_text(encoding="utf-8"), str(each))
        ]
        found = cls(adapt=adapt)
        found.add(statements)
        return found.replaced_by(defining_statements(text, file))

    def replaced_by(self, statements: Sequence[Statement]) -> Definitions:
        """Return these definitions with those of statements, which replace others by name."""
        found = Definitions(adapt=self.adapt)
        found.add(statements)
        kept = {n: d for n, d in self.by_name.items() if n not in found.by_name}
        missing = {n: s for n, s in self._unknown.items() if n not in found.by_name}
        made = Definitions({**kept, **found.by_name}, self.adapt, {**missing, **found._unknown})
        made._find_reads()
        return made

    def add(self, statements: Sequence[Statement]) -> None:
        """Add the definitions of statements, in their order."""
        for statement in statements:
            match statement:
                case Drop() | DropFunction():
                    self.by_name.pop(statement.name.dotted, None)
                case _ if isinstance(statement, _ALTERED):
                    self._alter(statement)
                case _ if isinstance(statement, _NAMED):
                    self._create(statement)
        for statement in statements:
            if isinstance(statement, Insert) and self._is_job(statement):
                self._add_job(statement)
        self._find_reads()

    def _is_job(self, statement: Insert) -> bool:
        """Whether an INSERT runs continuously: a query into what is defined with a connector."""
        target = self.by_name.get(statement.target.dotted)
        if self.adapt is not None or target is None or not isinstance(statement.query, Query):
            return False
        given = {each.key.lower() for each in getattr(target.created, "options", ())}
        others = self.by_name.keys() - {target.name}
        return bool(given & _CONNECTING) and any(names_in(statement.query.span, others))

    def _add_job(self, statement: Insert) -> None:
        name = base = name_of(statement)
        number = 1
        while name in self.by_name:
            number += 1
            name = f"{base} ({number})"
        self.by_name[name] = Definition(name, (statement,))

    def _alter(self, statement: Altered) -> None:
        name = statement.name.dotted
        found = self.by_name.get(name)
        if found is None and isinstance(statement, AlterSink) and self.adapt is not None:
            return  # of a sink that is left out
        if found is None:
            raise unknown("relation", name, self.by_name, span=statement.name.span)
        self.by_name[name] = replace(found, statements=(*found.statements, statement))

    def _create(self, statement: Named) -> None:
        name = name_of(statement)
        former = self.by_name.get(name)
        if former is not None and statement.if_not_exists:
            return
        if former is not None and not getattr(statement, "or_replace", False):
            before = former.created.span
            raise HeadraceError(
                Code.INVALID,
                f'"{name}" is defined twice',
                detail=f"It is also defined in {before.file or 'the test'}, line"
                f" {before.position[0]}.",
                hint="Load one of the files, or write CREATE OR REPLACE in the later one.",
                span=statement.span if statement.name is None else statement.name.span,
            )
        kept = statement if self.adapt is None else self.adapt(statement)
        if kept is not None:
            self._unknown.pop(name, None)
            self.by_name[name] = Definition(name, (_created_once(kept),))
        elif isinstance(statement, CreateSource):
            for each in statement.tables:
                self._unknown[(each.name or each.reference).dotted] = statement.span
        elif isinstance(statement, CreateTable):
            self._unknown[name] = statement.span

    def _find_reads(self) -> None:
        """Find which definitions the text of each contains."""
        names = {*self.by_name, *self._unknown}
        called = {name for name, each in self.by_name.items() if each.is_function}
        for name, each in self.by_name.items():
            reads: set[str] = set()
            surely: set[str] = set()
            plain = isinstance(each.created, CreateStream | CreateTable)
            for found, before in names_in(each.created.span, called if plain else names):
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
    return [statement for statement in parsed if isinstance(statement, (*DEFINING, Insert))]


def statements_left_out(paths: Iterable[Path], found: Iterable[Definition]) -> list[Span]:
    """Return the places of the statements in files that define nothing, such as INSERT.

    ``found`` are the definitions in the files.
    """
    jobs = {each.created.span for each in found if isinstance(each.created, Insert)}
    texts = ((each, str(each)) for path in paths for each in files_of(path))
    return [
        each.span
        for path, file in texts
        for each in split(path.read_text(encoding="utf-8"), file)
        if not isinstance(made := parse_statement(each), DEFINING) and made.span not in jobs
    ]


def statements_that_are_wrong(paths: Iterable[Path]) -> list[HeadraceError]:
    """Return the errors of all statements in files that cannot be parsed, in their order."""
    errors: list[HeadraceError] = []
    for file in (each for path in paths for each in files_of(path)):
        try:
            texts = split(file.read_text(encoding="utf-8"), str(file))
        except HeadraceError as error:
            errors.append(error)
            continue
        for each in texts:
            try:
                parse_statement(each)
            except HeadraceError as error:
                errors.append(error)
    return errors


def name_of(statement: Created) -> str:
    """Return the name of what a statement creates, with its kind if it is named apart.

    Examples are ``gold.orders``, ``connection broker``, and ``index on orders (customer)`` and
    ``insert into copy``, which have no names of their own.
    """
    if isinstance(statement, CreateIndex) and statement.name is None:
        columns = ", ".join(statement.columns).lower()
        return f"index on {statement.relation.dotted} ({columns})"
    if isinstance(statement, Insert):
        return f"insert into {statement.target.dotted}"
    name = "" if statement.name is None else statement.name.dotted
    apart = _APART.get(type(statement))
    return f"{apart} {name}" if apart else name


def _created_once(statement: Named) -> Named:
    """Return a CREATE without OR REPLACE and IF NOT EXISTS: nothing of the name exists."""
    modes = {each.name for each in fields(statement)} & {"or_replace", "if_not_exists"}
    never: dict[str, Any] = dict.fromkeys(modes, False)
    return replace(statement, **never)


def files_of(path: Path) -> list[Path]:
    """Return the files of definitions at a path: the file itself, or those of a directory.

    Raises:
        HeadraceError: ``invalid`` if there are none.
    """
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


def names_in(span: Span, names: Iterable[str]) -> Iterator[tuple[str, str]]:
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
            found = [*getattr(each, reads), *each.over]
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
