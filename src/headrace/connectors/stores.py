"""Sinks into stores that keep one item for each key and have no transactions over several items.

:class:`StoreSink` is the same for all of them: how a session begins and ends, how the changes of an
epoch become upserts and deletions, which rows are refused, and when an epoch counts as written. A
:class:`Store` says where the rows go; its :class:`Session` sends the requests.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.marks import (
    belongs_to_another,
    decoded,
    encoded,
    refused_rows,
    require_own,
)
from headrace.connectors.sinks import require_key
from headrace.connectors.text_values import require_readable
from headrace.errors import Code, HeadraceError
from headrace.serving import by_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from headrace.connectors.sinks import SinkContext
    from headrace.runtime.ports import RefusedRow
    from headrace.types import Epoch


class Session(Protocol):
    """A connection over which one sink writes.

    It ends at the first failure: what was sent over it may still arrive, and must not undo what a
    later session writes.
    """

    epoch: Epoch | None
    """The last epoch that the mark is known to record as whole."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which the store keeps items."""
        ...

    def begin(self) -> None:
        """Prepare for the changes of an epoch."""
        ...

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        """Return the places of rows that no item can be made of, each with the reason.

        Rows in which a column of the key is NULL need not be among them.
        """
        ...

    def put(self, epoch: Epoch, rows: pa.Table) -> Mapping[int, str]:
        """Write rows, one per key; return the places of those that the store refuses, and why."""
        ...

    def remove(self, epoch: Epoch, keys: pa.Table) -> Mapping[int, str]:
        """Delete the items of keys without NULL; return those refused, as :meth:`put`."""
        ...

    def changed(self) -> bool:
        """Whether the place that is written has another shape than when the session began."""
        ...

    def finish(self, epoch: Epoch, refused: str) -> None:
        """Record an epoch as whole, with a text about its refused rows, empty if there are none.

        Raises:
            HeadraceError: ``unavailable`` if another session has begun, or the mark was restored.
        """
        ...

    def refused(self) -> str | None:
        """Return the text that was recorded with the last whole epoch."""
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


S = TypeVar("S", bound=Session)
S_co = TypeVar("S_co", bound=Session, covariant=True)


class Store(Protocol[S_co]):
    """Where one sink writes."""

    @property
    def system(self) -> str:
        """The name of the system, for messages."""
        ...

    @property
    def context(self) -> SinkContext:
        """What the sink is opened with."""
        ...

    @property
    def guarantee(self) -> str:
        """See :class:`headrace.runtime.ports.SinkWriter`."""
        ...

    @property
    def target(self) -> str:
        """What is written, as messages name it."""
        ...

    @property
    def removal(self) -> str:
        """How a user removes the sink's mark, for hints: an item or a statement."""
        ...

    def prepare(self) -> str | None:
        """Check that the rows can be written, and create what is missing; return the mark's owner.

        Raises:
            HeadraceError: ``invalid``, or what the system says.
        """
        ...

    def begin(self) -> S_co | None:
        """Begin a session; None if the mark has another owner."""
        ...

    def failing(self) -> AbstractContextManager[None]:
        """Raise failures of the client library as errors of this package."""
        ...


def check(store: Store[Any]) -> None:
    """Refuse rows that the store cannot keep, and a place that another sink writes.

    Raises:
        HeadraceError: ``invalid``, ``conflict`` if another sink writes there, or what the system
            says.
    """
    require_key(store.context, f"a sink into {store.system}")
    require_readable(store.context.schema, store.system)
    with store.failing():
        owner = store.prepare()
    require_own(owner, store.context, store.target, store.removal)


def another_session(store: Store[Any]) -> HeadraceError:
    """Return the error that the mark is no longer as this session has left it."""
    return HeadraceError(
        Code.UNAVAILABLE,
        f"another session writes into {store.target}, or its mark was restored",
        hint="It is tried again.",
    )


@dataclass(slots=True)
class StoreSink(Generic[S]):
    """Writes rows by the store's key, whose columns contain a unique key of the rows."""

    store: Store[S]
    _session: S | None = None

    @property
    def guarantee(self) -> str:
        """The guarantee."""
        return self.store.guarantee

    @property
    def target(self) -> str:
        """What is written, as messages name it."""
        return self.store.target

    def durable(self) -> Epoch | None:
        """Return the epoch in the mark, in a session that begins now.

        Raises:
            HeadraceError: ``conflict`` if another sink writes there; or what the system says.
        """
        return self._begun().epoch

    def last_refused(self) -> Sequence[RefusedRow]:
        """Return the rows that were refused in the epoch of the mark."""
        with self._using() as session:
            return decoded(session.refused())

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write the changes up to an epoch; see :class:`headrace.runtime.ports.SinkWriter`."""
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
        """Begin a session in place of the present one."""
        self.close()
        with self.store.failing():
            session = self.store.begin()
        if session is None:
            raise belongs_to_another(self.store.target, self.store.removal)
        self._session = session
        return session

    @contextmanager
    def _using(self) -> Iterator[S]:
        """Use the session, or begin one; a failure ends it."""
        session = self._begun() if self._session is None else self._session
        try:
            with self.store.failing():
                yield session
        except BaseException:
            self.close()
            raise

    def _put(self, epoch: Epoch, rows: pa.Table) -> dict[int, str]:
        """Write rows, one per key; return the places of those that cannot be written, and why."""
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
        """Delete the items of keys. A key with NULL, or one that is refused, has no item."""
        with self._using() as session:
            self._sent(session, session.remove, epoch, gone.drop_null())

    def _sent(
        self,
        session: S,
        send: Callable[[Epoch, pa.Table], Mapping[int, str]],
        epoch: Epoch,
        rows: pa.Table,
    ) -> Mapping[int, str]:
        """Send rows or keys; return those that are refused.

        Raises:
            HeadraceError: ``unavailable`` if the shape of what is written has changed: then that is
                why they are refused.
        """
        refused = send(epoch, rows) if rows.num_rows else {}
        if refused and session.changed():
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"{self.store.target} was changed",
                hint="It is tried again, with the table as it is now.",
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
    """Return the places where a column of booleans is true."""
    found: list[int] = pc.indices_nonzero(pc.fill_null(which, False)).to_pylist()  # noqa: FBT003
    return found
