"""Decodes the messages of PostgreSQL's output plugin ``pgoutput``, protocol version 1.

Values are text in the session's encoding. The protocol is specified in PostgreSQL's documentation,
"Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from headrace.errors import Code, HeadraceError


class Unsent(Enum):
    """The type of :data:`UNSENT`, the cell of a large value that an update did not change."""

    UNSENT = "unsent"


UNSENT: Final = Unsent.UNSENT

Cell: TypeAlias = bytes | Unsent | None
Row: TypeAlias = tuple[Cell, ...]


class BeginMessage(NamedTuple):
    """The begin of a committed transaction.

    ``commit`` is the position of its commit in the server's log, ``xid`` the lower 32 bits of its
    id.
    """

    commit: int
    xid: int


class CommitMessage(NamedTuple):
    """The end of a transaction; ``end`` is the position after it in the server's log."""

    end: int


class RelationColumn(NamedTuple):
    """A column of a relation: its type's oid and modifier, and whether it identifies rows."""

    name: str
    type: int
    modifier: int
    identifies: bool


class RelationMessage(NamedTuple):
    """The schema of a relation for the following changes.

    ``identity`` is ``d`` (primary key), ``n`` (nothing), ``f`` (all columns) or ``i`` (an index).
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class InsertMessage(NamedTuple):
    """A new row; ``relation`` is the oid of its relation."""

    relation: int
    new: Row


class UpdateMessage(NamedTuple):
    """A changed row; ``old`` is None unless the identity changed, or consists of all columns.

    If the identity consists of some columns, ``old`` only has values for these.
    """

    relation: int
    old: Row | None
    new: Row


class DeleteMessage(NamedTuple):
    """A deleted row; ``old`` has values for the columns of the identity, or for all."""

    relation: int
    old: Row


class TruncateMessage(NamedTuple):
    """Truncated relations, by oid."""

    relations: tuple[int, ...]


class OtherMessage(NamedTuple):
    """A message without changes of rows: an origin, a type, or an application's message."""

    kind: str


Message: TypeAlias = (
    BeginMessage
    | CommitMessage
    | RelationMessage
    | InsertMessage
    | UpdateMessage
    | DeleteMessage
    | TruncateMessage
    | OtherMessage
)

_LENGTH: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")
_LONG: Final = struct.Struct(">Q")
_MODIFIER: Final = struct.Struct(">i")
_OTHERS: Final = frozenset("OYM")
_NULL, _UNSENT, _TEXT = b"nut"


def decoded(data: bytes) -> Message:
    """Decode a message.

    Raises:
        HeadraceError: ``corrupt`` if the bytes are not a message.
    """
    try:
        return _decoded(data)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise HeadraceError(
            Code.CORRUPT,
            "a message of PostgreSQL cannot be decoded",
            f"It begins with {data[:32].hex()}: {error}.",
        ) from error


def _decoded(data: bytes) -> Message:
    kind = chr(data[0])
    match kind:
        case "I":
            new, _ = _row(data, 6)
            return InsertMessage(_oid(data, 1), new)
        case "U":
            old, at = (None, 5) if data[5] == ord("N") else _row(data, 6)
            new, _ = _row(data, at + 1)
            return UpdateMessage(_oid(data, 1), old, new)
        case "D":
            old, _ = _row(data, 6)
            return DeleteMessage(_oid(data, 1), old)
        case "B":
            return BeginMessage(_LONG.unpack_from(data, 1)[0], _oid(data, 17))
        case "C":
            return CommitMessage(_LONG.unpack_from(data, 10)[0])
        case "R":
            return _relation(data)
        case "T":
            count = _oid(data, 1)
            return TruncateMessage(tuple(_oid(data, 6 + 4 * at) for at in range(count)))
    if kind in _OTHERS:
        return OtherMessage(kind)
    raise ValueError(f"unknown kind {kind!r}")


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """Decode the row at an offset; return its cells, and the offset after it."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    cells: list[Cell] = []
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            (length,) = _LENGTH.unpack_from(data, at + 1)
            start, at = at + 5, at + 5 + length
            if at > len(data):
                raise ValueError("a value is cut off")
            cells.append(data[start:at])
            continue
        if kind not in (_NULL, _UNSENT):
            raise ValueError(f"a value of kind {chr(kind)!r}")
        cells.append(None if kind == _NULL else UNSENT)
        at += 1
    return tuple(cells), at


def _relation(data: bytes) -> RelationMessage:
    schema, at = _string(data, 5)
    name, at = _string(data, at)
    identity = chr(data[at])
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _string(data, at + 1)
        modifier = _MODIFIER.unpack_from(data, at + 4)[0]
        columns.append(RelationColumn(column, _oid(data, at), modifier, bool(flags & 1)))
        at += 8
    return RelationMessage(_oid(data, 1), schema, name, identity, tuple(columns))


def _oid(data: bytes, at: int) -> int:
    found: int = _LENGTH.unpack_from(data, at)[0]
    return found


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1
