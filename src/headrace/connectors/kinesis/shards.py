"""The shards of a Kinesis stream: which of them may be read, and where each continues.

A shard that is split or merged ends, and others take its keys over. The records of a key are in
order if a shard is read only when those that it came from have been read to their end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_END: Final = "end"


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard, and those that it came from: one of a split, two of a merge."""

    id: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """How far a stream was read.

    ``created`` tells the stream from others of its name. Shards that are not in ``read`` begin with
    records from ``since`` on, in Unix seconds, or with all that there are if it is None. ``read``
    has the number of the last record of each other shard, None once a shard was read to its end.
    ``current`` is when all that had been written had been read, in whole hours since 1970.
    """

    created: str
    since: float | None = None
    read: Mapping[str, str | None] = field(default_factory=dict)
    current: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        shards = {shard: _END if last is None else last for shard, last in self.read.items()}
        return {
            "created": self.created,
            "since": self.since,
            "shards": shards,
            "current": self.current,
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Place:
        """Return the place that :meth:`to_json` wrote."""
        read = {shard: None if at == _END else at for shard, at in value["shards"].items()}
        return cls(value["created"], value["since"], read, value["current"])

    def after(self, shard: str, last: str | None) -> Place:
        """Return the place after a record of a shard, or after the shard's end."""
        return replace(self, read={**self.read, shard: last})

    def readable(self, shards: Iterable[Shard]) -> list[Shard]:
        """Return the shards to read now, of all that there are."""
        listed = {shard.id: shard for shard in shards}
        ended = {shard for shard, last in self.read.items() if last is None}
        return [
            shard
            for shard in listed.values()
            if shard.id not in ended
            and all(parent in ended for parent in shard.parents if parent in listed)
        ]

    def lost(self, shards: Iterable[Shard]) -> list[str]:
        """Return the shards that are gone, though they were not read to their end."""
        listed = {shard.id for shard in shards}
        return [
            shard for shard, last in self.read.items() if last is not None and shard not in listed
        ]

    def without_gone(self, shards: Iterable[Shard]) -> Place:
        """Return the place without shards that there are no more."""
        listed = {shard.id for shard in shards}
        return replace(self, read={s: last for s, last in self.read.items() if s in listed})
