"""Results of statements: rows with their epoch, messages, and subscriptions."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from headrace.errors import Code, HeadraceError, Span
from headrace.execution.serving.values import python_rows, python_values
from headrace.io.formats.frames import FrameTypes, data_frame
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.execution.runtime.published import Published
    from headrace.execution.serving import Change
    from headrace.types import Offset, RelationId


_SHOWN = 20
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a long statement. ``total`` is None if it is not known.

    Without a ``unit``, nothing is counted: the statement waits for something. ``rate`` is in units
    per second, and ``seconds_left`` what the rest takes at that rate; None if they are not known.
    """

    what: str
    done: int
    total: int | None
    unit: str
    rejected: int = 0
    rate: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Freshness:
    """How current a result is.

    ``committed_at`` is in Unix seconds; ``pending`` is the number of changes that have arrived and
    are not read by an epoch yet. ``dirty`` are the views with dirty slices that may include the
    rows: ``SHOW DIRTY`` says how these may differ from their inputs. If views that lag behind were
    read, ``frontier`` is the oldest epoch up to which one of them shows its inputs, and ``pending``
    includes the changes that they do not show.
    """

    epoch: Epoch
    committed_at: float
    pending: int
    dirty: tuple[str, ...] = ()
    frontier: Epoch | None = None

    @classmethod
    def of(
        cls,
        state: Published,
        ends: Mapping[RelationId, Offset],
        reads: Iterable[RelationId],
        dirty: Iterable[RelationId] = (),
    ) -> Self:
        """Return how current some relations are in a state; ``ends`` are the ends of all logs."""
        names = state.catalog.by_id
        shown = tuple(sorted(names[id_].name for id_ in dirty if id_ in names))
        late = [id_ for id_ in reads if id_ in names and state.lags(id_)]
        pending = max([state.behind(ends), *(state.behind(ends, id_) for id_ in late)])
        near = state.catalog.shown_by(late, state.lagging) if late else ()
        stands = [lagging.epoch for id_ in near if (lagging := state.lagging.get(id_)) is not None]
        frontier = min((epoch for epoch in stands if epoch is not None), default=None)
        return cls(state.epoch, state.committed_at, pending, shown, frontier)

    def as_dict(self) -> dict[str, object]:
        """Return the values by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of a statement as Python values, under the names of their columns.

    A column that is not in ``types`` has the type of its values; without any, it is text.
    """

    names: tuple[str, ...]
    rows: list[Any]
    types: Mapping[str, pa.DataType] = field(default_factory=dict)


class Result:
    """The result of one statement.

    ``kind`` is ``rows``; ``done`` for a statement without rows, with a ``message``; or ``changes``
    for a :class:`Subscription`, whose rows are changes and have no end.
    """

    def __init__(
        self,
        table: pa.Table | None,
        epoch: Epoch,
        message: str = "",
        freshness: Freshness | None = None,
    ) -> None:
        self._table = table
        self._epoch = epoch
        self.message = message
        self.freshness = freshness

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        rows: list[Any],
        epoch: Epoch,
        types: Mapping[str, pa.DataType] | None = None,
    ) -> Result:
        """Return rows as a result.

        A column that is not in ``types`` has the type of its values; without any, it is text.
        """
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        arrays = [
            pa.array(column, (types or {}).get(name))
            for name, column in zip(names, columns, strict=True)
        ]
        arrays = [a.cast(pa.string()) if pa.types.is_null(a.type) else a for a in arrays]
        return cls(pa.Table.from_arrays(arrays, names=list(names)), epoch)

    @property
    def kind(self) -> Literal["rows", "done", "changes"]:
        """What the statement returned."""
        return "done" if self._table is None else "rows"

    @property
    def epoch(self) -> Epoch:
        """The epoch of the rows, or the epoch that the statement made."""
        return self._epoch

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns; empty for a statement without rows."""
        return () if self._table is None else tuple(self._table.schema.names)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return pa.table({}) if self._table is None else self._table

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of Python values by column, as :meth:`fetchall` has them.

        Raises:
            HeadraceError: ``invalid`` if two columns have one name.
        """
        if len(set(self.columns)) < len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise HeadraceError(
                Code.INVALID,
                f'two columns have the name "{twice}"',
                hint="Give them other names with AS, or use fetchall().",
            )
        return python_rows(self.to_arrow())

    def to_pandas(self, types: FrameTypes = "numpy") -> Any:
        """Return the rows as a pandas DataFrame, in which each value is what it was.

        ``types`` are those of the columns: ``numpy``, where a column of integers with a NULL has
        pandas' nullable type, since NumPy has only floats for it; ``nullable``, pandas' own types;
        ``arrow``, Arrow's.
        """
        return data_frame(self.to_arrow(), types)

    def to_polars(self) -> Any:
        """Return the rows as a Polars DataFrame.

        Raises:
            HeadraceError: ``invalid`` if Polars is not installed.
        """
        try:
            polars = import_module("polars")
        except ImportError as error:
            hint = "Install it: pip install polars."
            raise HeadraceError(Code.INVALID, "polars is not installed", hint=hint) from error
        return polars.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows for any library that reads Arrow, by its C interface for streams."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python values.

        A date or time outside the years 1 to 9999, which Python cannot represent, is text in ISO
        8601, such as ``+10000-01-01``.
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


