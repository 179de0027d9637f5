"""Rewrites qualified names such as ``gold.orders`` for Spark's session, where names are one word.

A relation is declared to Spark under its dotted name, as one word. Relation names in FROM, and
qualifiers of columns, are rewritten to that word, with the last part of the name as the alias.
Their places come from Spark's own parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from headrace.catalyst.fence import nodes, origin
from headrace.catalyst.scala import items, maybe
from headrace.errors import Span
from headrace.sql import Rewritten, quote
from headrace.sql.rewritten import Rewriting, unchanged

if TYPE_CHECKING:
    from collections.abc import Collection

_PART = r"(?:`(?:[^`]|``)*`|\w+)"
_TABLE = re.compile(r"\bTABLE\s*$", re.IGNORECASE)


def with_one_word_names(parser: Any, query: Span, names: Collection[str]) -> Rewritten:
    """Return the query with the dotted ``names`` of relations as one word.

    A query that Spark cannot parse is returned unchanged: the caller's parsing reports the error.
    """
    text = _unquoted(query.source)
    dotted = {name for name in names if "." in name}
    if not any(_unquoted(name.rpartition(".")[2]) in text for name in dotted):
        return unchanged(query)
    try:
        parsed = parser.parsePlan(query.source)
    except PySparkException:
        return unchanged(query)
    return _Places(query, dotted).found_in(parsed).rewritten()


@dataclass(slots=True)
class _Places:
    """The places in a query of names that are declared as dotted names."""

    query: Span
    dotted: Collection[str]
    relations: dict[int, tuple[Span, str]] = field(default_factory=dict)
    aliased: set[int] = field(default_factory=set)
    columns: dict[int, tuple[Span, str]] = field(default_factory=dict)

    def found_in(self, parsed: Any) -> _Places:
        """Collect the places in every node of a parsed query."""
        for node in nodes(parsed):
            if node.kind == "SubqueryAlias":
                (child,) = node.below
                if str(child.nodeName()) == "UnresolvedRelation":
                    self.aliased.add(origin(child, self.query).start)
            elif node.kind == "UnresolvedRelation":
                name = _dotted(items(node.handle.multipartIdentifier()))
                if name in self.dotted:
                    span = origin(node.handle, self.query)
                    self.relations[span.start] = (span, name)
            for expression, kind_ in node.expressions:
                if kind_ == "UnresolvedAttribute":
                    self._column(expression, items(expression.nameParts())[:-1])
                elif kind_ == "UnresolvedStar":
                    target = maybe(expression.target())
                    self._column(expression, [] if target is None else items(target))
        return self

    def _column(self, expression: Any, qualifier: list[Any]) -> None:
        """Collect a column whose qualifier is or begins with a dotted name."""
        for length in range(len(qualifier), 1, -1):
            name = _dotted(qualifier[:length])
            if name not in self.dotted:
                continue
            span = origin(expression, self.query)
            found = re.match(rf"{_PART}(?:\s*\.\s*{_PART}){{{length - 1}}}", span.source)
            if found is not None:
                span = Span(span.text, span.start, span.start + found.end(), span.file, span.line)
                self.columns[span.start] = (span, name)
            return

    def rewritten(self) -> Rewritten:
        """Return the query with each of these names as one word."""
        rewriting = Rewriting(self.query)
        last = {name: name.rpartition(".")[2] for _, name in self.relations.values()}
        alike = [word for word in last.values() if list(last.values()).count(word) > 1]
        called = {name: name if word in alike else word for name, word in last.items()}
        for start in sorted([*self.relations, *self.columns]):
            if start in self.columns:
                span, name = self.columns[start]
                if name in called:
                    rewriting.replace(span, [quote(called[name])])
                continue
            span, name = self.relations[start]
            rewriting.replace(span, [quote(name)])
            bare = start in self.aliased or _TABLE.search(self.query.text[:start])
            if not bare and called[name] != name:
                rewriting.add(f" AS {quote(called[name])}")
        return rewriting.done()


def _unquoted(text: str) -> str:
    """Return a text in lower case without quotes of names, which are doubled in quoted names."""
    return text.lower().replace("`", "").replace('"', "")


def _dotted(parts: list[Any]) -> str:
    return ".".join(str(part).lower() for part in parts)
