"""Rewrites queries to read other relations in place of some, called by the same names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.catalyst.fence import nodes
from headrace.catalyst.scala import items, part
from headrace.catalyst.written import relations_in
from headrace.errors import Code, HeadraceError
from headrace.sql import quote
from headrace.sql.rewritten import Rewriting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.errors import Span
    from headrace.types import Schema


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
        every = list(nodes(self.parser.parsePlan(query.source)))
        for node in every:
            if node.kind == "UnresolvedWith":
                self._refuse_hidden(node.handle, query)
        rewriting, changed = Rewriting(query), False
        for each in relations_in(every, query):
            other = self._instead(each.name)
            if other is None:
                continue
            changed = True
            rewriting.replace(
                each.span, [other if each.is_named else f"{other} AS {quote(each.name)}"]
            )
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