class Subscription(Result, ABC):
    """Follows a query: its rows first, as insertions, then its changes, by whole epochs.

    Iterating waits for changes, and ends when the subscription or the database is closed. With a
    ``limit`` it ends after that many rows; an update counts as one row. Each row of this result is
    a :class:`headrace.Change`. The methods that return all rows at once raise ``invalid``: it has
    no end.
    """

    def __init__(self, limit: int | None) -> None:
        super().__init__(None, Epoch(0))
        self._left = limit
        self._open = True

    @property
    def kind(self) -> Literal["changes"]:
        """What the statement returned: changes."""
        return "changes"

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of each change's row."""

    @property
    @abstractmethod
    def epoch(self) -> Epoch:
        """The last epoch that was delivered; a later subscription can start after it.

        0 until the rows with which it begins are delivered.
        """

    def to_arrow(self) -> pa.Table:
        """Raise: a subscription has no end.

        Raises:
            HeadraceError: ``invalid``.
        """
        raise HeadraceError(
            Code.INVALID,
            "a subscription has no end, so it cannot be returned as a whole",
            hint="Iterate over it or use poll(); for the rows of now, SELECT without following.",
        )

    def __len__(self) -> int:
        raise TypeError("a subscription has no length")

    def __bool__(self) -> bool:
        return True

    @abstractmethod
    def _next(self, timeout: float) -> list[Change] | None:
        """Return the changes of the next epochs; None if there are none within ``timeout``."""

    @abstractmethod
    def _release(self) -> None:
        """Release the resources of following; called once."""

    def _may_continue(self) -> bool:
        """Return whether more changes can arrive while the subscription is open."""
        return True

    @property
    def is_open(self) -> bool:
        """Whether more changes can arrive."""
        return self._open

    def poll(self, timeout: float = 0.0) -> list[Change] | None:
        """Return the changes of whole epochs, or None if none came within ``timeout`` seconds."""
        if not self._open:
            return None
        found = self._next(timeout)
        return found if found is None or self._left is None else self._first(found, self._left)

    def _first(self, changes: list[Change], left: int) -> list[Change]:
        """Return the changes up to the last wanted row, then close."""
        taken: list[Change] = []
        for change in changes:
            if left == 0:
                break
            if change.operation == "-U":
                taken.append(change)  # an update counts as one row with its +U
                continue
            rows = min(abs(change.weight), left)
            taken.append(change._replace(weight=rows if change.weight > 0 else -rows))
            left -= rows
        self._left = left
        if left == 0:
            self.close()
        return taken

    def __iter__(self) -> Iterator[Change]:
        while self._open and self._may_continue():
            yield from self.poll(_POLL_SECONDS) or ()

    def close(self) -> None:
        """Stop following; drop what was created for this subscription."""
        if self._open:
            self._open = False
            self._release()

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>"

    def __repr__(self) -> str:
        """Return the query and the last epoch."""
        state = f"at epoch {self.epoch}" if self._open else "closed"
        return f"<headrace.Subscription to ({', '.join(self.columns)}), {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def last_of(results: Iterable[Result], text: str, file: str | None = None) -> Result:
    """Return the last result of a script; subscriptions before it are closed.

    Raises:
        HeadraceError: ``invalid`` for a text without a statement.
    """
    last: Result | None = None
    for each in results:
        if isinstance(last, Subscription):
            last.close()
        last = each
    if last is None:
        span = Span(text, 0, len(text), file)
        raise HeadraceError(Code.INVALID, "there is no statement to run", span=span)
    return last


def all_of(results: Iterable[Result]) -> list[Result]:
    """Run a script to its end; return its results.

    Its subscriptions are closed if a statement fails.
    """
    found: list[Result] = []
    try:
        found.extend(results)
    except BaseException:
        for each in found:
            if isinstance(each, Subscription):
                each.close()
        raise
    return found


def _values(table: pa.Table) -> list[list[Any]]:
    return [python_values(column) for column in table.columns]


def shown(value: Any) -> str:
    """Return a value as text for people."""
    return "NULL" if value is None else str(value)


def shown_time(seconds: float) -> str:
    """Return a time in Unix seconds as text: UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")
