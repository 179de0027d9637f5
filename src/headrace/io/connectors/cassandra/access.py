"""Access to a Cassandra cluster: options, connecting, and the translation of errors.

Cassandra's types for each type of column, and the conversion of values in both directions.

Collections are frozen: in others, elements are written one by one, and a repeated write of a list
would duplicate them.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.execution.serving.values import text_column
from headrace.io.connectors.options import Alters, StoreLogin, option
from headrace.io.connectors.sinks import values_of
from headrace.io.formats.libraries import library as optional
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.types import Column


_CONNECT_SECONDS: Final = 5
_ANSWER_SECONDS: Final = 20
_PAGE_ROWS: Final = 5_000

# Warnings of the client, such as about protocol versions, appear only if its logger is configured.
logging.getLogger("cassandra").addHandler(logging.NullHandler())


class Consistency(StrEnum):
    """Consistency levels of Cassandra: how many replicas acknowledge a write."""

    ONE = "one"
    TWO = "two"
    THREE = "three"
    QUORUM = "quorum"
    ALL = "all"
    LOCAL_QUORUM = "local_quorum"
    EACH_QUORUM = "each_quorum"
    LOCAL_ONE = "local_one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(StoreLogin):
    """Options of a connection; ``hosts`` are some of the cluster's nodes, separated by commas."""

    hosts: str = option("hosts", "host", "contact points", "contact_points", alters=Alters.ADDRESS)
    port: int = option("port", default=9042, alters=Alters.ADDRESS)
    datacenter: str | None = option(
        "datacenter", "local datacenter", "local_datacenter", default=None, alters=Alters.FREELY
    )

    @property
    def place(self) -> str:
        """The cluster, for messages."""
        return f"{self.hosts}:{self.port}"


@dataclass(frozen=True, slots=True)
class CassandraConnection:
    """The client's cluster object and an open session."""

    cluster: Any
    session: Any

    @property
    def metadata(self) -> Any:
        """The client's metadata: keyspaces and their tables."""
        return self.cluster.metadata

    def close(self) -> None:
        """Close all connections."""
        self.cluster.shutdown()


def connected(
    access: Access,
    secret: Callable[[str], str],
    consistency: Consistency = Consistency.LOCAL_QUORUM,
) -> CassandraConnection:
    """Connect to a cluster; ``secret`` returns the value of a secret.

    Raises:
        HeadraceError: ``unavailable`` if no node answers; ``invalid`` if the user is refused.
    """
    clients, policies = library("cassandra.cluster"), library("cassandra.policies")
    levels = library("cassandra").ConsistencyLevel
    near = policies.DCAwareRoundRobinPolicy(access.datacenter or "")
    profile = clients.ExecutionProfile(
        load_balancing_policy=policies.TokenAwarePolicy(near),
        consistency_level=levels.name_to_value[consistency.value.upper()],
        serial_consistency_level=levels.LOCAL_SERIAL,
        request_timeout=_ANSWER_SECONDS,
        row_factory=library("cassandra.query").tuple_factory,
    )
    login = None
    if access.user is not None:
        password = "" if access.password is None else secret(access.password)
        login = library("cassandra.auth").PlainTextAuthProvider(access.user, password)
    cluster = None
    try:
        cluster = clients.Cluster(
            [host.strip() for host in access.hosts.split(",")],
            port=access.port,
            auth_provider=login,
            ssl_context=_encryption(access) if access.tls else None,
            connect_timeout=_CONNECT_SECONDS,
            execution_profiles={clients.EXEC_PROFILE_DEFAULT: profile},
            application_name="headrace",
        )
        session = cluster.connect()
    except Exception as error:
        if cluster is not None:
            cluster.shutdown()
        raise failure(error, access) from error
    session.default_fetch_size = _PAGE_ROWS
    return CassandraConnection(cluster, session)


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the cluster cannot be reached; see :func:`connected`."""
    connected(access, secret).close()


def failure(error: Exception, access: Access) -> HeadraceError:
    """Translate an error of the client: ``invalid`` for a wrong login or request."""
    if isinstance(error, HeadraceError):
        return error
    all_ = library("cassandra")
    inner = next(iter(getattr(error, "errors", {}).values()), error)
    if not isinstance(inner, Exception):
        inner = error
    said = " ".join(str(inner).split()).rstrip(".") or type(inner).__name__
    code, what = Code.UNAVAILABLE, "did not complete the request"
    hint = "It is tried again; remove the cause that it names."
    if isinstance(inner, all_.AuthenticationFailed | all_.Unauthorized):
        code, what = Code.INVALID, "refused the user"
        hint = "Correct the connection's user and password, or what the user may do."
    elif isinstance(inner, all_.InvalidRequest):
        code, what = Code.INVALID, "refused the request"
        hint = "Correct the keyspace or table, or the sink's options."
    elif isinstance(inner, OSError | all_.DriverException) or inner is not error:
        what = "could not be reached"
        hint = "Start the cluster, or correct the connection's hosts, port and tls."
    return HeadraceError(code, f'Cassandra at "{access.place}" {what}', f"It says: {said}.", hint)


def library(module: str) -> Any:
    """Return a module of the client library.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    return optional(module, "client for Cassandra", "cassandra")


def _encryption(access: Access) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=access.authority)
    made.check_hostname = False  # nodes are found by their addresses
    if access.certificate is not None:
        made.load_cert_chain(access.certificate, access.private_key)
    return made


