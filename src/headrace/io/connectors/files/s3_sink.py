"""A sink that writes the changes of each epoch to an object in S3: lines of JSON, CSV or Parquet.

Objects are numbered from 1, and an object is written only if its number is not taken: of two
processes that continue after the same object, one succeeds. If objects were named by their epochs,
a late request of a killed process could add an object next to those of its successor. The epoch is
in the object's metadata. An epoch without changes has no object of JSON.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.io.connectors import s3
from headrace.io.connectors.files.change_files import ChangeFile, OutputFormat
from headrace.io.connectors.files.sink import Content, Options
from headrace.io.connectors.sinks import belongs_to_another, moved_on, require_own
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.io.connectors.sinks import SinkContext


_EPOCH: Final = "headrace-epoch"
_SINK: Final = "headrace-sink"


def check(options: Options, context: SinkContext) -> None:
    """Raise if objects cannot be written.

    Raises:
        HeadraceError: ``unsupported`` for options that need several objects per epoch; an error of
            the store; ``conflict`` if a new sink's prefix has objects, or if, after a change of
            address, it has none of this sink.
    """
    several = "content = 'snapshot'" if options.content is Content.SNAPSHOT else None
    several = "partition_by" if options.partitions else several
    if several is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{several} of files in S3 is not supported",
            "It takes several objects, which cannot be written at once.",
            "Use connector = 'delta' or 'iceberg', whose commits make many files visible at once.",
        )
    writer = opened(options, context)
    if not context.exists:
        writer.prefix.require_empty(f"{writer.place} cannot be written to")
    if context.moved is not None:
        require_own(None, context, writer.place, "", writer.durable())


def opened(options: Options, context: SinkContext) -> ObjectSink:
    """Return the writer of a sink."""
    return ObjectSink(
        s3.Prefix(options.path, options, context.secrets.value),
        options.format,
        context.schema.arrow.append(pa.field(WEIGHT, pa.int64())),
        context.key,
        context.identity,
    )


@dataclass(slots=True)
class ObjectSink:
    """Writes ``<number>.jsonl``, ``.csv`` or ``.parquet``, each part ordered by operation."""

    prefix: s3.Prefix
    format: OutputFormat
    schema: pa.Schema
    key: tuple[str, ...]
    identity: str
    guarantee: str = "exactly once: one object per epoch"
    _last: int | None = None
    """The number of the last object; None if it has not been listed yet."""
    _reached: Epoch | None = None

    @property
    def place(self) -> str:
        """The objects, for messages."""
        return f'the files at "{self.prefix.uri}"'

    def durable(self) -> Epoch | None:
        """Return the epoch of the last object.

        Raises:
            HeadraceError: ``conflict`` if it belongs to another sink.
        """
        with s3.errors(f"{self.place} cannot be read"):
            self._last = max(self._numbers(), default=0)
            found = self.prefix.metadata(self._name(self._last)) if self._last else {}
        if self._last and found.get(_SINK) != self.identity:
            raise belongs_to_another(self.place, f"the object {self._name(self._last)}")
        self._reached = Epoch(int(found[_EPOCH])) if self._last else None
        return self._reached

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write the object of an epoch.

        Raises:
            HeadraceError: ``unavailable`` if the store does not answer, or if another process of
                this database has written; ``invalid`` if it refuses the credentials.
        """
        last = self._last
        if last is None:
            self.durable()
            last = self._last or 0
        with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
            draft = Path(directory) / "draft"
            ChangeFile(draft, self.format, epoch, self.key, self.schema).write_all(parts)
            if not draft.stat().st_size:
                return ()
            marks = {_EPOCH: str(epoch), _SINK: self.identity}
            with s3.errors(f"{self.place} cannot be written to"), draft.open("rb") as body:
                written = self.prefix.put(self._name(last + 1), body, marks)
        if not written:
            known = self._reached
            raise moved_on(self.place, self.durable(), known)
        self._last, self._reached = last + 1, epoch
        return ()

    def stored(self) -> Iterator[pa.Table] | None:
        """Return None: the objects contain changes, not rows."""
        return None

    def clear(self) -> None:
        """Delete the sink's objects, the last one first."""
        with s3.errors(f"{self.place} cannot be removed"):
            for number in sorted(self._numbers(), reverse=True):
                self.prefix.remove(self._name(number))
        self._last, self._reached = 0, None

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _name(self, number: int) -> str:
        return f"{number:020d}.{self.format.ending}"

    def _numbers(self) -> Iterator[int]:
        for name in self.prefix.names():
            stem, _, ending = name.partition(".")
            if ending == self.format.ending and stem.isdigit():
                yield int(stem)
