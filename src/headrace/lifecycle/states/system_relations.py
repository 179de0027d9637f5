"""The relations of ``information_schema``: the state of the database, for SELECT.

Their rows are gathered when a query names them, all at one epoch. They are read-only. Views cannot
read them, because they change without logged events.

What the record of an epoch says in words: where its time went, and what fanned out.

The rows of ``SHOW SINKS`` and ``SHOW JOBS``: destination, position and error of each sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, TimestampType

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.spent import TASKS, Activity, FanOut
from headrace.planning.catalog import Sink, Stream, View
from headrace.planning.catalog.naming import HIDDEN, SYSTEM_SCHEMA, shown_name
from headrace.types import Column, RelationId, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    import pyarrow as pa

    from headrace.errors import Span
    from headrace.execution.runtime.deliveries import Deliveries
    from headrace.execution.runtime.published import Published
    from headrace.planning.catalog import Catalog, Relation
    from headrace.types import DataType


ACTIVITIES: Final = tuple(activity.value for activity in Activity)
"""The counters with the milliseconds of an epoch's activities."""

COUNTERS: Final = (
    "changes",
    "jobs",
    "operators",
    "rows_in",
    "rows_out",
    "rows_read",
    "bytes_written",
    "files",
)
"""The epoch counters that are shown."""

_LEAST: Final = 0.05
"""Milliseconds below which an activity is not worth a word."""


def spent_words(counters: Mapping[str, Any]) -> str | None:
    """Return what an epoch spent time on, the most first; None where that was not measured.

    Jobs have in parentheses what their tasks did.
    """
    within = _words(counters.get(TASKS, {}), "")
    return _words(counters, f" (its tasks: {within})" if within else "")


def _words(counters: Mapping[str, Any], of_jobs: str) -> str | None:
    found = [(counters[each.value], each) for each in Activity if each.value in counters]
    shown = sorted((pair for pair in found if pair[0] >= _LEAST), key=lambda pair: -pair[0])
    if not found:
        return None
    texts = (
        f"{each.name.lower()} {ms:,.1f} ms{of_jobs if each is Activity.JOBS else ''}"
        for ms, each in shown
    )
    return ", ".join(texts)


def fan_out_words(
    counters: Mapping[str, Any], catalog: Catalog, sees: Callable[[str], bool]
) -> str | None:
    """Return the operator with the most rows of an epoch, and its rows per change.

    None if no operator had any, and if its view is not there any more or may not be shown.
    """
    relation = fanned_out(counters, catalog, sees)
    if relation is None:
        return None
    found = FanOut(**counters["fans_out"])
    _, _, operator = found.operator.partition("/")
    name = shown_name(relation, catalog)
    rows = per_change(found.rows, found.changes)
    return f"{name}: {operator} {rows} {'row' if rows == '1' else 'rows'} per change"


def fanned_out(
    counters: Mapping[str, Any], catalog: Catalog, sees: Callable[[str], bool]
) -> Relation | None:
    """Return the view or table of the operator that :func:`fan_out_words` describes."""
    found = counters.get("fans_out")
    relation = None if found is None else catalog.by_id.get(found["relation"])
    return None if relation is None or not sees(relation.name) else relation


def per_change(rows: int, changes: int) -> str:
    """Return rows per change with at most three digits, such as 1, 12.4 or 3,100."""
    found = rows / changes
    return f"{found:,.0f}" if found >= 100 or found == round(found) else f"{found:.3g}"  # noqa: PLR2004


JOB_COLUMNS = (
    "name", "source", "target", "guarantee", "state", "epoch",
    "epochs_behind", "rows_behind", "seconds_behind", "rows_done", "rows_total", "refused", "error",
)  # fmt: skip


