"""Sinks into stores that keep one item for each key and have no transactions over several items.

:class:`StoreSink` is common to all of them: it begins and ends sessions, turns the changes of an
epoch into upserts and deletions, collects refused rows, and marks an epoch as written. An
:class:`ItemStore` is the target of a sink; its :class:`StoreSession` sends the requests.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.execution.serving import by_key
from headrace.io.connectors.sinks import (
    belongs_to_another,
    decoded,
    encoded,
    refused_rows,
    require_key,
    require_own,
    require_readable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.io.connectors.sinks import SinkContext
    from headrace.types import Epoch


class StoreSession(Protocol):
    """A connection over which one sink writes.

    It ends at the first failure. Requests sent over it may still arrive later: they must not undo
    what a later session writes.
    """

    epoch: Epoch | None
    """The last whole epoch in the mark, as far as this session knows."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify an item."""
        ...

    def begin(self) -> None:
        """Prepare for the changes of an epoch."""
        ...

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        """Return the indices of rows that cannot be encoded as an item, each with the reason.

        Rows with NULL in a column of the key may be missing here.
        """
        ...

    def put(self, epoch: Epoch, rows: pa.Table) -> Mapping[int, str]:
        """Write rows, one per key; return the indices of those that the store refuses, and why."""
        ...

    def remove(self, epoch: Epoch, keys: pa.Table) -> Mapping[int, str]:
        """Delete the items of keys without NULL; return refused ones as :meth:`put` does."""
        ...

    def changed(self) -> bool:
        """Whether the schema of the target has changed since the session began."""
        ...

    def finish(self, epoch: Epoch, refused: str) -> None:
        """Record an epoch as whole, with the encoded refused rows, an empty text without any.

        Raises:
            HeadraceError: ``unavailable`` if another session has begun, or the mark was restored.
        """
        ...

    def refused(self) -> str | None:
        """Return the encoded refused rows of the last whole epoch."""
        ...

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the sink's items."""
        ...

    def clear(self) -> None:
        """Delete the sink's items, then the epoch in its mark."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


S = TypeVar("S", bound=StoreSession)
S_co = TypeVar("S_co", bound=StoreSession, covariant=True)


class ItemStore(Protocol[S_co]):
    """The target of one sink: checks it, and opens sessions."""

    @property
    def system(self) -> str:
        """The name of the system, for messages."""
        ...

    @property
    def context(self) -> SinkContext:
        """The arguments with which the sink was opened."""
        ...

    @property
    def guarantee(self) -> str:
        """See :class:`headrace.execution.runtime.ports.SinkWriter`."""
        ...

    @property
    def target(self) -> str:
        """The target, for messages."""
        ...

    @property
    def removal(self) -> str:
        """The item to delete or statement to run that removes the sink's mark, for hints."""
        ...

    def prepare(self) -> str | None:
        """Check that the rows can be written, and create what is missing; return the mark's owner.

        Raises:
            HeadraceError: ``invalid``, or an error of the system.
        """
        ...

    def begin(self) -> S_co | None:
        """Open a session; None if the mark has another owner."""
        ...

    def failing(self) -> AbstractContextManager[None]:
        """Translate errors of the client library to HeadraceError."""
        ...


def check(store: ItemStore[Any]) -> None:
    """Refuse rows that the store cannot keep, and a target of another sink.

    Raises:
        HeadraceError: ``invalid``, ``conflict`` if another sink owns the target, or an error of the
            system.
    """
    require_key(store.context, f"a sink into {store.system}")
    require_readable(store.context.schema, store.system)
    with store.failing():
        owner = store.prepare()
    require_own(owner, store.context, store.target, store.removal)


def another_session(store: ItemStore[Any]) -> HeadraceError:
    """Return the error that the mark is not in the state in which this session left it."""
    return HeadraceError(
        Code.UNAVAILABLE,
        f"another session writes into {store.target}, or its mark was restored",
        hint="It is tried again.",
    )


