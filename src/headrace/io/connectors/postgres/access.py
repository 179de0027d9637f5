r"""Access to a PostgreSQL server: options, sessions, and the translation of errors.

Parses the text of PostgreSQL's arrays: ``{1,NULL,"a \"quoted\" text"}``.

Types of columns for PostgreSQL's types, and parsing of PostgreSQL's text into values.

| PostgreSQL | here |
|---|---|
| `smallint`, `integer`, `bigint`, `oid` | SMALLINT, INT, BIGINT, BIGINT |
| `real`, `double precision` | FLOAT, DOUBLE |
| `numeric(p, s)` | DECIMAL(p, s); without digits, DECIMAL(38, 9) |
| `boolean`, `bytea`, `date` | BOOLEAN, BINARY, DATE |
| `timestamp`, `timestamptz` | TIMESTAMP_NTZ, TIMESTAMP |
| `time` | STRING; a column declared as TIME(p) takes its values, too, `24:00` excepted |
| `text`, `varchar`, `char`, `name` | STRING |
| `uuid`, `json`, `jsonb`, `xml`, `timetz`, `interval` | STRING |
| `inet`, `cidr`, `macaddr`, `macaddr8`, `bit`, `varbit` | STRING |
| enums | STRING |
| arrays of these | ARRAY |
| domains | as their base type |

Other types have no equivalent. A column declared as STRING takes the text of any type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.options import Alters, SecretName, option
from headrace.io.formats.fitting import Fitted, of_texts
from headrace.io.formats.libraries import library as optional
from headrace.io.formats.values import Converter, RejectedValueError, cast_texts, from_text, refuse
from headrace.postgres_session import is_refused, is_unreachable, said, session
from headrace.types import Column, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable


_ANSWER_SECONDS: Final = 10
_SETTINGS: Final = {
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "extra_float_digits": "3",
    "idle_in_transaction_session_timeout": "0",
    "intervalstyle": "iso_8601",
    "lock_timeout": "0",
    "row_security": "off",
    "statement_timeout": "0",
    "synchronous_commit": "on",
    "timezone": "UTC",
}
"""Settings of each session, which override the server's.

They fix the text format of values, disable timeouts, and make hidden rows an error.
"""


class SslMode(StrEnum):
    """libpq's modes of encryption and of verification of the server."""

    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Options of a connection; certificates and keys are paths of files."""

    host: str = option("host", "hostname", alters=Alters.ADDRESS)
    port: int = option("port", default=5432, alters=Alters.ADDRESS)
    database: str = option("database", "database-name", "dbname", alters=Alters.ADDRESS)
    user: str = option("user", "username", alters=Alters.FREELY)
    password: SecretName | None = option("password", default=None, alters=Alters.FREELY)
    ssl_mode: SslMode = option(
        "ssl mode", "ssl_mode", "sslmode", default=SslMode.PREFER, alters=Alters.FREELY
    )
    authority: str | None = option(
        "ssl certificate authority", "sslrootcert", default=None, alters=Alters.FREELY
    )
    certificate: str | None = option(
        "ssl certificate", "sslcert", default=None, alters=Alters.FREELY
    )
    private_key: str | None = option("ssl key", "sslkey", default=None, alters=Alters.FREELY)

    @property
    def place(self) -> str:
        """The server and database, for messages."""
        return f"{self.host}:{self.port}/{self.database}"


def connected(access: Access, secret: Callable[[str], str]) -> Any:
    """Open a session of psycopg in autocommit mode; ``secret`` returns the value of a secret.

    It fails if the server stops responding; see :mod:`headrace.postgres_session`.

    Raises:
        HeadraceError: ``unavailable`` if the server does not answer; ``invalid`` if it refuses the
            user, or the database does not exist.
    """
    psycopg = library()
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    given = {
        "host": access.host,
        "port": access.port,
        "dbname": access.database,
        "user": access.user,
        "password": None if access.password is None else secret(access.password),
        "sslmode": str(access.ssl_mode),
        "sslrootcert": access.authority,
        "sslcert": access.certificate,
        "sslkey": access.private_key,
        "application_name": "headrace",
        "connect_timeout": _ANSWER_SECONDS,
        "keepalives_idle": 30,
        "options": settings,
    }
    known = {key: value for key, value in given.items() if value is not None}
    try:
        return session(psycopg, "", **known)
    except psycopg.Error as error:
        raise failure(error, access) from error


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the database cannot be reached; see :func:`connected`."""
    connected(access, secret).close()