def jobs(
    deliveries: Deliveries, state: Published, sees: Callable[[str], bool]
) -> list[tuple[Any, ...]]:
    """Return the sinks by id; ``epoch`` is the last one delivered, NULL before the first.

    ``refused`` counts the rows that the target has refused. ``rows_done`` of ``rows_total`` rows of
    the current write have been taken, NULL if none is running. ``sees`` decides by name whether a
    sink and the relations that it names are shown.
    """
    rows = []
    for sink in state.catalog:
        if not isinstance(sink, Sink):
            continue
        source = state.catalog.by_id[sink.source]
        if not all(sees(name) for name in _named(sink, state.catalog)):
            continue
        hidden = source.name.startswith(HIDDEN) and isinstance(source, View)
        delivery = deliveries.by_sink.get(sink.id)
        if delivery is None:
            continue  # the sink is being created or dropped
        error, lag, going = delivery.error, delivery.lag, delivery.state
        writing = delivery.writing
        if going == "running" and source.id in state.stopped:
            going = "stopped"
        why = delivery.record.why or (None if error is None else str(error))
        target = None if sink.target is None else state.catalog.by_id[sink.target].name
        rows.append(
            (
                sink.name,
                "a query" if hidden else source.name,
                target or dict(sink.options)["connector"],
                delivery.writer.guarantee,
                going,
                delivery.at,
                lag.epochs,
                lag.rows,
                round(lag.seconds, 3),
                None if writing is None else writing.done,
                None if writing is None else writing.total,
                delivery.refused,
                why,
            )
        )
    return rows


def _named(sink: Sink, catalog: Catalog) -> Iterator[str]:
    """Yield the names of a sink and of the relations that it reads and writes."""
    yield sink.name
    source = catalog.by_id[sink.source]
    ids = source.inputs if source.name.startswith(HIDDEN) and isinstance(source, View) else ()
    yield from (catalog.by_id[id_].name for id_ in ids or (source.id,))
    if sink.target is not None:
        yield catalog.by_id[sink.target].name


if TYPE_CHECKING:
    Columns: TypeAlias = tuple[tuple[str, DataType], ...]

_TEXT, _WHOLE, _FLAG, _TIME, _REAL = (
    StringType(),
    LongType(),
    BooleanType(),
    TimestampType(),
    DoubleType(),
)


class SystemRows(Protocol):
    """Gathers the rows of relations of the information schema."""

    def named(
        self, state: Published, names: Iterable[RelationId], sees: Callable[[str], bool]
    ) -> list[tuple[Stream, pa.Table]]:
        """Return the relations of the schema that a query names, with their rows in a state.

        ``sees`` decides by name which relations the rows may describe.
        """
        ...


def refuse_system(names: Iterable[RelationId], span: Span) -> None:
    """Refuse a view that reads the information schema."""
    if any(is_system(id_) for id_ in names):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"a view over {SYSTEM_SCHEMA} is not supported",
            detail="Its rows change without events.",
            hint="Read it with SELECT.",
            span=span,
        )


def is_system(id_: RelationId) -> bool:
    """Return whether an id is that of a relation of the information schema."""
    return id_ < 0


def system_relations() -> tuple[Stream, ...]:
    """Return the relations of the information schema."""
    return tuple(
        Stream(
            RelationId(-number),
            f"{SYSTEM_SCHEMA}.{name}",
            Schema(tuple(Column(column, type_) for column, type_ in columns)),
        )
        for number, (name, columns) in enumerate(_RELATIONS.items(), 1)
    )


