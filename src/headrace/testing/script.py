"""Files ``*.test.sql``: several tests of views in SQL, with lines that say what is expected.

A line that begins with ``--@`` is a directive, and one with ``--|`` is a line of a table; both are
comments of SQL, so editors, formatters and the shell read the file as they read any other. All else
is SQL. A directive that does not exist is an error, unlike a comment with a typing error in it::

    --@ load ../views
    --@ at 2026-01-01 10:00:00

    --@ test only paid orders count
    INSERT INTO orders VALUES (1, 'ann', 10, 'paid'), (2, 'ann', 5, 'open');
    --@ rows spent
    --| customer | spent
    --| ann      | 10.00

What is before the first test is of all tests: CREATE and ALTER there replace definitions that are
loaded, and other statements run before each test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.errors import Code, HeadraceError, Span, unknown
from headrace.planning.sql import Query, Statement, parse_statement, split
from headrace.testing.clock import BEGINNING, instant_of, length_of
from headrace.testing.comparing import TextRows
from headrace.testing.database import TESTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path

    from headrace.planning.sql import StatementText


_LINE: Final = re.compile(r"^[ \t]*--([@|])(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunSql:
    """Run a statement, whose rows are compared if it is a query."""

    statement: StatementText
    table: TextRows | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Insert the rows of a table into a relation, or delete them from it."""

    name: str
    table: TextRows
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class ExpectRows:
    """Compare the rows of a relation, or those that a stream has rejected."""

    name: str
    table: TextRows
    tolerance: float = 0.0
    rejects: bool = False


@dataclass(frozen=True, slots=True)
class ExpectChanges:
    """Compare the changes of a view since the last time."""

    name: str
    table: TextRows
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class ExpectCount:
    """Compare how many rows of a relation were ``late``, ``duplicates`` or ``quarantined``."""

    what: str
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class MoveClock:
    """Move the clock by a length of time, or to a time."""

    by: timedelta | None = None
    to: datetime | None = None


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """Make an epoch of what was written."""


Action: TypeAlias = RunSql | Write | ExpectRows | ExpectChanges | ExpectCount | MoveClock | EndEpoch


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """An action of a test and its place; ``fails`` is a part of the error that it must raise."""

    action: Action
    place: Span
    fails: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptTest:
    """One test of a file; ``only`` and ``alone`` name the views that are defined."""

    name: str
    line: int
    steps: tuple[ScriptStep, ...]
    only: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    at: datetime = BEGINNING


@dataclass(frozen=True, slots=True)
class Script:
    """The tests of one file, and what they have in common."""

    file: Path
    loads: tuple[Path, ...]
    definitions: tuple[Statement, ...]
    tests: tuple[ScriptTest, ...]

    @classmethod
    def read(cls, file: Path, shown: str) -> Script:
        """Read a file, which errors call ``shown``.

        Raises:
            HeadraceError: ``invalid`` for a directive, table or statement that is malformed, for a
                query without expected rows, and for a file without tests, each with its place.
        """
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise HeadraceError(Code.INVALID, f'"{shown}" cannot be read: {error}') from error
        return _Reader(file, text, shown).script()


@dataclass(slots=True)
class _Line:
    """A directive or a statement, and the lines of the table below it."""

    place: Span
    words: str
    """The directive without its mark; empty for a statement."""
    statement: StatementText | None = None
    table: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class _Part:
    """What was read of the file's beginning, or of one test."""

    name: str
    line: int
    steps: list[ScriptStep] = field(default_factory=list)
    only: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    at: datetime | None = None
    fails: tuple[str, Span] | None = None


