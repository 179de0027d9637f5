"""The state of one client; none of it is global.

Constructs classes from the parts that their fields name.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.execution.runtime.cancelling import Cancellation
from headrace.interfaces.session.properties import CONSISTENCY, Properties
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.execution.runtime.published import Published
    from headrace.interfaces.statements.results import Progress
    from headrace.lifecycle.states.reader import Reader


def silent(_progress: Progress) -> None:
    """Ignore progress reports."""


@dataclass(slots=True)
class Client:
    """One client of a database.

    ``awaited`` are the offsets that its reads wait for: the ends of all logs when it began,
    advanced by its own writes, ``written``.
    """

    reader: Reader
    is_open: Callable[[], bool]
    awaited: dict[RelationId, Offset]
    written: dict[RelationId, Offset] = field(default_factory=dict)
    properties: Properties = field(default_factory=Properties)
    max_staleness: float | None = None
    """If not None, reads see the last epoch without waiting, and fail if it has lacked a change for
    more than this many seconds.
    """
    listener: Callable[[Progress], None] = silent
    """Called with the progress of the running statement."""
    cancellation: Cancellation = field(default_factory=Cancellation)
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while a statement of this client runs."""

    def report(self, made: Progress) -> None:
        """Report the progress of the running statement."""
        self.listener(made)

    def wrote(self, relation: RelationId, end: Offset) -> None:
        """Record a write: later reads wait until the changes before its offset are visible."""
        for known in (self.awaited, self.written):
            known[relation] = Offset(max(end, known.get(relation, 0)))

    def seen(self, reads: Iterable[RelationId]) -> Published:
        """Return a state in which the relations show what this client must see.

        The property ``consistency`` says what that is. If the present state shows it, it is
        returned at once; otherwise this waits for an epoch that does.

        Raises:
            HeadraceError: ``unavailable`` if the last epoch is older than ``max_staleness`` allows.
        """
        reader, level = self.reader, self.properties[CONSISTENCY]
        if self.max_staleness is not None:
            return reader.fresh(reads, self.max_staleness)
        if level == "latest":
            return reader.published
        reader.settle_sinks()
        if level == "strict":
            return reader.settled(reads)
        gone = self.awaited.keys() - reader.catalog.by_id.keys()
        for id_ in gone:
            del self.awaited[id_]
        return reader.settled(reads, self.awaited)


T = TypeVar("T")


class Injector:
    """Constructs frozen dataclasses, each once, from parts by name.

    A field receives the part with its name, or an instance of the class that ``composed`` has for
    its name, constructed in the same way.
    """

    def __init__(self, parts: Mapping[str, Any], composed: Mapping[str, type[Any]]) -> None:
        self._parts, self._composed = parts, composed
        self._made: dict[type[Any], Any] = {type(part): part for part in parts.values()}

    def of(self, cls: type[T]) -> T:
        """Return the instance of a class: the given part, or one constructed on first use."""
        made: T | None = self._made.get(cls)
        if made is None:
            given = {each.name: self._named(each.name) for each in fields(cls)}  # type: ignore[arg-type]
            made = self._made[cls] = cls(**given)
        return made

    def _named(self, name: str) -> Any:
        return self._parts[name] if name in self._parts else self.of(self._composed[name])
