"""Messages that name their schema by its id in a schema registry: a zero byte, then four id bytes.

Each message is decoded with the schema that it was written with, so a topic may hold messages of
many versions. A message with an unknown id is a reject; a registry that does not answer delays the
source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.formats.messages import Messages, shown
from headrace.formats.values import RejectedValueError
from headrace.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from headrace.types import Schema

HEADER: Final = 5
"""The bytes before a value: the magic byte and the id."""
_NO_ID: Final = -1
_SHORT: Final = b"\xff" * HEADER
"""Replaces the header of a value that is too short to have one."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry: its text, and the schemas that it imports, by name.

    ``kind`` is AVRO, PROTOBUF or JSON. References are ordered, dependencies first.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry(Protocol):
    """Looks up schemas."""

    def schema(self, id_: int) -> RegisteredSchema | None:
        """Return the schema with an id; None if it does not exist.

        Raises:
            HeadraceError: ``unavailable`` if the registry does not answer.
        """
        ...

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject; None if it has none.

        Raises:
            HeadraceError: ``unavailable`` if the registry does not answer.
        """
        ...


class Payloads(Protocol):
    """Decodes values that were written with one schema, after their header."""

    def decode(self, values: Sequence[bytes], start: int) -> Messages:
        """Return the rows of values; each payload begins at the byte ``start``."""
        ...


class RegisteredMessages:
    """Decodes messages, each with its own schema.

    ``compiled`` returns the decoder of a schema, or raises :class:`RejectedValueError`.
    """

    def __init__(
        self,
        schema: Schema,
        registry: SchemaRegistry,
        kind: str,
        compiled: Callable[[RegisteredSchema], Payloads],
    ) -> None:
        self._schema = schema
        self._registry = registry
        self._kind = kind
        self._compiled = compiled
        self._decoders: dict[int, Payloads | RejectedValueError] = {}

    def decode(self, values: Sequence[bytes]) -> Messages:
        """Return the rows of values; one that does not fit its schema or columns is a reject.

        Raises:
            HeadraceError: ``unavailable`` if a schema is needed, and the registry does not answer.
        """
        ids = _ids(values)
        found = np.unique(ids)
        if len(found) == 1:
            return self._of_id(int(found[0]), values)
        parts = []
        for id_ in found.tolist():
            places = np.flatnonzero(ids == id_)
            part = self._of_id(id_, [values[place] for place in places.tolist()])
            parts.append((places, part))
        return _merged(parts, self._schema)

    def _of_id(self, id_: int, values: Sequence[bytes]) -> Messages:
        """Return the rows of values with the same schema id."""
        decoder = self._decoder(id_)
        if not isinstance(decoder, RejectedValueError):
            return decoder.decode(values, HEADER)
        rejects = tuple(
            Reject("", at, None, str(decoder), shown(value)) for at, value in enumerate(values)
        )
        return Messages(self._schema.arrow.empty_table(), np.zeros(0, np.int64), rejects)

    def _decoder(self, id_: int) -> Payloads | RejectedValueError:
        if id_ == _NO_ID:
            return RejectedValueError("it does not begin with the id of a schema")
        if id_ not in self._decoders:
            registered = self._registry.schema(id_)
            if registered is None:  # not kept: it may be registered later
                return RejectedValueError(f"the registry has no schema {id_}")
            self._decoders[id_] = self._made(id_, registered)
        return self._decoders[id_]

    def _made(self, id_: int, registered: RegisteredSchema) -> Payloads | RejectedValueError:
        if registered.kind != self._kind:
            return RejectedValueError(
                f"schema {id_} is of kind {registered.kind}, not {self._kind}"
            )
        try:
            return self._compiled(registered)
        except RejectedValueError as refused:
            return RejectedValueError(f"schema {id_}: {refused}")


def _ids(values: Sequence[bytes]) -> NDArray[np.int64]:
    """Return the schema id of each value, -1 if it has none."""
    heads = b"".join([v[:HEADER] if len(v) >= HEADER else _SHORT for v in values])
    table = np.frombuffer(heads, np.uint8).reshape(-1, HEADER)
    ids = np.ascontiguousarray(table[:, 1:]).view(">u4")[:, 0].astype(np.int64)
    return np.where(table[:, 0] == 0, ids, _NO_ID)


def _merged(parts: Sequence[tuple[NDArray[np.int64], Messages]], schema: Schema) -> Messages:
    """Merge messages that were decoded in groups; each group has the indexes of its messages."""
    tables = [schema.arrow.empty_table(), *(part.rows for _, part in parts)]
    kept = np.concatenate([np.zeros(0, np.int64), *(p[part.kept] for p, part in parts)])
    order = np.argsort(kept)
    rejects = [
        Reject("", int(places[each.line]), each.column, each.reason, each.raw)
        for places, part in parts
        for each in part.rejects
    ]
    return Messages(
        pa.concat_tables(tables).take(pa.array(order)),
        kept[order],
        tuple(sorted(rejects, key=lambda each: each.line)),
    )