@dataclass(slots=True)
class StoreSink(Generic[S]):
    """Writes rows by the store's key, whose columns contain a unique key of the rows."""

    store: ItemStore[S]
    _session: S | None = None

    @property
    def guarantee(self) -> str:
        """The guarantee of the store."""
        return self.store.guarantee

    @property
    def target(self) -> str:
        """The target, for messages."""
        return self.store.target

    def durable(self) -> Epoch | None:
        """Begin a new session and return the epoch in the mark.

        Raises:
            HeadraceError: ``conflict`` if another sink owns the target; or an error of the system.
        """
        return self._begun().epoch

    def last_refused(self) -> Sequence[RefusedRow]:
        """Return the rows that were refused in the epoch of the mark."""
        with self._using() as session:
            return decoded(session.refused())

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write the changes up to an epoch; see ``SinkWriter``."""
        with self._using() as session:
            session.begin()
            key = session.key
        refused: list[RefusedRow] = []
        for part in parts:
            rows, gone = by_key(part, key)
            refused += refused_rows(epoch, part, rows, key, self._put(epoch, rows))
            self._remove(epoch, gone)
        if refused and self.store.context.stops:
            return refused
        with self._using() as session:
            session.finish(epoch, encoded(refused) if refused else "")
            session.epoch = epoch
        return refused

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows of the sink's items."""
        return self._rows()

    def clear(self) -> None:
        """Delete the sink's items, and the epoch in its mark."""
        self.close()
        with self._using() as session:
            session.clear()
        self.close()

    def close(self) -> None:
        """Release the connection; a later use begins another session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _begun(self) -> S:
        """Close the current session and begin another one."""
        self.close()
        with self.store.failing():
            session = self.store.begin()
        if session is None:
            raise belongs_to_another(self.store.target, self.store.removal)
        self._session = session
        return session

    @contextmanager
    def _using(self) -> Iterator[S]:
        """Yield the session, beginning one if necessary; any failure closes it."""
        session = self._begun() if self._session is None else self._session
        try:
            with self.store.failing():
                yield session
        except BaseException:
            self.close()
            raise

    def _put(self, epoch: Epoch, rows: pa.Table) -> dict[int, str]:
        """Write rows, one per key; return the indices of those that cannot be written, and why."""
        with self._using() as session:
            wrong: dict[int, str] = {}
            for name in session.key:
                missing = places(rows[name].is_null())
                wrong.update(dict.fromkeys(missing, "a column of its key is NULL"))
            wrong.update(session.unfit(rows))
            fit = [at for at in range(rows.num_rows) if at not in wrong]
            kept = rows.take(pa.array(fit, pa.int64())) if wrong else rows
            found = self._sent(session, session.put, epoch, kept)
        return wrong | {fit[at]: why for at, why in found.items()}

    def _remove(self, epoch: Epoch, gone: pa.Table) -> None:
        """Delete the items of keys; a key that has NULL or is refused has no item."""
        with self._using() as session:
            self._sent(session, session.remove, epoch, gone.drop_null())

    def _sent(
        self,
        session: S,
        send: Callable[[Epoch, pa.Table], Mapping[int, str]],
        epoch: Epoch,
        rows: pa.Table,
    ) -> Mapping[int, str]:
        """Send rows or keys; return the indices of refused ones, and why.

        Raises:
            HeadraceError: ``unavailable`` if rows were refused and the target's schema has changed,
                since that explains the refusals.
        """
        refused = send(epoch, rows) if rows.num_rows else {}
        if refused and session.changed():
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"{self.store.target} was changed",
                hint="It is tried again with the table's current columns.",
            )
        return refused

    def _rows(self) -> Iterator[pa.Table]:
        with self._using() as session:
            found = session.rows()
        while True:
            with self._using():
                part = next(found, None)
            if part is None:
                return
            yield part


def places(which: Any) -> list[int]:
    """Return the indices at which a column of booleans is true."""
    found: list[int] = pc.indices_nonzero(pc.fill_null(which, False)).to_pylist()  # noqa: FBT003
    return found