@dataclass(slots=True)
class _Reader:
    file: Path
    text: str
    shown: str
    loads: list[Path] = field(default_factory=list)
    definitions: list[Statement] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=lambda: [_Part("", 1)])

    def script(self) -> Script:
        for line in self._lines():
            if line.statement is not None:
                self._take_statement(line, line.statement)
            else:
                self._take_directive(line)
        self._require_done()
        first, *others = self.parts
        if not others:
            raise HeadraceError(
                Code.INVALID,
                f'"{self.shown}" has no test',
                hint="Begin one with a line --@ test and its name.",
            )
        tests = tuple(
            ScriptTest(
                each.name,
                each.line,
                (*first.steps, *each.steps),
                each.only or (() if each.alone else first.only),
                each.alone or (() if each.only else first.alone),
                each.at or first.at or BEGINNING,
            )
            for each in others
        )
        return Script(self.file, tuple(self.loads), tuple(self.definitions), tests)

    def _lines(self) -> list[_Line]:
        """Return directives and statements in order, each with the lines of its table."""
        statements = split(self.text, self.shown)
        found = [_Line(each.span, "", each) for each in statements]
        rows: list[Span] = []
        for match in _LINE.finditer(self.text):
            place = Span(self.text, match.start(1) - 2, match.end(), self.shown)
            within = next((s for s in statements if s.start < place.start < s.end), None)
            if within is not None:
                raise HeadraceError(
                    Code.INVALID,
                    "a directive is within a statement",
                    hint="End the statement before it with a semicolon.",
                    span=place,
                )
            if match[1] == "@":
                found.append(_Line(place, match[2].strip()))
            else:
                rows.append(place)
        found.sort(key=lambda each: each.place.start)
        for row in rows:
            before = [each for each in found if each.place.start < row.start]
            if not before:
                raise HeadraceError(Code.INVALID, "a table has nothing before it", span=row)
            before[-1].table.append(row)
        return found

    @property
    def _part(self) -> _Part:
        return self.parts[-1]

    def _take_statement(self, line: _Line, source: StatementText) -> None:
        statement = parse_statement(source)
        if len(self.parts) == 1 and isinstance(statement, TESTED):
            self.definitions.append(statement)
            return
        table = self._table(line) if line.table else None
        part = self._part
        if isinstance(statement, Query) and table is None and part.fails is None:
            raise HeadraceError(
                Code.INVALID,
                "a query has no expected rows",
                hint="Write them below it as lines of a table, each with --| before it: first the"
                " names of the columns.",
                span=source.span,
            )
        self._step(RunSql(source, table), source.span)

    def _step(self, action: Action, place: Span) -> None:
        part = self._part
        fails = None if part.fails is None else part.fails[0]
        part.steps.append(ScriptStep(action, place, fails))
        part.fails = None

    def _table(self, line: _Line) -> TextRows:
        try:
            return TextRows.of(row.source[3:] for row in line.table)
        except HeadraceError as error:
            raise error.at(line.table[0]) from error

    def _require_done(self) -> None:
        if self._part.fails is not None:
            raise HeadraceError(
                Code.INVALID,
                "nothing follows that could fail",
                hint="Write --@ error before the statement or directive that must fail.",
                span=self._part.fails[1],
            )

    # -- directives ------------------------------------------------------------------------

    def _take_directive(self, line: _Line) -> None:
        word, _, rest = line.words.partition(" ")
        take = _DIRECTIVES.get(word)
        try:
            if take is None:
                raise unknown("directive", word, _DIRECTIVES, f"There are: {_known()}.")
            _require_table(word, line)
            take(self, rest.strip(), line)
        except HeadraceError as error:
            raise error.at(line.place) from error

    def test(self, rest: str, line: _Line) -> None:
        self._require_done()
        if not rest:
            raise HeadraceError(Code.INVALID, "a test has no name")
        if rest in (each.name for each in self.parts):
            raise HeadraceError(Code.INVALID, f'there are two tests "{rest}"')
        self.parts.append(_Part(rest, line.place.position[0]))

    def load(self, rest: str, _line: _Line) -> None:
        if len(self.parts) > 1:
            raise HeadraceError(Code.INVALID, "load is within a test", hint="Write it before all.")
        for path in _words(rest, "a path"):
            found = self.file.parent / path
            if not found.exists():
                raise HeadraceError(Code.INVALID, f'"{path}" does not exist')
            self.loads.append(found)

    def at(self, rest: str, _line: _Line) -> None:
        if self._part.steps:
            raise HeadraceError(
                Code.INVALID, "at is not at the beginning", hint="Move the clock with clock."
            )
        self._part.at = instant_of(rest)

    def only(self, rest: str, _line: _Line) -> None:
        self._choose()
        self._part.only = _words(rest, "a view")

    def alone(self, rest: str, _line: _Line) -> None:
        self._choose()
        self._part.alone = _words(rest, "a view")

    def _choose(self) -> None:
        part = self._part
        if part.only or part.alone or part.steps:
            raise HeadraceError(
                Code.INVALID, "only or alone is given once, at the beginning of a test"
            )

    def insert(self, rest: str, line: _Line) -> None:
        self._step(Write(_name(rest), self._table(line)), line.place)

    def delete(self, rest: str, line: _Line) -> None:
        self._step(Write(_name(rest), self._table(line), deletes=True), line.place)

    def rows(self, rest: str, line: _Line) -> None:
        name, tolerance = _compared(rest)
        self._step(ExpectRows(name, self._table(line), tolerance), line.place)

    def rejects(self, rest: str, line: _Line) -> None:
        name, tolerance = _compared(rest)
        action = ExpectRows(name, self._table(line), tolerance, rejects=True)
        self._step(action, line.place)

    def changes(self, rest: str, line: _Line) -> None:
        name, tolerance = _compared(rest)
        self._step(ExpectChanges(name, self._table(line), tolerance), line.place)

    def count(self, rest: str, line: _Line) -> None:
        words = rest.split()
        if len(words) != 2 or not words[1].isdigit():  # noqa: PLR2004  (a name and a number)
            raise HeadraceError(Code.INVALID, "a name and a number of rows are expected")
        what = line.words.split()[0]
        self._step(ExpectCount(what, words[0], int(words[1])), line.place)

    def advance(self, rest: str, line: _Line) -> None:
        self._step(MoveClock(by=length_of(rest)), line.place)

    def clock(self, rest: str, line: _Line) -> None:
        self._step(MoveClock(to=instant_of(rest)), line.place)

    def epoch(self, rest: str, line: _Line) -> None:
        if rest:
            raise HeadraceError(Code.INVALID, "epoch stands alone")
        self._step(EndEpoch(), line.place)

    def error(self, rest: str, line: _Line) -> None:
        self._require_done()
        self._part.fails = rest, line.place