_DAYS: Final = 1 << 31
"""1970-01-01 as a DATE of Cassandra."""
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint", "varint")
_PLAIN: Final[Mapping[type[t.DataType], tuple[str, ...]]] = {
    t.BooleanType: ("boolean",),
    t.ByteType: _INTEGERS,
    t.ShortType: _INTEGERS[1:],
    t.IntegerType: _INTEGERS[2:],
    t.LongType: _INTEGERS[3:],
    t.FloatType: ("float", "double"),
    t.DoubleType: ("double",),
    t.DecimalType: ("decimal",),
    t.StringType: (),
    t.BinaryType: ("blob",),
}
"""The types that take values of scalars unchanged; new tables have the first."""
_TIMES: Final[Mapping[type[t.DataType], tuple[str, ...]]] = {
    t.DateType: ("date",),
    t.TimeType: ("time",),
    t.TimestampType: ("timestamp", "bigint"),
    t.TimestampNTZType: (),
}

MAPPING: Final = {
    "BOOLEAN": "`boolean`",
    "TINYINT": "`tinyint`, `smallint`, `int`, `bigint`, `varint`",
    "SMALLINT": "`smallint`, `int`, `bigint`, `varint`",
    "INT": "`int`, `bigint`, `varint`",
    "BIGINT": "`bigint`, `varint`",
    "FLOAT": "`float`, `double`",
    "DOUBLE": "`double`",
    "DECIMAL": "`decimal`",
    "STRING": "`text`",
    "BINARY": "`blob`",
    "DATE": "`date`",
    "TIME": "`time`",
    "TIMESTAMP": "`timestamp`, whole milliseconds; `bigint`, microseconds since 1970",
    "TIMESTAMP_NTZ": "`text`",
    "ARRAY of these up to BINARY": "`frozen<list<...>>`",
    "MAP of these up to BINARY": "`frozen<map<..., ...>>`",
    "other ARRAY and MAP, STRUCT": "`text`, JSON",
    "any": "`text`, as in JSON without quotes",
}
"""The documented types for each type of column; tables created by a sink have the first."""
_MICROS: Final = 1000
"""Microseconds in a unit of ``timestamp``."""


def targets(type_: t.DataType) -> tuple[str, ...]:
    """Return Cassandra's types for a type of column; new tables have the first."""
    match type_:
        case t.ArrayType() if type(type_.elementType) in _PLAIN:
            return (f"frozen<list<{targets(type_.elementType)[0]}>>", "text")
        case t.MapType() if type(type_.keyType) in _PLAIN and type(type_.valueType) in _PLAIN:
            key, value = targets(type_.keyType)[0], targets(type_.valueType)[0]
            return (f"frozen<map<{key}, {value}>>", "text")
    return (*_PLAIN.get(type(type_), ()), *_TIMES.get(type(type_), ()), "text")


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of the rows, with the name and type of its column in Cassandra's table."""

    column: Column
    name: str
    target: str

    def written(self, values: Any) -> list[Any]:
        """Convert an Arrow column into the client's values."""
        match self.column.type:
            case _ if self.target == "text":
                return text_column(values).to_pylist()  # type: ignore[no-any-return]
            case t.TimestampType():
                each = _MICROS if self.target == "timestamp" else 1
                micros = values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                return [None if v is None else v // each for v in micros.to_pylist()]
            case t.DateType():
                days = values.cast(pa.int32()).to_pylist()
                return [None if day is None else day + _DAYS for day in days]
            case t.TimeType():
                return values.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
        return values.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]

    def refused(self, values: Any) -> tuple[str, list[int]] | None:
        """Return why some values cannot be written, and their indices; None if all can."""
        if self.target == "timestamp":
            micros = values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            whole = pc.multiply(pc.divide(micros, _MICROS), _MICROS)
            places = pc.indices_nonzero(pc.not_equal(micros, whole)).to_pylist()
            why = f'column "{self.name}" has whole milliseconds, and this is finer'
            return (why, places) if places else None
        if self.target.startswith("frozen") and any(map(_has_null_inside, _chunks(values))):
            listed = values.to_pylist(maps_as_pydicts="strict")
            inner = [v.values() if isinstance(v, dict) else v or () for v in listed]
            why = f'column "{self.name}" has no NULL within a value'
            return why, [at for at, each in enumerate(inner) if None in each]
        return None

    def read(self, values: Sequence[Any]) -> pa.Array:
        """Convert values of the client into an Arrow array of the column's type."""
        target = to_arrow(self.column.type)
        match self.column.type:
            case _ if self.target == "text":
                return values_of(pa.array(values, pa.string()), self.column)
            case t.TimestampType() if self.target == "timestamp":
                return pa.array(values, pa.timestamp("us")).cast(target)
            case t.TimestampType():
                return pa.array(values, pa.int64()).cast(target)
            case t.DateType():
                days = [None if v is None else v.days_from_epoch for v in values]
                return pa.array(days, pa.int32()).cast(target)
            case t.TimeType():
                return pa.array([None if v is None else v.nanosecond_time for v in values], target)
            case t.ArrayType():
                return pa.array([None if v is None else list(v) for v in values], target)
            case t.MapType():
                return pa.array([None if v is None else list(v.items()) for v in values], target)
        return pa.array(values, target)


def _chunks(values: Any) -> list[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _has_null_inside(values: pa.Array) -> bool:
    inner = values.items if pa.types.is_map(values.type) else values.flatten()
    return bool(inner.null_count)
