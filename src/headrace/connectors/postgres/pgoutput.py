"""Decodes the messages of PostgreSQL's output plugin ``pgoutput``, protocol version 1.

Values are text, in the server's encoding of the session. The protocol is described in PostgreSQL's
documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from headrace.errors import Code, HeadraceError


class Kept(Enum):
    """The mark of a cell that was not sent: a large value that the update did not change."""

    KEPT = "kept"


KEPT: Final = Kept.KEPT

Cell: TypeAlias = bytes | Kept | None
Row: TypeAlias = tuple[Cell, ...]


class Begin(NamedTuple):
    """The begin of a transaction that was committed.

    ``commit`` is the position of its commit in the server's log, ``xid`` the lower 32 bits of its
    id.
    """

    commit: int
    xid: int


class Commit(NamedTuple):
    """The end of a transaction; ``end`` is the position in the server's log after it."""

    end: int


class Column(NamedTuple):
    """A column of a relation: its type's oid and modifier, and whether it identifies rows."""

    name: str
    type: int
    modifier: int
    identifies: bool


class Relation(NamedTuple):
    """A relation as it was when the changes after this message were made.

    ``identity`` is ``d`` (primary key), ``n`` (nothing), ``f`` (all columns) or ``i`` (an index).
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]


class Insert(NamedTuple):
    """A new row of the relation of an oid."""

    relation: int
    new: Row


class Update(NamedTuple):
    """A changed row; ``old`` is None unless the identity changed, or consists of all columns.

    With an identity of some columns, only those are present in ``old``.
    """

    relation: int
    old: Row | None
    new: Row


class Delete(NamedTuple):
    """A deleted row: the columns of the identity, or all."""

    relation: int
    old: Row


class Truncate(NamedTuple):
    """Relations that were emptied."""

    relations: tuple[int, ...]


class Other(NamedTuple):
    """A message that says nothing of rows: an origin, a type, or a message of an application."""

    kind: str


Message: TypeAlias = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other

_LENGTH: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")
_LONG: Final = struct.Struct(">Q")
_MODIFIER: Final = struct.Struct(">i")
_OTHERS: Final = frozenset("OYM")
_NULL, _KEPT, _TEXT = b"nut"


def decoded(data: bytes) -> Message:
    """Return a message.

    Raises:
        HeadraceError: ``corrupt`` if the bytes are none.
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
            return Insert(_oid(data, 1), new)
        case "U":
            old, at = (None, 5) if data[5] == ord("N") else _row(data, 6)
            new, _ = _row(data, at + 1)
            return Update(_oid(data, 1), old, new)
        case "D":
            old, _ = _row(data, 6)
            return Delete(_oid(data, 1), old)
        case "B":
            return Begin(_LONG.unpack_from(data, 1)[0], _oid(data, 17))
        case "C":
            return Commit(_LONG.unpack_from(data, 10)[0])
        case "R":
            return _relation(data)
        case "T":
            count = _oid(data, 1)
            return Truncate(tuple(_oid(data, 6 + 4 * at) for at in range(count)))
    if kind in _OTHERS:
        return Other(kind)
    raise ValueError(f"unknown kind {kind!r}")


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """Return the cells of a row that begins at a place, and the place after it."""
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
        if kind not in (_NULL, _KEPT):
            raise ValueError(f"a value of kind {chr(kind)!r}")
        cells.append(None if kind == _NULL else KEPT)
        at += 1
    return tuple(cells), at


def _relation(data: bytes) -> Relation:
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
        columns.append(Column(column, _oid(data, at), modifier, bool(flags & 1)))
        at += 8
    return Relation(_oid(data, 1), schema, name, identity, tuple(columns))


def _oid(data: bytes, at: int) -> int:
    found: int = _LENGTH.unpack_from(data, at)[0]
    return found


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1