def failure(error: Any, access: Access) -> HeadraceError:
    """Translate an error of the client: ``invalid`` if the user or database is refused."""
    if is_refused(error):
        code, what = Code.INVALID, "refused the connection's user or database"
        hint = "Correct the connection's user, password or database, or what the user may do."
    elif is_unreachable(error):
        code, what = Code.UNAVAILABLE, "could not be reached"
        hint = "Start the server, or correct the connection's host and port."
    else:
        code, what = Code.UNAVAILABLE, "did not complete the request"
        hint = "Remove the cause that it names; a source is then tried again by itself."
    return HeadraceError(
        code, f'PostgreSQL at "{access.place}" {what}', f"It says: {said(error)}.", hint
    )


def library() -> Any:
    """Return the client library.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    return optional("psycopg", "client for PostgreSQL", "postgres")


_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}\\]+)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def elements(text: str) -> list[str | None]:
    """Return the elements of a one-dimensional array as texts, None for NULL.

    Raises:
        ValueError: if it has several dimensions, or its lower bound is not 1.
    """
    if text == "{}":
        return []
    if not text.startswith("{"):
        raise ValueError("its elements are not counted from 1")
    if text.startswith("{{"):
        raise ValueError("it has several dimensions")
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        element = _ELEMENT.match(text, at, end)
        if element is None:
            raise ValueError(f"it cannot be read at character {at + 1}")
        quoted, plain = element.groups()
        if quoted is None:
            found.append(None if plain == "NULL" else plain)
        else:
            found.append(_ESCAPED.sub(r"\1", quoted))
        at = element.end() + 1  # and the comma
    return found


_TIME = 1083
_BOOL, _BYTEA, _DATE, _TIMESTAMP, _TIMESTAMPTZ, _NUMERIC = 16, 17, 1082, 1114, 1184, 1700
_INTEGERS: Final = {21: t.ShortType(), 23: t.IntegerType(), 20: t.LongType(), 26: t.LongType()}
_FLOATS: Final = {700: t.FloatType(), 701: t.DoubleType()}
_PLAIN: Final = {
    _BOOL: t.BooleanType(),
    _BYTEA: t.BinaryType(),
    _DATE: t.DateType(),
    _TIMESTAMP: t.TimestampNTZType(),
    _TIMESTAMPTZ: t.TimestampType(),
}
_TEXTS: Final = frozenset(
    {
        *(18, 19, 25, 1042, 1043),  # "char", name, text, char, varchar
        *(114, 3802, 142, 2950),  # json, jsonb, xml, uuid
        *(_TIME, 1266, 1186),  # time, timetz, interval
        *(869, 650, 829, 774, 1560, 1562),  # inet, cidr, macaddr, macaddr8, bit, varbit
    }
)
_MOST_DIGITS: Final = 38
_UNCONSTRAINED: Final = t.DecimalType(38, 9)


@dataclass(frozen=True, slots=True)
class PgType:
    """A type that is not a domain: its oid and modifier; ``element`` is an array's element type.

    ``name`` is PostgreSQL's text of the type. ``enumerated``: whether it is an enum.
    """

    oid: int
    modifier: int = -1
    name: str = ""
    element: PgType | None = None
    enumerated: bool = False


@dataclass(slots=True)
class Types:
    """The types in a database's catalog, cached; ``session`` is one of psycopg."""

    session: Any
    _known: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def find(self, oid: int, modifier: int = -1) -> PgType:
        """Return the type of an oid; the base type for a domain."""
        if oid not in self._known:
            row = self.session.execute(
                "SELECT typtype::text, typbasetype::int8, typtypmod, typelem::int8,"
                " typcategory::text, format_type(oid, NULL) FROM pg_type WHERE oid = %s",
                (oid,),
            ).fetchone()
            self._known[oid] = row or ("", 0, -1, 0, "", f"type {oid}, which was dropped")
        kind, base, base_modifier, element, category, name = self._known[oid]
        if kind == "d":
            return self.find(base, base_modifier if modifier == -1 else modifier)
        inner = self.find(element, modifier) if category == "A" and element else None
        return PgType(oid, modifier, name, inner, kind == "e")


