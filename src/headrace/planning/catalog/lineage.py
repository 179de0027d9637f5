"""Lineage by column: from what columns a column is made, and how.

:class:`RelationLineage` is the lineage of one relation from its direct inputs. :func:`upstream`
follows it through the views below, to streams and tables; :func:`downstream` is its reverse.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.planning.catalog.catalog import Catalog
    from headrace.planning.catalog.objects import Sink
    from headrace.types import RelationId


class Influence(StrEnum):
    """How a column influences another one, with the names of OpenLineage's subtypes.

    An influence is *direct* if values are computed from values, and *indirect* if a column only
    decides which rows there are, or which value is chosen.
    """

    IDENTITY = "identity"
    TRANSFORMATION = "transformation"
    AGGREGATION = "aggregation"
    CONDITIONAL = "conditional"
    WINDOW = "window"
    JOIN = "join"
    FILTER = "filter"
    GROUP_BY = "group_by"
    SORT = "sort"
    ROWS = "rows"
    """No column is named: only how many rows there are, as in ``count(*)``."""

    @property
    def is_direct(self) -> bool:
        """Whether values are computed from values."""
        return self in _DIRECT

    @property
    def type(self) -> str:
        """``direct`` or ``indirect``."""
        return "direct" if self.is_direct else "indirect"

    def after(self, below: Influence) -> Influence:
        """Return the influence of a column through another one: ``below``, then this one.

        An indirect one stays indirect; among direct ones, the one that changes more prevails.
        """
        if not self.is_direct:
            return self
        if not below.is_direct:
            return below
        return max(self, below, key=_DIRECT.index)


_DIRECT: Final = (Influence.IDENTITY, Influence.TRANSFORMATION, Influence.AGGREGATION)


@dataclass(frozen=True, slots=True, order=True)
class LineageColumn:
    """A column of a relation, or the field of a struct in it that ``path`` names."""

    relation: RelationId
    column: str
    path: tuple[str, ...] = ()

    @property
    def dotted(self) -> str:
        """The column with the path."""
        return ".".join((self.column, *self.path))


Influences: TypeAlias = "Mapping[LineageColumn, frozenset[Influence]]"
"""Input columns, each with its influences."""


def merged(several: Iterable[Influences]) -> dict[LineageColumn, frozenset[Influence]]:
    """Return the union of influences."""
    found: dict[LineageColumn, frozenset[Influence]] = {}
    for each in several:
        for column, influences in each.items():
            found[column] = found.get(column, frozenset()) | influences
    return found


def through(influence: Influence, below: Influences) -> dict[LineageColumn, frozenset[Influence]]:
    """Return the influences of columns by way of one step."""
    return {
        column: frozenset(influence.after(each) for each in influences)
        for column, influences in below.items()
    }


@dataclass(frozen=True, slots=True)
class RelationLineage:
    """The lineage of a relation from its direct inputs.

    ``columns`` has, for each column, what its values depend on. ``rows`` has what decides which
    rows there are, so that it influences all columns, and the number of rows. ``reads`` are the
    inputs, whose rows decide on those of the relation, too.
    """

    columns: Mapping[str, Influences] = field(default_factory=dict)
    rows: Influences = field(default_factory=dict)
    reads: frozenset[RelationId] = frozenset()


ROWS: Final = "*"
"""Stands for the column where no column of an input is named."""

NO_LINEAGE: Final = RelationLineage()
"""The lineage of a stream or table into which no sink writes."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """A column of a relation depends on a column of another one.

    ``column`` is None if all columns do: the input decides which rows there are. If no column of an
    input is named, its column is :data:`ROWS`. ``distance`` is the number of views and sinks from
    the input to the relation, at least 1.
    """

    relation: RelationId
    column: str | None
    input: LineageColumn
    influence: Influence
    distance: int


LineageOf: TypeAlias = "Callable[[RelationId], RelationLineage]"
"""Returns the lineage of a relation from its direct inputs."""


def upstream(lineage_of: LineageOf, relation: RelationId) -> Iterator[Dependence]:
    """Yield what each column of a relation depends on, the nearest first for each column.

    A pair of columns has one dependence for each influence, with the least distance.
    """
    own = lineage_of(relation)
    named = {relation}
    levels = _levels(lineage_of, relation)
    rows = [merged(lineage_of(each).rows for each in level) for level in levels]
    begun: list[tuple[str | None, list[Influences]]] = [(c, [i]) for c, i in own.columns.items()]
    begun.append((None, [*rows]))
    for column, given in begun:
        for found in _followed(lineage_of, relation, column, given):
            named.add(found.input.relation)
            yield found
    for distance, level in enumerate(levels):
        for id_ in level if distance else ():
            if id_ not in named:
                whole = LineageColumn(id_, ROWS)
                yield Dependence(relation, None, whole, Influence.ROWS, distance)


def downstream(
    lineage_of: LineageOf, catalog: Catalog, relation: RelationId
) -> Iterator[Dependence]:
    """Yield what depends on the columns of a relation: columns of views, sinks and their targets.

    Relations are in the order of their ids.
    """
    for other in catalog:
        for each in upstream(lineage_of, other.id) if other.id != relation else ():
            if each.input.relation == relation:
                yield each


def seen_through(
    lineage_of: LineageOf, relation: RelationId, hidden: Callable[[RelationId], bool]
) -> RelationLineage:
    """Return the lineage of a relation in which hidden inputs are replaced by their inputs."""
    own = lineage_of(relation)
    below = {id_: seen_through(lineage_of, id_, hidden) for id_ in own.reads if hidden(id_)}

    def shown(given: Influences) -> dict[LineageColumn, frozenset[Influence]]:
        return merged(
            through(influence, below[column.relation].columns.get(column.column, {}))
            if column.relation in below
            else {column: frozenset((influence,))}
            for column, influences in given.items()
            for influence in influences
        )

    return RelationLineage(
        {name: shown(given) for name, given in own.columns.items()},
        merged((shown(own.rows), *(each.rows for each in below.values()))),
        (own.reads - below.keys()).union(*(each.reads for each in below.values())),
    )


def of_sink(sink: Sink) -> RelationLineage:
    """Return the lineage of a sink, whose rows are those of its source."""
    columns = {
        name: {LineageColumn(sink.source, name): frozenset((Influence.IDENTITY,))}
        for name in sink.schema.names
    }
    return RelationLineage(columns, reads=frozenset((sink.source,)))


def of_written(sinks: Iterable[Sink]) -> RelationLineage:
    """Return the lineage of a stream or table from the sinks that write into it."""
    given = list(sinks)
    columns: dict[str, list[Influences]] = defaultdict(list)
    for sink in given:
        for target, name in zip(sink.columns, sink.schema.names, strict=True):
            columns[target].append({LineageColumn(sink.id, name): frozenset((Influence.IDENTITY,))})
    return RelationLineage(
        {name: merged(each) for name, each in columns.items()},
        reads=frozenset(sink.id for sink in given),
    )


def _levels(lineage_of: LineageOf, relation: RelationId) -> list[list[RelationId]]:
    """Return a relation, then what it reads, and so on, each at its least distance."""
    found, level, seen = [], [relation], {relation}
    while level:
        found.append(level)
        level = sorted({id_ for each in level for id_ in lineage_of(each).reads} - seen)
        seen |= set(level)
    return found


def _followed(
    lineage_of: LineageOf, relation: RelationId, column: str | None, given: list[Influences]
) -> Iterator[Dependence]:
    """Follow influences down through views; ``given`` are those at each distance."""
    seen: set[tuple[LineageColumn, Influence]] = set()
    level: list[tuple[LineageColumn, Influence]] = []
    distance = 0
    while level or distance < len(given):
        begun = given[distance] if distance < len(given) else {}
        level += [(each, how) for each, several in begun.items() for how in several]
        distance += 1
        fresh = sorted(set(level) - seen)
        seen |= set(fresh)
        level = []
        for each, how in fresh:
            yield Dependence(relation, column, each, how, distance)
            level += _below(lineage_of(each.relation), each, how)


def _below(
    lineage: RelationLineage, column: LineageColumn, how: Influence
) -> Iterator[tuple[LineageColumn, Influence]]:
    """Yield what a column with an influence depends on, with the influence through it."""
    for below, influences in lineage.columns.get(column.column, {}).items():
        for influence in influences:
            same = column.path and influence is Influence.IDENTITY
            path = (*below.path, *column.path) if same else below.path
            yield LineageColumn(below.relation, below.column, path), how.after(influence)
