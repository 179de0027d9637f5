"""The relations of ``information_schema``: the state of the database, for SELECT.

Their rows are gathered when a query names them, all at one epoch. They are read-only. Views cannot
read them, because they change without logged events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, TimestampType

from headrace.catalog import Stream
from headrace.errors import Code, HeadraceError
from headrace.parts.epoch_records import ACTIVITIES, COUNTERS
from headrace.parts.jobs import JOB_COLUMNS
from headrace.parts.naming import SYSTEM_SCHEMA
from headrace.types import Column, RelationId, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    import pyarrow as pa

    from headrace.errors import Span
    from headrace.runtime.published import Published
    from headrace.types import DataType

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
