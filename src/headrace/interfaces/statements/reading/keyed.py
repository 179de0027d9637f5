"""Rows by key: the lookups that simple queries are, without Spark.

Queries simple enough to run without a planner: a relation, its columns, equal values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.io.formats.literals import plain_value
from headrace.planning.sql.lexer import Token, TokenKind, identifier_value, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from headrace.execution.serving import Contents
    from headrace.planning.catalog import Relation, Table, View


@dataclass(frozen=True, slots=True)
class Simple:
    """``SELECT * | columns FROM relation [WHERE column = literal AND ...]``."""

    relation: str
    columns: tuple[str, ...]
    equal: Mapping[str, Token | None]
    negative: frozenset[str]

    def fits(self, relation: Relation) -> bool:
        """Whether a relation has the columns that it names."""
        names = {name.lower() for name in relation.schema.names}
        return names.issuperset((*self.columns, *self.equal))


@lru_cache(maxsize=64)
def simple_select(text: str) -> Simple | None:
    """Parse a query of the simple form; None if it is not one.

    The result is cached: the check of roles reads the same text before the query runs.
    """
    found = tokens(text)
    try:
        first = next(found, None)
        if first is None or first.word != "SELECT":
            return None
        reader = _Tokens(list(found))
    except HeadraceError:
        return None
    columns: list[str] = []
    if not reader.text("*"):
        while True:
            name = reader.name()
            if name is None:
                return None
            columns.append(name)
            if not reader.text(","):
                break
    relation = reader.dotted() if reader.word("FROM") else None
    if relation is None:
        return None
    equal: dict[str, Token | None] = {}
    negative = set()
    if reader.word("WHERE"):
        while True:
            name = reader.name()
            if name is None or name in equal or not reader.text("="):
                return None
            if reader.text("-"):
                negative.add(name)
            equal[name] = reader.next()
            if not reader.word("AND"):
                break
    if not reader.done or len(set(columns)) != len(columns):
        return None
    return Simple(relation, tuple(columns), equal, frozenset(negative))


_RESERVED = frozenset(
    ["SELECT", "FROM", "WHERE", "DISTINCT", "ALL", "AND", "NULL", "TRUE", "FALSE", "CASE"]
)


@dataclass(slots=True)
class _Tokens:
    found: list[Token]
    at: int = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.found)

    def next(self) -> Token | None:
        if self.done:
            return None
        self.at += 1
        return self.found[self.at - 1]

    def word(self, word: str) -> bool:
        if self.done or self.found[self.at].word != word:
            return False
        self.at += 1
        return True

    def text(self, text: str) -> bool:
        if self.done or self.found[self.at].text != text:
            return False
        self.at += 1
        return True

    def dotted(self) -> str | None:
        """Consume a possibly qualified relation name."""
        name = self.name()
        while name is not None and self.text("."):
            part = self.name()
            name = None if part is None else f"{name}.{part}"
        return name

    def name(self) -> str | None:
        """Consume the name of a column or relation; return it in lower case."""
        if self.done:
            return None
        token = self.found[self.at]
        if token.kind is TokenKind.WORD and token.word not in _RESERVED:
            self.at += 1
            return token.text.lower()
        if token.kind is TokenKind.BACKQUOTED:
            self.at += 1
            return identifier_value(token).lower()
        return None


def rows_by_key(
    relation: Relation, arranged: Iterable[Contents], simple: Simple
) -> pa.Table | None:
    """Return the rows that a query finds by the key of one of these contents; None if by none.

    ``arranged`` are the rows of the relation, by its unique key and by the columns of indexes.
    """
    for contents in arranged:
        key = _key(relation, contents, simple)
        if key is not None:
            return contents.by_key(key)
    return None


def chosen(relation: Table | View, simple: Simple) -> list[str]:
    """Return the columns that a query selects; all columns for ``*``."""
    names = {name.lower(): name for name in relation.schema.names}
    return [names[column] for column in simple.columns] or list(relation.schema.names)


def _key(relation: Relation, contents: Contents, simple: Simple) -> list[Any] | None:
    """Return the key's values if the conditions are only equalities of keys and literals."""
    types = {c.name.lower(): c.type for c in relation.schema.columns}
    wanted = [name.lower() for name in contents.layout.key]
    if set(wanted) != set(simple.equal) or not contents.can_look_up():
        return None
    values = []
    for name in wanted:
        token = simple.equal[name]
        if token is None:
            return None
        plain, value = plain_value(token, types[name], negative=name in simple.negative)
        if not plain or value is None:
            return None
        values.append(value)
    return values
