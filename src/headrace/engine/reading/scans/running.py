"""Runs DuckDB in this process, over the rows of a published state."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.log import Events
from headrace.runtime.cancelling import cancelled, check_cancelled, running_statement
from headrace.serving import Contents
from headrace.serving.streamed import row_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import duckdb

    from headrace.engine.reading.scans.translation import DuckDbQuery, Leaf
    from headrace.types import RelationId

_MEMORY: Final = "1GB"
_LISTEN_SECONDS: Final = 0.05
_SETTINGS: Final[Mapping[str, Any]] = {
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "memory_limit": _MEMORY,
    "preserve_insertion_order": "false",
    "temp_directory": "",
    "threads": str(max(1, (os.cpu_count() or 1) // 2)),
}
_OPTIMISERS: Final = frozenset(
    {
        "build_side_probe_side",
        "column_lifetime",
        "filter_pushdown",
        "join_order",
        "limit_pushdown",
        "top_n",
        "unused_columns",
    }
)
"""The optimiser rules that preserve expressions; others rewrite arithmetic, and lose overflows."""


@dataclass(slots=True)
class Scans:
    """Runs each query on a new connection to one database in memory, without tables."""

    _root: duckdb.DuckDBPyConnection | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(
        self, scan: DuckDbQuery, contents: Callable[[RelationId], Contents | Events]
    ) -> pa.Table | None:
        """Return the result of a query, or None if it fails, so that Spark answers it.

        It fails if Spark would fail too, and if it needs more memory than is allowed.

        Raises:
            HeadraceError: ``cancelled``.
        """
        import duckdb  # noqa: PLC0415  (lookups start without it)

        connection = self._connected()
        try:
            for leaf in scan.leaves:
                _declare(connection, leaf, contents(leaf.relation))
            with _interrupted(connection):
                found: pa.Table = connection.sql(scan.text).to_arrow_table()
        except duckdb.Error as error:
            check_cancelled()
            if isinstance(error, duckdb.InterruptException):
                raise cancelled() from error
            return None
        finally:
            connection.close()
        arrays = [
            column.cast(wanted.type)
            for column, wanted in zip(found.columns, scan.schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=scan.schema)

    def _connected(self) -> duckdb.DuckDBPyConnection:
        import duckdb  # noqa: PLC0415  (as above)

        with self._lock:
            if self._root is None:
                self._root = duckdb.connect(":memory:", config=dict(_SETTINGS))
                every = self._root.sql("FROM duckdb_optimizers()").fetchall()
                others = ",".join(name for (name,) in every if name not in _OPTIMISERS)
                self._root.execute(f"SET TimeZone = 'UTC'; SET disabled_optimizers = '{others}'")
                self._root.execute("SET lock_configuration = true")
            return self._root.cursor()


def _declare(
    connection: duckdb.DuckDBPyConnection, leaf: Leaf, contents: Contents | Events
) -> None:
    """Declare the rows of a leaf under its name; where only their number matters, just that."""
    if leaf.columns:
        connection.register(leaf.name, _reader(leaf, contents))
        return
    count = contents.count(leaf.restriction) if isinstance(contents, Events) else contents.count()
    count = count if leaf.limit is None else min(count, leaf.limit)
    rows = f"SELECT 1 AS one FROM range({count})"
    connection.execute(f"CREATE TEMP VIEW {leaf.name} AS {rows}")


def _reader(leaf: Leaf, contents: Contents | Events) -> pa.RecordBatchReader:
    """Return the rows of a leaf as a stream that is not materialised."""
    schema = pa.schema([contents.columns.field(name) for name in leaf.columns])
    if isinstance(contents, Contents):
        batches = row_batches(contents, leaf.columns)
    elif leaf.limit is None:
        parts = contents.parts(leaf.columns, leaf.restriction)
        batches = (batch for part in parts for batch in part.to_batches())
    else:
        batches = iter(_newest(contents, leaf, leaf.limit).to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _newest(events: Events, leaf: Leaf, limit: int) -> pa.Table:
    """Return so many rows of a leaf, the last that arrived; all if there are fewer."""
    parts, rows = [events.columns.empty_table().select(list(leaf.columns))], 0
    for part in events.newest(leaf.columns, leaf.restriction, limit) if limit else ():
        parts.append(part)
        rows += part.num_rows
        if rows >= limit:
            break
    return pa.concat_tables(reversed(parts)).slice(max(0, rows - limit))


@contextmanager
def _interrupted(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt the query of a block when its statement is cancelled."""
    statement = running_statement()
    if statement is None:
        yield
        return
    ended = threading.Event()

    def listen() -> None:
        while not ended.wait(_LISTEN_SECONDS):
            if statement.asked:
                connection.interrupt()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        ended.set()
        listener.join()