_DIRECTIVES: Final[dict[str, Callable[[_Reader, str, _Line], None]]] = {
    "load": _Reader.load,
    "at": _Reader.at,
    "test": _Reader.test,
    "only": _Reader.only,
    "alone": _Reader.alone,
    "insert": _Reader.insert,
    "delete": _Reader.delete,
    "rows": _Reader.rows,
    "changes": _Reader.changes,
    "rejects": _Reader.rejects,
    "late": _Reader.count,
    "duplicates": _Reader.count,
    "quarantined": _Reader.count,
    "advance": _Reader.advance,
    "clock": _Reader.clock,
    "epoch": _Reader.epoch,
    "error": _Reader.error,
}
"""The directives by their first word."""
DIRECTIVES: Final = tuple(_DIRECTIVES)
_WITH_TABLE: Final = frozenset({"insert", "delete", "rows", "changes", "rejects"})


def _require_table(word: str, line: _Line) -> None:
    """Raise unless a directive has a table if, and only if, it takes one."""
    if bool(line.table) == (word in _WITH_TABLE):
        return
    if line.table:
        raise HeadraceError(Code.INVALID, f"directive {word} takes no table")
    raise HeadraceError(
        Code.INVALID,
        f"directive {word} has no table",
        hint="Write it below, each line with --| before it: first the names of the columns.",
    )


def _known() -> str:
    return ", ".join(_DIRECTIVES)


def _words(rest: str, what: str) -> tuple[str, ...]:
    found = tuple(word for word in re.split(r"[ ,]+", rest) if word)
    if not found:
        raise HeadraceError(Code.INVALID, f"{what} is expected")
    return found


def _name(rest: str) -> str:
    words = rest.split()
    if len(words) != 1:
        raise HeadraceError(Code.INVALID, "the name of one relation is expected")
    return words[0]


def _compared(rest: str) -> tuple[str, float]:
    """Return the name and the tolerance of ``name [tolerance number]``."""
    words = rest.split()
    if len(words) == 3 and words[1] == "tolerance":  # noqa: PLR2004  (name, word, number)
        try:
            return words[0], float(words[2])
        except ValueError as error:
            raise HeadraceError(Code.INVALID, f"'{words[2]}' is not a number") from error
    return _name(rest), 0.0


def scripts_in(paths: Sequence[Path], end: str) -> Iterator[Path]:
    """Yield files, and the files of directories whose names have an end, in order.

    Raises:
        HeadraceError: ``invalid`` for a path that does not exist, or has no such files.
    """
    for path in paths:
        if path.is_dir():
            found = sorted(path.rglob(f"*{end}"))
            if found:
                yield from found
                continue
        elif path.exists():
            yield path
            continue
        what = f"has no files *{end}" if path.is_dir() else "does not exist"
        raise HeadraceError(Code.INVALID, f'"{path}" {what}')