_PLACE: Columns = (("table_schema", _TEXT), ("table_name", _TEXT))
_NUMBERS_OF_JOBS = {
    **dict.fromkeys(
        ("epoch", "epochs_behind", "rows_behind", "rows_done", "rows_total", "refused"), _WHOLE
    ),
    "seconds_behind": _REAL,
}
_JOBS: Columns = tuple((name, _NUMBERS_OF_JOBS.get(name, _TEXT)) for name in JOB_COLUMNS)
_RELATIONS: Final[Mapping[str, Columns]] = {
    "schemata": (("schema_name", _TEXT),),
    "tables": (
        *_PLACE,
        ("table_type", _TEXT),
        ("primary_key", _TEXT),
        ("state", _TEXT),
        ("readable_from", _WHOLE),
        ("readable_from_time", _TIME),
    ),
    "rejects": (
        *_PLACE,
        ("file", _TEXT),
        ("line", _WHOLE),
        ("column", _TEXT),
        ("reason", _TEXT),
        ("raw", _TEXT),
        ("rejected_at", _TIME),
        ("id", _WHOLE),
        ("acknowledged_at", _TIME),
    ),
    "streams": (*_PLACE, ("connector", _TEXT), ("log_end", _WHOLE)),
    "views": (*_PLACE, ("view_definition", _TEXT), ("is_materialized", _FLAG)),
    "columns": (
        *_PLACE,
        ("column_name", _TEXT),
        ("ordinal_position", _WHOLE),
        ("data_type", _TEXT),
        ("is_nullable", _FLAG),
        ("is_key", _FLAG),
        ("is_message_key", _FLAG),
        ("generation_expression", _TEXT),
    ),
    "sinks": _JOBS,
    "jobs": _JOBS,
    "epochs": (
        ("epoch", _WHOLE),
        ("committed_at", _TIME),
        *((name, _WHOLE) for name in COUNTERS),
        ("seconds", _REAL),
        ("width", _TEXT),
        *((name, _REAL) for name in ACTIVITIES),
        ("fans_out", _TEXT),
    ),
    "freshness": (
        *_PLACE,
        ("epoch", _WHOLE),
        ("committed_at", _TIME),
        ("changes_behind", _WHOLE),
        ("state", _TEXT),
        ("seconds_behind", _REAL),
        ("watermark", _TIME),
        ("dirty_since", _TIME),
        ("refresh", _TEXT),
        ("next_refresh", _TIME),
        ("quarantined", _WHOLE),
        ("waits_for", _TEXT),
    ),
    "dirty": (
        *_PLACE,
        ("cause", _TEXT),
        ("condition", _TEXT),
        ("event_time_since", _TIME),
        ("dirty_since", _TIME),
        ("age_seconds", _REAL),
        ("origin", _TEXT),
        ("repair", _TEXT),
        ("cost", _WHOLE),
        ("rebuild_cost", _WHOLE),
        ("state", _TEXT),
        ("detail", _TEXT),
    ),
    "reconciliation": (
        *_PLACE,
        ("samples", _WHOLE),
        ("compared", _WHOLE),
        ("wrong", _WHOLE),
        ("rounds", _WHOLE),
        ("covered", _REAL),
        ("wrong_at_most", _REAL),
        ("last_compared", _TIME),
    ),
    "corrections": (
        *_PLACE,
        ("event_offset", _WHOLE),
        ("before", _TEXT),
        ("after", _TEXT),
        ("corrected_at", _TIME),
        ("corrected_by", _TEXT),
        ("reason", _TEXT),
    ),
    "dependencies": (
        ("name", _TEXT),
        ("type", _TEXT),
        ("depends_on", _TEXT),
        ("depends_on_type", _TEXT),
    ),
    "arrangements": (
        ("id", _TEXT),
        ("owner", _TEXT),
        ("is_contents", _FLAG),
        ("rows", _WHOLE),
        ("bytes", _WHOLE),
        ("dead_bytes", _WHOLE),
        ("runs", _WHOLE),
        ("since_epoch", _WHOLE),
    ),
    "candidates": (
        *_PLACE,
        ("state", _TEXT),
        ("same_columns", _FLAG),
        ("swapped_with", _TEXT),
        ("view_definition", _TEXT),
        ("kept_until", _TIME),
    ),
    "fills": (
        *_PLACE,
        ("kind", _TEXT),
        ("state", _TEXT),
        ("rows_done", _WHOLE),
        ("rows_total", _WHOLE),
        ("rows_per_second", _REAL),
        ("seconds_left", _REAL),
        ("began_at", _TIME),
    ),
}
