"""Rewrites queries to read other relations in place of some, called by the same names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.catalyst.fence import nodes, origin
from headrace.catalyst.scala import items, part
from headrace.errors import Code, HeadraceError
from headrace.sql import quote
from headrace.sql.rewritten import Rewriting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.errors import Span
    from headrace.types import Schema

_TABLE: Final = re.compile(r"\bTABLE\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Substitution:
    """Writes queries in Spark SQL whose names of relations are one word.

    ``relations`` has the names of what is read instead, by name. ``plain`` has the query of each
    plain view, in the same form, and its columns: it is written in place of its name if it reads
    one of these.
    """

    parser: Any
    relations: Mapping[str, str]
    plain: Mapping[str, tuple[Span, Schema]]

    def of(self, query: Span) -> str | None:
        """Return a query that reads the other relations; None if it names none of these.

        It calls them as before.

        Raises:
            HeadraceError: ``unsupported`` if WITH gives one of the names another meaning.
        """
        parsed = self.parser.parsePlan(query.source)
        found: dict[int, tuple[Span, str]] = {}
        aliased: set[int] = set()
        for node in nodes(parsed):
            if node.kind == "UnresolvedWith":
                self._refuse_hidden(node.handle, query)
            elif node.kind == "SubqueryAlias":
                (child,) = node.below
                if str(child.nodeName()) == "UnresolvedRelation":
                    aliased.add(origin(child, query).start)
            elif node.kind == "UnresolvedRelation":
                name = ".".join(map(str, items(node.handle.multipartIdentifier())))
                span = origin(node.handle, query)
                found[span.start] = span, name.lower()
        rewriting, changed = Rewriting(query), False
        for start, (span, name) in sorted(found.items()):
            other = self._instead(name)
            if other is None:
                continue
            changed = True
            named = start in aliased or _TABLE.search(query.text[:start])
            rewriting.replace(span, [other if named else f"{other} AS {quote(name)}"])
        return rewriting.done().span.source if changed else None

    def _instead(self, name: str) -> str | None:
        """Return what is read in place of a name; None if it stays."""
        if name in self.relations:
            return quote(self.relations[name])
        if name not in self.plain:
            return None
        query, schema = self.plain[name]
        text = self.of(query)
        if text is None:
            return None
        columns = ", ".join(map(quote, schema.names))
        return f"(SELECT * FROM ({text}) AS {quote(name)}({columns}))"

    def _refuse_hidden(self, with_: Any, query: Span) -> None:
        names = {str(part(pair, 0)).lower() for pair in items(with_.cteRelations())}
        taken = sorted(names & (self.relations.keys() | self.plain.keys()))
        if taken:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'a query in which WITH names "{taken[0]}", as a relation is named, cannot be'
                " changed to read another one",
                hint="Give it another name in WITH.",
                span=query,
            )
