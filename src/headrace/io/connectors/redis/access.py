"""Access to a Redis server: options, clients, and the translation of errors.

Values in fields of Redis's hashes and in JSON, in both directions.

A field contains the text of a value, or the bytes of a binary one.

Patterns of keys with columns in braces, such as ``user:{user_id}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.execution.serving.values import text_column
from headrace.io.connectors.options import Alters, StoreLogin, option
from headrace.io.connectors.sinks import values_of
from headrace.io.formats.libraries import library as optional
from headrace.io.formats.messages import JsonMessages
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.types import Column, Schema


_CONNECT_SECONDS: Final = 5
_ANSWER_SECONDS: Final = 30
_DENIED: Final = ("NOAUTH", "WRONGPASS", "DB index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(StoreLogin):
    """Options of a connection."""

    host: str = option("host", "hostname", alters=Alters.ADDRESS)
    port: int = option("port", default=6379, alters=Alters.ADDRESS)
    database: int = option("database", "db", default=0, alters=Alters.ADDRESS)

    @property
    def place(self) -> str:
        """The server and database, for messages."""
        return f"{self.host}:{self.port}/{self.database}"


def connected(access: Access, secret: Callable[[str], str]) -> Any:
    """Return a client with one connection and without retries, whose answers are bytes.

    ``secret`` returns the value of a secret. A request that is retried over a second connection may
    be executed in another order.

    Raises:
        HeadraceError: ``unavailable`` if the server does not answer; ``invalid`` if it refuses the
            user.
    """
    redis = library()
    given: dict[str, Any] = {
        "host": access.host,
        "port": access.port,
        "db": access.database,
        "username": access.user,
        "password": None if access.password is None else secret(access.password),
        "client_name": "headrace",
        "socket_timeout": _ANSWER_SECONDS,
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_keepalive": True,
        "single_connection_client": True,
        "protocol": 2,
        "retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0),
    }
    if access.tls:
        given |= {
            "ssl": True,
            "ssl_ca_certs": access.authority,
            "ssl_certfile": access.certificate,
            "ssl_keyfile": access.private_key,
        }
    try:
        client = redis.Redis(**given)
        client.ping()
    except (redis.RedisError, OSError) as error:
        raise failure(error, access) from error
    return client


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the server cannot be reached; see :func:`connected`."""
    connected(access, secret).close()


def failure(error: Exception, access: Access) -> HeadraceError:
    """Translate an error of the client: ``invalid`` for a wrong login or a missing permission."""
    redis = library()
    said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    what = "did not complete the request"
    code, hint = Code.UNAVAILABLE, "It is tried again; remove the cause that it names."
    if isinstance(error, redis.AuthenticationError) or said.startswith(_DENIED):
        code, what = Code.INVALID, "refused the connection's user or database"
        hint = "Correct the connection's user, password or database, or what the user may do."
    elif isinstance(error, redis.exceptions.NoPermissionError):
        code, what = Code.INVALID, "refused a command that the user may not run"
        hint = "Let the user run EVAL, and read and write the sink's keys and headrace:*."
    elif isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        what = "could not be reached"
        hint = "Start the server, or correct the connection's host, port and tls."
    elif said.startswith(("MOVED", "CROSSSLOT")):
        code, what = Code.UNSUPPORTED, "is a cluster"
        hint = "Use a server that has all keys: a single one, or a primary with replicas."
    return HeadraceError(code, f'Redis at "{access.place}" {what}', f"It says: {said}.", hint)


def answers(pipeline: Any) -> list[Any]:
    """Return a pipeline's answers, or raise the first error, without the command in its text."""
    found: list[Any] = pipeline.execute(raise_on_error=False)
    for answer in found:
        if isinstance(answer, Exception):
            raise answer
    return found


