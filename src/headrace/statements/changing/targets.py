"""The relation that a statement writes to, and the columns that it names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace.catalog import Catalog, Relation, Sink, Stream, Table, View
from headrace.errors import Code, HeadraceError, Span, meant
from headrace.parts.former_names import present_name
from headrace.parts.places import place_of_text
from headrace.parts.written_rows import given_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.runtime.published import Published
    from headrace.sql import Name
    from headrace.types import Column, Offset, RelationId


_Written = TypeVar("_Written", Stream, Table)
_Result = TypeVar("_Result")


class WrittenRows(NamedTuple):
    """The result of a write: the relation, the number of rows, and the log's end after them.

    ``left_out`` is the number of rows that the relation did not accept.
    """

    relation: RelationId
    rows: int
    end: Offset
    left_out: int = 0


class AlteredMeanwhileError(HeadraceError):
    """The relation that a statement changes was altered while the statement read it."""


def as_defined(find: Callable[[], _Written], run: Callable[[_Written], _Result]) -> _Result:
    """Return what a statement does to a relation as defined; again if it is altered meanwhile.

    ``run`` writes nothing if it fails.
    """
    while True:
        relation = find()
        try:
            return run(relation)
        except AlteredMeanwhileError:
            continue
        except HeadraceError:
            if find() == relation:
                raise


def require_defined(relation: Stream | Table, state: Published) -> None:
    """Raise if a statement has read rows in a state in which the relation has another definition.

    Raises:
        AlteredMeanwhileError: for :func:`as_defined`.
    """
    if state.catalog.by_id.get(relation.id) != relation:
        raise AlteredMeanwhileError(Code.CONFLICT, f'{relation.kind} "{relation.name}" was altered')


def target_named(catalog: Catalog, name: Name) -> Stream | Table:
    """Return the stream or table that a statement writes to."""
    return writable(catalog, catalog.resolve(name.dotted, name.span), name.span)


def writable(catalog: Catalog, relation: Relation, span: Span | None = None) -> Stream | Table:
    """Return the relation whose log takes the writes to a relation; raise if none does.

    The stream behind a view by CREATE STREAM AS is returned with the view's name, for messages.
    """
    relation = taking(catalog, relation)
    if not isinstance(relation, Stream | Table):
        kind = "sink" if isinstance(relation, Sink) else "view"
        raise HeadraceError(
            Code.INVALID,
            f'{kind} "{relation.name}" cannot be written to',
            hint="Write to the streams and tables that it reads.",
            span=span,
        )
    if relation.declaration.source:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'{relation.kind} "{relation.name}" gets its rows from elsewhere',
            detail="Rows written here would not reach that system.",
            hint="Write to its topic, or to the table that it follows: the rows arrive here.",
            span=span,
        )
    return relation


def taking(catalog: Catalog, relation: Relation) -> Relation:
    """Return the stream behind a view by CREATE STREAM AS, under its name; others unchanged."""
    if not isinstance(relation, View) or relation.into is None:
        return relation
    stream = catalog.by_id[relation.into]
    return replace(stream, name=relation.name)


def table_named(catalog: Catalog, name: Name) -> Table:
    """Return the table whose rows a statement changes."""
    relation = target_named(catalog, name)
    if isinstance(relation, Stream):
        raise HeadraceError(
            Code.INVALID,
            f'stream "{relation.name}" is append-only',
            hint="Use a TABLE for rows that change.",
            span=name.span,
        )
    return relation


def chosen(relation: Stream | Table, names: tuple[str, ...], span: Span) -> tuple[Column, ...]:
    """Return the named columns; without names, all columns but generated ones."""
    generated = relation.declaration.generated
    if not names:
        return tuple(c for c in relation.schema.columns if c.name not in generated)
    by_name = relation.schema.by_lower_name
    time = given_time(relation)
    if time is not None:
        by_name = {**by_name, time.name.lower(): time}
    for name in names:
        _require_column(relation, name, by_name, span)
        if generated and by_name[name.lower()].name in generated:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" is generated, so it cannot be written',
                hint="Leave it out: it is computed, or is the origin of the row.",
                span=place_of_text(name, span),
            )
    return tuple(by_name[name.lower()] for name in names)


def _require_column(
    relation: Stream | Table, name: str, by_name: Mapping[str, Column], span: Span
) -> None:
    if name.lower() in by_name:
        return
    known = relation.schema.names
    present = present_name(relation, name)
    raise HeadraceError(
        Code.INVALID,
        f'column "{name}" does not exist in {relation.kind} "{relation.name}"',
        hint=meant(name, known, f"There are: {', '.join(known)}.")
        if present is None
        else f'It was renamed to "{present}".',
        span=place_of_text(name, span),
    )
