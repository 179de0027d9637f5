"""Queries that Spark evaluates once, on one published state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Table, View
from headrace.parts.information_schema import (
    is_system,
    system_relations,
    system_rows,
)
from headrace.parts.stopped import require_running
from headrace.runtime.shares import snapshot
from headrace.serving import Contents
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from headrace.catalyst.analysed import Analysed
    from headrace.errors import Span
    from headrace.parts.instance import Instance
    from headrace.runtime.published import Published
    from headrace.runtime.step import Share
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """A query of one instance. ``also`` are relations that it may read beside those it names.

    ``text`` returns the text to run, which may add to the analysed one; ``state`` waits for, and
    returns, the state that the query reads.
    """

    instance: Instance
    span: Span
    state: Callable[[Analysed], Published]
    text: Callable[[Analysed], str]
    also: tuple[RelationId, ...] = ()

    def run(self) -> tuple[pa.Table, Published]:
        """Return the rows with Spark's types, and the state from which they were read.

        No lock is held while the query runs. If the catalog changes before Spark has resolved its
        names, it is analysed again.
        """
        engine, queries = self.instance.engine, self.instance.queries
        while True:
            with engine.planning:
                catalog = self.instance.catalog
                analysed = engine.planner.analyse(self.span, once=True)
            state = self.state(analysed)
            if state.catalog is not catalog:
                continue
            ids = {*analysed.reads, *self.also}
            for id_ in ids:
                if not is_system(id_):
                    require_running(self.instance, catalog.by_id[id_], state)
            with engine.planning:
                if self.instance.catalog is not catalog:
                    continue
                gather(self.instance, analysed.names, state)
                prepared = queries.prepared(self.text(analysed))
            found = None
            if ids == {*analysed.names} and len(ids) == 1:
                relation = catalog.by_id.get(*ids)
                if isinstance(relation, Table | View):
                    contents = Contents.of(self.instance.directory, state, relation)
                    found = queries.pulled(prepared, relation, contents)
            if found is None:
                found = queries.rows(prepared, shares(self.instance, ids, state))
            return found, state


def shares(
    instance: Instance, ids: Iterable[RelationId], state: Published
) -> dict[RelationId, Share]:
    """Return the contents of relations in a state.

    Epochs do not read a stream that no view reads: for such a stream, the whole log is
    returned.
    """
    relations = [state.catalog.by_id[id_] for id_ in sorted(set(ids)) if not is_system(id_)]
    for relation in relations:
        require_running(instance, relation, state)
    ends = {**instance.ledger.log_ends()}
    ends |= {id_: state.positions.get(id_, Offset(0)) for id_ in state.maintained}
    return snapshot(instance.ledger, state, relations, ends)


def gather(instance: Instance, names: Iterable[RelationId], state: Published) -> None:
    """Fill the named relations of the information schema, if there are any."""
    asked = set(names)
    for relation in system_relations():
        if relation.id in asked:
            instance.queries.provide(relation, system_rows(instance, state, relation))
