"""Reaching a Cassandra cluster: the options of a connection, sessions, and errors as ours."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.login import Login
from headrace.connectors.options import Alters, option
from headrace.errors import Code, HeadraceError
from headrace.formats.libraries import library as optional

if TYPE_CHECKING:
    from collections.abc import Callable

_CONNECT_SECONDS: Final = 5
_ANSWER_SECONDS: Final = 20
_PAGE_ROWS: Final = 5_000

# What the client warns of, such as a version that it tries, is for those who ask for its log.
logging.getLogger("cassandra").addHandler(logging.NullHandler())


class Consistency(StrEnum):
    """How many replicas acknowledge a write, in Cassandra's words."""

    ONE = "one"
    TWO = "two"
    THREE = "three"
    QUORUM = "quorum"
    ALL = "all"
    LOCAL_QUORUM = "local_quorum"
    EACH_QUORUM = "each_quorum"
    LOCAL_ONE = "local_one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(Login):
    """How a cluster is reached: some of its nodes, with commas."""

    hosts: str = option("hosts", "host", "contact points", "contact_points", alters=Alters.ADDRESS)
    port: int = option("port", default=9042, alters=Alters.ADDRESS)
    datacenter: str | None = option(
        "datacenter", "local datacenter", "local_datacenter", default=None, alters=Alters.FREELY
    )

    @property
    def place(self) -> str:
        """The cluster, as messages name it."""
        return f"{self.hosts}:{self.port}"


@dataclass(frozen=True, slots=True)
class Session:
    """An open session of a cluster, whose tables ``metadata`` knows."""

    cluster: Any
    session: Any

    @property
    def metadata(self) -> Any:
        """The keyspaces and their tables."""
        return self.cluster.metadata

    def close(self) -> None:
        """Close all connections."""
        self.cluster.shutdown()


def connected(
    access: Access,
    secret: Callable[[str], str],
    consistency: Consistency = Consistency.LOCAL_QUORUM,
) -> Session:
    """Open a session; ``secret`` returns the value of a secret.

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
    return Session(cluster, session)


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the cluster cannot be reached; see :func:`connected`."""
    connected(access, secret).close()


def failure(error: Exception, access: Access) -> HeadraceError:
    """Return an error of the client as one of ours: ``invalid`` if somebody has to mend it."""
    if isinstance(error, HeadraceError):
        return error
    all_ = library("cassandra")
    inner = next(iter(getattr(error, "errors", {}).values()), error)
    if not isinstance(inner, Exception):
        inner = error
    said = " ".join(str(inner).split()).rstrip(".") or type(inner).__name__
    code, what = Code.UNAVAILABLE, "did not do what it was asked for"
    hint = "It is tried again; remove the cause that it names."
    if isinstance(inner, all_.AuthenticationFailed | all_.Unauthorized):
        code, what = Code.INVALID, "refused the user"
        hint = "Correct the connection's user and password, or what the user may do."
    elif isinstance(inner, all_.InvalidRequest):
        code, what = Code.INVALID, "refused what it was asked for"
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
