"""The shards of a Kinesis stream: which ones may be read, and the position in each.

A shard that is split or merged ends, and other shards continue its keys. The records of a key are
in order if a shard is read only after its parents have been read to their end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_END: Final = "end"


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard and its parents: one after a split, two after a merge."""

    id: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far a stream was read.

    ``created``, the time of the stream's creation, distinguishes it from others of its name.
    ``read`` has the sequence number of the last record that was read in a shard, None for a shard
    that was read to its end. Other shards begin with the records from ``since`` on, in Unix
    seconds; None for their first record. ``current`` is a time in whole hours since 1970: all
    records written before it have been read.
    """

    created: str
    since: float | None = None
    read: Mapping[str, str | None] = field(default_factory=dict)
    current: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON; :meth:`of_json` is the inverse."""
        shards = {shard: _END if last is None else last for shard, last in self.read.items()}
        return {
            "created": self.created,
            "since": self.since,
            "shards": shards,
            "current": self.current,
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> StreamPosition:
        """Return the position from the result of :meth:`to_json`."""
        read = {shard: None if at == _END else at for shard, at in value["shards"].items()}
        return cls(value["created"], value["since"], read, value["current"])

    def after(self, shard: str, last: str | None) -> StreamPosition:
        """Return the position after a record of a shard; ``last`` is None for the shard's end."""
        return replace(self, read={**self.read, shard: last})

    def readable(self, shards: Iterable[Shard]) -> list[Shard]:
        """Return the shards to read now, given all listed ones."""
        listed = {shard.id: shard for shard in shards}
        ended = {shard for shard, last in self.read.items() if last is None}
        return [
            shard
            for shard in listed.values()
            if shard.id not in ended
            and all(parent in ended for parent in shard.parents if parent in listed)
        ]

    def lost(self, shards: Iterable[Shard]) -> list[str]:
        """Return the ids of shards that no longer exist, but were not read to their end."""
        listed = {shard.id for shard in shards}
        return [
            shard for shard, last in self.read.items() if last is not None and shard not in listed
        ]

    def without_gone(self, shards: Iterable[Shard]) -> StreamPosition:
        """Return the position without shards that no longer exist."""
        listed = {shard.id for shard in shards}
        return replace(self, read={s: last for s, last in self.read.items() if s in listed})
