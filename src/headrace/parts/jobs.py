"""The rows of ``SHOW SINKS`` and ``SHOW JOBS``: destination, position and error of each sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalog import Sink, View
from headrace.parts.naming import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.catalog import Catalog
    from headrace.runtime.deliveries import Deliveries
    from headrace.runtime.published import Published

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
