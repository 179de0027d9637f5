"""Results of statements: rows with their epoch, messages, and subscriptions."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from headrace.errors import Code, HeadraceError, Span
from headrace.serving.python_values import python_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.runtime.published import Published
    from headrace.serving import Change
    from headrace.types import Epoch, Offset, RelationId

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


class Subscription(ABC):
    """Follows a query: its rows first, as insertions, then its changes, by whole epochs.

    Iterating waits for changes, and ends when the subscription or the database is closed. With a
    ``limit`` it ends after that many rows; an update counts as one row.
    """

    kind = "changes"

    def __init__(self, limit: int | None) -> None:
        self._left = limit
        self._open = True

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of each change's row."""

    @property
    @abstractmethod
    def epoch(self) -> Epoch | None:
        """The last epoch that was delivered; a later subscription can start after it."""

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
            taken.append(replace(change, weight=rows if change.weight > 0 else -rows))
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

    def __repr__(self) -> str:
        """Return the query and the last epoch."""
        state = f"at epoch {self.epoch}" if self._open else "closed"
        return f"<headrace.Subscription to ({', '.join(self.columns)}), {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def last_of(
    results: Iterable[Result | Subscription], text: str, file: str | None
) -> Result | Subscription:
    """Return the last result of a script.

    Raises:
        HeadraceError: ``invalid`` for a text without a statement.
    """
    last: Result | Subscription | None = None
    for last in results:  # noqa: B007  (the last one is returned)
        pass
    if last is None:
        span = Span(text, 0, len(text), file)
        raise HeadraceError(Code.INVALID, "there is no statement to run", span=span)
    return last


def _values(table: pa.Table) -> list[list[Any]]:
    return [python_values(column) for column in table.columns]


def shown(value: Any) -> str:
    """Return a value as text for people."""
    return "NULL" if value is None else str(value)


def shown_time(seconds: float) -> str:
    """Return a time in Unix seconds as text: UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")
