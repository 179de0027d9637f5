"""Results of statements: rows with their epoch, messages, and changes."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.types import Epoch

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a long statement. ``total`` is None if it is not known."""

    what: str
    done: int
    total: int | None
    unit: str
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Freshness:
    """How current a result is.

    ``committed_at`` is in Unix seconds; ``pending`` is the number of changes that have arrived and
    that no epoch has read yet.
    """

    epoch: Epoch
    committed_at: float
    pending: int


class Result:
    """The result of one statement.

    ``kind`` is ``rows``, or ``done`` for a statement without rows, with a ``message``. ``epoch`` is
    the epoch of the rows, or the epoch that the statement made.
    """

    def __init__(
        self,
        table: pa.Table | None,
        epoch: Epoch,
        message: str = "",
        freshness: Freshness | None = None,
    ) -> None:
        self._table = table
        self.epoch = epoch
        self.message = message
        self.freshness = freshness

    @classmethod
    def of(cls, names: tuple[str, ...], rows: list[Any], epoch: Epoch) -> Result:
        """Return rows as a result; each column has one type."""
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        arrays = [
            pa.array(list(column)) if rows else pa.array([], pa.string()) for column in columns
        ]
        return cls(pa.Table.from_arrays(arrays, names=list(names)), epoch)

    @property
    def kind(self) -> str:
        """Either ``rows`` or ``done``."""
        return "done" if self._table is None else "rows"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns; empty for a statement without rows."""
        return () if self._table is None else tuple(self._table.schema.names)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return pa.table({}) if self._table is None else self._table

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python values.

        Raises:
            HeadraceError: ``unsupported`` for a date or time that Python cannot represent.
        """
        return list(zip(*_values(self.to_arrow()), strict=True))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def __len__(self) -> int:
        return 0 if self._table is None else int(self._table.num_rows)

    def __repr__(self) -> str:
        if self._table is None:
            return self.message
        head = self._table.slice(0, _SHOWN)
        cells = [list(self.columns)]
        cells += [[shown(value) for value in row] for row in zip(*_values(head), strict=True)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [" | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        lines.insert(1, "-+-".join("-" * w for w in widths))
        more = len(self) - _SHOWN
        note = f"({len(self)} rows, epoch {self.epoch})"
        return "\n".join([*lines, *([f"... {more} more"] if more > 0 else []), note])

    def _repr_html_(self) -> str:
        """Return the rows as an HTML table, for notebooks."""
        if self._table is None:
            return f"<p>{html.escape(self.message)}</p>"
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = zip(*_values(self._table.slice(0, _SHOWN)), strict=True)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(shown(v))}</td>" for v in row) + "</tr>"
            for row in rows
        )
        note = f"{len(self)} rows, epoch {self.epoch}"
        return f"<table><tr>{head}</tr>{body}</table><p>{note}</p>"


def _values(table: pa.Table) -> list[list[Any]]:
    try:
        return [column.to_pylist() for column in table.columns]
    except (OverflowError, ValueError) as error:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a date or time is outside of the years 1 to 9999, the range of Python",
            detail=f"{error}.",
            hint="Use to_arrow(), or CAST(... AS STRING) in the query.",
        ) from error


def shown(value: Any) -> str:
    """Return a value as text for people."""
    return "NULL" if value is None else str(value)