def inferred(found: PgType) -> t.DataType:
    """Return the type of column that can hold the values of a type of PostgreSQL.

    Raises:
        HeadraceError: ``unsupported`` if the type has no equivalent.
    """
    if found.element is not None:
        return t.ArrayType(inferred(found.element))
    if found.enumerated or found.oid in _TEXTS:
        return t.StringType()
    if found.oid == _NUMERIC:
        return _decimal(found.modifier)
    known = {**_INTEGERS, **_FLOATS, **_PLAIN}.get(found.oid)
    if known is None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"PostgreSQL's type {found.name} has no exact form here",
            hint="Declare the columns of the table: leave this one out, or declare it as STRING to"
            " have its text.",
        )
    return known


def _decimal(modifier: int) -> t.DecimalType:
    if modifier < 0:
        return _UNCONSTRAINED
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale -= (scale & 0x400) << 1  # eleven bits, with a sign
    if not 0 <= scale <= precision <= _MOST_DIGITS:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"PostgreSQL's type numeric({precision},{scale}) has no exact form here",
            f"DECIMAL has at most {_MOST_DIGITS} digits, none of them left of the last whole one.",
            "Declare the columns of the table, this one as a DECIMAL that fits or as STRING.",
        )
    return t.DecimalType(precision, scale)


def can_read(found: PgType, declared: t.DataType) -> bool:
    """Whether a declared column may capture values of a type of PostgreSQL.

    It may if both have the same kind of values. Values that do not fit become rejects.
    """
    match declared:
        case t.StringType():
            return True
        case t.ArrayType():
            return found.element is not None and can_read(found.element, declared.elementType)
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return found.oid in _INTEGERS
        case t.DecimalType():
            return found.oid in _INTEGERS or found.oid == _NUMERIC
        case t.FloatType() | t.DoubleType():
            return found.oid in _FLOATS
        case t.TimeType():
            return found.oid == _TIME
    return bool(_PLAIN.get(found.oid) == declared)


def read(texts: pa.Array, column: Column) -> Fitted:
    """Parse PostgreSQL's text into values of a column, with reasons for texts that do not fit."""
    if isinstance(column.type, t.ArrayType):
        return _arrays(texts, column)
    target = to_arrow(column.type)

    def whole(texts: pa.Array) -> pa.Array:
        return _whole(texts, column.type, target)

    return of_texts(texts, target, whole, lambda: _converter(column))


def _whole(texts: pa.Array, type_: t.DataType, target: pa.DataType) -> pa.Array:
    match type_:
        case t.StringType():
            return texts
        case t.BooleanType():
            return pc.equal(texts, "t")
        case t.BinaryType():
            return pa.array([_bytes(text) for text in texts.to_pylist()], target)
    values = cast_texts(texts, type_, target)
    if isinstance(type_, t.FloatType) and pc.any(pc.is_inf(values)).as_py():
        raise pa.ArrowInvalid("some may be too large")
    return values


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text.removeprefix("\\x"))


_YEAR: Final = re.compile(r"(\d{4,})(?=-)", re.ASCII)


def signed(text: str) -> str:
    """Convert a date or timestamp of PostgreSQL to ISO 8601: a signed year instead of BC."""
    found = _YEAR.match(text)
    if found is None:
        return text
    year, rest = int(found[1]), text[found.end() :]
    if rest.endswith(" BC"):
        return f"{'-' if year > 1 else '+'}{year - 1:04}{rest.removesuffix(' BC')}"
    return f"+{text}" if len(found[1]) > 4 else text  # noqa: PLR2004


def _converter(column: Column) -> Converter:
    convert = from_text(column)
    if isinstance(column.type, t.DateType | t.TimestampType | t.TimestampNTZType):
        return lambda text: convert(signed(text))
    return convert


def _arrays(texts: pa.Array, column: Column) -> Fitted:
    inner: t.DataType = column.type.elementType
    flat: list[str | None] = []
    ends = [0]
    present: list[bool] = []
    refused: dict[int, RejectedValueError] = {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            found = None if text is None else elements(text)
        except ValueError as why:
            found, refused[row] = None, RejectedValueError(f"{refuse(text, column.type)}: {why}")
        present.append(found is not None)
        flat += found or ()
        ends.append(len(flat))
    inside = read(pa.array(flat, pa.string()), Column("element", inner))
    if inside.refused:
        rows = np.searchsorted(ends, list(inside.refused), side="right") - 1
        for row, reason in zip(rows.tolist(), inside.refused.values(), strict=True):
            refused.setdefault(row, reason)
    offsets = pa.array(ends, pa.int32())
    mask = pa.array([not (p and r not in refused) for r, p in enumerate(present)], pa.bool_())
    made = pa.ListArray.from_arrays(offsets, inside.values, mask=mask)
    return Fitted(made.cast(to_arrow(column.type)), refused)
