"""Tables of ``format = 'debezium-json'``: how change envelopes become changes of rows.

With a primary key, the last change of a key wins, whatever the row was before. Without one, an
envelope deletes the row that equals its ``before``; if there is none, the envelope is a reject. A
column ``op`` has the operation that last wrote the row, and is ignored when rows are compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.types import Schema
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalog import Table
    from headrace.formats.envelopes import Envelope
    from headrace.ledger import Reject
    from headrace.sql import Copy

FORMAT = "debezium-json"
_OP = "op"


def is_debezium(table: Table) -> bool:
    """Return whether the rows of a table arrive as envelopes."""
    form = table.declaration.option("format", "value_format", "value.format")
    return form is not None and form.lower() == FORMAT


def image_schema(table: Table) -> Schema:
    """Return the columns of the images of an envelope."""
    generated = table.declaration.generated
    return Schema(
        tuple(c for c in table.schema.columns if c.name.lower() != _OP and c.name not in generated)
    )


def refuse_choices(statement: Copy) -> bool:
    """Refuse options of a COPY of envelopes that choose a format: there is only one.

    Returns whether to read the file from the beginning even if an earlier COPY stopped in it.
    """
    restart = False
    for option in statement.options:
        if option.key.lower() == "restart" and option.value.lower() in {"true", "false"}:
            restart = option.value.lower() == "true"
            continue
        if (option.key.lower(), option.value.lower()) in {("format", "json"), ("format", FORMAT)}:
            continue
        raise HeadraceError(
            Code.INVALID,
            f'option "{option.key}" is not for a table of format {FORMAT}',
            hint="Its files are envelopes, one JSON object per line.",
            span=option.span,
        )
    if statement.columns:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"columns of a table of format {FORMAT} cannot be chosen",
            hint="Leave the list out: envelopes have the table's columns.",
            span=statement.span,
        )
    return restart


@dataclass(slots=True)
class DebeziumChanges:
    """Turns envelopes into changes of one table; ``path`` is their file, for messages.

    ``rows`` are those of a table without a primary key; ``before`` is looked up in them.
    """

    table: Table
    path: str
    rows: pa.Table | None = None
    _ops: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list), init=False)

    def __post_init__(self) -> None:
        """Count the copies of each row, by the operation that wrote it."""
        if self.table.primary_key or self.rows is None:
            return
        for row in self.rows.to_pylist():
            self._ops[self._identity(row)].append(row.get(self._op) if self._op else None)

    @property
    def _op(self) -> str | None:
        return next((n for n in self.table.schema.names if n.lower() == _OP), None)

    def changes(self, envelopes: Iterable[Envelope]) -> tuple[pa.Table, list[Reject]]:
        """Return the changes, rows with weights in order, and the refused envelopes."""
        rows: list[dict[str, Any]] = []
        rejects: list[Reject] = []
        for envelope in envelopes:
            column = self._missing(envelope)
            if column is not None:
                rejects.append(envelope.rejected(self.path, "NULL in a NOT NULL column", column))
                continue
            found = self._keyed(envelope) if self.table.primary_key else self._equal(envelope)
            if found is None:
                reason = "no row equals the one before the change"
                rejects.append(envelope.rejected(self.path, reason, "before"))
                continue
            rows += found
        arrow = self.table.schema.arrow
        columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in arrow]
        nullable = pa.schema([pa.field(f.name, f.type) for f in arrow])
        table = pa.Table.from_arrays(columns, schema=nullable)
        weights = pa.array([row[WEIGHT] for row in rows], pa.int64())
        return table.append_column(WEIGHT, weights), rejects

    def _missing(self, envelope: Envelope) -> str | None:
        """Return a NOT NULL column without a value, or None."""
        key = set(self.table.primary_key)
        for column in image_schema(self.table).columns:
            if column.nullable:
                continue
            row = envelope.after if envelope.op != "d" else envelope.before
            if (envelope.op != "d" or column.name in key) and (row or {}).get(column.name) is None:
                return column.name
        return None

    def _keyed(self, envelope: Envelope) -> list[dict[str, Any]]:
        before, after = envelope.before, envelope.after
        if envelope.op == "d":
            return [self._row(before, envelope.op, -1)]
        moved = before is not None and any(
            before[name] is not None and after is not None and before[name] != after[name]
            for name in self.table.primary_key
        )
        gone = [self._row(before, envelope.op, -1)] if moved else []
        return [*gone, self._row(after, envelope.op, 1)]

    def _equal(self, envelope: Envelope) -> list[dict[str, Any]] | None:
        changes = []
        if envelope.op in ("u", "d"):
            known = self._ops.get(self._identity(envelope.before or {}))
            if envelope.before is None or not known:
                return None
            changes.append(self._row(envelope.before, known.pop(), -1))
        if envelope.op != "d":
            row = self._row(envelope.after, envelope.op, 1)
            self._ops[self._identity(envelope.after or {})].append(
                envelope.op if self._op else None
            )
            changes.append(row)
        return changes

    def _row(self, image: dict[str, Any] | None, op: str | None, weight: int) -> dict[str, Any]:
        named = {self._op: op} if self._op else {}
        return {**(image or {}), **named, WEIGHT: weight}

    def _identity(self, row: dict[str, Any]) -> str:
        return repr([row.get(column.name) for column in image_schema(self.table).columns])
