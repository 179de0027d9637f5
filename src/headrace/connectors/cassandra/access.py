"""Access to a Cassandra cluster: options, connecting, and the translation of errors."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.login import StoreLogin
from headrace.connectors.options import Alters, option
from headrace.errors import Code, HeadraceError
from headrace.formats.libraries import library as optional

if TYPE_CHECKING:
    from collections.abc import Callable

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
