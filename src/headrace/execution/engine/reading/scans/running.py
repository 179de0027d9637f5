"""Runs DuckDB in this process, over the rows of a published state.

Translates the tree of a query to SQL of DuckDB.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.algebra.zset import EVERY_ROW
from headrace.execution.engine.reading.scans import tree
from headrace.execution.engine.reading.scans.expressions import (
    Refused,
    column,
    expression,
    is_exact,
    name_of,
    restriction,
)
from headrace.execution.engine.reading.scans.tree import used
from headrace.execution.runtime.cancelling import cancelled, check_cancelled, running_statement
from headrace.execution.serving import Contents
from headrace.execution.serving.contents import row_batches
from headrace.planning.sql.lexer import double_quoted
from headrace.storage.log import Events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import duckdb

    from headrace.algebra.zset import Restriction
    from headrace.execution.engine.reading.scans.tree import Ordering, Tree, Value
    from headrace.types import RelationId


_JOINS: Final[Mapping[str, str]] = {
    "Inner": "JOIN",
    "LeftOuter": "LEFT JOIN",
    "RightOuter": "RIGHT JOIN",
    "FullOuter": "FULL JOIN",
    "LeftSemi": "SEMI JOIN",
    "LeftAnti": "ANTI JOIN",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that is read under a name, and the columns that are read of its rows.

    Events of a stream may have a ``restriction``: those that do not meet it are not read. Any
    ``limit`` of the others suffice. Without columns, only the number of rows matters.
    """

    name: str
    relation: RelationId
    columns: tuple[str, ...]
    restriction: Restriction = EVERY_ROW
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DuckDbQuery:
    """A query for DuckDB over some leaves; ``schema`` is the schema of Spark's result."""

    text: str
    leaves: tuple[Leaf, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class _Block:
    """A SELECT under construction; each part is empty until a node of the plan sets it."""

    source: str
    where: str = ""
    shown: tuple[str, ...] = ()
    group: str = ""
    order: str = ""
    limit: int | None = None
    offset: int = 0

    @property
    def text(self) -> str:
        limit = "" if self.limit is None else f" LIMIT {self.limit}"
        limit += f" OFFSET {self.offset}" if self.offset else ""
        shown = ", ".join(self.shown) or "*"
        return f"SELECT {shown} FROM {self.source}{self.where}{self.group}{self.order}{limit}"

    @property
    def nested(self) -> _Block:
        """A new block whose source is this block."""
        return _Block(f"({self.text})")


@dataclass(slots=True)
class _Translation:
    root: Tree
    leaves: list[Leaf] = field(default_factory=list)

    def block(self, node: Tree) -> _Block:
        """Return the SELECT of a node and the nodes below it."""
        match node:
            case tree.Stored():
                return self._leaf(node, EVERY_ROW, None)
            case tree.Project():
                below = self.block(node.below)
                if below.shown:
                    below = _in_any_order(below)
                return replace(below, shown=_named(node.output))
            case tree.Filter():
                if isinstance(node.below, tree.Stored) and node.below.events:
                    return self._restricted(node, node.below)
                below = self.block(node.below)
                if below != _Block(below.source):
                    below = _in_any_order(below)
                return replace(below, where=f" WHERE {expression(node.condition)}")
            case tree.Aggregate():
                return self._aggregate(node)
            case tree.Sort():
                return self._sort(node)
            case tree.Limit():
                return self._limited(node)
            case tree.Join():
                return self._join(node)
            case tree.Union():
                return self._union(node)

    def _restricted(self, node: tree.Filter, below: tree.Stored) -> _Block:
        """Return the events that meet a condition, which their leaf tests as far as it can."""
        names = {each.id: name for name, each in below.columns}
        tests, exact = restriction(node.condition, names)
        if exact:
            return self._leaf(below, tests, node)
        where = f" WHERE {expression(node.condition)}"
        return replace(self._leaf(below, tests, None), where=where)

    def _leaf(self, node: tree.Stored, tests: Restriction, apart: tree.Filter | None) -> _Block:
        """Return the rows of a relation that pass tests; the filter ``apart`` is just these."""
        wanted = used(self.root, apart)
        read = [(name, each) for name, each in node.columns if each.id in wanted]
        for _, each in read:
            name_of(each.type)
        names = tuple(name for name, _ in read)
        leaf = Leaf(f"leaf{len(self.leaves)}", node.relation, names, tests)
        self.leaves.append(leaf)
        # Without any column, DuckDB still counts the rows.
        shown = [f"{double_quoted(name)} AS {column(each.id)}" for name, each in read]
        return _Block(f"(SELECT {', '.join(shown) or '1 AS one'} FROM {leaf.name})")

    def _aggregate(self, node: tree.Aggregate) -> _Block:
        below = self.block(node.below)
        if below != _Block(below.source, below.where):
            below = below.nested
        for key in node.keys:
            if not is_exact(key.type):
                raise Refused("grouping by floats")
        group = f" GROUP BY {', '.join(map(expression, node.keys))}" if node.keys else ""
        return replace(below, shown=_named(node.output), group=group)

    def _sort(self, node: tree.Sort) -> _Block:
        below = self.block(node.below)
        if below != _Block(below.source, below.where):
            below = below.nested
        return replace(below, order=f" ORDER BY {', '.join(map(_ordered, node.order))}")

    def _limited(self, node: tree.Limit) -> _Block:
        below = self.block(node.below)
        most = node.most
        if most is not None and _of_events(node):
            self.leaves[-1] = replace(self.leaves[-1], limit=most + node.skipped)
        if below.limit is not None:
            left = max(0, below.limit - node.skipped)
            most = left if most is None else min(most, left)
        return replace(below, limit=most, offset=below.offset + node.skipped)

    def _join(self, node: tree.Join) -> _Block:
        how = _JOINS.get(node.how)
        if how is None:
            raise Refused("a join without an equality")
        sides = []
        for side in (node.left, node.right):
            below = self.block(side)
            sides.append(below.source if below == _Block(below.source) else f"({below.text})")
        condition = expression(node.condition)
        return _Block(f"({sides[0]} AS l {how} {sides[1]} AS r ON {condition})")

    def _union(self, node: tree.Union) -> _Block:
        output = [column(each.id) for each in node.output]
        parts = []
        for child in node.inputs:
            given = [column(each.id) for each in child.output]
            shown = ", ".join(f"{a} AS {b}" for a, b in zip(given, output, strict=True))
            parts.append(f"SELECT {shown} FROM ({self.block(child).text})")
        return _Block(f"({' UNION ALL '.join(parts)})")


def translated(query: Tree, schema: pa.Schema) -> DuckDbQuery:
    """Translate a query for DuckDB; its result has a schema.

    Raises: Refused: only Spark can answer it; the text is the reason.
    """
    output = [column(each.id) for each in query.output]
    translation = _Translation(query)
    block = translation.block(query)
    if not block.shown:
        block = replace(block, shown=tuple(output))
    elif [each.rpartition(" AS ")[2] for each in block.shown] != output:
        raise Refused("columns in another order")
    return DuckDbQuery(block.text, tuple(translation.leaves), schema)


def _of_events(limit: tree.Limit) -> bool:
    """Whether a limit is of events of a stream: of all, or of those that pass exact tests."""
    node: Tree = limit.below
    while isinstance(node, tree.Project):
        node = node.below
    if isinstance(node, tree.Filter) and isinstance(node.below, tree.Stored):
        names = {each.id: name for name, each in node.below.columns}
        return node.below.events and restriction(node.condition, names)[1]
    return isinstance(node, tree.Stored) and node.events


def _in_any_order(below: _Block) -> _Block:
    """Return a block over another one, which must not have an order: subqueries lose it."""
    if below.order:
        raise Refused("a projection of sorted rows")
    return below.nested


def _named(given: Iterable[Value]) -> tuple[str, ...]:
    return tuple(f"{expression(each)} AS {column(each.id)}" for each in given)


def _ordered(by: Ordering) -> str:
    nulls = "NULLS LAST" if by.nulls_last else "NULLS FIRST"
    return f"{expression(by.value)} {'DESC' if by.descending else 'ASC'} {nulls}"


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