def library() -> Any:
    """Return the client library.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    return optional("redis", "client for Redis", "redis")


MAPPING: Final = {
    "BOOLEAN": "`true`, `false`",
    "TINYINT, SMALLINT, INT, BIGINT": "decimal digits",
    "FLOAT, DOUBLE": "shortest decimal; `NaN`, `Infinity`, `-Infinity`",
    "DECIMAL": "decimal digits; in JSON, as text",
    "STRING": "the text",
    "BINARY": "the bytes; in JSON, base64",
    "DATE": "`2026-01-31`",
    "TIME": "`10:15:00.500000`",
    "TIMESTAMP": "`2026-01-31T10:15:00.500000Z`",
    "TIMESTAMP_NTZ": "`2026-01-31T10:15:00.500000`",
    "ARRAY, MAP, STRUCT": "JSON",
}
"""The documented form of each type in a field of a hash, and in JSON where that differs."""


def cells(column: Any) -> Any:
    """Convert a column into fields of hashes, a binary column."""
    return column if pa.types.is_binary(column.type) else text_column(column).cast(pa.binary())


def rows_of_cells(
    items: Sequence[Mapping[bytes, bytes]], schema: Schema, epoch: str | None
) -> tuple[pa.Table, list[int]]:
    """Return the rows of hashes that have the field ``epoch``, and their indices.

    With None for ``epoch``, all are returned. A text that is not a value of its column's type
    becomes NULL.
    """
    needed = None if epoch is None else epoch.encode()
    kept = [at for at, item in enumerate(items) if needed is None or needed in item]
    columns = [
        _column([items[at].get(column.name.encode()) for at in kept], column)
        for column in schema.columns
    ]
    return pa.Table.from_arrays(columns, schema=schema.arrow), kept


def rows_of_json(
    items: Sequence[bytes | None], schema: Schema, epoch: str
) -> tuple[pa.Table, list[int]]:
    """Return the rows of JSON objects that end with the member ``epoch``, and their indices."""
    ends = f'"{epoch}":'.encode()
    candidates = [at for at, item in enumerate(items) if item is not None and ends in item[-40:]]
    messages = JsonMessages(schema).decode([items[at] or b"" for at in candidates])
    return messages.rows, [candidates[at] for at in messages.kept]


def _column(values: Sequence[bytes | None], column: Column) -> pa.Array:
    found = pa.array(values, pa.binary())
    if isinstance(column.type, t.BinaryType):
        return found.cast(to_arrow(column.type))
    return values_of(_texts(found), column)


def _texts(values: pa.BinaryArray) -> pa.StringArray:
    """Decode bytes as UTF-8, with replacement characters for invalid bytes."""
    try:
        return values.cast(pa.string())
    except pa.ArrowException:
        listed = values.to_pylist()
        decoded = [None if v is None else v.decode("utf-8", "replace") for v in listed]
        return pa.array(decoded, pa.string())


_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[^{}]+")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Literal text before, between and after columns; different values give different texts.

    With several columns, ``%`` and the first character of each literal between columns are escaped
    as ``%XX`` in values, so that the end of a value is unambiguous. The value of a single column is
    not escaped.
    """

    columns: tuple[str, ...]
    literals: tuple[str, ...]
    """One more than ``columns``."""

    @classmethod
    def of(cls, text: str) -> Pattern:
        """Parse a pattern; ``{{`` and ``}}`` are literal braces.

        Raises:
            HeadraceError: ``invalid`` if it has a column twice, no literal between two columns or
                one that begins with ``%``, or an unclosed brace.
        """
        columns: list[str] = []
        literals = [""]
        at = 0
        while at < len(text):
            found = _PIECE.match(text, at)
            if found is None:
                raise _wrong(text, "Write a column as {name}, and a brace as {{ or }}.")
            at = found.end()
            if found[1] is None:
                literals[-1] += found[0][0] if found[0] in ("{{", "}}") else found[0]
                continue
            if found[1] in columns:
                raise _wrong(text, f"Write column {found[1]} once.")
            if columns and (not literals[-1] or literals[-1].startswith("%")):
                raise _wrong(text, "Write a separator between two columns, as in {a}:{b}.")
            columns.append(found[1])
            literals.append("")
        return cls(tuple(columns), tuple(literals))

    def of_rows(self, rows: pa.Table) -> pa.Array:
        """Return the text of each row as a string array; NULL if a column of it is NULL."""
        if not self.columns:
            return pa.array([self.literals[0]] * rows.num_rows, pa.string())
        pieces: list[object] = [self.literals[0]]
        for name, literal in zip(self.columns, self.literals[1:], strict=True):
            written = text_column(rows[name])
            for character in self._escaped:
                written = pc.replace_substring(written, character, _percent(character))
            pieces += [written, literal]
        return pc.binary_join_element_wise(*pieces, "")

    def values(self, text: str) -> list[str] | None:
        """Return the texts of the columns in a text of this pattern; None for another text."""
        any_ = "[^" + re.escape("".join(self._escaped[1:])) + "]*" if self._escaped else ".*"
        pattern = re.escape(self.literals[0]) + "".join(
            f"({any_}){re.escape(literal)}" for literal in self.literals[1:]
        )
        found = re.fullmatch(pattern, text, re.DOTALL)
        if found is None:
            return None
        return [unquote(value) for value in found.groups()] if self._escaped else [*found.groups()]

    @property
    def glob(self) -> str:
        """A glob of Redis that matches all texts of the pattern, and possibly others."""
        return "*".join(re.sub(r"([*?\[\]\\^-])", r"\\\1", each) for each in self.literals)

    @property
    def _escaped(self) -> Sequence[str]:
        if len(self.columns) <= 1:
            return ()
        return ("%", *dict.fromkeys(each[0] for each in self.literals[1:-1]))


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _wrong(text: str, hint: str) -> HeadraceError:
    return HeadraceError(Code.INVALID, f"'{text}' is not a pattern of columns", hint=hint)
