"""All relations at one epoch, by name and by id, with their dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, unknown
from headrace.planning.catalog.objects import (
    Defined,
    PlainView,
    Relation,
    Sink,
    Stream,
    Table,
    View,
    title,
)
from headrace.planning.catalog.policies import RefreshKind
from headrace.types import BuildId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from headrace.errors import Span
    from headrace.types import RelationId


_STATEMENT_KINDS = {
    "stream": "STREAM",
    "table": "TABLE",
    "view": "MATERIALIZED VIEW",
    "plain view": "VIEW",
    "sink": "SINK",
}


@dataclass(frozen=True)
class Catalog:
    """An immutable set of relations with unique names; dependencies exist and are acyclic.

    Names are compared regardless of case, as in Spark. A changed catalog is a new value.
    """

    relations: tuple[Relation, ...] = ()
    """In the order of their ids."""

    @classmethod
    def of(cls, relations: Iterable[Relation]) -> Catalog:
        """Return the catalog of these relations, given in any order.

        Raises:
            HeadraceError: ``corrupt`` if two share a name or id, or a dependency is missing or
                circular.
        """
        catalog = cls(tuple(sorted(relations, key=lambda relation: relation.id)))
        count = len(catalog.relations)
        if len(catalog.by_id) != count or len(catalog.by_name) != count:
            raise HeadraceError(Code.CORRUPT, "two relations share a name or an id")
        catalog.views_in_order()
        return catalog

    @cached_property
    def by_id(self) -> Mapping[RelationId, Relation]:
        """The relations by id."""
        return MappingProxyType({relation.id: relation for relation in self.relations})

    @cached_property
    def by_name(self) -> Mapping[str, Relation]:
        """The relations by dotted name, in lower case."""
        return MappingProxyType({relation.name.lower(): relation for relation in self.relations})

    @cached_property
    def by_build(self) -> Mapping[BuildId, RelationId]:
        """The tables, and the views by the build that maintains them; ids are never shared."""
        tables = {BuildId(each.id): each.id for each in self.relations if isinstance(each, Table)}
        views = {each.build: each.id for each in self.relations if isinstance(each, View)}
        return MappingProxyType(tables | views)

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.relations)

    def __len__(self) -> int:
        return len(self.relations)

    def find(self, name: str) -> Relation | None:
        """Return the relation of this dotted name, or None."""
        return self.by_name.get(name.lower())

    def resolve(self, name: str, span: Span | None = None) -> Relation:
        """Return the relation of this dotted name.

        Raises:
            HeadraceError: ``invalid``, at the span, if it does not exist; the hint has the most
                similar name.
        """
        relation = self.find(name)
        if relation is not None:
            return relation
        shown = [each for each in self.by_name if not each.startswith("__")]
        raise unknown("table, stream or view", name, shown, "SHOW TABLES lists what exists.", span)

    def with_(self, relation: Relation, span: Span | None = None) -> Catalog:
        """Return the catalog with this relation added, or replaced if its id exists.

        Raises:
            HeadraceError: ``conflict`` if another relation has its name; ``invalid`` if it would
                depend on itself, directly or through others.
        """
        other = self.find(relation.name)
        if other is not None and other.id != relation.id:
            raise _taken(other, relation, span)
        if isinstance(relation, View | PlainView | Sink):
            beyond = {relation.id, *(view.id for view in self.dependants(relation.id))}
            circle = next((id_ for id_ in relation.inputs if id_ in beyond), None)
            if circle is not None:
                through = relation.name if circle == relation.id else self.by_id[circle].name
                raise HeadraceError(
                    Code.INVALID,
                    f'view "{relation.name}" would depend on itself',
                    detail=f'Its query reads "{through}".',
                    hint="A view reads streams, tables and views that do not read it.",
                    span=span,
                )
        return Catalog.of([*(r for r in self.relations if r.id != relation.id), relation])

    def replaced(self, relations: Iterable[Relation]) -> Catalog:
        """Return the catalog with these relations in place of those with their ids."""
        present = {each.id: each for each in relations}
        return Catalog.of([present.get(each.id, each) for each in self.relations])

    def without(self, ids: Iterable[RelationId], span: Span | None = None) -> Catalog:
        """Return the catalog without these relations.

        Raises:
            HeadraceError: ``conflict`` if a remaining view depends on a removed relation.
        """
        gone = frozenset(ids)
        left = [relation for relation in self.relations if relation.id not in gone]
        for relation in left:
            for needed in _dependencies(relation):
                if needed in gone:
                    used = self.by_id[needed]
                    kind = _STATEMENT_KINDS[used.kind]
                    raise HeadraceError(
                        Code.CONFLICT,
                        f"{title(used)} is used by {title(relation)}",
                        hint=f"Use DROP {kind} {used.name} CASCADE, then CREATE it and the views"
                        " above again: SHOW CREATE shows how.",
                        span=span,
                    )
        return Catalog.of(left)

    def candidate(self, id_: RelationId) -> View | None:
        """Return the view that may exchange its build with a view; None if there is none."""
        found = (v for v in self if isinstance(v, View) and v.candidate_of == id_)
        return next(found, None)

    def dependants(self, id_: RelationId) -> tuple[Defined, ...]:
        """Return the views and sinks that depend on a relation, directly or indirectly.

        Dependencies come first.
        """
        touched = {id_}
        found: list[Defined] = []
        for view in self._in_order:
            if view.id != id_ and not touched.isdisjoint(view.inputs):
                touched.add(view.id)
                found.append(view)
        return tuple(found)

    def below(self, ids: Iterable[RelationId]) -> frozenset[RelationId]:
        """Return relations with all their inputs, direct and through views.

        Unknown ids are left out.
        """
        known = self._below
        return frozenset().union(*(known[id_] for id_ in ids if id_ in known))

    def sees_all(self, sees: Callable[[str], bool], id_: RelationId) -> bool:
        """Return whether ``sees`` is true for the names of a relation and of all its inputs."""
        return all(sees(self.by_id[each].name) for each in self.below([id_]))

    def bases(self, ids: Iterable[RelationId]) -> frozenset[RelationId]:
        """Return the streams and tables below relations, direct and through views."""
        return frozenset(i for i in self.below(ids) if isinstance(self.by_id[i], Stream | Table))

    def shown_by(
        self, ids: Iterable[RelationId], apart: Collection[RelationId]
    ) -> frozenset[RelationId]:
        """Return relations with their inputs, without going below the views ``apart``.

        An epoch that reads a change of one of these shows it in the relations above it.
        """
        if not apart:
            return self.below(ids)
        found: set[RelationId] = set()
        pending = [id_ for id_ in ids if id_ in self.by_id]
        while pending:
            id_ = pending.pop()
            if id_ in found:
                continue
            found.add(id_)
            pending += () if id_ in apart else _dependencies(self.by_id[id_])
        return frozenset(found)

    @cached_property
    def _below(self) -> Mapping[RelationId, frozenset[RelationId]]:
        found = {relation.id: frozenset([relation.id]) for relation in self.relations}
        for view in self._in_order:
            found[view.id] = found[view.id].union(*(found[id_] for id_ in view.inputs))
        return found

    def views_in_order(self) -> tuple[View, ...]:
        """Return all materialized views, inputs first, otherwise by id."""
        return self._views_in_order

    @cached_property
    def _views_in_order(self) -> tuple[View, ...]:
        return tuple(view for view in self.defined_in_order() if isinstance(view, View))

    def defined_in_order(self) -> tuple[View | PlainView, ...]:
        """Return all views, plain ones too, inputs first, otherwise by id."""
        return self._defined_in_order

    def written_through(self, relation: RelationId) -> tuple[RelationId, ...]:
        """Return the views over a stream or table that are refreshed before its writes return."""
        return self._written_through.get(relation, ())

    @cached_property
    def _written_through(self) -> Mapping[RelationId, tuple[RelationId, ...]]:
        found: dict[RelationId, tuple[RelationId, ...]] = {}
        for view in self._views_in_order:
            if view.refresh.kind is RefreshKind.ON_WRITE:
                for base in self.bases([view.id]):
                    found[base] = (*found.get(base, ()), view.id)
        return found

    def indexes(self, relation: RelationId) -> tuple[View, ...]:
        """Return the hidden views that are indexes of a relation."""
        return self._indexes.get(relation, ())

    def index(self, name: str) -> View | None:
        """Return the hidden view of the index of this name, or None."""
        views = (v for v in self._views_in_order if v.candidate_of is None)
        return next((v for v in views if v.index and v.index.name == name.lower()), None)

    @cached_property
    def _indexes(self) -> Mapping[RelationId, tuple[View, ...]]:
        found: dict[RelationId, tuple[View, ...]] = {}
        for view in self._views_in_order:
            if view.index is not None:
                found[view.index.of] = (*found.get(view.index.of, ()), view)
        return found

    @cached_property
    def _defined_in_order(self) -> tuple[View | PlainView, ...]:
        return tuple(each for each in self._in_order if not isinstance(each, Sink))

    @cached_property
    def _in_order(self) -> tuple[Defined, ...]:
        graph = {relation.id: _dependencies(relation) for relation in self.relations}
        sorter = TopologicalSorter(graph)
        ordered: list[Defined] = []
        try:
            sorter.prepare()
        except CycleError as error:
            raise HeadraceError(Code.CORRUPT, "views depend on each other in a circle") from error
        while sorter.is_active():
            ready = sorted(sorter.get_ready())
            for id_ in ready:
                relation = self.by_id.get(id_)
                if relation is None:
                    raise HeadraceError(
                        Code.CORRUPT, f"a view depends on relation {id_}, which does not exist"
                    )
                if isinstance(relation, View | PlainView | Sink):
                    ordered.append(relation)
            sorter.done(*ready)
        return tuple(ordered)

    def connected_sets(
        self, apart: Collection[RelationId] = ()
    ) -> tuple[frozenset[RelationId], ...]:
        """Return the sets of relations that are connected by views, ordered by smallest id.

        An epoch steps a whole set, so its views always agree. A relation that no view reads is a
        set of its own. The views ``apart`` connect nothing that they read.
        """
        set_of: dict[RelationId, set[RelationId]] = {r.id: {r.id} for r in self.relations}
        for relation in self.relations:
            if not isinstance(relation, View) or relation.id in apart:
                continue
            for needed in relation.depends_on:
                here, there = set_of[relation.id], set_of[needed]
                if here is there:
                    continue
                if len(here) < len(there):
                    here, there = there, here
                here |= there
                for id_ in there:
                    set_of[id_] = here
        distinct = {min(members): frozenset(members) for members in set_of.values()}
        return tuple(distinct[smallest] for smallest in sorted(distinct))


def _dependencies(relation: Relation) -> tuple[RelationId, ...]:
    return relation.inputs if isinstance(relation, View | PlainView | Sink) else ()


def _taken(other: Relation, relation: Relation, span: Span | None) -> HeadraceError:
    kind = _STATEMENT_KINDS[other.kind]
    if other.kind == relation.kind:
        hint = f"Use CREATE OR REPLACE {kind}, or IF NOT EXISTS."
    else:
        hint = f"Streams, tables and views share their names: choose another, or DROP {kind} first."
    return HeadraceError(
        Code.CONFLICT, f'{other.kind} "{other.name}" exists already', hint=hint, span=span
    )
